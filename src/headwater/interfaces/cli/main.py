"""`headwater` (short: `hw`). Commands are grouped by file; each imports what it needs when it runs, so that
`--help` answers at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.app.telemetry import shutdown
from headwater.base.crash import arm_driver
from headwater.base.errors import Exit, HeadwaterError, as_headwater
from headwater.interfaces.cli import (
    apply,
    context,
    deadletters,
    demand,
    doctor,
    ingest,
    init,
    pipeline,
    query,
    schema,
    serve,
    simulate,
    why,
)
from headwater.interfaces.cli.output import Interrupted, answer, say, show_error

app = typer.Typer(
    name="headwater",
    help="Keeps data fresh on demand: declared pipeline, moved by Spark, landed once in plain Parquet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(context: typer.Context, asked: bool) -> None:
    as_json = context.params["json_"]
    if asked and as_json:
        from headwater.app.doctor import versions

        answer(versions())
    elif asked:
        from headwater import __version__

        typer.echo(f"headwater {__version__}")
    elif as_json:
        raise typer.BadParameter("write `--json` after the command", ctx=context, param_hint="--json")
    if asked:
        raise typer.Exit


@app.callback()
def headwater(
    context_: typer.Context,
    project: Annotated[
        Path | None, typer.Option("--project", help="The project's directory (default: here, or any parent).")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", is_eager=True, help="With --version: one JSON object.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, help="Print the version and end.")
    ] = False,
) -> None:
    context_.obj = project or Path.cwd()


for command in (
    *(init.init, init.demo, apply.plan, apply.apply, apply.run, query.validate, query.status, query.query),
    *(ingest.ingest, deadletters.deadletters, serve.serve, serve.worker),
    *(demand.tap, demand.pulse, demand.wave, demand.tide, demand.clear, why.why, why.runs, why.logs, simulate.simulate),
):
    app.command()(command)
for name, group in {
    "ledger": ingest.ledger,
    "trigger": demand.trigger,
    "schema": schema.app,
    "context": context.app,
    "pipeline": pipeline.app,
    "doctor": doctor.app,
}.items():
    app.add_typer(group, name=name)


def run() -> None:
    """Entry point: every error becomes one message and one exit code, never a traceback for a user's mistake."""
    atexit.register(_end_quickly)
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    arm_driver()
    as_json = "--json" in arguments
    try:
        code = app(arguments, standalone_mode=False, prog_name="headwater")
        if code == Exit.INTERRUPTED:  # typer's exit code for a Ctrl-C, without a message
            return _interrupted()
        return int(code) if isinstance(code, int) else Exit.DONE
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except Interrupted as error:
        return _interrupted(str(error))
    except typer.TyperException as error:
        return _usage(error, as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except Exception as error:
        if not isinstance(error, HeadwaterError) and os.environ.get("HEADWATER_DEBUG"):
            raise
        wrapped = as_headwater(error)
        show_error(wrapped, as_json=as_json)
        return wrapped.exit_code
    finally:
        shutdown()


def _end_quickly() -> None:
    """Python collects garbage when it ends, which takes a third of the time of a short command. It is skipped, unless
    DuckDB is loaded: its binding reports leaks otherwise."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def _interrupted(hint: str = "run the same command again to go on") -> int:
    say(f"interrupted; {hint}")
    return Exit.INTERRUPTED


def _usage(error: typer.TyperException, *, as_json: bool) -> int:
    context_: typer.Context | None = getattr(error, "ctx", None)
    message = error.format_message()
    if context_ is not None and message == context_.get_help():  # no command was given: that is no error
        say(message)
        return Exit.USAGE
    command = context_.command_path if context_ is not None else "headwater"
    wrapped = HeadwaterError("HW-U01", message, hint=f"`{command} --help` shows how it is called")
    show_error(wrapped, as_json=as_json)
    return Exit.USAGE

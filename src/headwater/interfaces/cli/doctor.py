"""doctor, doctor crash-points."""

from __future__ import annotations

import typer

from headwater.base.errors import Exit
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import JsonOption, answered, show, table

app = typer.Typer()


@app.callback(invoke_without_command=True)
def doctor(context: typer.Context, json_: JsonOption = False) -> int:
    """Check what Headwater needs on this machine: one line each, with a verdict and a hint."""
    if context.invoked_subcommand is not None:
        return Exit.DONE

    checks = operations.doctor.examine(context.obj)
    healthy = all(check.verdict != "problem" for check in checks)
    if not answered(json_, {"ok": healthy, "checks": checks}):
        for check in checks:
            hint = f"; {check.hint}" if check.hint else ""
            show(f"{check.verdict:<8} {check.name}: {check.message}{hint}")
    return Exit.DONE if healthy else Exit.FAILED


@app.command("crash-points")
def crash_points(json_: JsonOption = False) -> None:
    """The places where a test can kill the process (HEADWATER_CRASH_AT)."""
    from headwater.base.crash import POINTS

    if not answered(json_, {"crash_points": POINTS}):
        show(table(("name", "what is true there"), list(POINTS.items())))

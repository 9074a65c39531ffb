"""init, demo."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.faces.cli.output import JsonOption, answer, say, table

DirectoryArgument = Annotated[Path, typer.Argument(metavar="[DIR]")]


def register(app: typer.Typer) -> None:
    app.command()(init)
    app.command()(demo)


def init(directory: DirectoryArgument = Path(), json_: JsonOption = False) -> None:
    """Write a project that applies as it is."""
    from headwater.app import projects

    written = projects.init(directory)
    if json_:
        answer({"written": written})
        return
    for path in written:
        typer.echo(path)
    here = "" if directory == Path() else f"cd {directory} && "
    say(f"next: {here}headwater plan, then headwater apply")


def demo(directory: DirectoryArgument = Path("headwater-demo"), json_: JsonOption = False) -> int:
    """Write the demo project, apply it, and ask it a question."""
    from headwater.app import applying, projects
    from headwater.app.querying import reader
    from headwater.app.workspace import workspace
    from headwater.faces.cli.progress import progress
    from headwater.store.read import run_query

    if not projects.is_demo(directory):
        projects.write_demo(directory)
    say(f"the demo project is in {directory}/")
    with workspace(directory) as opened:
        with progress() as shown:
            result = applying.apply(opened, on_event=shown.on_event)
        for pipeline in result.pipelines:
            if pipeline.error is not None:
                raise pipeline.error
        with reader(opened) as session:
            found = run_query(session, projects.DEMO_QUESTION)
            columns, rows = list(found.columns), list(found.rows())
    if json_:
        answer({"directory": directory, "pipelines": [p.as_json() for p in result.pipelines], "rows": rows})
        return result.exit_code
    landed = sum(p.rows for p in result.pipelines)
    say(f"landed {landed:,} rows" if result.changed else "nothing new to land")
    typer.echo("")
    typer.echo(projects.DEMO_QUESTION)
    typer.echo("")
    typer.echo(table(columns, rows))
    typer.echo("")
    program = f"{_program()} --project {directory}"
    typer.echo("Try next:")
    typer.echo(f"  {program} status")
    typer.echo(f"  {program} query \"SELECT items->0->>'good' AS good, count(*) FROM orders GROUP BY 1\"")
    typer.echo(f"  {program} plan")
    return result.exit_code


def _program() -> str:
    """How a reader can call this program from where they stand: `make demo` puts nothing on PATH."""
    return "headwater" if shutil.which("headwater") else sys.argv[0]

"""validate, status, query."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwater.base.errors import HeadwaterError
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    JsonOption,
    PipelinesArgument,
    age_text,
    answer,
    answered,
    bad_rows_text,
    count_text,
    on_project,
    opened_project,
    say,
    show,
    size_text,
    table,
)

if TYPE_CHECKING:
    import duckdb


Format = Literal["table", "json", "csv", "parquet"]


def validate(context: typer.Context, json_: JsonOption = False) -> None:
    """Check every manifest file and show all errors; list the parts that have no effect yet."""
    project = operations.workspace.check_project(context.obj)
    if json_:
        parts = [
            {"place": str(part.position), "what": part.what, "pipeline": part.pipeline} for part in project.unsupported
        ]
        answer({"ok": True, "pipelines": len(project.pipelines), "unsupported": parts, "warnings": project.warnings})
        return
    for warning in project.warnings:
        say(f"warning: {warning}")
    for part in project.unsupported:
        show(f"{part.position}: not supported yet: {part.what}")
    say(f"{count_text(len(project.pipelines), 'pipeline')}, no error")


def status(context: typer.Context, pipelines: PipelinesArgument = None, json_: JsonOption = False) -> None:
    """The state, freshness and rows of all pipelines, or of some, with their last runs."""
    found = on_project(context, operations.status.status, pipelines or [])
    if answered(json_, {"pipelines": found}):
        return
    rows: list[list[object]] = []
    for p in found:
        stored = sum(info.stored_rows for info in p.tables)
        size = size_text(sum(info.bytes for info in p.tables))
        names = ", ".join(info.name for info in p.tables)
        rows.append([p.pipeline, p.state, age_text(p.staleness_seconds), _asked(p), names or None, stored, size])
    show(table(("pipeline", "state", "staleness", "demand", "tables", "stored rows", "size"), rows))
    for p in found:
        if p.error is not None:
            show(f"{p.pipeline}: {p.error}")
        for name, count in p.bad_rows.items():
            show(f"{p.pipeline}: {bad_rows_text(name, count)}")
    for p in found if pipelines else []:
        if p.next_window is not None:
            show(f"{p.pipeline}: the next window of its source opens at {p.next_window}")
        show(f"\nruns of {p.pipeline}")
        columns = ("run", "started", "state", "seconds", "rows", "size", "asked by", "actor", "error")
        lines = [
            [r.short_id, r.started_at, r.state, r.seconds, r.rows, size_text(r.bytes), r.trigger, r.actor]
            + [r.error["message"] if r.error is not None else None]
            for r in p.runs
        ]
        show(table(columns, lines))


def _asked(status: Any) -> str | None:
    """The triggers of a pipeline, and whether it is asked to run now."""
    is_asked = status.demand and status.state != "idle"  # a wave keeps asking while there is nothing new
    return ", ".join([*status.triggers, *(["asked"] if is_asked else [])]) or None


def query(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="Without it: interactive.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How rows are written.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    as_of: Annotated[int | None, typer.Option("--as-of", metavar="SEQ", help="Read as of a commit.")] = None,
    json_: JsonOption = False,
) -> None:
    """DuckDB over the store, read-only. `headwater.tables` lists the tables."""
    from headwater.interfaces.cli.write_rows import write_rows

    chosen = "json" if json_ else format_
    if sql is None and not sys.stdin.isatty():
        sql = sys.stdin.read()
    with opened_project(context) as opened, operations.query.reader(opened, as_of=as_of, sql=sql) as session:
        if sql is None:
            _interactive(session, chosen)
        else:
            write_rows(session, sql, chosen, output)


def _interactive(session: duckdb.DuckDBPyConnection, format_: Format) -> None:
    """One statement at a time; a line that ends with `;` ends it."""
    from headwater.interfaces.cli.write_rows import write_rows

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives input() history and editing)
    say("DuckDB over the store, read-only. End a statement with `;`, leave with Ctrl-D. `FROM headwater.tables;`")
    pending = ""
    while True:
        try:
            line = input("headwater> " if not pending else "        -> ")
        except EOFError:
            say()
            return
        pending += line + "\n"
        if pending.strip() and line.rstrip().endswith(";"):
            try:
                write_rows(session, pending, format_, None)
            except HeadwaterError as error:
                say(error.render())
            pending = ""

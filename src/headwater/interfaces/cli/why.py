"""why, runs, logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from headwater.base.errors import error_of
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    JsonOption,
    PipelineArgument,
    answered,
    bad_rows_text,
    on_project,
    seconds_text,
    show,
    size_text,
    table,
)


def why(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Why a pipeline runs, waits, is blocked or is idle."""
    found = on_project(context, operations.why_runs_logs.why, pipeline)
    if answered(json_, vars(found)):
        return
    show(f"{found.pipeline}: {found.state}")
    show(found.sentence)
    for origin in found.origins:
        triggers = f" ({', '.join(origin['triggers'])})" if origin["triggers"] else ""
        if origin["pipeline"] != pipeline or triggers:
            show(f"  demanded by {origin['pipeline']}{triggers}")
    if found.error is not None:
        show("  " + error_of(found.error).render().replace("\n", "\n  "))


def runs(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Argument(metavar="PIPELINE")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, the newest first.")] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="RUN", help="Only those older than this.")] = None,
    json_: JsonOption = False,
) -> None:
    """The newest runs, of all pipelines or of one."""
    found = on_project(context, operations.why_runs_logs.runs, pipeline=pipeline, limit=limit, before=before)
    if answered(json_, {"runs": found}):
        return
    columns = ("run", "pipeline", "state", "started", "seconds", "rows", "size", "asked by", "error")
    rows = [
        [r.short_id, r.pipeline, r.state, r.started_at, r.seconds, r.rows, size_text(r.bytes), r.trigger]
        + [_words(r.error)]
        for r in found
    ]
    show(table(columns, rows))
    for r in found:
        for name, count in r.bad_rows.items():
            show(f"{r.short_id}: {bad_rows_text(name, count)}")


def logs(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|PIPELINE",
            help="A run's id, or its beginning or end; or a pipeline, for its newest run.",
        ),
    ],
    json_: JsonOption = False,
) -> None:
    """Everything about one run: what asked for it, its jobs, its events, its error."""
    found = on_project(context, operations.why_runs_logs.newest_log, run)
    if answered(json_, vars(found)):
        return
    r = found.run
    took = f" in {seconds_text(r.seconds)}" if r.seconds is not None else ""
    if r.spark_start_seconds:
        took += f" (after Spark had started in {seconds_text(r.spark_start_seconds)})"
    show(f"{r.pipeline} {r.run_id}: {r.state}{took}, {r.rows} rows, asked by {r.trigger} ({r.actor})")
    show(f"as fresh as {r.freshness}")
    columns = ("job", "state", "attempt", "started", "seconds", "rows", "size", "worker", "error")
    rows = [
        [j.ripple, j.state, j.attempt, j.started_at, j.seconds, j.rows, size_text(j.bytes), j.holder, _words(j.error)]
        for j in found.jobs
    ]
    show(table(columns, rows))
    for line in found.lines:
        what = ", ".join(f"{key} {value}" for key, value in line.what.items() if key != "freshness")
        show(f"{line.at} {line.event}" + (f" {what}" if what else ""))
    for name, count in r.bad_rows.items():
        show(bad_rows_text(name, count))
    for said in found.output:
        if said.output:
            show(f"output of {said.ripple}:\n{_indented(said.output)}")
        if said.exception:
            lines = f"{_indented(said.traceback)}\n" if said.traceback else ""
            show(f"{said.ripple} raised:\n{lines}{_indented(said.exception)}")
    if r.error is not None:
        show(error_of(r.error).render())


def _indented(text: str) -> str:
    return "  " + text.rstrip("\n").replace("\n", "\n  ")


def _words(error: Mapping[str, Any] | None) -> str | None:
    return f"{error['code']}: {error['message']}" if error is not None else None

"""status: what is, pipeline by pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.app.workspace import Workspace
from headwater.base.clock import now_us, to_text
from headwater.manifest.load import LoadedPipeline
from headwater.store.engine_records import JobState
from headwater.store.engine_state import load_engine
from headwater.store.info import table_infos
from headwater.store.jobs import jobs
from headwater.store.reading import (
    CatalogView,
    TableInfo,
    catalog_view,
    freshness_by_pipeline,
    runs,
    table_states,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

RUNS_SHOWN = 10
"""How many runs the status of one pipeline lists."""
FAILED: tuple[JobState, ...] = ("failed",)


@dataclass(frozen=True)
class RunStatus:
    run_id: str
    state: str
    trigger: str
    actor: str
    started_at: str
    seconds: float | None
    rows: int
    bytes: int
    error: str | None


@dataclass(frozen=True)
class PipelineStatus:
    """`state`: new (never run), idle, interrupted (a run was left open: apply goes on with it), failed, partial,
    blocked (what it reads has failed). `error` is that of the newest failure that has not been made up for.
    `staleness_seconds` is the age of the freshness: how long ago the newest complete look at the source began."""

    pipeline: str
    state: str
    freshness: str | None
    staleness_seconds: float | None
    units_pending: int
    tables: tuple[TableInfo, ...]
    runs: tuple[RunStatus, ...]
    error: str | None = None


def status(workspace: Workspace, pipelines: Sequence[str] = ()) -> list[PipelineStatus]:
    """The named pipelines, or all. Reads only the catalog."""
    project = workspace.project
    chosen = [project.pipeline(name) for name in pipelines] if pipelines else list(project.pipelines)
    store = workspace.existing_store()
    view, infos, freshness = CatalogView(seq=0), [], {}
    held: dict[str, tuple[str, str | None]] = {}
    history: dict[str, list[dict[str, Any]]] = {}
    if store is not None:
        with store.catalog.snapshot() as connection:
            view = catalog_view(connection)
            freshness = freshness_by_pipeline(connection)
            infos = table_infos(table_states(connection), freshness)
            limit = RUNS_SHOWN if pipelines else 1
            held = _held_back(connection)
            history = {p.spec.id: runs(connection, pipeline=p.spec.id, limit=limit) for p in chosen}
    parts = {u.pipeline for u in project.unsupported}
    found = [
        _status(p, view, infos, freshness.get(p.spec.id), history.get(p.spec.id, []), blocked=p.spec.id in parts)
        for p in chosen
    ]
    return [
        replace(one, state=held[one.pipeline][0], error=held[one.pipeline][1]) if one.pipeline in held else one
        for one in found
    ]


def _held_back(connection: Connection) -> dict[str, tuple[str, str | None]]:
    """The pipelines that the engine holds for failed or blocked, and the error of the last job that failed."""
    held: dict[str, tuple[str, str | None]] = {}
    for name, record in load_engine(connection).ponds.items():
        if record["failed"]:
            failed = jobs(connection, pond=name, states=FAILED, limit=1)
            error = failed[0].error if failed else None
            held[name] = "failed", str(error["message"]) if error is not None else None
        elif record["blocked"]:
            held[name] = "blocked", None
    return held


def _status(
    loaded: LoadedPipeline,
    view: CatalogView,
    infos: list[TableInfo],
    freshness_us: int | None,
    history: list[dict[str, Any]],
    *,
    blocked: bool,
) -> PipelineStatus:
    name = loaded.spec.id
    open_run = view.open_runs.get(name)
    last = view.last_runs.get(name)
    if open_run is not None:
        state = "interrupted"
    elif last is None:
        state = "unsupported" if blocked else "new"
    else:
        state = "idle" if last["state"] in ("success", "superseded") else str(last["state"])
    return PipelineStatus(
        pipeline=name,
        state=state,
        freshness=to_text(freshness_us) if freshness_us is not None else None,
        staleness_seconds=(now_us() - freshness_us) / 1e6 if freshness_us is not None else None,
        units_pending=open_run.pending if open_run is not None else 0,
        tables=tuple(info for info in infos if info.pipeline == name),
        runs=tuple(_run(record) for record in history),
    )


def _run(record: dict[str, Any]) -> RunStatus:
    ended = record["ended_us"]
    return RunStatus(
        run_id=record["run_id"],
        state=record["state"],
        trigger=record["trigger_kind"],
        actor=record["actor"],
        started_at=to_text(record["started_us"]),
        seconds=(ended - record["started_us"]) / 1e6 if ended is not None else None,
        rows=record["rows"],
        bytes=record["bytes"],
        error=record["error_message"],
    )

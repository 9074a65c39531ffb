"""status: the state of each pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.catalog.dead_letters import count_dead_letters
from headwater.catalog.engine_state import load_engine
from headwater.catalog.history import PondRun, newest_runs, pond_runs, short_ids
from headwater.catalog.lease import engine_owner
from headwater.catalog.lookup import OpenRun, TableSize, freshness_by_pipeline, open_runs, table_sizes
from headwater.catalog.queue import last_error
from headwater.catalog.standing_triggers import Standing, standing
from headwater.freshness.explain import PondState, pond_states
from headwater.freshness.saving import load
from headwater.manifest.checks import LoadedPipeline
from headwater.observe.tracing import trace_id_of

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class RunStatus:
    """A run of a pipeline. `short_id` is the end of its id, enough to name it; `trigger` is the command or trigger that
    asked for it; `actor` is the user."""

    run_id: str
    short_id: str
    pipeline: str
    state: str
    trigger: str
    actor: str
    freshness: str
    started_at: str
    seconds: float | None
    """How long it ran, without the wait for a worker and the start of Spark."""
    rows: int
    bytes: int
    error: Mapping[str, Any] | None
    trace_id: str | None = None
    spark_start_seconds: float = 0.0
    """How long it waited for Spark to start."""
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """The bad rows that it kept as dead letters, by table; only for runs of the last day."""


@dataclass(frozen=True)
class PipelineStatus:
    """`state`: new (never asked for), idle (also under a Wave that finds nothing new), queued (asked for, and waits),
    running, interrupted (a run was left open and no process runs the engine: apply or serve continues it), failed,
    blocked (a pipeline that it reads has failed), unsupported. `error` is that of the failure. `freshness` is a lower
    bound: every row that its sources had then has landed; `staleness_seconds` is its age. `demand` says what it is
    asked for: `pull`, or the freshness of each target. `bad_rows` are those that are kept as dead letters, by table."""

    pipeline: str
    state: str
    freshness: str | None
    staleness_seconds: float | None
    units_pending: int
    tables: tuple[TableSize, ...]
    runs: tuple[RunStatus, ...]
    error: str | None = None
    demand: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    failures: int = 0
    next_window: str | None = None
    bad_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _Known:
    """What the catalog knows, from one snapshot."""

    engine: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    states: Mapping[str, PondState] = field(default_factory=dict)
    served: bool = False
    sizes: Sequence[TableSize] = ()
    landed: Mapping[str, int] = field(default_factory=dict)
    open_runs: Mapping[str, OpenRun] = field(default_factory=dict)
    runs: Mapping[str, Sequence[PondRun]] = field(default_factory=dict)
    short_ids: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    standing: Sequence[Standing] = ()
    letters: Mapping[str, int] = field(default_factory=dict)


def status(workspace: Workspace, pipelines: Sequence[str] = ()) -> list[PipelineStatus]:
    """The status of the named pipelines, or of all. Reads only the catalog."""
    project = workspace.project
    chosen = [project.pipeline(name) for name in pipelines] if pipelines else list(project.pipelines)
    names = [loaded.spec.id for loaded in chosen] if pipelines else None
    known = workspace.read(lambda connection: _known(connection, names)) or _Known()
    unsupported = {part.pipeline for part in project.unsupported}
    tables: dict[str, list[TableSize]] = {}
    for size in known.sizes:
        tables.setdefault(size.pipeline, []).append(size)
    return [
        _status(loaded, known, tables.get(loaded.spec.id, []), unsupported=loaded.spec.id in unsupported)
        for loaded in chosen
    ]


def run_status(run: PondRun, short_id: str, bad_rows: Mapping[str, int] | None = None) -> RunStatus:
    return RunStatus(
        run_id=run.run_id,
        short_id=short_id,
        pipeline=run.pond,
        state=run.state,
        trigger=run.cause,
        actor=run.actor,
        freshness=to_text(run.freshness_us),
        started_at=to_text(run.started_us),
        seconds=run.took_us / 1e6 if run.took_us is not None else None,
        spark_start_seconds=run.spark_start_us / 1e6,
        rows=run.rows,
        bytes=run.bytes,
        error=run.error,
        trace_id=trace_id_of(run.trace_id),
        bad_rows=bad_rows or {},
    )


def _known(connection: Connection, names: Sequence[str] | None) -> _Known:
    saved = load_engine(connection)
    engine = saved.ponds
    owner = engine_owner(connection)
    errors = {name: last_error(connection, name) for name, record in engine.items() if record["failed"]}
    if names is None:
        runs: Mapping[str, Sequence[PondRun]] = {name: [run] for name, run in newest_runs(connection).items()}
    else:
        runs = {name: pond_runs(connection, pond=name, limit=limits.RUNS_SHOWN) for name in names}
    return _Known(
        engine=engine,
        states={} if saved.header is None else pond_states(load((), {**saved.header, "ponds": engine})),
        served=owner is not None,
        sizes=table_sizes(connection),
        landed=freshness_by_pipeline(connection),
        open_runs=open_runs(connection),
        runs=runs,
        short_ids=short_ids(connection, [run.run_id for each in runs.values() for run in each]),
        errors={name: str(error["message"]) for name, error in errors.items() if error is not None},
        standing=standing(connection),
        letters=count_dead_letters(connection),
    )


def _status(loaded: LoadedPipeline, known: _Known, tables: Sequence[TableSize], *, unsupported: bool) -> PipelineStatus:
    name = loaded.spec.id
    record = known.engine.get(name)
    open_run = known.open_runs.get(name)
    freshness_us = known.landed.get(name)
    delay_us = 0
    if record is not None and record["end_f"] is not None:
        freshness_us, delay_us = record["end_f"], record["delay_end"]
    state = _state(
        known.states.get(name),
        never_asked=record is None or (record["end_f"] is None and not record["pull"]),
        served=known.served,
        has_open_run=open_run is not None,
        has_landed=name in known.landed,
    )
    if state == "new" and unsupported:
        state = "unsupported"
    return PipelineStatus(
        pipeline=name,
        state=state,
        freshness=to_text(freshness_us) if freshness_us is not None else None,
        staleness_seconds=(now_us() - freshness_us + delay_us) / 1e6 if freshness_us is not None else None,
        units_pending=open_run.pending if open_run is not None else 0,
        tables=tuple(tables),
        runs=tuple(run_status(run, known.short_ids[run.run_id]) for run in known.runs.get(name, ())),
        error=known.errors.get(name),
        demand=_demand(record),
        triggers=_triggers(loaded, known.standing),
        failures=record["failures"] if record is not None else 0,
        next_window=_next_window(loaded),
        bad_rows={name: known.letters[name] for name in _tables(loaded, tables) if name in known.letters},
    )


def _tables(loaded: LoadedPipeline, tables: Sequence[TableSize]) -> list[str]:
    """The tables that it has, and those that it may get: bad rows may come before good ones."""
    return list(dict.fromkeys([*(table.name for table in tables), *(table.table for table in loaded.spec.tables)]))


def _state(
    in_engine: PondState | None, *, never_asked: bool, served: bool, has_open_run: bool, has_landed: bool
) -> str:
    """The engine's state, or what is known without it: a rebuilt catalog has none of the engine's records."""
    match in_engine:
        case None:
            return "interrupted" if has_open_run else ("idle" if has_landed else "new")
        case "failed" | "blocked":
            return in_engine
        case "running" | "queued" | "idle":
            if in_engine == "running" or has_open_run:
                return "running" if served else "interrupted"
            return "new" if in_engine == "idle" and never_asked else in_engine


def _demand(record: Mapping[str, Any] | None) -> tuple[str, ...]:
    if record is None:
        return ()
    return (*(["pull"] if record["pull"] else []), *(to_text(target) for target in record["targets"]))


def _triggers(loaded: LoadedPipeline, standing_: Sequence[Standing]) -> tuple[str, ...]:
    """The triggers of a pipeline, by the manifest and by users."""
    mine = [each.trigger_id for each in standing_ if each.pond == loaded.spec.id]
    if loaded.spec.triggers or loaded.spec.schedule:
        from headwater.runtime.compile import triggers_of

        declared, crons = triggers_of(loaded.spec)
        mine = [*(trigger.id for trigger in declared), *(cron.id for cron in crons), *mine]
    return tuple(mine)


def _next_window(loaded: LoadedPipeline) -> str | None:
    """When the source may be read next; None if it always may, or may now."""
    if not loaded.spec.windows:
        return None
    from headwater.runtime.calendars import windows_of

    now = now_us()
    opens = next((start for start, end in windows_of(loaded.spec.windows, after_us=now) if end > now), None)
    return to_text(opens) if opens is not None and opens > now else None

"""What the engine did, for people and programs: its pond runs, its events with growing ids, what user code said in jobs,
and how long executions took.

Runs and events are written by the step that they are about, what user code said with the end of its job, and forgotten
with its run. They are a record, not the truth: the catalog's own runs say what has landed, a rebuild leaves these empty,
and no log holds them. What user code said is the user's own text and may hold values of rows; control characters in it
are kept as escapes (PostgreSQL takes no NUL).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, ScalarSelect, bindparam, delete, func, insert, literal, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.printable import printable_lines
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import SLICE_JOB, EngineEvent, JobOutput, RunBegins, RunState, Step
from headwater.catalog.statements import among, chosen, chunks, json_text

ID_LENGTH = 36
SHORT_ID = 8
"""So many characters of the end of a run's id are shown to people, unless two runs end so."""
_PART_OF_ID = re.compile(r"[0-9a-f-]{1,36}")


@dataclass(frozen=True, kw_only=True)
class PondRun(RunBegins):
    """One run of a pond, and how it went. `started_us` is when it was begun, and once it has ended when its first job was taken from the
    queue. `error` is that of its last job that failed. `changed`: a table is no longer what it was; `spark_start_us`: how
    long it waited for Spark to start, which is not its own time."""

    state: RunState
    started_us: int
    ended_us: int | None
    rows: int
    bytes: int
    error: Mapping[str, Any] | None
    spark_start_us: int
    changed: bool

    @property
    def took_us(self) -> int | None:
        """How long it ran, without the wait for a worker and without Spark's start; None while it runs."""
        return None if self.ended_us is None else max(0, self.ended_us - self.started_us - self.spark_start_us)


@dataclass(frozen=True, kw_only=True)
class StoredEvent(EngineEvent):
    """An event of the engine as a listener gets it."""

    id: int
    at_us: int


_RUNS = select(t.pond_run)
_BEGIN, _TELL = insert(t.pond_run), insert(t.engine_event)
_LAST_EVENT = select(func.max(t.engine_event.c.id))


def write_history(connection: Connection, step: Step) -> None:
    """Note what a step began, ended and tells, as part of its transaction."""
    now = now_us()
    if step.begun:
        nothing_yet = {"state": "running", "started_us": now, "rows": 0, "bytes": 0}
        connection.execute(_BEGIN, [{**vars(run), **nothing_yet} for run in step.begun])
    ended = [{"key": run.run_id, "end_state": run.state, "now": now} for run in step.ended if run.state is not None]
    if ended:
        connection.execute(_ended(), ended)
    for chunk in chunks([run.run_id for run in step.ended if run.state is None]):
        connection.execute(delete(t.pond_run).where(t.pond_run.c.run_id.in_(chunk)))
    if step.told:
        told = [{**vars(event), "at_us": now, "body": json_text(event.body)} for event in step.told]
        connection.execute(_TELL, told)


def pond_runs(
    connection: Connection,
    *,
    pond: str | None = None,
    states: Collection[RunState] | None = None,
    since_us: int | None = None,
    before: str | None = None,
    limit: int | None = limits.JOBS_SHOWN,
) -> list[PondRun]:
    """The newest first; with `before`, those older than that run; with `since_us`, those begun since then."""
    query = select(t.pond_run).order_by(t.pond_run.c.run_id.desc()).limit(limit)
    if pond is not None:
        query = query.where(t.pond_run.c.pond == pond)
    if since_us is not None:
        query = query.where(t.pond_run.c.started_us >= since_us)
    if before is not None:
        query = query.where(t.pond_run.c.run_id < before)
    return [_pond_run(row) for row in connection.execute(among(query, t.pond_run.c.state, states))]


def runs_of(connection: Connection, run_ids: Sequence[str]) -> list[PondRun]:
    """These runs, in the order in which they ended."""
    found: list[PondRun] = []
    for chunk in chunks(run_ids):
        found += [_pond_run(row) for row in chosen(connection, _RUNS, t.pond_run.c.run_id, chunk)]
    return sorted(found, key=lambda run: (run.ended_us or 0, run_ids.index(run.run_id)))


def runs_like(connection: Connection, text: str, *, limit: int) -> list[PondRun]:
    """The run with that id; else the newest whose id begins or ends so."""
    text = text.lower()
    if not _PART_OF_ID.fullmatch(text):
        return []
    query = select(t.pond_run).order_by(t.pond_run.c.run_id.desc()).limit(limit)
    exact = connection.execute(query.where(t.pond_run.c.run_id == text)).first()
    if exact is not None:
        return [_pond_run(exact)]
    alike = t.pond_run.c.run_id.like(f"{text}%") | t.pond_run.c.run_id.like(f"%{text}")
    return [_pond_run(row) for row in connection.execute(query.where(alike))]


def short_ids(connection: Connection, run_ids: Collection[str]) -> dict[str, str]:
    """The end of each id, as short as no other run ends so. Ids of one minute begin alike; their ends are random."""
    ends = sorted({run_id[-SHORT_ID:] for run_id in run_ids})
    alike: dict[str, set[str]] = {}
    end = func.substr(t.pond_run.c.run_id, ID_LENGTH - SHORT_ID + 1)
    for chunk in chunks(ends):
        for (other,) in connection.execute(select(t.pond_run.c.run_id).where(end.in_(chunk))):
            alike.setdefault(other[-SHORT_ID:], set()).add(other)
    return {run_id: _short(run_id, alike.get(run_id[-SHORT_ID:], set())) for run_id in run_ids}


def _short(run_id: str, alike: Collection[str]) -> str:
    lengths = range(SHORT_ID, ID_LENGTH)
    others = [other for other in alike if other != run_id]
    found = (run_id[-n:] for n in lengths if not any(other.endswith(run_id[-n:]) for other in others))
    return next(found, run_id)


def newest_runs(connection: Connection) -> dict[str, PondRun]:
    """The newest run of every pond."""
    newest = select(func.max(t.pond_run.c.run_id)).group_by(t.pond_run.c.pond)
    rows = connection.execute(select(t.pond_run).where(t.pond_run.c.run_id.in_(newest)))
    return {row.pond: _pond_run(row) for row in rows}


def engine_events(
    connection: Connection, *, after: int = 0, run_id: str | None = None, limit: int = limits.EVENTS_PAGE
) -> list[StoredEvent]:
    """The events later than that id, oldest first."""
    query = select(t.engine_event).where(t.engine_event.c.id > after).order_by(t.engine_event.c.id).limit(limit)
    if run_id is not None:
        query = query.where(t.engine_event.c.run_id == run_id)
    rows = connection.execute(query).mappings()
    return [StoredEvent(**{**row, "body": msgspec.json.decode(row["body"])}) for row in rows]


def last_event_id(connection: Connection) -> int:
    """The id of the newest event; 0 if there is none."""
    return int(connection.execute(_LAST_EVENT).scalar() or 0)


def keep_output(connection: Connection, output: JobOutput, of: ColumnElement[bool]) -> None:
    """Note what user code said in a job, as part of a transaction."""
    said = [printable_lines(text) for text in (output.output, output.exception, output.traceback)]
    job = select(t.job.c.job_id, t.job.c.run_id, t.job.c.pond, t.job.c.ripple, *(literal(text) for text in said))
    names = ("job_id", "run_id", "pond", "ripple", "output", "exception", "traceback")
    connection.execute(insert(t.job_output).from_select(names, job.where(of)))


def outputs_of(connection: Connection, run_id: str) -> list[tuple[str, JobOutput]]:
    """What was said in the executions of a run, with the ripple of each, in the order of their jobs."""
    query = select(t.job_output).where(t.job_output.c.run_id == run_id).order_by(t.job_output.c.job_id)
    return [
        (row.ripple, JobOutput(output=row.output, exception=row.exception, traceback=row.traceback))
        for row in connection.execute(query)
    ]


def forget_outputs(connection: Connection, *, kept: int = limits.RUN_OUTPUTS_KEPT) -> int:
    """Drop what belongs to no run any more, and all but the newest of each pipeline; how many."""
    newest_first = func.row_number().over(partition_by=t.job_output.c.pond, order_by=t.job_output.c.job_id.desc())
    numbered = select(t.job_output.c.job_id, newest_first.label("number")).subquery()
    old = select(numbered.c.job_id).where(numbered.c.number > kept)
    gone = t.job_output.c.run_id.not_in(select(t.pond_run.c.run_id)) | t.job_output.c.run_id.is_(None)
    return connection.execute(delete(t.job_output).where(gone | t.job_output.c.job_id.in_(old))).rowcount


def measured_us(connection: Connection, ponds: Sequence[str]) -> dict[tuple[str, str], int]:
    """By pond and ripple, in microseconds, without the start of Spark: executions that found Spark running if there are
    any, for the first one in a new Spark is slow; and of those, the ones that landed something, for a scan of a source
    that finds nothing new says little of one that does. Ripples that were never executed are left out, and those whose
    jobs are forgotten: see `run_us`."""
    found: dict[tuple[str, str], int] = {}
    for pond in ponds:
        done = (t.job.c.pond == pond, t.job.c.state == "done", t.job.c.started_us.is_not(None))
        took = (t.job.c.ended_us - t.job.c.started_us - t.job.c.spark_start_us).label("took_us")
        warm, landed = t.job.c.spark_start_us == 0, t.job.c.landed_run_id.is_not(None)
        for kind in ((warm, landed), (~warm, landed), (warm, ~landed), (~warm, ~landed)):
            query = select(t.job.c.ripple, t.job.c.body, took).where(*done, *kind)
            by_ripple: dict[str, list[int]] = {}
            for row in connection.execute(query.order_by(t.job.c.job_id.desc()).limit(limits.MEASURED_JOBS)):
                ripples = [row.ripple] if row.ripple else msgspec.json.decode(row.body).get("ripples", [])
                for ripple in ripples:
                    times = by_ripple.setdefault(ripple, [])
                    if len(times) < limits.EXECUTIONS_MEASURED:
                        times.append(row.took_us)
            for ripple, times in by_ripple.items():
                found.setdefault((pond, ripple), max(0, int(median(times))))
    return found


def run_us(connection: Connection, pond: str) -> int | None:
    """The median of the newest runs of a pond, from begin to end without the start of Spark, of those that found Spark
    running if there are any; they are kept longer than their jobs."""
    done = (t.pond_run.c.pond == pond, t.pond_run.c.state == "success")
    took = t.pond_run.c.ended_us - t.pond_run.c.started_us - t.pond_run.c.spark_start_us
    warm = t.pond_run.c.spark_start_us == 0
    for kind in (warm, ~warm):
        query = select(took).where(*done, kind).order_by(t.pond_run.c.run_id.desc()).limit(limits.EXECUTIONS_MEASURED)
        times = [us for (us,) in connection.execute(query)]
        if times:
            return max(0, int(median(times)))
    return None


def forget_history(
    catalog: Catalog,
    *,
    retention_seconds: float = limits.RUN_RETENTION_SECONDS,
    events: int = limits.EVENTS_KEPT,
) -> int:
    """Drop runs that ended so long ago, and all but the newest events; how many rows."""
    with catalog.transaction(durable=False) as connection:
        old = t.pond_run.c.ended_us < now_us() - int(retention_seconds * 1e6)
        gone = connection.execute(delete(t.pond_run).where(old)).rowcount + forget_outputs(connection)
        last = last_event_id(connection)
        return gone + connection.execute(delete(t.engine_event).where(t.engine_event.c.id <= last - events)).rowcount


@cache
def _ended() -> Any:
    """Ends a run, with what its jobs came to: they are forgotten earlier than it is."""
    mine = (t.job.c.run_id == bindparam("key")) & (t.job.c.kind != SLICE_JOB)  # the job that planned slices counts them
    first = select(func.min(t.job.c.started_us)).where(mine)
    error = select(t.job.c.error).where(mine, t.job.c.state == "failed").order_by(t.job.c.job_id.desc()).limit(1)

    def of_jobs(total: ColumnElement[Any], *more: ColumnElement[bool]) -> ScalarSelect[Any]:
        return select(func.coalesce(total, 0)).where(mine, *more).scalar_subquery()

    return (
        update(t.pond_run)
        .where(t.pond_run.c.run_id == bindparam("key"))
        .values(
            state=bindparam("end_state"),
            started_us=func.coalesce(first.scalar_subquery(), t.pond_run.c.started_us),
            ended_us=bindparam("now"),
            rows=of_jobs(func.sum(t.job.c.rows)),
            bytes=of_jobs(func.sum(t.job.c.bytes)),
            error=error.scalar_subquery(),
            # Jobs of one run that wait for Spark wait for the same start.
            spark_start_us=of_jobs(func.max(t.job.c.spark_start_us)),
            changed=of_jobs(func.max(t.job.c.changed), t.job.c.state == "done"),
        )
    )


def _pond_run(row: Any) -> PondRun:
    error = None if row.error is None else msgspec.json.decode(row.error)
    return PondRun(**{**row._mapping, "error": error, "changed": bool(row.changed)})

"""Slices as jobs: how the stored plan of a run gets into the queue, slice by slice, and what its last slice ends.

The plan is data: `work_unit` has a row per slice, `run_table` counts them per table, and only commits write both. The
queue is not: of each table at most `SLICES_QUEUED` open slices are jobs at any time (one, where slices must land in
order), and the commit that ends one queues the next. So the queue, a claim and a commit are as small at 100,000 slices
as at 10, and the jobs of other pipelines take turns with them. A slice's job has the id of its unit.

The job that planned a run (its kind is `inlet`) waits while the slices land. The commit that ends the run ends that
job and tells the engine, or queues the job again if its source has to be looked at once more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, func, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import Conflict, HeadwaterError
from headwater.base.ids import RunId, UnitId
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import SLICE_JOB, InboxEvent, JobEnd, NewJob
from headwater.catalog.inbox import message, put
from headwater.catalog.lease import JOB, Lease
from headwater.catalog.queue import JobLease, claim_queued, end_job, new_row
from headwater.catalog.statements import among, json_text, upsert
from headwater.catalog.wakeups import notify
from headwater.freshness.events import Completed, Failed

_ALIKE = ("freshness_us", "weight", "run_id", "trace_id")
"""What the job of a slice has from the job that planned it."""


@dataclass(frozen=True)
class SliceLease:
    """A claimed slice: its job, and what the plan says of it. `fence` is what its commit must require."""

    unit_id: UnitId
    run_id: RunId
    pipeline: str
    table: str
    ordinal: int
    payload: dict[str, Any]
    attempt: int
    epoch: int
    definition: str = ""
    """Of the Inlet when the run was planned."""

    @property
    def fence(self) -> Lease:
        return Lease(kind=JOB, id=self.unit_id, attempt=self.attempt, epoch=self.epoch)


@dataclass(frozen=True)
class TableOfRun:
    """How far a run is with one table."""

    table: str
    slices: int
    pending: int
    done: int
    source_keys: int | None
    """The number of keys in the source, if all slices that are done knew the same."""


def slice_lease(connection: Connection, job: JobLease) -> SliceLease:
    """What the plan says of a claimed job."""
    planned = select(t.unit, t.run.c.definition).join(t.run, t.run.c.run_id == t.unit.c.run_id)
    row = connection.execute(planned.where(t.unit.c.unit_id == job.job_id)).one()
    return SliceLease(
        unit_id=UnitId(row.unit_id),
        run_id=RunId(row.run_id),
        pipeline=row.pipeline,
        table=row.table_name,
        ordinal=row.ordinal,
        payload=json.loads(row.payload),
        attempt=job.attempt,
        epoch=job.epoch,
        definition=row.definition,
    )


def tables_of_run(connection: Connection, run_id: str) -> list[TableOfRun]:
    c = t.run_table.c
    found = select(c.table_name, c.slices, c.pending, c.done, func.nullif(c.source_keys, -1)).where(c.run_id == run_id)
    return sorted((TableOfRun(*row) for row in connection.execute(found)), key=lambda each: each.table)


def done_slices(connection: Connection, run_id: str, table: str | None) -> list[tuple[str, str, dict[str, Any]]]:
    """The slices of a run (of one table of it) that have been done: pipeline, table, and what they were to do."""
    c = t.unit.c
    query = select(c.pipeline, c.table_name, c.payload).where(c.run_id == run_id, c.state == "done")
    query = among(query, c.table_name, None if table is None else [table]).order_by(c.table_name, c.ordinal)
    return [(row.pipeline, row.table_name, json.loads(row.payload)) for row in connection.execute(query)]


def join_run(catalog: Catalog, end: JobEnd, *, holder: str | None = None) -> JobLease | None:
    """A job waits for a run that was planned before it, and queues what is left of that, if no worker has it. Raises
    HW-T02 if the run has ended. A slice that `holder` has claimed thereby."""
    with catalog.transaction(durable=not catalog.is_sqlite) as connection:
        is_open = (t.run.c.run_id == end.landed_run_id) & t.run.c.ended_us.is_(None)
        if connection.execute(select(t.run.c.run_id).where(is_open).with_for_update()).first() is None:
            raise Conflict("HW-T02", "the run that was to go on has ended", retryable=True)
        return after_end(connection, end_job(connection, end), actor="", holder=holder)


def queue_slices(
    connection: Connection, run_id: str, like: Mapping[str, Any] | None = None, *, holder: str | None = None
) -> JobLease | None:
    """Queue the next slices of a run that are not in the queue, as jobs `like` that one. With a `holder`, the first of
    them is claimed by it at once, and returned."""
    found: list[Row[Any]] = []
    rows = connection.execute(select(t.run_table).where(t.run_table.c.run_id == run_id, t.run_table.c.pending > 0))
    for table in rows.all():
        found += _next(connection, table)
    found.sort(key=lambda unit: (unit.ordinal, unit.table_name))
    return _queue(connection, found, like or {}, holder)


def queue_open_slices(connection: Connection) -> None:
    """After a rebuild: queue the slices of all runs that are not over."""
    is_open = select(t.run_table.c.run_id).where(t.run_table.c.pending > 0)
    planned = select(t.run.c.run_id).where(t.run.c.run_id.in_(is_open), t.run.c.state != "planning")
    for (run_id,) in connection.execute(planned).all():
        queue_slices(connection, run_id)


def after_end(
    connection: Connection, job: Mapping[str, Any], *, actor: str, holder: str | None = None
) -> JobLease | None:
    """What follows from the end of a job, in its transaction: an Inlet that waits queues the slices of its run; a slice
    queues the next one, or ends the run. A job that `holder` has claimed thereby."""
    if job["state"] == "waiting":
        return queue_slices(connection, job["landed_run_id"], job, holder=holder)
    if job["kind"] != SLICE_JOB:
        return None
    run_id = str(job["landed_run_id"])
    _note_on_inlets(connection, run_id, job)
    if end_run(connection, run_id, actor=actor):
        return None
    mine = (t.run_table.c.run_id == run_id) & (t.run_table.c.table_name == job["ripple"])
    table = connection.execute(select(t.run_table).where(mine)).one()
    return _queue(connection, _next(connection, table, last_only=True), job, holder)


def end_run(connection: Connection, run_id: str, *, actor: str) -> bool:
    """If the run is over, end the jobs that wait for it and tell the engine; or queue them again, if the source moved
    under its slices, or if it was planned before such a job began."""
    run = connection.execute(select(t.run).where(t.run.c.run_id == run_id)).one()
    if run.ended_us is None:
        return False
    waiting = (t.job.c.state == "waiting") & (t.job.c.landed_run_id == run_id)
    for job in connection.execute(select(t.job).where(waiting).with_for_update()).all():
        body = msgspec.json.decode(job.body)
        error = None if job.error is None else msgspec.json.decode(job.error)
        superseded, replans, joined = run.state == "superseded", body.get("replans", 0), body.pop("joined", False)
        if superseded and replans >= limits.REPLANS:
            message = f"the source of `{job.pond}` kept changing while it was read"
            hint = "run the same command again when it has settled"
            error = HeadwaterError("HW-C03", message, hint=hint, retryable=True).as_json()
        values: dict[str, Any] = {} if superseded else {"rows": job.rows + run.rows, "bytes": job.bytes + run.bytes}
        if error is None and (superseded or joined):
            again = {"state": "queued", "landed_run_id": None if superseded else run_id}
            values |= again | {"body": json_text({**body, "replans": replans + 1})}
        else:
            state = "done" if error is None else "failed"
            values |= {"state": state, "ended_us": now_us(), "error": None if error is None else json_text(error)}
            put(connection, _events(connection, job, body, failed=error is not None, actor=actor))
        connection.execute(update(t.job).where(t.job.c.job_id == job.job_id).values(values))
    notify(connection)
    return True


def _events(
    connection: Connection, job: Row[Any], body: Mapping[str, Any], *, failed: bool, actor: str
) -> list[InboxEvent]:
    """What the engine learns about each table that the job was for."""
    tables = tables_of_run(connection, job.landed_run_id) if failed else []
    bad = {table.table for table in tables if table.done < table.slices}
    found = []
    for name in body.get("ripples", ()):
        kind = Failed if failed and (name in bad or not bad) else Completed
        found.append(message(kind(job.pond, name, job.freshness_us), actor=actor, ids={"job": job.job_id}))
    return found


def _note_on_inlets(connection: Connection, run_id: str, job: Mapping[str, Any]) -> None:
    """The first error of a run's slices, and how long they waited for Spark, are noted on the job that waits."""
    c = t.job.c
    waiting = update(t.job).where(c.state == "waiting", c.landed_run_id == run_id)
    if job["error"] is not None:
        connection.execute(waiting.where(c.error.is_(None)).values(error=job["error"]))
    if job["spark_start_us"]:
        later = c.spark_start_us < job["spark_start_us"]
        connection.execute(waiting.where(later).values(spark_start_us=job["spark_start_us"]))


def _next(connection: Connection, table: Row[Any], *, last_only: bool = False) -> list[Row[Any]]:
    """The slices of a table that may be in the queue now: so many that `SLICES_QUEUED` of them are not done, or the
    first that is not. Each slice that is done moves that bound by one: `last_only` is the slice that comes in by it."""
    if not table.pending:
        return []
    here = (t.unit.c.run_id == table.run_id) & (t.unit.c.table_name == table.table_name)
    serial = select(t.unit.c.serial).where(here, t.unit.c.ordinal == 0)
    bound = table.done + (1 if connection.execute(serial).scalar_one() else limits.SLICES_QUEUED)
    first = bound - 1 if last_only else table.prefix
    ours = (here, t.unit.c.state == "pending", t.unit.c.ordinal >= first, t.unit.c.ordinal < bound)
    return list(connection.execute(select(t.unit).where(*ours).order_by(t.unit.c.ordinal)))


def _queue(
    connection: Connection, units: list[Row[Any]], like: Mapping[str, Any], holder: str | None
) -> JobLease | None:
    if not units:
        return None
    alike = {"weight": "big"} | {name: like[name] for name in _ALIKE if name in like}
    jobs = [
        NewJob(kind=SLICE_JOB, pond=unit.pipeline, ripple=unit.table_name, job_id=unit.unit_id, **alike)
        for unit in units
    ]
    now = now_us()
    rows = [new_row(job, now, landed_run_id=unit.run_id) for job, unit in zip(jobs, units)]
    new = upsert(connection, t.job)
    names = (*_ALIKE, "state", "created_us")
    again = {name: new.excluded[name] for name in names} | {"ended_us": None, "started_us": None, "error": None}
    left = t.job.c.state == "cancelled"  # with its run: the attempts before it count
    connection.execute(new.on_conflict_do_update(index_elements=["job_id"], set_=again, where=left), rows)
    notify(connection)
    return None if holder is None else claim_queued(connection, units[0].unit_id, holder=holder)

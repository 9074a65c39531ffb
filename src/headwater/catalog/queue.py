"""The work queue: jobs wait, are claimed under a lease, and end once.

A job is `queued`, `running`, then `done`, `failed` or `cancelled`; one that has planned a run is `waiting` in between
(see `slice_jobs`). `attempt` counts its claims: a worker that was lost is followed by the next attempt, as often as it
takes, for a dead worker says nothing about its work. A job that runs is leased; ending, giving back, cancelling or
taking over a job ends that lease, and only one process can.

Oldest first, with one exception that keeps small jobs from waiting behind big ones: see `Slots`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.holder import is_alive
from headwater.base.node import this_node
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import SLICE_JOB, InboxEvent, JobEnd, JobOutput, JobSpec, JobState, NewJob, Weight
from headwater.catalog.history import keep_output
from headwater.catalog.inbox import put
from headwater.catalog.lease import JOB, Lease, drop, give_back, hold, lease_of, lost, take
from headwater.catalog.statements import among, chunks, json_text, set_columns
from headwater.catalog.wakeups import notify

OPEN: tuple[JobState, ...] = ("queued", "running", "waiting")
_CLAIMS_LOCK = 7267319

# Statements that every job needs are made once: making one takes longer than running it.
_NEW = insert(t.job)
_LOCK = select(t.job.c.job_id).where(t.job.c.job_id == bindparam("of_job")).with_for_update()
_ENDED = ("state", "ended_us", "rows", "bytes", "error", "landed_run_id", "changed", "spark_start_us")
_END = (
    update(t.job)
    .where(
        t.job.c.job_id == bindparam("held_job"),
        t.job.c.state == "running",
        t.job.c.attempt == bindparam("held_attempt"),
    )
    .values({name: bindparam(f"end_{name}") for name in _ENDED})
    .returning(t.job)
)
_LEASES = t.lease.c.kind == JOB


@dataclass(frozen=True)
class Slots:
    """How many jobs may run at once, over all workers: in total, of one pond, and big ones. None is no bound.

    Jobs are claimed oldest first, but big ones hold at most `big` slots: the next waits, and younger small ones pass
    it. So with `big` below `total` there is always a slot in which small jobs take turns. A big job is not passed over
    once a slot for it is free. A worker with several threads keeps one of them for small jobs, by the `weights` that
    it claims."""

    total: int | None = None
    per_pond: int | None = None
    big: int | None = None
    ponds: Mapping[str, int] = field(default_factory=dict)
    """Ponds whose bound is another one than `per_pond`."""

    @property
    def bound(self) -> bool:
        return bool(self.ponds) or (self.total, self.per_pond, self.big) != (None, None, None)


UNBOUND = Slots()


@dataclass(frozen=True, kw_only=True)
class JobFields(JobSpec):
    """What every record of a job in the queue has."""

    created_us: int
    attempt: int
    rows: int = 0
    bytes: int = 0
    landed_run_id: str | None = None
    """What was landed for this job before it was queued again; of a slice, its run."""


_FIELDS = tuple(JobFields.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class JobLease(JobFields):
    """A claimed job. `fence` is what a commit on the way must require; `done` and `failed` are for the
    last one, or for `finish_job`."""

    epoch: int

    @property
    def fence(self) -> Lease:
        return Lease(kind=JOB, id=self.job_id, attempt=self.attempt, epoch=self.epoch)

    def done(self, *, rows: int = 0, bytes: int = 0, landed_run_id: str | None = None) -> JobEnd:
        return JobEnd(held=self.fence, state="done", rows=rows, bytes=bytes, landed_run_id=landed_run_id)

    def failed(self, error: Mapping[str, Any]) -> JobEnd:
        return JobEnd(held=self.fence, state="failed", error=error)


@dataclass(frozen=True, kw_only=True)
class Job(JobFields):
    """A job as a watcher sees it. `holder` is empty unless it is running."""

    state: JobState
    holder: str
    started_us: int | None
    ended_us: int | None
    error: Mapping[str, Any] | None
    spark_start_us: int


@dataclass(frozen=True)
class QueueDepth:
    queued: Mapping[str, int]
    """By weight."""
    running: Mapping[str, int]
    oldest_wait_us: int
    """How long the oldest queued job has been there."""


def queue_jobs(connection: Connection, jobs: Sequence[NewJob]) -> tuple[JobLease, ...]:
    """Add jobs, as part of the step that decided on them. Returns those that a worker holds from the start."""
    now = now_us()
    rows = [new_row(job, now) for job in jobs]
    if rows:
        connection.execute(_NEW, rows)
    return tuple(
        job_lease(row, take(connection, JOB, job.job_id, holder=job.holder, attempt=1))
        for job, row in zip(jobs, rows, strict=True)
        if job.holder is not None
    )


def new_row(job: NewJob, now: int, *, landed_run_id: str | None = None) -> dict[str, Any]:
    """A new job as a row of the queue: it waits, or its worker has it from the start."""
    given = {name: value for name, value in vars(job).items() if name != "holder"}
    state = {"state": "queued", "attempt": 0, "started_us": None}
    if job.holder is not None:
        state = {"state": "running", "attempt": 1, "started_us": now}
    counts = {"rows": 0, "bytes": 0, "landed_run_id": landed_run_id}
    return {**given, "body": json_text(job.body), "created_us": now, **state, **counts}


def claim_job(
    catalog: Catalog, *, holder: str, slots: Slots = UNBOUND, weights: Collection[Weight] = ("small", "big")
) -> JobLease | None:
    """Take the oldest job that there is a slot for; None if there is none right now. `holder` is a
    `new_holder()`. The bounds hold exactly, also if many claim at once.

    A PostgreSQL server that crashes does not forget a claim: the worker may live on, and the number of its attempt,
    which names its files, must not be given to another."""
    with catalog.snapshot() as connection:  # one that waits asks often, and must not take the write lock each time
        oldest = _claimable(connection, slots, weights)
        if oldest is None or connection.execute(oldest).first() is None:
            return None
    with catalog.transaction(durable=not catalog.is_sqlite) as connection:
        if slots.bound and not catalog.is_sqlite:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CLAIMS_LOCK}, hashtext(current_schema()))")
        oldest = _claimable(connection, slots, weights)
        if oldest is None:
            return None
        claiming = _claiming_of(frozenset(weights)) if not slots.bound else _claiming(oldest)
        claimed = _claim(connection, claiming, holder)
    if claimed is not None:
        crash_point("job.after_lease")
    return claimed


def claim_queued(connection: Connection, job_id: str, *, holder: str) -> JobLease | None:
    """Claim this job as part of a transaction; None if it is not in the queue."""
    mine = select(t.job.c.job_id).where(t.job.c.job_id == job_id, t.job.c.state == "queued")
    return _claim(connection, _claiming(mine), holder)


def _claim(connection: Connection, claiming: ReturningUpdate[Any], holder: str) -> JobLease | None:
    row = connection.execute(claiming, {"now": now_us()}).first()
    if row is None:
        return None
    return job_lease(row._mapping, take(connection, JOB, row.job_id, holder=holder, attempt=row.attempt))


def job_lease(row: Mapping[str, Any] | RowMapping, lease: Lease) -> JobLease:
    """A row of the queue that was just claimed."""
    return JobLease(**_fields(row), epoch=lease.epoch)


def _fields(row: Mapping[str, Any] | RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in _FIELDS} | {"body": msgspec.json.decode(row["body"])}


def release_job(catalog: Catalog, lease: JobLease) -> None:
    """Give a job back unfinished, for the next worker at once. Nothing if it is no longer ours."""
    with catalog.transaction(durable=False) as connection:
        if _let_go(connection, lease.fence):
            notify(connection)


def finish_job(catalog: Catalog, end: JobEnd, *, events: Sequence[InboxEvent] = ()) -> None:
    """End a job and tell the engine, in one transaction. Raises HW-T03 if it was taken over or cancelled; then the
    engine learns nothing. Where the job's work is a commit, that commit does both itself.

    With SQLite a power cut may take it back; it takes the worker along, and the next attempt ends the job again."""
    with catalog.transaction(durable=not catalog.is_sqlite) as connection:
        end_job(connection, end)
        put(connection, events)
        crash_point("job.inside_end")


def end_job(connection: Connection, end: JobEnd) -> dict[str, Any]:
    """End a job as part of a transaction, or let it wait for a run; its row. Raises HW-T03 if its lease was lost."""
    ended = vars(end) | {
        "ended_us": None if end.state == "waiting" else now_us(),
        "error": None if end.error is None else json_text(end.error),
        "changed": int(end.changed),
    }
    given = {f"end_{name}": ended[name] for name in _ENDED}
    row = connection.execute(_END, {"held_job": end.held.id, "held_attempt": end.held.attempt, **given}).one_or_none()
    if row is None:
        raise lost(JOB)
    drop(connection, end.held)
    if end.output not in (None, JobOutput()):
        keep_output(connection, end.output, t.job.c.job_id == end.held.id)
    found = dict(row._mapping)
    if end.state == "waiting":
        body = {**msgspec.json.decode(row.body), "joined": end.joined}
        found |= {"body": json_text(body), "trace_id": end.trace_id or row.trace_id}
        set_columns(connection, t.job, {"job_id": row.job_id}, body=found["body"])
    return found


def hold_job(connection: Connection, fence: Lease) -> None:
    """Lock a job that is still ours until the transaction ends; raises HW-T03 if it is not."""
    connection.execute(_LOCK, {"of_job": fence.id})
    hold(connection, fence)


def cancel_jobs(connection: Connection, job_ids: Collection[str]) -> list[str]:
    """Cancel those that have not ended, queued or running. A worker whose job it was is refused when it ends it, and
    may learn of it before by `lost_jobs`."""
    cancelled: list[str] = []
    for chunk in chunks(sorted(job_ids)):
        waiting = select(t.job.c.landed_run_id).where(t.job.c.state == "waiting")
        others = set(connection.execute(waiting.where(t.job.c.job_id.not_in(chunk))).scalars())
        for run_id in set(connection.execute(waiting.where(t.job.c.job_id.in_(chunk))).scalars()) - others:
            # Before the jobs that wait for them: a slice's commit locks in that order.
            cancel_slices(connection, run_id)
        open_ = t.job.c.job_id.in_(chunk) & t.job.c.state.in_(OPEN)
        cancelled += _cancel(connection, open_, ended_us=now_us())
    return cancelled


def cancel_slices(
    connection: Connection, run_id: str, *, table: str | None = None, ended_us: int | None = None
) -> None:
    """Take the slices of a run out of the queue. Those without an end are not forgotten: the run may go on later, and
    then its attempts count on."""
    c = t.job.c
    mine = (c.kind == SLICE_JOB) & (c.landed_run_id == run_id) & c.state.in_(("queued", "running"))
    _cancel(connection, mine if table is None else mine & (c.ripple == table), ended_us=ended_us)


def _cancel(connection: Connection, chosen: ColumnElement[bool], *, ended_us: int | None) -> Sequence[str]:
    c = t.job.c
    found = connection.execute(select(c.job_id).where(chosen).order_by(c.job_id).with_for_update()).scalars().all()
    for chunk in chunks(found):
        connection.execute(update(t.job).where(c.job_id.in_(chunk)).values(state="cancelled", ended_us=ended_us))
        connection.execute(delete(t.lease).where(_LEASES, t.lease.c.id.in_(chunk)))
    return found


def lost_jobs(connection: Connection, leases: Iterable[JobLease]) -> set[str]:
    """Those of these jobs that were taken over or cancelled."""
    mine = {(lease.job_id, lease.epoch) for lease in leases}
    held: set[tuple[str, int]] = set()
    for chunk in chunks(sorted(job_id for job_id, _ in mine)):
        rows = select(t.lease).where(_LEASES, t.lease.c.id.in_(chunk), t.lease.c.leased_until_us > 0)
        held.update((row.id, row.epoch) for row in connection.execute(rows))
    return {job_id for job_id, _ in mine - held}


def take_over(catalog: Catalog) -> list[str]:
    """Queue abandoned jobs again: jobs whose lease has run out, and those of processes of this machine
    that are gone. Their ids. A mistake would cost a job done twice, not landed twice: the fence sees to that."""
    now = now_us()
    c = t.lease.c
    held = select(t.lease).where(_LEASES, c.leased_until_us > 0, (c.leased_until_us <= now) | (c.node == this_node()))
    with catalog.snapshot() as connection:
        rows = connection.execute(held.order_by(c.id)).all()
    gone = [row for row in rows if row.leased_until_us <= now or not is_alive(row.holder)]
    return _queue_again(catalog, [(lease_of(row), c.leased_until_us == row.leased_until_us) for row in gone])


def give_back_strays(catalog: Catalog, holder: str, kept: Collection[str]) -> list[str]:
    """Queue again what this holder has claimed and does not know of, as the answer to the claim was lost. Their ids."""
    c = t.lease.c
    old = (_LEASES, c.holder == holder, c.leased_until_us > 0, c.epoch <= now_us() - int(limits.STRAY_SECONDS * 1e6))
    with catalog.snapshot() as connection:
        rows = connection.execute(select(t.lease).where(*old)).all()
    return _queue_again(catalog, [(lease_of(row), None) for row in rows if row.id not in kept])


def stop_attempt(connection: Connection, job_id: str, *, attempt: int) -> Literal["held", "stopped", "gone"]:
    """Make sure that an attempt at a job lands nothing more, unless a worker holds it: `held`. `stopped` if its lease
    had run out and the job is queued again, `gone` if there was nothing to stop."""
    c = t.lease.c
    mine = select(t.lease).where(_LEASES, c.id == job_id, c.attempt == attempt, c.leased_until_us > 0)
    row = connection.execute(mine).one_or_none()
    if row is None:
        return "gone"
    return "stopped" if _let_go(connection, lease_of(row), c.leased_until_us <= now_us()) else "held"


def queue_depth(connection: Connection) -> QueueDepth:
    c = t.job.c
    oldest = func.min(case((c.state == "queued", c.created_us)))
    states = ("queued", "running")
    rows = connection.execute(
        select(c.state, c.weight, func.count(), oldest).where(c.state.in_(states)).group_by(c.state, c.weight)
    ).all()
    counts = {state: {weight: count for s, weight, count, _ in rows if s == state} for state in states}
    since = [first for _, _, _, first in rows if first is not None]
    return QueueDepth(counts["queued"], counts["running"], max(0, now_us() - min(since)) if since else 0)


def jobs(
    connection: Connection,
    *,
    pond: str | None = None,
    run_id: str | None = None,
    states: Collection[JobState] | None = None,
    limit: int | None = limits.JOBS_SHOWN,
) -> list[Job]:
    """The newest jobs first, without slices; all of them with a limit of None."""
    held = _LEASES & (t.lease.c.id == t.job.c.job_id) & (t.lease.c.leased_until_us > 0)
    query = select(t.job, t.lease.c.holder).outerjoin(t.lease, held).where(t.job.c.kind != SLICE_JOB)
    if pond is not None:
        query = query.where(t.job.c.pond == pond)
    if run_id is not None:
        query = query.where(t.job.c.run_id == run_id)
    query = among(query, t.job.c.state, states).order_by(t.job.c.job_id.desc()).limit(limit)
    return [
        Job(
            **_fields(row._mapping),
            state=row.state,
            holder=row.holder or "",
            started_us=row.started_us,
            ended_us=row.ended_us,
            error=None if row.error is None else msgspec.json.decode(row.error),
            spark_start_us=row.spark_start_us,
        )
        for row in connection.execute(query)
    ]


def last_error(connection: Connection, pond: str) -> Mapping[str, Any] | None:
    """The error of the newest job of a pond that failed."""
    found = jobs(connection, pond=pond, states=["failed"], limit=1)
    return found[0].error if found else None


def forget_ended(
    catalog: Catalog,
    *,
    retention_seconds: float = limits.JOB_RETENTION_SECONDS,
    limit: int = limits.JOB_SWEEP_ROWS,
) -> int:
    """Drop jobs that ended so long ago, the oldest first, at most `limit`; how many. Runs keep the history."""
    before_us = now_us() - int(retention_seconds * 1e6)
    old = select(t.job.c.job_id).where(t.job.c.ended_us < before_us).order_by(t.job.c.ended_us).limit(limit)
    with catalog.transaction(durable=False) as connection:
        return connection.execute(delete(t.job).where(t.job.c.job_id.in_(old))).rowcount


def _claimable(connection: Connection, slots: Slots, weights: Collection[Weight]) -> Select[tuple[str]] | None:
    """The oldest queued job that there is a slot for; None if there is no slot for any."""
    if not slots.bound:
        return _oldest(frozenset(weights))
    allowed = set(weights)
    counted = select(t.job.c.pond, t.job.c.weight, func.count()).where(t.job.c.state == "running")
    running = connection.execute(counted.group_by(t.job.c.pond, t.job.c.weight)).all()
    if slots.total is not None and sum(count for _, _, count in running) >= slots.total:
        return None
    if slots.big is not None and sum(count for _, weight, count in running if weight == "big") >= slots.big:
        allowed.discard("big")
    oldest = _oldest(frozenset(allowed))
    full = _full_ponds(slots, [(pond, count) for pond, _, count in running])
    return oldest.where(t.job.c.pond.not_in(full)) if full else oldest


@cache
def _oldest(weights: frozenset[Weight]) -> Select[tuple[str]]:
    """The oldest queued job of these weights."""
    oldest = (
        select(t.job.c.job_id).where(t.job.c.state == "queued").order_by(t.job.c.created_us, t.job.c.job_id).limit(1)
    )
    # A filter that lets everything pass would keep PostgreSQL from reading the queue in its order.
    return oldest if weights == {"small", "big"} else oldest.where(t.job.c.weight.in_(sorted(weights)))


def _claiming(oldest: Select[tuple[str]]) -> ReturningUpdate[Any]:
    free = oldest.with_for_update(skip_locked=True).scalar_subquery()
    began = func.coalesce(t.job.c.started_us, bindparam("now"))  # one that has waited for a run began before that
    running = {"state": "running", "attempt": t.job.c.attempt + 1, "started_us": began}
    return update(t.job).where(t.job.c.job_id == free).values(running).returning(t.job)


@cache
def _claiming_of(weights: frozenset[Weight]) -> ReturningUpdate[Any]:
    return _claiming(_oldest(weights))


def _full_ponds(slots: Slots, running: Iterable[tuple[str, int]]) -> set[str]:
    counts = dict.fromkeys(slots.ponds, 0)
    for pond, count in running:
        counts[pond] = counts.get(pond, 0) + count
    bounds = {pond: slots.ponds.get(pond, slots.per_pond) for pond in counts}
    return {pond for pond, bound in bounds.items() if bound is not None and counts[pond] >= bound}


def _queue_again(catalog: Catalog, leases: Sequence[tuple[Lease, Any]]) -> list[str]:
    """The jobs that were still under these leases, each with what must still hold of its row."""
    if not leases:
        return []
    with catalog.transaction(durable=False) as connection:
        found = [lease.id for lease, fact in leases if _let_go(connection, lease, *(() if fact is None else (fact,)))]
        notify(connection)
    return found


def _let_go(connection: Connection, fence: Lease, *more: Any) -> bool:
    """End the lease and queue the job, whose row is locked first, as everywhere. False, and nothing, if it was lost."""
    connection.execute(_LOCK, {"of_job": fence.id})
    if not give_back(connection, fence, *more):
        return False
    set_columns(connection, t.job, {"job_id": fence.id}, state="queued", started_us=None)
    return True

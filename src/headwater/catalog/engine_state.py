"""The state of the engine in the catalog: a header, and one record per pond, written step by step.

A step is one transaction: the events it consumed, the ponds it touched, the jobs it made. After a crash both the
state and the inbox are as before the step, or both as after it. The records are what `freshness.saving` makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select

from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import Conflict
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import Step
from headwater.catalog.history import write_history
from headwater.catalog.inbox import consume
from headwater.catalog.lease import ENGINE, Lease, claim, give_back, hold, lost
from headwater.catalog.log import mark_logged
from headwater.catalog.queue import OPEN, JobLease, cancel_jobs, queue_jobs
from headwater.catalog.queue import jobs as open_jobs
from headwater.catalog.statements import chunks, json_text, upsert
from headwater.catalog.wakeups import notify


@dataclass(frozen=True)
class SavedEngine:
    """What the last step left. `header` is None if there never was one."""

    header: dict[str, Any] | None
    ponds: dict[str, dict[str, Any]]
    step: int


def load_engine(connection: Connection, *, since: int = 0) -> SavedEngine:
    """The saved state; with `since`, only the ponds that were touched after that step."""
    row = connection.execute(select(t.engine_state)).one_or_none()
    ponds = connection.execute(select(t.pond_state.c.pond, t.pond_state.c.record).where(t.pond_state.c.step > since))
    return SavedEngine(
        header=None if row is None else msgspec.json.decode(row.header),
        ponds={pond: msgspec.json.decode(record) for pond, record in ponds},
        step=0 if row is None else row.step,
    )


def last_step_us(catalog: Catalog) -> int | None:
    """When the last step was stored; None if there never was one."""
    with catalog.snapshot() as connection:
        found = connection.execute(select(t.engine_state.c.updated_us)).scalar_one_or_none()
    return None if found is None else int(found)


@dataclass(frozen=True)
class StepStored:
    number: int
    owner: Lease
    jobs: tuple[JobLease, ...]
    """Those of its jobs that their workers have from the start."""
    left: bool
    """The engine was released with it."""


def store_step(catalog: Catalog, step: Step) -> StepStored:
    """Store a step, all of it or nothing. Raises HW-T03 if the engine has another owner.

    With SQLite a power cut may take the last steps back, and takes the owner along: their events are in the inbox
    again, and nothing that came of them is there, for the order of transactions is kept. A PostgreSQL server may
    crash by itself, so there a step that comes back has survived it. After any other error only `load_engine` tells
    whether the step happened."""
    crash_point("step.before")
    with catalog.transaction(durable=not catalog.is_sqlite) as connection:
        stored = write_step(connection, step)
        crash_point("step.inside")
    if not step.owner.epoch:
        crash_point("owner.after_lease")
    crash_point("step.after")
    return stored


def write_step(connection: Connection, step: Step) -> StepStored:
    """Store a step as part of a transaction."""
    owner = step.owner
    if owner.epoch:
        hold(connection, owner)
    elif (claimed := _claim(connection, owner.holder, step.follows)) is not None:
        owner = claimed
    else:
        raise lost(ENGINE)
    consume(connection, step.consumed, answers=step.answers)
    header = {"id": 1, "step": 1, "header": json_text(step.header), "updated_us": now_us()}
    number = int(connection.execute(_put_header(connection.dialect.name), header).scalar_one())
    if step.ponds:
        _write_ponds(connection, step, number)
    for chunk in chunks(step.removed):
        connection.execute(delete(t.pond_state).where(t.pond_state.c.pond.in_(chunk)))
    cancel_jobs(connection, step.cancelled)
    jobs = queue_jobs(connection, step.new_jobs)
    write_history(connection, step)
    notify(connection)
    left = step.leaves and not is_busy(connection) and give_back(connection, owner)
    if left and step.logged is not None:
        mark_logged(connection, step.logged)
    return StepStored(number, owner, jobs, left)


def is_busy(connection: Connection) -> bool:
    """Whether a job is open, or an event waits for the engine."""
    waits = select(t.inbox.c.id).where(t.inbox.c.answer.is_(None)).limit(1)
    return connection.execute(waits).first() is not None or bool(open_jobs(connection, states=OPEN, limit=1))


def claim_engine(catalog: Catalog, *, holder: str, follows: int | None = None) -> Lease | None:
    """Become the owner without a step; None while another one lives. `holder` is a `new_holder()`. Raises HW-T02 if the
    state is not that of the step `follows`."""
    with catalog.transaction(durable=False) as connection:
        owner = _claim(connection, holder, follows)
    if owner is not None:
        crash_point("owner.after_lease")
    return owner


def _claim(connection: Connection, holder: str, follows: int | None) -> Lease | None:
    owner = claim(connection, holder=holder)
    last = connection.execute(select(t.engine_state.c.step)).scalar() or 0
    if owner is not None and follows not in (None, last):
        raise Conflict("HW-T02", "the engine has been stepped meanwhile", retryable=True)
    return owner


@cache
def _put_header(dialect: str) -> Any:
    new = upsert(dialect, t.engine_state)
    columns = {"header": new.excluded.header, "updated_us": new.excluded.updated_us, "step": t.engine_state.c.step + 1}
    return new.on_conflict_do_update(index_elements=["id"], set_=columns).returning(t.engine_state.c.step)


def _write_ponds(connection: Connection, step: Step, number: int) -> None:
    now = now_us()
    rows = [
        {"pond": pond, "record": json_text(record), "step": number, "updated_us": now}
        for pond, record in step.ponds.items()
    ]
    connection.execute(_put_ponds(connection.dialect.name), rows)


@cache
def _put_ponds(dialect: str) -> Any:
    new = upsert(dialect, t.pond_state)
    columns = {name: new.excluded[name] for name in ("record", "step", "updated_us")}
    return new.on_conflict_do_update(index_elements=["pond"], set_=columns)

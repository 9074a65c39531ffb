"""The state of the engine in the catalog: a header, and one record per pond, written step by step.

A step is one transaction: the events it consumed, the ponds it touched, the jobs it made. After a crash both the
state and the inbox are as before the step, or both as after it. The records are what `freshness.saving` makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import Step
from headwater.catalog.history import write_history
from headwater.catalog.inbox import consume
from headwater.catalog.json_text import json_text
from headwater.catalog.lease import hold
from headwater.catalog.queue import cancel_jobs, queue_jobs
from headwater.catalog.upserts import upsert
from headwater.catalog.wakeups import notify

_THE_ROW = 1


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


def save_step(catalog: Catalog, step: Step) -> int:
    """Store a step, all of it or nothing; its number. Raises HW-T03 if the engine has another owner.

    With SQLite a power cut may take the last steps back, and takes the owner along: their events are in the inbox
    again, and nothing that came of them is there, for the order of transactions is kept. A PostgreSQL server may
    crash by itself, so there a step that comes back has survived it. After any other error only `load_engine` tells
    whether the step happened."""
    crash_point("step.before")
    with catalog.transaction(durable=not catalog.is_sqlite) as connection:
        number = write_step(connection, step)
        crash_point("step.inside")
    crash_point("step.after")
    return number


def write_step(connection: Connection, step: Step) -> int:
    """Store a step as part of a transaction."""
    hold(connection, step.owner)
    consume(connection, step.consumed, answers=step.answers)
    number = _write_header(connection, step)
    if step.ponds:
        _write_ponds(connection, step, number)
    for i in range(0, len(step.removed), limits.SQL_PARAMETERS):
        connection.execute(
            delete(t.pond_state).where(t.pond_state.c.pond.in_(step.removed[i : i + limits.SQL_PARAMETERS]))
        )
    cancel_jobs(connection, step.cancelled)
    queue_jobs(connection, step.new_jobs)
    write_history(connection, step)
    notify(connection)
    return number


def _write_header(connection: Connection, step: Step) -> int:
    header = {"header": json_text(step.header), "updated_us": now_us()}
    new = upsert(connection, t.engine_state).values(id=_THE_ROW, step=1, **header)
    counted = {**header, "step": t.engine_state.c.step + 1}
    number = connection.execute(
        new.on_conflict_do_update(index_elements=["id"], set_=counted).returning(t.engine_state.c.step)
    ).scalar_one()
    return int(number)


def _write_ponds(connection: Connection, step: Step, number: int) -> None:
    new = upsert(connection, t.pond_state)
    columns = {name: new.excluded[name] for name in ("record", "step", "updated_us")}
    now = now_us()
    rows = [
        {"pond": pond, "record": json_text(record), "step": number, "updated_us": now}
        for pond, record in step.ponds.items()
    ]
    connection.execute(new.on_conflict_do_update(index_elements=["pond"], set_=columns), rows)

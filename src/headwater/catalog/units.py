"""Who works on what: units of work are claimed under a lease with an attempt number and an epoch.

A lease is not truth, only manners: it keeps two workers from doing the same unit. What keeps them from both
landing it is the commit, which requires (unit, attempt, epoch). So claims and renewals need not be durable.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.holder import is_alive
from headwater.base.ids import RunId, UnitId
from headwater.base.node import this_node
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.lease import lease_seconds
from headwater.catalog.records import LeaseHeld

CLAIM_TRIES = 16
"""How often a claim looks again after another one was quicker."""


@dataclass(frozen=True)
class UnitLease:
    """A claimed unit. `fence` is what its commit must require."""

    unit_id: UnitId
    run_id: RunId
    pipeline: str
    table: str
    ordinal: int
    payload: dict[str, Any]
    attempt: int
    epoch: int

    @property
    def fence(self) -> LeaseHeld:
        return LeaseHeld(unit_id=self.unit_id, attempt=self.attempt, epoch=self.epoch)


@dataclass(frozen=True)
class UnitStatus:
    """One unit as a watcher sees it; `held` means that a worker's lease has not run out."""

    unit_id: UnitId
    table: str
    ordinal: int
    state: str
    held: bool
    holder: str
    attempt: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class DoneUnit:
    pipeline: str
    table: str
    payload: dict[str, Any]


def free_dead_leases(catalog: Catalog, run_id: RunId) -> int:
    """Give back what processes of this machine held that are no longer there, so that nobody waits for a lease
    of theirs to run out. A mistake would cost a slice read twice, not landed twice: the epoch sees to that."""
    held = (
        select(t.unit_lease)
        .join(t.unit, t.unit.c.unit_id == t.unit_lease.c.unit_id)
        .where(t.unit.c.run_id == run_id, t.unit.c.state == "pending")
        .where(t.unit_lease.c.node == this_node(), t.unit_lease.c.leased_until_us > now_us())
        .order_by(t.unit_lease.c.unit_id)  # so that two that do this at once lock in the same order
    )
    with catalog.snapshot() as connection:
        dead = [lease for lease in connection.execute(held).all() if not is_alive(lease.holder)]
    return _free(catalog, dead)


def _free(catalog: Catalog, leases: Sequence[Row[Any]]) -> int:
    if not leases:
        return 0
    with catalog.transaction(durable=False) as connection:
        for lease in leases:
            here = (t.unit_lease.c.unit_id == lease.unit_id) & (t.unit_lease.c.epoch == lease.epoch)
            connection.execute(update(t.unit_lease).where(here).values(leased_until_us=0))
    return len(leases)


def free_stray_leases(catalog: Catalog, run_id: RunId, *, holder: str, kept: Collection[str]) -> int:
    """Give back what this holder has claimed and does not know of: the claim was committed, and its answer was lost."""
    held = (
        select(t.unit_lease)
        .join(t.unit, t.unit.c.unit_id == t.unit_lease.c.unit_id)
        .where(t.unit.c.run_id == run_id, t.unit.c.state == "pending")
        .where(t.unit_lease.c.holder == holder, t.unit_lease.c.leased_until_us > now_us())
        .where(t.unit_lease.c.epoch <= now_us() - int(limits.STRAY_SECONDS * 1e6))
    )
    with catalog.snapshot() as connection:
        strays = [lease for lease in connection.execute(held).all() if lease.unit_id not in kept]
    return _free(catalog, strays)


def claim(catalog: Catalog, run_id: RunId, *, holder: str) -> UnitLease | None:
    """Take the first unit of a run that nobody holds; None if there is none right now."""
    now = now_us()
    with catalog.snapshot() as connection:  # who waits asks often, and must not take the write lock each time
        if connection.execute(_claimable(run_id, now, lock=False)).first() is None:
            return None
    with catalog.transaction(durable=False) as connection:
        for _ in range(CLAIM_TRIES):
            row = connection.execute(_claimable(run_id, now, lock=not catalog.is_sqlite)).first()
            if row is None:
                return None
            taken = _take(connection, row.unit_id, holder=holder, now=now)
            if taken is not None:
                break
        else:
            return None
    crash_point("unit.after_lease")
    return UnitLease(
        unit_id=UnitId(row.unit_id),
        run_id=RunId(row.run_id),
        pipeline=row.pipeline,
        table=row.table_name,
        ordinal=row.ordinal,
        payload=json.loads(row.payload),
        attempt=taken[0],
        epoch=taken[1],
    )


def renew(catalog: Catalog, lease: UnitLease) -> bool:
    """Hold a unit for longer; False if another worker has taken it."""
    with catalog.transaction(durable=False) as connection:
        result = connection.execute(_mine(lease).values(leased_until_us=now_us() + int(lease_seconds() * 1e6)))
        return result.rowcount == 1


def release(catalog: Catalog, lease: UnitLease) -> None:
    """Give a unit back, so that the next worker need not wait for the lease to run out."""
    with catalog.transaction(durable=False) as connection:
        connection.execute(_mine(lease).values(leased_until_us=0))


def unit_statuses(connection: Connection, run_id: RunId) -> list[UnitStatus]:
    now = now_us()
    rows = connection.execute(
        select(t.unit, t.unit_lease.c.leased_until_us, t.unit_lease.c.holder, t.unit_lease.c.attempt)
        .outerjoin(t.unit_lease, t.unit_lease.c.unit_id == t.unit.c.unit_id)
        .where(t.unit.c.run_id == run_id)
        .order_by(t.unit.c.table_name, t.unit.c.ordinal)
    )
    return [
        UnitStatus(
            unit_id=UnitId(row.unit_id),
            table=row.table_name,
            ordinal=row.ordinal,
            state=row.state,
            held=(row.leased_until_us or 0) > now,
            holder=row.holder or "",
            attempt=row.attempt or 0,
            rows=row.rows,
            bytes=row.bytes,
        )
        for row in rows
    ]


def done_units(connection: Connection, run_id: RunId) -> list[DoneUnit]:
    """The units of a run that have been done, with what they were to do."""
    rows = connection.execute(
        select(t.unit.c.pipeline, t.unit.c.table_name, t.unit.c.payload)
        .where(t.unit.c.run_id == run_id, t.unit.c.state == "done")
        .order_by(t.unit.c.table_name, t.unit.c.ordinal)
    )
    return [DoneUnit(row.pipeline, row.table_name, json.loads(row.payload)) for row in rows]


def _claimable(run_id: RunId, now: int, *, lock: bool) -> Any:
    before = t.unit.alias("before")
    earlier = (
        select(before.c.unit_id)
        .where(before.c.run_id == t.unit.c.run_id, before.c.table_name == t.unit.c.table_name)
        .where(before.c.state == "pending", before.c.ordinal < t.unit.c.ordinal)
    )
    held = select(t.unit_lease.c.unit_id).where(
        t.unit_lease.c.unit_id == t.unit.c.unit_id, t.unit_lease.c.leased_until_us > now
    )
    query = (
        select(t.unit)
        .where(t.unit.c.run_id == run_id, t.unit.c.state == "pending")
        .where(~held.exists(), or_(~t.unit.c.serial, ~earlier.exists()))
        .order_by(t.unit.c.ordinal, t.unit.c.table_name)
        .limit(1)
    )
    return query.with_for_update(of=t.unit, skip_locked=True) if lock else query


def _take(connection: Connection, unit_id: str, *, holder: str, now: int) -> tuple[int, int] | None:
    """The attempt and epoch of a unit whose row is locked. None if it is held after all: PostgreSQL chooses the row
    by what it saw before it had the lock."""
    here = t.unit_lease.c.unit_id == unit_id
    old = connection.execute(select(t.unit_lease).where(here).with_for_update()).one_or_none()
    if old is not None and old.leased_until_us > now:
        return None
    # An epoch is never used twice, not even after the catalog was rebuilt without its leases: it starts at the time.
    attempt, epoch = (old.attempt + 1, max(old.epoch + 1, now)) if old is not None else (1, now)
    values = {
        "attempt": attempt,
        "epoch": epoch,
        "holder": holder,
        "node": this_node(),
        "leased_until_us": now + int(lease_seconds() * 1e6),
    }
    if old is None:
        connection.execute(insert(t.unit_lease).values(unit_id=unit_id, **values))
    else:
        connection.execute(update(t.unit_lease).where(here).values(**values))
    return attempt, epoch


def _mine(lease: UnitLease) -> Any:
    c = t.unit_lease.c
    return update(t.unit_lease).where(c.unit_id == lease.unit_id, c.attempt == lease.attempt, c.epoch == lease.epoch)

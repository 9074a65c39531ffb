"""Leases: which process works on a job, runs the engine or writes pushed rows.

One table, one record, three verbs: claim, renew, release. A lease keeps two processes from doing the same work. The
fence keeps both from being believed: a commit requires the lease that its work was done under (`hold`), and every
claim has an epoch that only grows. So claims and renewals need not be durable.

A lease that was released, or that ran out, keeps its row, so that its epochs go on growing; the row goes with what it
is about (`drop`). An epoch starts at the time: it is not used again after a rebuild has forgotten the row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sqlalchemy import Boolean, Connection, Row, bindparam, case, delete, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.holder import is_alive
from headwater.base.node import this_node
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.statements import upsert

Kind = Literal["engine", "job", "writer"]
ENGINE: Kind = "engine"
JOB: Kind = "job"
WRITER: Kind = "writer"

_LOST = {
    ENGINE: (
        "this process no longer runs the engine: another one has taken over",
        "nothing to do; the other one goes on from the same state",
    ),
    JOB: (
        "the lease on this job was lost: another worker has taken it over, or it was cancelled",
        "nothing to do; the other worker's result counts",
    ),
    WRITER: ("the writer of these files was taken for dead: they may be gone", "send the same rows again"),
}


# Built once: making a statement takes longer than running it.
_c = t.lease.c
_MINE = (
    (_c.kind == bindparam("of_kind"))
    & (_c.id == bindparam("of_id"))
    & (_c.attempt == bindparam("of_attempt"))
    & (_c.epoch == bindparam("of_epoch"))
    & (_c.leased_until_us > 0)
)
_RENEW = update(t.lease).where(_MINE).values(leased_until_us=bindparam("until"))
_FREE = update(t.lease).where(_MINE).values(leased_until_us=0)
_DROP = delete(t.lease).where(_MINE)
_ENGINE = select(t.lease).where(_c.kind == ENGINE)


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A claim. A commit may require it."""

    kind: Kind
    id: str
    attempt: int
    """The number of this claim, from 1."""
    epoch: int
    holder: str = ""


def claim(connection: Connection, *, holder: str) -> Lease | None:
    """Take the engine, if no living process runs it; None while one does. The holder itself may claim again: it loses
    what it had, so that a claim whose answer was lost can be repeated."""
    free = {"kind": ENGINE, "id": "", "attempt": 0, "epoch": 0, "holder": "", "node": "", "leased_until_us": 0}
    connection.execute(upsert(connection, t.lease).values(free).on_conflict_do_nothing())
    row = connection.execute(_ENGINE.with_for_update()).one()
    if row.holder != holder and lease_lives(row):
        return None
    return take(connection, ENGINE, "", holder=holder)


def engine_owner(connection: Connection) -> Lease | None:
    """The lease of the process that runs the engine; None if there is none, or if it can be replaced now."""
    row = connection.execute(_ENGINE).one_or_none()
    return None if row is None or not lease_lives(row) else lease_of(row)


def take(connection: Connection, kind: Kind, id: str, *, holder: str, attempt: int = 0) -> Lease:
    """Claim what is known to be free. `attempt`: counted elsewhere; 0 counts here."""
    now = now_us()
    row = {"kind": kind, "id": id, "attempt": attempt or 1, "epoch": now, "holder": holder, "node": this_node()}
    given = {**row, "leased_until_us": until(kind, now), "counted": bool(attempt)}
    taken = connection.execute(_take(connection.dialect.name), given).one()
    return Lease(kind=kind, id=id, attempt=taken.attempt, epoch=taken.epoch, holder=holder)


def renew(catalog: Catalog, lease: Lease) -> bool:
    """Hold it for longer; False if it was lost."""
    with catalog.transaction(durable=False) as connection:
        return _renewed(connection, lease)


def release(catalog: Catalog, lease: Lease) -> None:
    """Give it back, so that the next one need not wait until it runs out. Nothing if it was lost."""
    with catalog.transaction(durable=False) as connection:
        give_back(connection, lease)


def give_back(connection: Connection, lease: Lease, *more: Any) -> bool:
    """`release` as part of a transaction; False, and nothing, if it was lost, or if `more` does not hold of it."""
    return connection.execute(_FREE.where(*more) if more else _FREE, _named(lease)).rowcount == 1


def hold(connection: Connection, lease: Lease) -> None:
    """Renew, and lock out every other claim until this transaction ends. Raises HW-T03 if it was lost."""
    if not _renewed(connection, lease):
        raise lost(lease.kind)


def drop(connection: Connection, lease: Lease) -> None:
    """End it for good, with what it is about. Raises HW-T03 if it was lost."""
    if connection.execute(_DROP, _named(lease)).rowcount != 1:
        raise lost(lease.kind)


def lost(kind: Kind) -> HeadwaterError:
    message, hint = _LOST[kind]
    return HeadwaterError("HW-T03", message, hint=hint, retryable=kind == WRITER)


def lease_lives(row: Row[Any]) -> bool:
    """Whether a row of the table holds: it has not run out, and if it is of this machine its process is there."""
    return row.leased_until_us > now_us() and (row.node != this_node() or is_alive(row.holder))


def lease_of(row: Row[Any]) -> Lease:
    return Lease(kind=row.kind, id=row.id, attempt=row.attempt, epoch=row.epoch, holder=row.holder)


def lease_seconds(kind: Kind = JOB) -> float:
    """`HEADWATER_LEASE_SECONDS` shortens it, for tests of take-over."""
    seconds = float(os.environ.get("HEADWATER_LEASE_SECONDS", limits.LEASE_SECONDS))
    return min(limits.OWNER_LEASE_SECONDS, seconds) if kind == ENGINE else seconds


def until(kind: Kind, now: int) -> int:
    return now + int(lease_seconds(kind) * 1e6)


def _renewed(connection: Connection, lease: Lease) -> bool:
    return connection.execute(_RENEW, {**_named(lease), "until": until(lease.kind, now_us())}).rowcount == 1


def _named(lease: Lease) -> dict[str, Any]:
    return {"of_kind": lease.kind, "of_id": lease.id, "of_attempt": lease.attempt, "of_epoch": lease.epoch}


@cache
def _take(dialect: str) -> Any:
    new = upsert(dialect, t.lease)
    old, given = _c, new.excluded
    values = {name: given[name] for name in ("holder", "node", "leased_until_us")}
    grown = {
        "attempt": case((bindparam("counted", type_=Boolean), given.attempt), else_=old.attempt + 1),
        "epoch": case((given.epoch > old.epoch, given.epoch), else_=old.epoch + 1),
    }
    return new.on_conflict_do_update(index_elements=["kind", "id"], set_={**values, **grown}).returning(
        old.attempt, old.epoch
    )

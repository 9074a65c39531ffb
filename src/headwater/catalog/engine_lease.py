"""Who runs the engine: one owner at a time, by a lease with an epoch that only grows.

The lease keeps two processes from stepping the engine side by side. What keeps them from both being believed is the
fence: every write of an owner checks, in its own transaction, that holder and epoch are still these. An owner whose
process on this machine is gone is replaced at once, any other when its lease has run out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Update, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.base.node import this_node
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import Ownership
from headwater.catalog.units import lease_lives, lease_seconds
from headwater.catalog.upserts import upsert

_THE_ROW = 1


@dataclass(frozen=True)
class Owner:
    """The owner as others see it; `held` means that nobody can take its place now."""

    holder: str
    node: str
    epoch: int
    leased_until_us: int
    held: bool


def claim_engine(catalog: Catalog, *, holder: str) -> Ownership | None:
    """Become the owner; None while another one lives. `holder` is a `units.new_holder()`; one that claims again loses
    what it had and gets a new epoch, so that a claim whose answer was lost can be repeated."""
    with catalog.snapshot() as connection:  # a stand-by asks often, and must not take the write lock each time
        row = connection.execute(select(t.engine_owner)).one_or_none()
        if row is not None and row.holder != holder and lease_lives(row, now_us()):
            return None
    with catalog.transaction(durable=False) as connection:
        nobody = {"id": _THE_ROW, "holder": "", "node": "", "epoch": 0, "leased_until_us": 0}
        connection.execute(upsert(connection, t.engine_owner).values(nobody).on_conflict_do_nothing())
        row = connection.execute(select(t.engine_owner).with_for_update()).one()
        now = now_us()
        if row.holder != holder and lease_lives(row, now):
            return None
        # The time, so that an epoch is not used again after a rebuild has forgotten this row.
        epoch = max(row.epoch + 1, now)
        values = {"holder": holder, "node": this_node(), "epoch": epoch, "leased_until_us": _until(now)}
        connection.execute(update(t.engine_owner).values(values))
    crash_point("owner.after_lease")
    return Ownership(holder, epoch)


def renew_engine(catalog: Catalog, owner: Ownership) -> bool:
    """Stay the owner for longer, between steps; False if another one has taken over."""
    with catalog.transaction(durable=False) as connection:
        return connection.execute(_mine(owner).values(leased_until_us=_until(now_us()))).rowcount == 1


def release_engine(catalog: Catalog, owner: Ownership) -> None:
    """Let the next one begin at once. Nothing if another one has taken over."""
    with catalog.transaction(durable=False) as connection:
        connection.execute(_mine(owner).values(leased_until_us=0))


def hold_engine(connection: Connection, owner: Ownership) -> None:
    """Renew, and lock out every other claim until this transaction ends. Raises HW-T03 if another one has taken over."""
    if connection.execute(_mine(owner).values(leased_until_us=_until(now_us()))).rowcount != 1:
        raise HeadwaterError(
            "HW-T03",
            "this process no longer runs the engine: another one has taken over",
            hint="nothing to do; the other one goes on from the same state",
        )


def engine_owner(connection: Connection) -> Owner | None:
    """The last owner there was, whether or not it still is."""
    row = connection.execute(select(t.engine_owner)).one_or_none()
    if row is None:
        return None
    return Owner(row.holder, row.node, row.epoch, row.leased_until_us, held=lease_lives(row, now_us()))


def owner_lease_seconds() -> float:
    return min(limits.OWNER_LEASE_SECONDS, lease_seconds())


def _mine(owner: Ownership) -> Update:
    c = t.engine_owner.c
    return update(t.engine_owner).where(c.id == _THE_ROW, c.holder == owner.holder, c.epoch == owner.epoch)


def _until(now: int) -> int:
    return now + int(owner_lease_seconds() * 1e6)

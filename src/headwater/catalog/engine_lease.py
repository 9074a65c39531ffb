"""Which process runs the engine: one at a time. An owner whose process on this machine is gone is replaced at once, any
other when its lease has run out."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from headwater.base.crash import crash_point
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.lease import ENGINE, Lease, claim, lease_lives

_HERE = t.lease.c.kind == ENGINE


@dataclass(frozen=True)
class Owner:
    """The owner as others see it; `held` means that no process can take its place now."""

    holder: str
    node: str
    epoch: int
    leased_until_us: int
    held: bool


def claim_engine(catalog: Catalog, *, holder: str) -> Lease | None:
    """Become the owner; None while another one lives. `holder` is a `new_holder()`."""
    with catalog.snapshot() as connection:  # a stand-by asks often, and must not take the write lock each time
        owner = engine_owner(connection)
        if owner is not None and owner.holder != holder and owner.held:
            return None
    with catalog.transaction(durable=False) as connection:
        lease = claim(connection, ENGINE, holder=holder)
    if lease is not None:
        crash_point("owner.after_lease")
    return lease


def engine_owner(connection: Connection) -> Owner | None:
    """The last owner there was, whether or not it still is."""
    row = connection.execute(select(t.lease).where(_HERE)).one_or_none()
    if row is None:
        return None
    return Owner(row.holder, row.node, row.epoch, row.leased_until_us, held=lease_lives(row))

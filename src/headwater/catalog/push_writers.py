"""The writers of pushed rows: each process that writes them has a lease, and its commits require it.

A pushed batch is no job. gc takes the lease of a writer that is gone before it deletes what that one left, so a writer
that was only asleep is refused when it wakes up. A writer's id is used once: one that was refused goes on under another,
and in other directories.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from sqlalchemy import Connection, delete, select

from headwater.base.clock import now_us
from headwater.base.errors import LeaseLost
from headwater.base.holder import new_holder
from headwater.base.ids import uuid7
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.lease import WRITER, Lease, drop, lease_lives, take

_WRITERS = t.lease.c.kind == WRITER


def new_writer(catalog: Catalog) -> Lease:
    """An id to write files under. Writers that were not renewed in time are forgotten, and so refused."""
    with catalog.transaction(durable=False) as connection:
        connection.execute(delete(t.lease).where(_WRITERS, t.lease.c.leased_until_us <= now_us()))
        return take(connection, WRITER, uuid7(), holder=new_holder())


def living_writers(connection: Connection) -> set[str]:
    """The writers whose files may still be committed."""
    return {row.id for row in connection.execute(select(t.lease).where(_WRITERS)) if lease_lives(row)}


def stop_writers(connection: Connection, writers: Collection[str]) -> tuple[set[str], int]:
    """Make sure that these land nothing more. Those that live after all, and how many were stopped."""
    alive, stopped = set(), 0
    for writer_id in sorted(writers):
        here = _WRITERS & (t.lease.c.id == writer_id)
        row = connection.execute(select(t.lease).where(here).with_for_update()).one_or_none()
        if row is None:
            continue
        if lease_lives(row):
            alive.add(writer_id)
        else:
            stopped += connection.execute(delete(t.lease).where(here)).rowcount
    return alive, stopped


def end_writer(catalog: Catalog, writer: Lease) -> None:
    """A process that ends well takes its lease with it."""
    with suppress(LeaseLost), catalog.transaction(durable=False) as connection:  # lost: it was taken for dead before
        drop(connection, writer)

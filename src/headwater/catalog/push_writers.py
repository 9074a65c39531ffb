"""Who writes pushed rows: each process that does has a row, and its commits require that it is still there.

A pushed batch is nobody's unit of work, so there is no lease on it. The row stands in for one: gc takes the row of a
writer that is gone before it deletes what that one left, so a writer that was only asleep is refused when it wakes up.
A writer's name is used once: who was refused goes on under another one, and in other directories.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.node import this_node
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.records import WriterHeld
from headwater.catalog.units import lease_lives, lease_seconds, new_holder

_RENEW = (
    update(t.push_writer)
    .where(t.push_writer.c.writer_id == bindparam("of_writer"))
    .values(leased_until_us=bindparam("until"))
)


def new_writer(catalog: Catalog) -> WriterHeld:
    """A name to write files under, until it is not renewed for as long as a lease lasts. Those that were not renewed
    are forgotten, and so refused."""
    writer_id = uuid7()
    values = {"holder": new_holder(), "node": this_node(), "leased_until_us": _until()}
    with catalog.transaction(durable=False) as connection:
        connection.execute(delete(t.push_writer).where(t.push_writer.c.leased_until_us <= now_us()))
        connection.execute(insert(t.push_writer).values(writer_id=writer_id, **values))
    return WriterHeld(writer_id=writer_id)


def renew_writer(catalog: Catalog, writer: WriterHeld) -> bool:
    """Stay a writer for longer, before files are written; False if it was taken for dead."""
    with catalog.transaction(durable=False) as connection:
        return _renewed(connection, writer)


def hold_writer(connection: Connection, writer: WriterHeld) -> None:
    """Renew in the transaction that names the files. Raises HW-T03 if the writer was taken for dead."""
    if not _renewed(connection, writer):
        raise HeadwaterError(
            "HW-T03",
            "the writer of these files was taken for dead: they may be gone",
            hint="send the same rows again",
            retryable=True,
        )


def living_writers(connection: Connection) -> set[str]:
    """The writers whose files may still be committed."""
    return {row.writer_id for row in connection.execute(select(t.push_writer)) if lease_lives(row, now_us())}


def stop_writers(connection: Connection, writers: Collection[str]) -> tuple[set[str], int]:
    """Make sure that these land nothing more. Those that live after all, and how many were stopped."""
    alive, stopped = set(), 0
    for writer_id in sorted(writers):
        here = t.push_writer.c.writer_id == writer_id
        row = connection.execute(select(t.push_writer).where(here).with_for_update()).one_or_none()
        if row is None:
            continue
        if lease_lives(row, now_us()):
            alive.add(writer_id)
        else:
            stopped += connection.execute(delete(t.push_writer).where(here)).rowcount
    return alive, stopped


def end_writer(catalog: Catalog, writer: WriterHeld) -> None:
    """A process that ends well takes its row with it."""
    with catalog.transaction(durable=False) as connection:
        connection.execute(delete(t.push_writer).where(t.push_writer.c.writer_id == writer.writer_id))


def _renewed(connection: Connection, writer: WriterHeld) -> bool:
    given = {"of_writer": writer.writer_id, "until": _until()}
    return connection.execute(_RENEW, given).rowcount == 1


def _until() -> int:
    return now_us() + int(lease_seconds() * 1e6)

"""Questions to the ledger: which keys of pushed rows protect, and what was answered to them.

A key expires at its `expires_us`: from that moment on it does not protect any more, whether or not it was swept. The
clock that says so must be confirmed by commits: one that jumps ahead and back frees no key.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from headwater.base import limits
from headwater.catalog import sql_tables as t
from headwater.catalog.log import decode_record
from headwater.catalog.records import LedgerKeysCleared
from headwater.catalog.statements import chunks

_TAKEN = select(t.ledger_key).where(
    t.ledger_key.c.table_name == bindparam("of_table"),
    t.ledger_key.c.idempotency_key.in_(bindparam("asked", expanding=True)),
)
"""Built once: each commit of pushed rows asks twice."""


@dataclass(frozen=True)
class LedgerKey:
    """A key, and the answer that it got: a row of the ledger. `seq` is the commit that holds its rows."""

    table: str
    key: str
    fingerprint: str
    rows: int
    bytes: int
    refused: int
    seq: int
    at_us: int
    expires_us: int | None


def taken_keys(connection: Connection, table: str, keys: Collection[str], *, now_us: int) -> dict[str, LedgerKey]:
    """Those of the keys that protect now."""
    found: dict[str, LedgerKey] = {}
    for chunk in chunks(list(keys)):
        given = {"of_table": table, "asked": chunk}
        found |= {row.idempotency_key: LedgerKey(*row) for row in connection.execute(_TAKEN, given)}
    expired = [key for key, each in found.items() if each.expires_us is not None and each.expires_us <= now_us]
    if expired and clock_is_confirmed(connection, now_us):
        for key in expired:
            del found[key]
    return found


def clock_is_confirmed(connection: Connection, now_us: int) -> bool:
    """False for a clock that came far past the last commit less than an hour ago, by its own account: the store was
    idle, or the clock has jumped and may jump back. What commits say that lie ahead of the clock does not count."""
    known_until = now_us - limits.CLOCK_CONFIRMED_SECONDS * 1_000_000
    query = select(t.commit.c.at_us).order_by(t.commit.c.seq.desc()).limit(limits.CLOCK_COMMITS)
    first = now_us
    for at_us in connection.execute(query.execution_options(yield_per=limits.SQL_PARAMETERS)).scalars():
        if at_us <= known_until:
            gap_us: int = first - at_us
            return gap_us <= limits.CLOCK_GAP_SECONDS * 1_000_000
        first = min(first, at_us)
    return True  # a young store, or one with very many commits an hour


def ledger_keys(connection: Connection, *, table: str | None = None, limit: int) -> list[LedgerKey]:
    """The newest keys."""
    query = select(t.ledger_key).order_by(t.ledger_key.c.seq.desc(), t.ledger_key.c.idempotency_key).limit(limit)
    if table is not None:
        query = query.where(t.ledger_key.c.table_name == table)
    return [LedgerKey(*row) for row in connection.execute(query)]


def count_keys(connection: Connection, table: str) -> int:
    here = t.ledger_key.c.table_name == table
    return int(connection.execute(select(func.count()).select_from(t.ledger_key).where(here)).scalar_one())


def oldest_expiry(connection: Connection) -> int | None:
    """When the first key expired, or will."""
    found: int | None = connection.execute(select(func.min(t.ledger_key.c.expires_us))).scalar()
    return found


def cleared_since(connection: Connection, seq: int) -> set[str]:
    """The tables of which keys were cleared by commits after `seq`; all tables, if the records of some are trimmed."""
    c = t.log_record.c
    if (connection.execute(select(func.min(c.seq))).scalar() or 0) > seq + 1:
        return set(connection.execute(select(t.table.c.name)).scalars())
    marked = c.body.contains(f'"{LedgerKeysCleared.__struct_config__.tag}"', autoescape=True)
    records = connection.execute(select(c.body).where(c.seq > seq, marked)).scalars()
    changes = [change for record in records for change in decode_record(record.encode()).changes]
    return {change.table for change in changes if isinstance(change, LedgerKeysCleared)}

"""Questions to the ledger: which keys of pushed rows protect, and what was answered to them.

A key expires at its `expires_us`: from that moment on it does not protect any more, whether or not it was swept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from headwater.store import tables as t

KEYS_ASKED = 500
"""Databases bound the number of parameters of a statement."""


@dataclass(frozen=True)
class LedgerKey:
    """A key, and the answer that it got. `seq` is the commit that holds its rows."""

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
    asked = list(keys)
    for i in range(0, len(asked), KEYS_ASKED):
        chunk = t.ledger_key.c.idempotency_key.in_(asked[i : i + KEYS_ASKED])
        query = select(t.ledger_key).where(t.ledger_key.c.table_name == table, chunk, _protects(now_us))
        found |= {row.idempotency_key: _key(row) for row in connection.execute(query)}
    return found


def ledger_keys(
    connection: Connection, *, table: str | None = None, limit: int, now_us: int | None = None
) -> list[LedgerKey]:
    """The newest keys; with `now_us`, only those that protect then."""
    query = select(t.ledger_key).order_by(t.ledger_key.c.seq.desc(), t.ledger_key.c.idempotency_key).limit(limit)
    if table is not None:
        query = query.where(t.ledger_key.c.table_name == table)
    if now_us is not None:
        query = query.where(_protects(now_us))
    return [_key(row) for row in connection.execute(query)]


def count_keys(connection: Connection, table: str) -> int:
    here = t.ledger_key.c.table_name == table
    found: int = connection.execute(select(func.count()).select_from(t.ledger_key).where(here)).scalar_one()
    return found


def oldest_expiry(connection: Connection) -> int | None:
    """When the first key expired, or will."""
    found: int | None = connection.execute(select(func.min(t.ledger_key.c.expires_us))).scalar()
    return found


def _protects(now_us: int) -> ColumnElement[bool]:
    return or_(t.ledger_key.c.expires_us.is_(None), t.ledger_key.c.expires_us > now_us)


def _key(row: Row[Any]) -> LedgerKey:
    return LedgerKey(
        table=row.table_name,
        key=row.idempotency_key,
        fingerprint=row.fingerprint,
        rows=row.rows,
        bytes=row.bytes,
        refused=row.refused,
        seq=row.seq,
        at_us=row.at_us,
        expires_us=row.expires_us,
    )

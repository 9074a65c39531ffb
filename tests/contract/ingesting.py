"""Pushes for contract tests, by this process and by others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contract.stores import ACTOR, Place
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.lookup import table_states
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import Accepted, Push, PushTable

CRASH_POINTS = ("ingest.after_key", "ingest.before_write", "ingest.before_answer")
"""Those that only pushes pass; `KILLS` has all that they pass."""

KILLS = {
    "ingest.after_key": False,
    "ingest.before_write": False,
    "part.mid": False,
    "part.before_fsync": False,
    "part.after_fsync": False,
    "commit.before": False,
    "commit.inside": False,
    "commit.after": True,
    "stats.torn": True,
    "stats.after": True,
    "log.torn": True,
    "log.after": True,
    "ingest.before_answer": True,
}
"""Where a push is killed, and whether it has happened then."""

EVENTS = PushTable("events", "events")
BODY = b'{"label": "a", "user": "ada"}\n{"label": "b", "n": 1}\n'


def push(body: bytes = BODY, *, key: str | None = None, evolve: bool = True, target: PushTable = EVENTS) -> Push:
    return Push(target=target, body=body, actor=ACTOR, key=key, evolve=evolve)


def rows_of(store: Store, table: str = "events") -> list[dict[str, Any]]:
    """The rows of a table's live files, in the order of their commits, without the store's own columns and nulls."""
    with store.catalog.snapshot() as connection:
        states = table_states(connection, [table])
    found: list[dict[str, Any]] = []
    for state in states:
        own = {field.name for field in state.schema.to_arrow()}
        for file in state.files:
            rows: pa.Table = pq.read_table(store.root / file.path)
            found += [{k: v for k, v in row.items() if k in own and v is not None} for row in rows.to_pylist()]
    return found


# --- what other processes do


def accept_many(place: Place, count: int, key: str, body: bytes) -> list[Accepted]:
    """So many threads of one process push the same."""
    store = place.open()
    try:
        acceptor = Acceptor(store)
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(lambda _: acceptor.accept(push(body, key=key)), range(count)))
    finally:
        store.close()


def accept_columns(place: Place, names: Sequence[str]) -> list[int]:
    """One push after the other, each with a column that the table may not have yet."""
    store = place.open()
    try:
        acceptor = Acceptor(store)
        return [acceptor.accept(push(b'{"%s": 1}\n' % name.encode())).rows_ingested for name in names]
    finally:
        store.close()


def accept_one(place: Place, key: str, body: bytes) -> None:
    store = place.open()
    Acceptor(store).accept(push(body, key=key))
    store.close()


def accept_k(place: Place) -> str:
    """Pushes with the key `k`; whether it was new, and where its rows are."""
    store = place.open()
    try:
        found = Acceptor(store).accept(push(key="k"))
        return f"{'replayed' if found.replayed else 'landed'} at {found.snapshot_id}"
    except HeadwaterError as error:
        return error.code
    finally:
        store.close()

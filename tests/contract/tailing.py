"""Tails of pushed tables for contract tests: what they hold, and merges by this process and by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contract.ingesting import push
from contract.stores import ACTOR, Place
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.lookup import table_states
from headwater.catalog.table_state import TableState
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import PushTable
from headwater.ingest.tail import Tails
from unit.duck.tables import ask

CRASH_POINTS = ("tail.before_commit", "tail.after_commit")
"""Those that only merges pass; `KILLS` has all that they pass."""

KILLS = {
    "part.mid": False,
    "part.before_fsync": False,
    "part.after_fsync": False,
    "tail.before_commit": False,
    "commit.before": False,
    "commit.inside": False,
    "commit.after": True,
    "log.torn": True,
    "log.after": True,
    "tail.after_commit": True,
}
"""Where a merge is killed, and whether it has happened then."""

Rows = list[tuple[Any, ...]]


def body(*labels: object) -> bytes:
    return "".join(f'{{"label": "{label}"}}\n' for label in labels).encode()


def push_labels(store: Store, labels: Sequence[object], *, target: PushTable | None = None) -> None:
    """Each in a push of its own."""
    acceptor = Acceptor(store)
    for label in labels:
        acceptor.accept(push(body(label)) if target is None else push(body(label), target=target))
    acceptor.close()


def state_of(store: Store, table: str = "events", *, as_of: int | None = None) -> TableState:
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection, [table], as_of=as_of)
    return state


def shown(store: Store, table: str = "events", sql: str = "SELECT * FROM t", *, as_of: int | None = None) -> Rows:
    """What the table's view answers."""
    return ask(store.root, state_of(store, table, as_of=as_of), sql)


def merge(store: Store, table: str = "events") -> int:
    """Merge as far as there is something to merge; how many merges that took."""
    tails = Tails(store, actor=ACTOR)
    found = tails.merge(table)
    tails.close()
    return found


# --- what other processes do


def merge_events(place: Place) -> str:
    """How many merges it took, or the code of the error."""
    store = place.open()
    try:
        return str(merge(store))
    except HeadwaterError as error:
        return error.code
    finally:
        store.close()


def push_and_merge(place: Place, name: str, count: int) -> int:
    """So many pushes, each of one row, with the background at work; the bytes that merges have written."""
    store = place.open()
    tails = Tails(store, actor=ACTOR)
    acceptor = Acceptor(store, on_landed=lambda push, _prepared: tails.landed(push.target.table))
    for number in range(count):
        acceptor.accept(push(body(f"{name}{number}")))
    tails.close()
    acceptor.close()
    store.close()
    return tails.bytes_written

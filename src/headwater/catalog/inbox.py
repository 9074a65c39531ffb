"""The inbox of the engine: what happened and what is asked for, in order, until the engine's owner has taken it.

An event is there from the commit of the transaction that put it until the step that consumes it, or until its answer
is read. Of two events the one whose transaction ended before the other's began has the smaller id; where they
overlapped either may come first, and the later one may appear after the earlier was consumed. So the rows
say what was consumed, never a mark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import InboxEvent
from headwater.catalog.statements import chunks, json_text
from headwater.catalog.wakeups import notify
from headwater.freshness.events import (
    Cleared,
    Completed,
    Delivered,
    Demand,
    Failed,
    Trigger,
    TriggerCleared,
    TriggerSet,
)

Sendable = Demand | TriggerSet | TriggerCleared | Completed | Failed | Cleared | Delivered
"""The events that come from outside. Time passes, and the graph changes, at the owner's own hand."""

_KINDS: dict[str, type[Sendable]] = {
    "demand": Demand,
    "trigger_set": TriggerSet,
    "trigger_cleared": TriggerCleared,
    "completed": Completed,
    "failed": Failed,
    "cleared": Cleared,
    "delivered": Delivered,
}

_PUT = insert(t.inbox)
_PUT_ALL = insert(t.inbox).returning(t.inbox.c.id, sort_by_parameter_order=True)
_OLDEST = select(t.inbox).where(t.inbox.c.answer.is_(None)).order_by(t.inbox.c.id).limit(bindparam("most"))
_CONSUME = delete(t.inbox).where(t.inbox.c.id == bindparam("of"), t.inbox.c.answer.is_(None))
_ANSWER = (
    update(t.inbox).where(t.inbox.c.id == bindparam("to"), t.inbox.c.answer.is_(None)).values(answer=bindparam("says"))
)


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """An event in the inbox. `event` is None for a kind that is not the engine's, or that only a newer Headwater
    knows: then `kind` and `body` say what it is."""

    id: int
    at_us: int
    kind: str
    body: Mapping[str, Any]
    actor: str
    ids: Mapping[str, str]
    event: Sendable | None


def message(event: Sendable, *, actor: str, ids: Mapping[str, str] | None = None) -> InboxEvent:
    """An event of the engine as the inbox keeps it."""
    body = event._asdict()
    if isinstance(event, TriggerSet):
        body["trigger"] = event.trigger._asdict()
    kind = next(name for name, type_ in _KINDS.items() if type_ is type(event))
    return InboxEvent(kind=kind, body=body, actor=actor, ids=ids or {})


def event_of(kind: str, body: Mapping[str, Any]) -> Sendable | None:
    """The engine's event; None if there is none of that kind and form."""
    type_ = _KINDS.get(kind)
    if type_ is None:
        return None
    try:
        if type_ is TriggerSet:
            return TriggerSet(body["pond"], Trigger(**body["trigger"]))
        return type_(**body)
    except (KeyError, TypeError):
        return None


def put(connection: Connection, events: Sequence[InboxEvent]) -> None:
    """Add events in their order, as part of a transaction: they are there if and only if it is committed."""
    if events:
        connection.execute(_PUT, [_row(event, now_us()) for event in events])
        notify(connection)


def send(catalog: Catalog, event: InboxEvent) -> int:
    """Add one event in a transaction of its own. Its id: once it is `waiting` no more it was taken."""
    return send_all(catalog, [event])[0]


def send_all(catalog: Catalog, events: Sequence[InboxEvent]) -> list[int]:
    """Add events in one transaction, in their order; their ids."""
    if not events:
        return []
    now = now_us()
    with catalog.transaction() as connection:
        ids = connection.execute(_PUT_ALL, [_row(event, now) for event in events]).scalars().all()
        notify(connection)
    return [int(id_) for id_ in ids]


def take(connection: Connection, limit: int = limits.INBOX_BATCH) -> list[Arrived]:
    """The oldest events, in order. They stay until a step consumes them."""
    found = []
    for id_, at_us, kind, text, actor, _ in connection.execute(_OLDEST, {"most": limit}):
        held = msgspec.json.decode(text)
        body, ids = held["body"], held.get("ids", {})
        event = event_of(kind, body)
        found.append(Arrived(id=id_, at_us=at_us, kind=kind, body=body, actor=actor, ids=ids, event=event))
    return found


def consume(connection: Connection, ids: Sequence[int], *, answers: Mapping[int, Mapping[str, Any]]) -> None:
    """Take events out of the inbox, as part of the step that took notice of them. Those with an answer are kept for
    their senders. Raises HW-T02 if one of them is not there: it would count twice."""
    silent = [{"of": id_} for id_ in ids if id_ not in answers]
    gone = connection.execute(_CONSUME, silent).rowcount if silent else 0
    if answers:
        said = [{"to": id_, "says": json_text(answer)} for id_, answer in answers.items()]
        gone += connection.execute(_ANSWER, said).rowcount
    if gone != len(ids):
        raise HeadwaterError(
            "HW-T02",
            "an event of the engine's inbox was taken by another process",
            hint="load the engine's state again and go on from there",
            retryable=True,
        )


def waiting(connection: Connection, ids: Collection[int]) -> set[int]:
    """Those of these events that no step has taken yet."""
    chosen = t.inbox.c.id.in_(list(ids))
    return {id_ for (id_,) in connection.execute(select(t.inbox.c.id).where(chosen, t.inbox.c.answer.is_(None)))}


def read_answers(catalog: Catalog, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """The answers that there are to these events, by id. Each is read once."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks(list(ids)):
        here = t.inbox.c.id.in_(chunk) & t.inbox.c.answer.is_not(None)
        with catalog.snapshot() as connection:
            if connection.execute(select(t.inbox.c.id).where(here).limit(1)).first() is None:
                continue
        with catalog.transaction(durable=False) as connection:
            rows = connection.execute(delete(t.inbox).where(here).returning(t.inbox.c.id, t.inbox.c.answer)).all()
        found.update({row.id: dict(msgspec.json.decode(row.answer)) for row in rows})
    return found


def forget_answers(catalog: Catalog, *, retention_seconds: float = limits.ANSWER_TTL_SECONDS) -> int:
    """Drop the answers to events that came so long ago: their senders are gone. How many."""
    old = (t.inbox.c.answer.is_not(None), t.inbox.c.at_us < now_us() - int(retention_seconds * 1e6))
    with catalog.transaction(durable=False) as connection:
        return connection.execute(delete(t.inbox).where(*old)).rowcount


def _row(event: InboxEvent, at_us: int) -> dict[str, Any]:
    held = {"body": event.body, "ids": event.ids} if event.ids else {"body": event.body}
    return {"at_us": at_us, "kind": event.kind, "body": json_text(held), "actor": event.actor}

"""Standing demand that people and programs set: Waves and Tides, kept until they are removed or expire.

What the manifest declares is not here: the manifest says it. A process that keeps the engine running (`serve`) applies
both kinds; a passing `apply` leaves them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, select

from headwater.base.clock import now_us
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import InboxEvent
from headwater.catalog.inbox import put
from headwater.catalog.statements import upsert

CHANGED = "triggers_changed"
"""The kind of the event that tells the engine's owner to look here again."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A Wave, or a Tide that keeps its pond's staleness below the limit."""

    pond: str
    trigger_id: str
    kind: Literal["wave", "tide"]
    limit_us: int = 0
    actor: str
    set_us: int
    expires_us: int | None = None


def set_standing(catalog: Catalog, trigger: Standing) -> None:
    """Keep a trigger; one with the same id on the same pond is replaced."""
    with catalog.transaction() as connection:
        row = upsert(connection, t.standing_trigger).values(vars(trigger))
        changed = {name: row.excluded[name] for name in ("kind", "limit_us", "actor", "set_us", "expires_us")}
        connection.execute(row.on_conflict_do_update(index_elements=["pond", "trigger_id"], set_=changed))
        _tell(connection, trigger.pond, trigger.actor)


def remove_standing(catalog: Catalog, pond: str, trigger_id: str | None, *, actor: str) -> int:
    """Remove one trigger of a pond, or all of them; how many."""
    here = t.standing_trigger.c.pond == pond
    if trigger_id is not None:
        here &= t.standing_trigger.c.trigger_id == trigger_id
    with catalog.transaction() as connection:
        gone = connection.execute(delete(t.standing_trigger).where(here)).rowcount
        if gone:
            _tell(connection, pond, actor)
    return gone


def standing(connection: Connection) -> list[Standing]:
    """Those that have not expired, in the order in which they were set."""
    rows = connection.execute(select(t.standing_trigger).order_by(t.standing_trigger.c.set_us))
    now = now_us()
    found = [Standing(**row._mapping) for row in rows]
    return [trigger for trigger in found if trigger.expires_us is None or trigger.expires_us > now]


def forget_expired(catalog: Catalog) -> int:
    """Drop those that have expired; how many."""
    with catalog.transaction(durable=False) as connection:
        return connection.execute(
            delete(t.standing_trigger).where(t.standing_trigger.c.expires_us <= now_us())
        ).rowcount


def _tell(connection: Connection, pond: str, actor: str) -> None:
    put(connection, [InboxEvent(kind=CHANGED, body={"pond": pond}, actor=actor)])

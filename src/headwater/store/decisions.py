"""Schema changes that need a person: noted when they are refused, made when somebody accepts them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.base.schema import TableSchema
from headwater.store import records as r
from headwater.store import tables as t
from headwater.store.commit import Store
from headwater.store.evolution import Evolution
from headwater.store.reading import table_entry


@dataclass(frozen=True)
class Proposal:
    """A refused change that is still open."""

    seq: int
    schema: TableSchema
    mode: str
    events: tuple[r.SchemaEvent, ...]


@dataclass(frozen=True)
class Accepted:
    table: str
    schema_id: int
    seq: int
    changes: tuple[str, ...]
    decided_by: str


def refuse_change(store: Store, table: str, evolution: Evolution, *, mode: str, actor: str) -> None:
    """Note what was refused; the same refusal is noted once."""
    assert evolution.proposal is not None
    proposal = {"schema": evolution.proposal.as_json(), "mode": mode}
    with store.catalog.snapshot() as connection:
        noted = open_proposal(connection, table)
    if noted is None or (noted.schema.as_json(), noted.mode) != (proposal["schema"], mode):
        refused = r.SchemaRefused(table=table, events=evolution.refused, proposal=proposal)
        store.commit(r.Commit(changes=(refused,), actor=actor))


def open_proposal(connection: Connection, table: str) -> Proposal | None:
    """The newest refused change that no later schema has overtaken."""
    event = t.schema_event
    rows = connection.execute(select(event).where(event.c.table_name == table).order_by(event.c.seq.desc())).all()
    if not rows or rows[0].kind != "refused":
        return None
    latest = [row for row in rows if row.seq == rows[0].seq]
    body: dict[str, Any] = json.loads(latest[0].proposal)
    return Proposal(
        seq=latest[0].seq,
        schema=TableSchema.from_json(body["schema"]),
        mode=body["mode"],
        events=tuple(
            r.SchemaEvent(
                kind=row.note.partition(":")[0],
                column=row.column_name,
                before=json.loads(row.before_json),
                after=json.loads(row.after_json),
                note=row.note.partition(": ")[2],
            )
            for row in sorted(latest, key=lambda row: row.position)
        ),
    )


def accept_change(store: Store, table: str, *, actor: str) -> Accepted:
    """Make the refused change of a table, in the name of `actor`. Raises HW-S03 if there is none."""
    with store.catalog.snapshot() as connection:
        entry = table_entry(connection, table)
        proposal = open_proposal(connection, table)
    if proposal is None:
        raise HeadwaterError(
            "HW-S03",
            f"there is no refused change of `{table}` to accept",
            hint=f"`headwater schema log {table}` shows what happened to it",
        )
    crash_point("schema.before_accept")
    schema_id = entry.schema_id + 1
    changes: list[r.Change] = [
        r.SchemaSet(
            table=table,
            schema_id=schema_id,
            schema=proposal.schema.as_json(),
            events=proposal.events,
            decided_by=actor,
        )
    ]
    if proposal.mode != entry.mode:
        changes.append(r.TableModeSet(table=table, mode=proposal.mode))
    requires = (r.SchemaIs(table=table, schema_id=entry.schema_id),)
    seq = store.commit(r.Commit(changes=tuple(changes), requires=requires, actor=actor))
    return Accepted(table, schema_id, seq, tuple(event.note for event in proposal.events), actor)

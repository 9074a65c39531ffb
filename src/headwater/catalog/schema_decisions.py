"""Schema changes that need a person: noted when they are refused, made when a user accepts them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.evolution import Evolution, check_key, refusal
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_entry


@dataclass(frozen=True)
class Proposal:
    """A refused change that is still open."""

    schema: TableSchema
    mode: str
    events: tuple[r.SchemaEvent, ...]


@dataclass(frozen=True)
class AcceptedChange:
    table: str
    schema_id: int
    seq: int
    changes: tuple[str, ...]
    decided_by: str


def refuse_change(
    store: Store, table: str, evolution: Evolution, *, mode: str, actor: str, declared: Collection[str] = ()
) -> HeadwaterError:
    """Note what was refused, so that `schema accept` finds it; the same refusal is noted once. Returns the error to
    raise, HW-S01 or HW-S02. `declared` are the columns whose type the manifest says."""
    assert evolution.proposal is not None
    proposal = {"schema": evolution.proposal.as_json(), "mode": mode}
    with store.catalog.snapshot() as connection:
        noted = open_proposal(connection, table)
    if noted is None or (noted.schema.as_json(), noted.mode) != (proposal["schema"], mode):
        refused = r.SchemaRefused(table=table, events=evolution.refused, proposal=proposal)
        store.commit(r.Commit(changes=(refused,), actor=actor))
    return refusal(table, evolution.refused, declared)


def open_proposal(connection: Connection, table: str) -> Proposal | None:
    """The newest refused change that no later schema has overtaken."""
    event = t.schema_event
    rows = connection.execute(select(event).where(event.c.table_name == table).order_by(event.c.seq.desc())).all()
    if not rows or rows[0].kind != "refused":
        return None
    latest = [row for row in rows if row.seq == rows[0].seq]
    body: dict[str, Any] = json.loads(latest[0].proposal)
    return Proposal(
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


def accept_change(store: Store, table: str, *, actor: str) -> AcceptedChange:
    """Make the refused change of a table, in the name of `actor`, with the changes that came with it. Raises HW-S03
    if there is none, or if it would make a column the key that is not there."""
    with store.catalog.snapshot() as connection:
        entry = table_entry(connection, table)
        proposal = open_proposal(connection, table)
    if proposal is None:
        raise HeadwaterError(
            "HW-S03",
            f"there is no refused change of `{table}` to accept",
            hint=f"`headwater schema log {table}` shows what happened to it",
        )
    check_key(proposal.schema)
    crash_point("schema.before_accept")
    landing = Landing(store, actor)
    events = proposal.events + _companions(entry.schema, proposal)
    schema_id = landing.set_schema(table, entry.schema_id, proposal.schema, events, decided_by=actor)
    mode = (r.TableModeSet(table=table, mode=proposal.mode),) if proposal.mode != entry.mode else ()
    seq = landing.commit(changes=mode)
    return AcceptedChange(table, schema_id, seq, tuple(event.note for event in proposal.events), actor)


def _companions(before: TableSchema, proposal: Proposal) -> tuple[r.SchemaEvent, ...]:
    """The changes that needed no decision and were held up with those that did: the log shows them too."""
    decided = {event.column for event in proposal.events}
    found = []
    for column in proposal.schema.columns:
        old = before.by_id(column.id)
        if old is None:
            if column.name not in decided:
                found.append(r.SchemaEvent(kind="add_column", column=column.name, after=str(column.type)))
            continue
        if old.name != column.name:
            found.append(r.SchemaEvent(kind="rename_column", column=column.name, before=old.name, after=column.name))
        if old.dropped != column.dropped:
            kind = "drop_column" if column.dropped else "restore_column"
            found.append(r.SchemaEvent(kind=kind, column=column.name))
        if old.type != column.type and column.name not in decided:
            before_type, after_type = str(old.type), str(column.type)
            found.append(r.SchemaEvent(kind="widen_type", column=column.name, before=before_type, after=after_type))
        if old.default != column.default:
            event = r.SchemaEvent(kind="set_default", column=column.name, before=old.default, after=column.default)
            found.append(event)
    return tuple(found)

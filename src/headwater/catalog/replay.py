"""What each change does to the catalog's rows. A commit and a rebuild from the log both come through here, so the
log is the catalog by construction."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, assert_never

import msgspec
from sqlalchemy import Connection, Update, bindparam, case, delete, func, insert, select, update

from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.levels import key_at
from headwater.catalog.statements import chunks, set_columns, upsert
from headwater.storage.file_record import FileRecord
from headwater.storage.key_text import key_of

# What runs and pushed rows do many times a second is made once: making a statement costs more than running it.
_FREE_KEY = delete(t.ledger_key).where(
    t.ledger_key.c.table_name == bindparam("table"), t.ledger_key.c.idempotency_key == bindparam("key")
)
_INSERT_KEY = insert(t.ledger_key).values(table_name=bindparam("table"), idempotency_key=bindparam("key"))
_INSERT_FILE = insert(t.file)
_REMOVE_FILE = (
    update(t.file)
    .where(t.file.c.removed_seq.is_(None), t.file.c.path == bindparam("of_path"))
    .values(removed_seq=bindparam("in_seq"), removed_us=bindparam("at_us"))
)
_INSERT_RUN = insert(t.run)
_INSERT_LINEAGE = insert(t.lineage)
_BEGUN = select(t.run.c.started_seq).where(t.run.c.run_id == bindparam("of_run")).scalar_subquery()
_INSERT_UNIT = insert(t.unit).values(
    table_name=bindparam("table"),
    planned_seq=func.coalesce(_BEGUN, bindparam("in_seq")),  # a later part of a plan is for what its first part saw
)
_MOVE_RUN = (
    update(t.run)
    .where(t.run.c.run_id == bindparam("of_run"), t.run.c.state == bindparam("before"))
    .values(state=bindparam("after"))
)
_to_ended: dict[str, Any] = {name: bindparam(f"to_{name}") for name in ("state", "rows", "bytes", "done_seq", "staged")}
_END_UNIT = update(t.unit).where(t.unit.c.unit_id == bindparam("of_unit")).values(_to_ended).returning(t.unit)
_counts, _units = t.run_table.c, t.unit.c
_OPEN_UNIT = (
    select(_units.ordinal)
    .where(
        _units.run_id == _counts.run_id,
        _units.table_name == _counts.table_name,
        _units.ordinal > bindparam("at"),
        _units.state != "done",
    )
    .order_by(_units.ordinal)
    .limit(1)
    .scalar_subquery()
)
_keys = bindparam("keys", type_=_counts.source_keys.type)
_COUNT_DONE = (
    update(t.run_table)
    .where(_counts.run_id == bindparam("of_run"), _counts.table_name == bindparam("of_table"))
    .values(
        pending=_counts.pending - 1,
        done=_counts.done + 1,
        rows=_counts.rows + bindparam("more_rows"),
        bytes=_counts.bytes + bindparam("more_bytes"),
        source_keys=case(((_counts.done == 0) | (_counts.source_keys == _keys), _keys), else_=-1),
        prefix=case(
            (_counts.prefix == bindparam("at"), func.coalesce(_OPEN_UNIT, _counts.slices)), else_=_counts.prefix
        ),
    )
)
_SUMS_OF_RUN = select(*(func.sum(_counts[name]) for name in ("pending", "done", "slices", "rows", "bytes"))).where(
    _counts.run_id == bindparam("of_run")
)


def apply_changes(connection: Connection, record: r.LogRecord) -> None:
    """Write one record's changes, in their order. Reads nothing but the catalog and the record."""
    _add_schema_events(connection, record)
    for _, alike in itertools.groupby(record.changes, key=type):
        changes = list(alike)
        if isinstance(changes[0], r.LedgerKeySet):  # a commit may have hundreds
            _set_keys(connection, record, [change for change in changes if isinstance(change, r.LedgerKeySet)])
            continue
        for change in changes:
            _apply(connection, record, change)


def _apply(connection: Connection, record: r.LogRecord, change: r.Change) -> None:
    match change:
        case r.TableCreated():
            values = {"name": change.table, "pipeline": change.pipeline, "mode": change.mode, "schema_id": 0}
            seqs = {"created_seq": record.seq, "changed_seq": record.seq, "oldest_seq": 0, "files_seq": record.seq}
            connection.execute(insert(t.table).values(**values, **seqs))  # what else there is begins at 0
            _drop_view(connection, change.table)
        case r.TableModeSet():
            _touch(connection, change.table, record.seq, mode=change.mode)
            connection.execute(_live_of(change.table).values(level=0))
        case r.SchemaSet():
            _set_schema(connection, record, change)
        case r.SchemaRefused():
            pass
        case r.FilesAdded():
            _add_files(connection, record, change)
            _touch(connection, change.table, record.seq)
        case r.FilesRemoved():
            _remove_files(connection, record, change.paths)
            _touch(connection, change.table, record.seq, **({"rewritten_seq": record.seq} if change.rewrites else {}))
        case r.FilesMerged():
            _add_files(connection, record, change)
            _remove_files(connection, record, change.replaces)
            set_columns(connection, t.table, {"name": change.table}, files_seq=record.seq)
        case r.FilesForgotten():
            _forget_files(connection, change)
        case r.ViewSet():
            _set_view(connection, record, change)
        case r.CursorSet():
            _set_cursor(connection, record, change, change.value)
        case r.CursorAdvanced():
            _advance_cursor(connection, record, change)
        case r.ItemsLanded():
            _set_items(connection, record, change)
        case r.LedgerKeySet():
            _set_keys(connection, record, [change])
        case r.LedgerKeysCleared():
            _clear_keys(connection, change)
        case r.LedgerSwept():
            connection.execute(delete(t.ledger_key).where(t.ledger_key.c.expires_us <= change.before_us))
        case r.RunStarted() | r.RunError() | r.RunSettled() | r.RunEnded() | r.LineageAdded():
            _apply_run(connection, record, change)
        case r.UnitsPlanned():
            _plan_units(connection, record, change)
        case r.UnitDone():
            _end_unit(connection, record, change)
        case r.UnitsAbandoned():
            _abandon_units(connection, record, change)
        case _:
            assert_never(change)


def _set_keys(connection: Connection, record: r.LogRecord, changes: Sequence[r.LedgerKeySet]) -> None:
    """The keys of one commit, of which no two are the same; those that had expired are taken over."""
    rows = [msgspec.structs.asdict(change) | {"seq": record.seq, "at_us": record.at_us} for change in changes]
    connection.execute(_FREE_KEY, rows)
    connection.execute(_INSERT_KEY, rows)


def _clear_keys(connection: Connection, change: r.LedgerKeysCleared) -> None:
    of_table = delete(t.ledger_key).where(t.ledger_key.c.table_name == change.table)
    if change.keys is None:
        connection.execute(of_table)
    for chunk in chunks(change.keys or ()):
        connection.execute(of_table.where(t.ledger_key.c.idempotency_key.in_(chunk)))


def _apply_run(connection: Connection, record: r.LogRecord, change: r.RunChange) -> None:
    match change:
        case r.RunStarted():
            values = msgspec.structs.asdict(change)
            trigger, bounds = values.pop("trigger"), values.pop("bounds")
            begun = {"actor": record.actor, "started_us": record.at_us, "started_seq": record.seq}
            values |= begun | {"trigger_kind": trigger, "cut": _json(bounds), "state": "reading", "rows": 0, "bytes": 0}
            connection.execute(_INSERT_RUN, values)
        case r.RunSettled():
            _settle_run(connection, record, change.run_id)
        case r.RunError():
            first = (t.run.c.run_id == change.run_id) & t.run.c.error_kind.is_(None)
            error = {"error_kind": change.error_kind, "error_message": change.error_message}
            connection.execute(update(t.run).where(first).values(**error))
        case r.RunEnded():
            counts = connection.execute(_SUMS_OF_RUN, {"of_run": change.run_id}).one()
            _end_run(connection, record, change.run_id, change.state, counts)
        case r.LineageAdded():
            rows = [{"child_run_id": change.child_run_id, "parent_run_id": p} for p in change.parent_run_ids]
            if rows:
                connection.execute(_INSERT_LINEAGE, rows)
        case _:
            assert_never(change)


def _plan_units(connection: Connection, record: r.LogRecord, change: r.UnitsPlanned) -> None:
    if not change.units:
        return
    of_run = {"run_id": change.run_id, "of_run": change.run_id, "pipeline": change.pipeline, "in_seq": record.seq}
    rows = []
    for unit in change.units:
        row = msgspec.structs.asdict(unit) | {"payload": _json(unit.payload), "state": "pending", "rows": 0, "bytes": 0}
        rows.append(row | of_run)
    connection.execute(_INSERT_UNIT, rows)
    _count_planned(connection, change)


def _end_unit(connection: Connection, record: r.LogRecord, change: r.UnitDone) -> None:
    ended = {"state": "done", "rows": change.rows, "bytes": change.bytes, "done_seq": record.seq}
    given = {f"to_{name}": value for name, value in (ended | {"staged": _staged(change)}).items()}
    unit = connection.execute(_END_UNIT, {"of_unit": change.unit_id, **given}).first()
    if unit is None:
        return
    of_table = {"of_run": unit.run_id, "of_table": unit.table_name, "at": unit.ordinal}
    more = {"more_rows": change.rows, "more_bytes": change.bytes}
    keys = change.source_keys if change.source_keys is not None else -1
    connection.execute(_COUNT_DONE, {**of_table, **more, "keys": keys})
    for end in change.cursor:
        payload = json.loads(unit.payload)
        payload["slice"]["end"] = end
        set_columns(connection, t.unit, {"unit_id": change.unit_id}, payload=_json(payload))


def _abandon_units(connection: Connection, record: r.LogRecord, change: r.UnitsAbandoned) -> None:
    left = (t.unit.c.run_id == change.run_id) & (t.unit.c.state == "pending")
    tables = (t.run_table.c.run_id == change.run_id) & (t.run_table.c.pending > 0)
    if change.table is not None:
        left = left & (t.unit.c.table_name == change.table)
        tables = tables & (t.run_table.c.table_name == change.table)
    connection.execute(update(t.unit).where(left).values(state="abandoned", done_seq=record.seq))
    connection.execute(update(t.run_table).where(tables).values(pending=0))


def _count_planned(connection: Connection, change: r.UnitsPlanned) -> None:
    """A plan may come in several parts: its slices are work when the last of them is there."""
    zero = {"run_id": change.run_id, "pipeline": change.pipeline, "done": 0, "prefix": 0, "rows": 0, "bytes": 0}
    counts = Counter(unit.table for unit in change.units)
    rows = [{**zero, "table_name": table, "slices": count, "pending": count} for table, count in counts.items()]
    connection.execute(_count_slices(connection.dialect.name), rows)
    before, after = ("reading", "planning") if change.more else ("planning", "reading")
    connection.execute(_MOVE_RUN, {"of_run": change.run_id, "before": before, "after": after})


@cache
def _count_slices(dialect: str) -> Any:
    new = upsert(dialect, t.run_table)
    more = {name: _counts[name] + new.excluded[name] for name in ("slices", "pending")}
    return new.on_conflict_do_update(index_elements=["run_id", "table_name"], set_=more)


def _staged(change: r.UnitDone) -> str | None:
    if not change.staged:
        return None
    return _json({"schema_id": change.staged_schema_id, "files": [msgspec.to_builtins(f) for f in change.staged]})


def _set_schema(connection: Connection, record: r.LogRecord, change: r.SchemaSet) -> None:
    current = connection.execute(select(t.table.c.schema_id).where(t.table.c.name == change.table)).scalar()
    schema = TableSchema.from_json(change.schema)
    if current and key_at(connection, change.table, current) != key_of(schema):
        unknown = {"level": 0, "unique_keys": False, "first_key": None, "last_key": None}
        connection.execute(_live_of(change.table).values(unknown))
    names = {"table_name": change.table, "schema_id": change.schema_id, "fingerprint": schema.fingerprint}
    connection.execute(insert(t.table_schema).values(**names, body=_json(change.schema), seq=record.seq))
    _touch(connection, change.table, record.seq, schema_id=change.schema_id)


def _add_schema_events(connection: Connection, record: r.LogRecord) -> None:
    rows: list[dict[str, Any]] = []
    for change in record.changes:
        if not isinstance(change, r.SchemaSet | r.SchemaRefused):
            continue
        refused = change if isinstance(change, r.SchemaRefused) else None
        for e in change.events:
            row = {
                "seq": record.seq,
                "position": len(rows),
                "table_name": change.table,
                "kind": "refused" if refused else e.kind,
                "column_name": e.column,
                "before_json": _json(e.before),
                "after_json": _json(e.after),
                "note": f"{e.kind}: {e.note}" if refused and e.note else e.kind if refused else e.note,
                "proposal": _json(refused.proposal) if refused else None,
                "decided_by": change.decided_by,
                "at_us": record.at_us,
            }
            rows.append(row)
    if rows:
        connection.execute(insert(t.schema_event), rows)


def _add_files(connection: Connection, record: r.LogRecord, change: r.FilesAdded | r.FilesMerged) -> None:
    of_commit = {
        "table_name": change.table,
        "schema_id": change.schema_id,
        "run_id": change.run_id,
        "unique_keys": change.unique_keys,
        "level": change.level,
        "added_seq": record.seq,
        "origin_node": record.node,
        "origin_seq": record.seq,
    }
    rows = [msgspec.structs.asdict(file) | of_commit | _as_text(file) for file in change.files]
    if rows:
        connection.execute(_INSERT_FILE, rows)


def _as_text(file: FileRecord) -> dict[str, str | None]:
    """What a row holds as JSON."""
    return {
        "stats": _json(msgspec.to_builtins(file.stats)) if file.stats is not None else None,
        "sources": _json(file.sources) if file.sources else None,
        "sort_order": _json(list(file.sort_order)) if file.sort_order else None,
        "index_ids": _json(list(file.index_ids)) if file.index_ids else None,
    }


def _live_of(table: str) -> Update:
    """Its live files, but for those of old records: their levels are decided where the old records end."""
    live = t.file.c.removed_seq.is_(None) & t.file.c.level.is_not(None)
    return update(t.file).where(t.file.c.table_name == table, live)


def _remove_files(connection: Connection, record: r.LogRecord, paths: Sequence[str]) -> None:
    """A life ends once: what reads as of an older sequence show does not change afterwards."""
    removed = {"in_seq": record.seq, "at_us": record.at_us}
    if paths:
        connection.execute(_REMOVE_FILE, [{"of_path": path, **removed} for path in paths])


def _forget_files(connection: Connection, change: r.FilesForgotten) -> None:
    """Only lives that have ended can be forgotten, and of two gcs the one that forgot more counts."""
    for chunk in chunks(change.paths):
        ended = t.file.c.removed_seq <= change.oldest_seq
        connection.execute(delete(t.file).where(t.file.c.path.in_(chunk), ended))
    older = (t.table.c.name == change.table) & (t.table.c.oldest_seq < change.oldest_seq)
    connection.execute(update(t.table).where(older).values(oldest_seq=change.oldest_seq))


def _set_view(connection: Connection, record: r.LogRecord, change: r.ViewSet) -> None:
    body = _json(msgspec.to_builtins(change.definition))
    c = t.view_definition.c
    newest = select(c.body).where(c.view_name == change.view).order_by(c.seq.desc()).limit(1)
    if connection.execute(newest).scalar() != body:
        connection.execute(insert(t.view_definition).values(view_name=change.view, seq=record.seq, body=body))
    connection.execute(insert(t.view_cut).values(view_name=change.view, seq=record.seq, reads=_json(change.reads)))
    connection.execute(delete(t.view).where(t.view.c.name == change.view))
    connection.execute(insert(t.view).values(name=change.view, pipeline=change.pipeline, changed_seq=record.seq))


def _drop_view(connection: Connection, name: str) -> None:
    """A table takes the place of a view of its name, which held no rows that could be lost."""
    connection.execute(delete(t.view).where(t.view.c.name == name))
    for part in (t.view_definition, t.view_cut):
        connection.execute(delete(part).where(part.c.view_name == name))


def _set_cursor(
    connection: Connection, record: r.LogRecord, change: r.CursorSet | r.CursorAdvanced, value: Any
) -> None:
    new = upsert(connection, t.cursor)
    values = {
        "kind": change.kind,
        "source_identity": change.source_identity,
        "value": _json(value),
        "seq": record.seq,
    }
    first = new.values(pipeline=change.pipeline, table_name=change.table, version=1, **values)
    later = {**values, "version": t.cursor.c.version + 1}
    connection.execute(first.on_conflict_do_update(index_elements=["pipeline", "table_name"], set_=later))


def _advance_cursor(connection: Connection, record: r.LogRecord, change: r.CursorAdvanced) -> None:
    unit, counts = t.unit.c, t.run_table.c
    last = (
        select(unit.payload)
        .join(t.run_table, (counts.run_id == unit.run_id) & (counts.table_name == unit.table_name))
        .where(unit.run_id == change.run_id, unit.table_name == change.table, unit.ordinal == counts.prefix - 1)
    )
    payload = connection.execute(last).scalar()
    if payload is not None:
        _set_cursor(connection, record, change, json.loads(payload)["slice"]["end"])


def _settle_run(connection: Connection, record: r.LogRecord, run_id: str) -> None:
    counts = connection.execute(_SUMS_OF_RUN, {"of_run": run_id}).one()
    pending, done, slices = counts[:3]
    if not pending:
        state = "success" if done == slices else "partial" if done else "failed"
        _end_run(connection, record, run_id, state, counts)
    elif done:
        state = "committing" if pending == 1 else "writing"
        moves = (t.run.c.run_id == run_id) & (t.run.c.state != state)
        connection.execute(update(t.run).where(moves).values(state=state))


def _end_run(connection: Connection, record: r.LogRecord, run_id: str, state: str, counts: Sequence[Any]) -> None:
    rows, size = (int(count or 0) for count in counts[3:])
    ended = {"state": state, "rows": rows, "bytes": size, "ended_us": record.at_us, "ended_seq": record.seq}
    set_columns(connection, t.run, {"run_id": run_id}, **ended)


def _set_items(connection: Connection, record: r.LogRecord, change: r.ItemsLanded) -> None:
    here = (t.item.c.pipeline == change.pipeline) & (t.item.c.table_name == change.table)
    for chunk in chunks(tuple(change.items)):
        connection.execute(delete(t.item).where(here, t.item.c.source_id.in_(chunk)))
    of_table = {"pipeline": change.pipeline, "table_name": change.table, "seq": record.seq}
    rows = [{**of_table, "source_id": id_, "version": _json(version)} for id_, version in change.items.items()]
    if rows:
        connection.execute(insert(t.item), rows)


def _touch(connection: Connection, table: str, seq: int, **values: Any) -> None:
    set_columns(connection, t.table, {"name": table}, changed_seq=seq, files_seq=seq, **values)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

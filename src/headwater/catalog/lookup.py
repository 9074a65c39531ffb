"""Questions to the catalog, answered as values. Each takes a connection, so that several answers can come from
one snapshot."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, bindparam, func, or_, select, union_all

from headwater.base.errors import HeadwaterError, did_you_mean
from headwater.base.table_schema import TableSchema
from headwater.catalog import sql_tables as t
from headwater.catalog.statements import chosen
from headwater.catalog.table_state import TableState
from headwater.storage.file_record import ColumnStats, FileRecord, LiveFile


@dataclass(frozen=True)
class TableEntry:
    """A table without its files: enough to plan and to evolve."""

    name: str
    pipeline: str
    mode: str
    schema_id: int
    schema: TableSchema
    changed_seq: int
    """The last commit that changed its rows or its schema: what a reader of it has seen or not."""
    oldest_seq: int
    files_seq: int
    """The last commit that changed its rows, its schema, or only the files that hold the rows."""
    rewritten_seq: int = 0
    """A reader that has got to a commit before this one must read the whole table."""


_ENTRY_COLUMNS = tuple(part.name for part in fields(TableEntry) if part.name != "schema")


@dataclass(frozen=True)
class StoredCursor:
    kind: str
    version: int
    source_identity: str
    value: Any


@dataclass(frozen=True)
class OpenRun:
    """A run with units that are not done."""

    run_id: str
    pipeline: str
    definition: str
    pending: int
    done: int
    is_planned: bool = True
    """False: only a part of the plan was stored, and none of it is work."""


@dataclass(frozen=True)
class TableSize:
    """What a table holds, by its files alone."""

    name: str
    pipeline: str
    mode: str
    stored_rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class TableInfo(TableSize):
    """One line of `headwater.tables`. `rows` is None if it can only be counted by reading (a key may be in several files)."""

    rows: int | None
    freshness_us: int | None
    seq: int


@dataclass(frozen=True)
class CatalogView:
    """What planning needs to know of all pipelines, from one snapshot: a handful of queries whatever their number."""

    tables: Mapping[str, TableEntry] = field(default_factory=dict)
    views: frozenset[str] = frozenset()
    cursors: Mapping[tuple[str, str], StoredCursor] = field(default_factory=dict)
    items: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    open_runs: Mapping[str, OpenRun] = field(default_factory=dict)
    have_run: frozenset[str] = frozenset()
    """The pipelines that have run before."""


_SEQ = select(t.store.c.seq)
_CURSORS = select(t.cursor)
_ITEMS = select(t.item.c.pipeline, t.item.c.table_name, t.item.c.source_id, t.item.c.version)
_HAVE_RUN = select(t.run.c.pipeline)
_LAST_SUCCESS = (
    select(t.run.c.run_id, t.run.c.freshness_us, t.run.c.cut)
    .join(t.run_table, t.run_table.c.run_id == t.run.c.run_id)
    .where(t.run.c.pipeline == bindparam("of_pipeline"), t.run.c.state == "success")
    .where(t.run_table.c.table_name == bindparam("of_table"))
    .order_by(t.run.c.started_seq.desc())
    .limit(1)
)
_ENTRIES = select(t.table, t.table_schema.c.body).join(
    t.table_schema,
    (t.table_schema.c.table_name == t.table.c.name) & (t.table_schema.c.schema_id == t.table.c.schema_id),
)
_VERSION = union_all(*(select(each.c.name, each.c.changed_seq) for each in (t.table, t.view))).subquery("version")
_VERSIONS = select(_VERSION)
_SCHEMAS = select(t.table_schema)
_VIEW_NAMES = select(t.view.c.name)
_LIVE_FILES = (
    select(t.file)
    .where(
        t.file.c.added_seq <= bindparam("cut"),
        or_(t.file.c.removed_seq.is_(None), t.file.c.removed_seq > bindparam("cut")),
    )
    .order_by(t.file.c.table_name, t.file.c.added_seq, t.file.c.ordinal)
)


def current_seq(connection: Connection) -> int:
    return int(connection.execute(_SEQ).scalar_one())


def format_version(connection: Connection) -> int:
    return int(connection.execute(select(t.store.c.format_version)).scalar_one())


def catalog_view(
    connection: Connection, *, pipeline: str | None = None, tables: Collection[str] | None = None
) -> CatalogView:
    """All pipelines; with a pipeline and its tables, what planning that one needs."""
    cursors = {
        (row.pipeline, row.table_name): StoredCursor(row.kind, row.version, row.source_identity, json.loads(row.value))
        for row in chosen(connection, _CURSORS, t.cursor.c.table_name, tables)
    }
    items: dict[tuple[str, str], dict[str, Any]] = {}
    for row in chosen(connection, _ITEMS, t.item.c.table_name, tables):
        items.setdefault((row.pipeline, row.table_name), {})[row.source_id] = msgspec.json.decode(row.version)
    # A pipeline may have very many runs: whether there is one is enough.
    have_run = _HAVE_RUN.distinct() if pipeline is None else _HAVE_RUN.where(t.run.c.pipeline == pipeline).limit(1)
    return CatalogView(
        tables=table_entries(connection, tables),
        views=frozenset(view_names(connection)),
        cursors=cursors,
        items=items,
        open_runs=open_runs(connection),
        have_run=frozenset(connection.execute(have_run).scalars()),
    )


def table_entries(connection: Connection, names: Collection[str] | None = None) -> dict[str, TableEntry]:
    """All tables, or those of these names that there are."""
    rows = chosen(connection, _ENTRIES, t.table.c.name, names).mappings()
    return {
        row["name"]: TableEntry(
            schema=TableSchema.from_json(json.loads(row["body"])), **{name: row[name] for name in _ENTRY_COLUMNS}
        )
        for row in rows
    }


def table_entry(connection: Connection, name: str) -> TableEntry:
    """Raises HW-T07, with the nearest name, for a table that is not there."""
    entries = table_entries(connection)
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none yet: run `headwater apply`"
        hint = did_you_mean(name, entries, f"tables: {known}")
        raise HeadwaterError("HW-T07", f"there is no table `{name}`", hint=hint)
    return entries[name]


def check_owner(entry: TableEntry | None, pipeline: str, *, hint: str) -> None:
    """A table belongs to the pipeline that made it. Raises HW-M04 for any other."""
    if entry is not None and entry.pipeline != pipeline:
        raise owned_by_another(entry, "HW-M04", hint=hint)


def owned_by_another(entry: TableEntry, code: str, *, hint: str) -> HeadwaterError:
    message = f"table `{entry.name}` belongs to pipeline `{entry.pipeline}`"
    return HeadwaterError(code, message, hint=hint, detail={"table": entry.name, "pipeline": entry.pipeline})


def view_names(connection: Connection) -> set[str]:
    return {name for (name,) in connection.execute(_VIEW_NAMES)}


def last_view_change(connection: Connection) -> int:
    """The newest commit that changed a view; 0 if there is none."""
    return connection.execute(select(func.max(t.view.c.changed_seq))).scalar() or 0


def open_runs(connection: Connection) -> dict[str, OpenRun]:
    run, units = t.run.c, t.run_table.c
    columns = (run.run_id, run.pipeline, run.definition)
    found = connection.execute(
        select(*columns, func.sum(units.pending), func.sum(units.done), run.state != "planning")
        .join(t.run_table, units.run_id == run.run_id)
        .where(run.run_id.in_(_runs_open()))
        .group_by(*columns, run.state)
    )
    return {row.pipeline: OpenRun(*row) for row in found}


def run_record(connection: Connection, run_id: str) -> dict[str, Any]:
    return dict(connection.execute(select(t.run).where(t.run.c.run_id == run_id)).one()._mapping)


@dataclass(frozen=True)
class LastSuccess:
    """The newest successful run of one table of a pipeline, and what it read: the sequence of each input."""

    run_id: str
    freshness_us: int
    cut: dict[str, int | None]


def last_success(connection: Connection, pipeline: str, table: str) -> LastSuccess | None:
    """When a ripple last landed well, and on what."""
    row = connection.execute(_LAST_SUCCESS, {"of_pipeline": pipeline, "of_table": table}).one_or_none()
    return None if row is None else LastSuccess(row.run_id, row.freshness_us, msgspec.json.decode(row.cut))


def table_versions(connection: Connection, names: Collection[str] | None = None) -> dict[str, int]:
    """The sequence that last changed each table (None: all) and each view, which changes with what it reads."""
    return {row.name: row.changed_seq for row in chosen(connection, _VERSIONS, _VERSION.c.name, names)}


def freshness_by_pipeline(connection: Connection) -> dict[str, int]:
    """The freshness of each pipeline's newest successful run."""
    query = select(t.run.c.pipeline, func.max(t.run.c.freshness_us)).where(t.run.c.state == "success")
    return {row[0]: row[1] for row in connection.execute(query.group_by(t.run.c.pipeline))}


def table_states(
    connection: Connection, names: Collection[str] | None = None, *, as_of: int | None = None
) -> list[TableState]:
    """Tables with their files at a cut (default: now). Raises HW-T07 for a sequence whose files are gone. A table whose
    rows and schema have not changed since the cut has its files of now: they may be fewer, and gc leaves them."""
    now = current_seq(connection)
    cut = now if as_of is None else as_of
    if not 0 <= cut <= now:
        raise HeadwaterError("HW-T07", f"there is no sequence {cut}", hint=f"the store is at sequence {now}")
    entries = table_entries(connection, names).values()
    schemas = table_schemas(connection, names)
    seen_at = {entry.name: cut if entry.changed_seq > cut else now for entry in entries}
    files: dict[str, list[LiveFile]] = {}
    for at in sorted(set(seen_at.values())):
        for row in chosen(connection, _LIVE_FILES, t.file.c.table_name, names, cut=at):
            if seen_at[row.table_name] == at:
                files.setdefault(row.table_name, []).append(live_file(row))
    states = []
    for entry in sorted(entries, key=lambda e: e.name):
        known = schemas[entry.name]
        visible = {schema_id for schema_id, (seq, _) in known.items() if seq <= cut}
        if not visible:
            continue
        if seen_at[entry.name] < entry.oldest_seq:
            raise HeadwaterError(
                "HW-T07",
                f"`{entry.name}` can no longer be read as of sequence {cut}: its files are gone",
                hint=f"the oldest sequence that retention kept is {entry.oldest_seq}",
            )
        current = max(visible)
        live = tuple(files.get(entry.name, ()))
        moved = entry.changed_seq > cut
        states.append(
            TableState(
                name=entry.name,
                pipeline=entry.pipeline,
                mode=_mode_at(connection, entry, cut) if moved else entry.mode,
                schema_id=current,
                schema=known[current][1],
                schemas={i: known[i][1] for i in {current, *(f.schema_id for f in live)}},
                files=live,
                seq=cut,
                changed_seq=_changed_at(connection, entry, cut) if moved else entry.changed_seq,
                rewritten_seq=entry.rewritten_seq,
            )
        )
    return states


class Staged(msgspec.Struct, frozen=True):
    """Files of one done slice of a `replace` table, waiting for the last slice of their run."""

    schema_id: int
    files: tuple[FileRecord, ...]


def table_sizes(connection: Connection) -> list[TableSize]:
    """Every table by name, without its schema, then every view: it has a mode of its own and no rows."""
    files = (
        select(
            t.file.c.table_name,
            func.sum(t.file.c.rows).label("rows"),
            func.sum(t.file.c.bytes).label("bytes"),
            func.count().label("files"),
        )
        .where(t.file.c.removed_seq.is_(None))
        .group_by(t.file.c.table_name)
        .subquery()
    )
    query = select(t.table.c.name, t.table.c.pipeline, t.table.c.mode, files.c.rows, files.c.bytes, files.c.files)
    tables = connection.execute(query.outerjoin(files, files.c.table_name == t.table.c.name).order_by(t.table.c.name))
    views = connection.execute(select(t.view.c.name, t.view.c.pipeline).order_by(t.view.c.name))
    sizes = [
        TableSize(name, owner, mode, *(int(count or 0) for count in counts)) for name, owner, mode, *counts in tables
    ]
    return sizes + [TableSize(name, owner, "view", 0, 0, 0) for name, owner in views]


def staged_files(connection: Connection, run_id: str, table: str) -> list[Staged]:
    """What waits for a run's last slice, in the order of the slices."""
    rows = connection.execute(
        select(t.unit.c.staged)
        .where(t.unit.c.run_id == run_id, t.unit.c.table_name == table)
        .where(t.unit.c.state == "done", t.unit.c.staged.is_not(None))
        .order_by(t.unit.c.ordinal)
    )
    return [msgspec.json.decode(staged, type=Staged) for (staged,) in rows]


def schema_events(connection: Connection, tables: Iterable[str]) -> list[dict[str, Any]]:
    query = select(t.schema_event).where(t.schema_event.c.table_name.in_(list(tables)))
    rows = connection.execute(query.order_by(t.schema_event.c.seq, t.schema_event.c.position))
    return [dict(row._mapping) for row in rows]


def named_paths(connection: Connection) -> set[str]:
    """Every path that a committed row names: live, retired, or staged for the end of its run."""
    paths = {path for (path,) in connection.execute(select(t.file.c.path))}
    open_units = select(t.unit.c.staged).where(t.unit.c.staged.is_not(None), t.unit.c.run_id.in_(_runs_open()))
    for (staged,) in connection.execute(open_units):
        paths.update(f.path for f in msgspec.json.decode(staged, type=Staged).files)
    return paths


def _runs_open() -> Select[tuple[str]]:
    return select(t.run_table.c.run_id).where(t.run_table.c.pending > 0).distinct()


def _mode_at(connection: Connection, entry: TableEntry, cut: int) -> str:
    """The mode a table had at a cut: what the first change after it changed."""
    event = t.schema_event.c
    later = (event.table_name == entry.name) & (event.kind == "change_mode") & (event.seq > cut)
    before = connection.execute(select(event.before_json).where(later).order_by(event.seq).limit(1)).scalar()
    return entry.mode if before is None else str(json.loads(before))


def _changed_at(connection: Connection, entry: TableEntry, cut: int) -> int:
    """The last change at or before a cut. Files that were forgotten left the table at or before `oldest_seq`."""
    seqs = [
        select(func.max(column)).where(name == entry.name, column <= cut)
        for column, name in (
            (t.file.c.added_seq, t.file.c.table_name),
            (t.file.c.removed_seq, t.file.c.table_name),
            (t.table_schema.c.seq, t.table_schema.c.table_name),
        )
    ]
    return max(entry.oldest_seq, *(connection.execute(query).scalar() or 0 for query in seqs))


def table_schemas(
    connection: Connection, names: Collection[str] | None
) -> dict[str, dict[int, tuple[int, TableSchema]]]:
    """Every schema that these tables (None: all) have had, by its id, with the sequence from which on it was theirs."""
    found: dict[str, dict[int, tuple[int, TableSchema]]] = {}
    for row in chosen(connection, _SCHEMAS, t.table_schema.c.table_name, names):
        schema = TableSchema.from_json(json.loads(row.body))
        found.setdefault(row.table_name, {})[row.schema_id] = (row.seq, schema)
    return found


def live_file(row: Row[Any]) -> LiveFile:
    """A row of `file_entry` as readers of its table know it."""
    return LiveFile(
        **{name: getattr(row, name) for name in _FILE_COLUMNS},
        level=row.level or 0,
        key_range=(row.first_key, row.last_key) if row.first_key is not None else None,
        stats=msgspec.json.decode(row.stats, type=dict[str, ColumnStats]) if row.stats else {},
        sources=msgspec.json.decode(row.sources) if row.sources else {},
    )


_FILE_COLUMNS = tuple(
    part.name for part in fields(LiveFile) if part.name not in ("level", "key_range", "stats", "sources")
)

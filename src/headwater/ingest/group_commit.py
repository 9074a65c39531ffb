"""What a group of pushed batches changes: the table they are for, the files they are written to, the commit's changes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sqlalchemy import Connection, select

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED, uuid7
from headwater.base.node import this_node
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, STRING
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import (
    DeadLetter,
    dead_letter_of,
    dead_letters_added,
    ensure_table,
    write_dead_letters,
)
from headwater.catalog.evolution import Evolution, Shown, evolve, refusal
from headwater.catalog.lease import Lease, lease_seconds
from headwater.catalog.lookup import TableEntry, table_entries
from headwater.catalog.schema_decisions import refuse_change
from headwater.coerce.row_errors import BadRow
from headwater.ingest.first_columns import undeclared
from headwater.ingest.ledger_rules import key_record
from headwater.ingest.prepare import Prepared
from headwater.ingest.push_records import Push, PushTable
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa

FILES_PER_DIRECTORY = 1_000
_UNSURE_KINDS = frozenset({"real"})
"""Keys of which Arrow and DuckDB may not agree whether two are equal: 0.0 and -0.0."""


@dataclass(frozen=True)
class Base:
    """The table that a batch is prepared for: as it is stored, and with what the manifest has changed since."""

    entry: TableEntry | None
    mode: str
    evolution: Evolution

    @property
    def schema(self) -> TableSchema:
        return self.evolution.schema


@dataclass
class Files:
    """Names for files, none of which is used twice: a process writes many small ones into a few directories."""

    writer: Lease
    run_id: str = field(default_factory=uuid7)
    _renewed_at: float = field(default_factory=time.monotonic)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self._renewed_at > lease_seconds() / 3

    def renewed(self) -> Files:
        if self.is_old:
            self._renewed_at = time.monotonic()
        return self

    def next(self, table: str) -> tuple[str, str, int]:
        """A run, its directory, and a number that is free in it."""
        with self._lock:
            number = next(self._numbers)
            if number and number % FILES_PER_DIRECTORY == 0:
                self.run_id = uuid7()
            run_id = self.run_id
        unit = self.writer.id
        return run_id, attempt_directory(table, run_id=run_id, node=this_node(), unit_id=unit, attempt=1), number


@dataclass(frozen=True)
class Share:
    """What became of one batch of a group."""

    rows: int
    bytes: int
    refused: int


@dataclass(frozen=True)
class Landed:
    """The files of a group, the schema that they have, and the rows and bytes of each batch."""

    run_id: str
    schema: TableSchema
    files: tuple[FileRecord, ...]
    parts: tuple[Share, ...]
    unique_keys: bool


def base_of(connection: Connection, target: PushTable) -> Base:
    """The table as it is now, or as its first push makes it. Raises HW-I03 and HW-T07."""
    entry = table_entries(connection, [target.table]).get(target.table)
    if entry is None:
        _check_new(connection, target)
        shown = Shown(undeclared(target.declared, target.primary_key))
        made = evolve(None, shown, declared=target.declared, primary_key=target.primary_key)
        return Base(None, target.mode, made)
    _check_owner(connection, target, entry)
    if not target.in_manifest:
        return Base(entry, entry.mode, Evolution(entry.schema))
    modes = (entry.mode, target.mode)
    found = evolve(entry.schema, Shown({}), declared=target.declared, primary_key=target.primary_key, modes=modes)
    return Base(entry, target.mode, found)


def refuse_change_of(store: Store, target: PushTable, base: Base, *, actor: str) -> NoReturn:
    """The manifest declares what needs a decision: it is noted for `schema accept`, as an apply would."""
    refuse_change(store, target.table, base.evolution, mode=target.mode, actor=actor)
    raise refusal(target.table, base.evolution.refused, target.declared)


def kept_moving(table: str, last: HeadwaterError | None) -> HeadwaterError:
    """The error for rows that could not be landed because what their commit required was no longer so, time and
    again."""
    assert last is not None
    return HeadwaterError(
        "HW-T02",
        f"rows for `{table}` could not be landed: {last.message}",
        hint="send the same batch again; nothing of it was written",
        retryable=True,
    )


def write(store: Store, files: Files, table: str, base: Base, batches: Sequence[Prepared]) -> Landed:
    """All batches, in their order, in as few files as can be; nothing is left of them if that goes wrong."""
    schema = _schema(base, batches)
    run_id, directory, number = files.next(table)
    writer = PartWriter(
        store.root,
        directory,
        schema=schema,
        partition=0,
        task_attempt=number,
        run_id=run_id,
        ingested_at_us=now_us(),
    )
    with writer:
        for batch in _joined(batches):
            writer.write(batch)
    written = writer.close()
    rows = sum(prepared.rows for prepared in batches)
    size = sum(file.bytes for file in written)
    parts = tuple(Share(p.rows, size * p.rows // rows if rows else 0, len(p.bad)) for p in batches)
    unique = base.mode == "upsert" and rows > 0 and _keys_are_unique(schema, batches)
    return Landed(run_id, schema, written, parts, unique)


def write_bad(
    store: Store, files: Files, batches: Sequence[tuple[Push, Prepared]]
) -> tuple[tuple[FileRecord, ...], tuple[r.Change, ...]]:
    """The bad rows that are kept as dead letters: their file, and what the commit says of it."""
    kept = [(push, row) for push, prepared in batches if push.on_bad_row == "dead_letter" for row in prepared.bad]
    if not kept:
        return (), ()
    schema_id = ensure_table(store, actor=kept[0][0].actor)
    run_id, directory, number = files.next(LETTERS)
    letters = [_letter(push, row) for push, row in kept]
    written = write_dead_letters(store.root, directory, letters, run_id=run_id, number=number)
    return written, dead_letters_added(written, schema_id=schema_id, run_id=run_id)


def _letter(push: Push, row: BadRow) -> DeadLetter:
    place = push.source or push.key or ""
    return dead_letter_of(row, table=push.target.table, pipeline=push.target.pipeline, place=place, format_=push.format)


def changes_of(
    target: PushTable,
    base: Base,
    landed: Landed,
    keyed: Sequence[tuple[Push, str, Share]],
    *,
    ttl_seconds: float,
) -> tuple[tuple[r.Change, ...], tuple[r.Requirement, ...]]:
    """What the commit says, and what it requires of the table. Without a row the table stays as it is."""
    changes: list[r.Change] = []
    requires: list[r.Requirement] = []
    if landed.files:
        schema_id = base.entry.schema_id if base.entry is not None else 0
        requires.append(r.SchemaIs(table=target.table, schema_id=schema_id))
        if base.entry is None:
            changes.append(r.TableCreated(table=target.table, pipeline=target.pipeline, mode=base.mode))
        if base.entry is None or landed.schema != base.entry.schema:
            schema_id += 1
            body = landed.schema.as_json()
            events = _events(base, landed.schema)
            changes.append(r.SchemaSet(table=target.table, schema_id=schema_id, schema=body, events=events))
        changes.append(
            r.FilesAdded(
                table=target.table,
                schema_id=schema_id,
                run_id=landed.run_id,
                files=landed.files,
                unique_keys=landed.unique_keys,
            )
        )
    for push, sent, share in keyed:
        record = key_record(
            push, sent, rows=share.rows, size=share.bytes, refused=share.refused, ttl_seconds=ttl_seconds
        )
        changes.append(record)
    return tuple(changes), tuple(requires)


def _check_new(connection: Connection, target: PushTable) -> None:
    if not target.in_manifest and not target.may_create:
        raise HeadwaterError(
            "HW-T07",
            f"there is no table `{target.table}`, and this push may not make one",
            hint='declare it in a pipeline with `source = { connector = "push" }`, or allow that it is made',
        )
    if connection.execute(select(t.view.c.name).where(t.view.c.name == target.table)).first() is not None:
        raise HeadwaterError("HW-I03", f"`{target.table}` is a view", hint="push to a table of another name")


def _check_owner(connection: Connection, target: PushTable, entry: TableEntry) -> None:
    """A table that nobody declares takes pushes only if pushes made it: one that a pipeline filled, which is gone from
    the manifest, keeps its rows as they are."""
    landed = select(t.run.c.run_id).where(t.run.c.pipeline == entry.pipeline).limit(1)
    if entry.pipeline == target.pipeline and (target.in_manifest or connection.execute(landed).first() is None):
        return
    raise HeadwaterError(
        "HW-I03",
        f"table `{target.table}` belongs to pipeline `{entry.pipeline}`",
        hint="push to a table of another name",
        detail={"table": target.table, "pipeline": entry.pipeline},
    )


def _schema(base: Base, batches: Sequence[Prepared]) -> TableSchema:
    """The base with the columns that the batches bring, in the order in which they came."""
    schema = base.schema
    for name in dict.fromkeys(name for prepared in batches for name in prepared.added):
        if schema.column(name) is None:
            schema = schema.added(name, STRING)
    if any(prepared.rescues for prepared in batches) and schema.column(RESCUED) is None:
        schema = schema.added(RESCUED, DYNAMIC)
    return schema


def _joined(batches: Sequence[Prepared]) -> Iterator[pa.RecordBatch]:
    """The rows of neighbours that have the same columns as one: what is done to a batch costs as much for one row as
    for a thousand. Those of a large batch come in parts, for the same reason the other way round."""
    import pyarrow as pa

    for _, alike in itertools.groupby((prepared.batch for prepared in batches), key=lambda batch: batch.schema):
        yield from pa.Table.from_batches(list(alike)).combine_chunks().to_batches(limits.ROW_GROUP_ROWS)


def _events(base: Base, schema: TableSchema) -> tuple[r.SchemaEvent, ...]:
    if base.entry is None:
        return (r.SchemaEvent(kind="created", after=schema.as_json()),)
    new = schema.columns[len(base.schema.columns) :]
    added = tuple(r.SchemaEvent(kind="add_column", column=column.name, after=str(column.type)) for column in new)
    return (*base.evolution.events, *added)


def _keys_are_unique(schema: TableSchema, batches: Sequence[Prepared]) -> bool:
    """True if it is certain that no primary key stands twice among the rows."""
    import pyarrow as pa

    kinds = {column.type.kind for column in schema.columns if column.name in schema.primary_key}
    if not schema.primary_key or kinds & _UNSURE_KINDS:
        return False
    keys = pa.Table.from_batches([prepared.batch.select(list(schema.primary_key)) for prepared in batches])
    return bool(keys.group_by(list(schema.primary_key)).aggregate([]).num_rows == keys.num_rows)

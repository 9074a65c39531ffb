"""Merges files of a table into fewer: the same rows, each with the commit that brought it, in one commit.

The table does not change: neither its rows, nor which row was written last, nor its freshness. A reader of a sequence
before the merge reads the files of that sequence, for as long as gc keeps them. Only whole commits are merged: the rows
of one commit stay together and in their order, so that it is known which of them was written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.base import limits
from headwater.base.crash import crash_point
from headwater.base.errors import Conflict, HeadwaterError
from headwater.base.table_schema import Column, TableSchema
from headwater.catalog.commit import Store
from headwater.catalog.landing import Landing
from headwater.catalog.lease import Lease
from headwater.catalog.table_state import TableState
from headwater.duck.unique_keys import keys_are_unique
from headwater.storage.file_record import FileRecord, LiveFile
from headwater.storage.key_text import key_columns
from headwater.storage.part_writer import rewrite, stored_rows
from headwater.storage.system_columns import arrow_fields

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Merge:
    """Files of a table that become one, in the order of their rows, and the schema of the new file. They include all
    files of each of their commits."""

    files: tuple[LiveFile, ...]
    schema_id: int


def same_rows(old: TableSchema, new: TableSchema, *, columns_added: bool) -> bool:
    """Whether rows of files written with `old` can be in a file of `new` and show the same from now on. With
    `columns_added` the new schema may have more columns, which are null in such rows."""
    if len(old.columns) < len(new.columns) and not columns_added:
        return False
    types = {column.id: column.type for column in new.columns}
    keys = [[column.id for column in key_columns(schema)] for schema in (old, new)]
    if keys[0] != keys[1] or any(types.get(column.id) != column.type for column in old.columns):
        return False
    known = {column.id for column in old.columns}
    return all(_is_plain(column) for column in new.columns if column.id not in known)


def merge_files(
    store: Store,
    state: TableState,
    merge: Merge,
    *,
    directory: str,
    number: int,
    writer: Lease,
    actor: str,
    partition: str | None = None,
) -> int | None:
    """Write the rows of the files, all of one partition, to a new file that replaces them; the bytes written. None, and
    no file is left, if another commit has replaced one of them meanwhile. Raises HW-T03 if the writer was taken for dead,
    HW-T04 for a file that cannot be read or whose rows are not those that were written."""
    schema = state.schemas[merge.schema_id]
    rows = _rows(store.root, state, merge.files, schema)
    with Landing(store, actor) as landing:
        landing.files += rewrite(store.root, rows, schema=schema, directory=directory, partition=0, task_attempt=number)
        written = tuple(landing.files)
        _check(merge.files, written)
        unique = all(file.unique_keys for file in merge.files) and keys_are_unique(store.root, written, schema)
        crash_point("tail.before_commit")
        named = [msgspec.structs.replace(file, partition=partition) for file in written]
        landing.merge_files(state.name, merge.schema_id, named, merge.files, unique_keys=unique)
        try:
            landing.commit(requires=(writer,))
        except Conflict:
            return None
    crash_point("tail.after_commit")
    return sum(file.bytes for file in written)


def _is_plain(column: Column) -> bool:
    """Whether rows without the column show nothing but null for it."""
    return replace(column, nullable=True, dropped=False) == Column(column.id, column.name, column.type)


def _rows(root: Path, state: TableState, files: Sequence[LiveFile], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """The rows of all files, in as few batches as memory allows: small files would make many small batches."""
    import pyarrow as pa

    positions = any(file.positions for file in files)
    target = pa.schema([*schema.to_arrow(), *arrow_fields(merged=True, positions=positions)])
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for file in files:
        old = state.schemas[file.schema_id]
        for batch in stored_rows(root, file):
            waiting.append(_in_schema(batch, old, schema, target))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= limits.ARROW_BATCH_ROWS or size >= limits.MERGE_WAITING_BYTES:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield from _together(waiting)


def _in_schema(batch: pa.RecordBatch, old: TableSchema, new: TableSchema, target: pa.Schema) -> pa.RecordBatch:
    """The batch in the columns of another schema, found by their ids."""
    import pyarrow as pa

    names = {column.name: kept.name for column in new.columns if (kept := old.by_id(column.id)) is not None}
    own, held = set(new.names()), set(batch.schema.names)
    columns = [
        batch.column(names.get(field.name, field.name))
        if field.name in names or field.name in held - own
        else pa.nulls(batch.num_rows, field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _together(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    import pyarrow as pa

    return list(pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches())


def _check(before: Sequence[LiveFile], after: Sequence[FileRecord]) -> None:
    """Raises HW-T04 unless both have the same number of rows, and the same content where it is known."""
    same = sum(file.rows for file in before) == sum(file.rows for file in after)
    if all(file.content_sum is not None for file in before):
        old, new = (sum(int(file.content_sum or "0", 16) for file in files) % (1 << 128) for files in (before, after))
        same = same and old == new
    if not same:
        raise HeadwaterError(
            "HW-T04",
            f"{len(before)} files, the first of them `{before[0].path}`, do not hold the rows that were written to them",
            hint="`headwater context verify` lists every file that is missing or damaged",
        )

"""Keys that have no column and cannot get one: kept in `_rescued`, a `dynamic` column, as one object per row.

A key is rescued on every input path if it cannot be the name of a column (`is_column_name`): the empty key, one with
control characters or more than 255 bytes, one of the store's own names. Pushes rescue more (`ingest/prepare.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from headwater.base.ids import RESCUED, is_column_name
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, to_arrow
from headwater.coerce.batches import record_batch
from headwater.coerce.objects import Objects
from headwater.coerce.row_errors import RowError

if TYPE_CHECKING:
    import pyarrow as pa


def nameless(names: Iterable[str]) -> frozenset[str]:
    """The names that no column can have."""
    return frozenset(name for name in names if not is_column_name(name))


def without_rescued(schema: TableSchema) -> TableSchema:
    """The schema without `_rescued`, which is the store's: a key of that name is unknown, and is rescued into it."""
    if schema.column(RESCUED) is None:
        return schema
    return replace(schema, columns=tuple(column for column in schema.columns if column.name != RESCUED))


def with_rescued(batch: pa.RecordBatch, schema: TableSchema, texts: Sequence[str | None] | None) -> pa.RecordBatch:
    """Adds `_rescued` to a batch that was coerced to `without_rescued(schema)`, if the schema has it. `texts` is None
    if no row has anything to rescue."""
    import pyarrow as pa

    if schema.column(RESCUED) is None:
        return batch
    column = pa.nulls(batch.num_rows, to_arrow(DYNAMIC)) if texts is None else dynamic_array(texts)
    arrays = [column if each.name == RESCUED else batch.column(each.name) for each in schema.columns]
    return record_batch(arrays, schema, rows=batch.num_rows)


def rescue(row: Mapping[str, Raw], names: frozenset[str]) -> str | None:
    """The keys that have no column, as one object, each value as it was written."""
    kept = [msgspec.json.encode(name) + b":" + bytes(value) for name, value in row.items() if name in names]
    return (b"{" + b",".join(kept) + b"}").decode() if kept else None


def rescue_cells(columns: Mapping[str, Sequence[str]]) -> list[str | None]:
    """As `rescue`, for columns of JSON texts. A null is not kept; None for a row of nulls only."""
    names = [msgspec.json.encode(name).decode() for name in columns]
    found: list[str | None] = []
    for row in zip(*columns.values()):
        members = ",".join(f"{name}:{text}" for name, text in zip(names, row) if text != "null")
        found.append("{" + members + "}" if members else None)
    return found


def good_rows(objects: Objects, bad: Iterable[RowError]) -> Objects:
    """The rows that are not bad."""
    lines = {error.line for error in bad}
    kept = [(row, line) for row, line in zip(objects.rows, objects.lines) if line not in lines]
    return Objects([row for row, _ in kept], [line for _, line in kept], seen=objects.seen)


def dynamic_array(texts: Sequence[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(texts, to_arrow(DYNAMIC))

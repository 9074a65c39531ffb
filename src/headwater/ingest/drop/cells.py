"""Rows of a CSV or Parquet file as columns of a table: the `files` connector's verdict on each value, and a push's way
with columns that the table lacks.

The file is read with a wider schema than the table's: unknown columns are read as what they are. What becomes of them
is decided here, batch by batch. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING, TIMESTAMP, Type
from headwater.coerce.rescued import dynamic_array, rescue_cells, without_rescued
from headwater.connectors.files.convert_columns import convert_typed, json_texts
from headwater.ingest.drop.text_values import texts_of
from headwater.ingest.prepare import TIME, TIME_KEYS, Prepared, columns_left, has_default_times, may_be_added

if TYPE_CHECKING:
    import pyarrow as pa

_AS_JSON = ("binary", "list", "struct", "vector")
"""What a column of text takes of a push, and no cast makes."""


@dataclass(frozen=True)
class FileColumns:
    """How a file is read into a table: `known` is the table's schema, `wide` that with the columns of the file beside
    it. A column of text whose values in the file are lists, say, is read as what they are, and told in `as_text`."""

    known: TableSchema
    wide: TableSchema
    unknown: tuple[str, ...]
    as_text: frozenset[str]


def reading_of(columns: Mapping[str, Type | None], schema: TableSchema) -> FileColumns:
    """`columns` are the file's, with None for one that holds nothing but nulls."""
    known = without_rescued(schema)
    wide, unknown, as_text = known, [], set()
    for name, type_ in columns.items():
        mine = known.column(name)
        if mine is None:
            wide = wide.added(name, type_ or STRING)
            unknown.append(name)
        elif mine.type == STRING and type_ is not None and type_.kind in _AS_JSON:
            wide = wide.with_column(replace(mine, type=type_))
            as_text.add(name)
    return FileColumns(known, wide, tuple(unknown), frozenset(as_text))


def prepare_cells(rows: pa.RecordBatch, reading: FileColumns, *, evolve: bool) -> Prepared:
    """Good rows in the columns of `wide`, as rows of the table. An unknown column becomes one of text, whether or not
    it has values; what may not become one is rescued."""
    batch = rows.select(list(reading.known.names()))
    for name in reading.as_text:
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, name, texts_of(batch.column(place)))
    others: Mapping[str, pa.Array] = {name: rows.column(name) for name in reading.unknown}
    if has_default_times(reading.known):
        batch, others = _with_times(batch, others)
    added = [name for name in others if evolve and may_be_added(name)][: columns_left(reading.known)]
    for name in added:
        batch = batch.append_column(name, texts_of(others[name]))
    rescued = {name: json_texts(column) for name, column in others.items() if name not in added}
    texts = rescue_cells(rescued) if rescued else []
    count = sum(text is not None for text in texts)
    if count:
        batch = batch.append_column(RESCUED, dynamic_array(texts))
    return Prepared(batch, rows.num_rows, added=tuple(added), rescues=count > 0, rows_rescued=count)


def _with_times(batch: pa.RecordBatch, others: Mapping[str, pa.Array]) -> tuple[pa.RecordBatch, Mapping[str, pa.Array]]:
    """An empty `ts` is filled from the first column that holds a time. Of a column that the table does not have, what
    was used for that is known then, and one that is used up is none any more."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left = dict(others)
    place = batch.schema.get_field_index(TIME)
    for key in TIME_KEYS:
        at = batch.schema.get_field_index(key)
        column = left[key] if key in left else batch.column(at) if at >= 0 else None
        if column is None:
            continue
        times, _ = convert_typed(column, TIMESTAMP)
        empty = batch.column(place).is_null()
        batch = batch.set_column(place, batch.schema.field(place), pc.if_else(empty, times, batch.column(place)))
        if key in left:
            used = pc.and_(empty, times.is_valid())
            unused = pc.if_else(used, pa.nulls(len(column), column.type), column)
            if pc.any(used).as_py() and unused.null_count == len(unused):
                del left[key]
            else:
                left[key] = unused
    return batch, left

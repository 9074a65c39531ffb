"""Whole keys as ordered text: texts compare, by their bytes, as the keys do, column by column, a null before all values.

A file row holds its first and its last key so. Keys with a column of another kind (a NaN has no place among reals), or
with a long text, have no such form: then nothing is known of the file's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.base.table_schema import Column, TableSchema
from headwater.storage.file_record import BOUND_BYTES, ColumnStats

if TYPE_CHECKING:
    import pyarrow as pa

KeyRange = tuple[str, str]
"""The first and the last key."""
_ORDERED = ("bool", "int", "long", "date", "timestamp", "string")
_MOST = 600
"""Characters of both keys: an entry of an index in PostgreSQL has at most 2,704 bytes."""
_NULL, _VALUE, _TEXT_END = "0", "1", "\x01"
_ESCAPES = {0: "\x02\x01", 1: "\x02\x02", 2: "\x02\x03"}
"""Nothing in a text sorts before its end. PostgreSQL keeps no NUL."""


def key_columns(schema: TableSchema) -> list[Column]:
    return [column for name in schema.primary_key if (column := schema.column(name)) is not None]


def key_of(schema: TableSchema) -> list[tuple[int, str]]:
    """What makes keys of two schemas comparable: the same columns, in types with the same values."""
    return [(c.id, "long" if c.type.kind == "int" else str(c.type)) for c in key_columns(schema)]


def key_range(table: pa.Table, columns: Sequence[Column]) -> KeyRange | None:
    """The first and last key among the rows."""
    if not columns or any(column.type.kind not in _ORDERED for column in columns):
        return None
    return _whole(_edge(table, columns, last=False), _edge(table, columns, last=True))


def stats_range(
    stats: Mapping[str, ColumnStats], rows: int, written: TableSchema, columns: Sequence[Column]
) -> KeyRange | None:
    """Keys before and after which a file written with this schema has none, by the bounds of each column alone."""
    firsts: list[object] = []
    lasts: list[object] = []
    for column in columns:
        found, old = stats.get(str(column.id)), written.by_id(column.id)
        if found is None or old is None or old.type.kind not in _ORDERED or not _compares(old, column):
            return None
        if found.nulls < rows and (found.min is None or found.max is None):
            return None
        firsts.append(None if found.nulls else found.min)
        lasts.append(found.max)
    return _whole(firsts, lasts) if columns else None


def joined_range(ranges: Sequence[KeyRange | None]) -> KeyRange | None:
    known = [found for found in ranges if found is not None]
    if not known or len(known) < len(ranges):
        return None
    return min(first for first, _ in known), max(last for _, last in known)


def _compares(old: Column, new: Column) -> bool:
    return old.type == new.type or (old.type.kind, new.type.kind) == ("int", "long")


def _edge(table: pa.Table, columns: Sequence[Column], *, last: bool) -> list[object]:
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[object] = []
    for column in columns:
        values = table.column(column.name)
        if values.null_count > (len(values) - 1 if last else 0):
            found.append(None)
            mask = pc.is_null(values)
        else:
            value = pc.max(values) if last else pc.min(values)
            is_time = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
            found.append(value.value if is_time else value.as_py())
            mask = pc.equal(values, value)
        if len(found) < len(columns):
            table = table.filter(mask)
    return found


def _whole(firsts: Sequence[object], lasts: Sequence[object]) -> KeyRange | None:
    if any(isinstance(value, str) and len(value.encode()) > BOUND_BYTES for value in (*firsts, *lasts)):
        return None
    first, last = "".join(map(_piece, firsts)), "".join(map(_piece, lasts))
    return (first, last) if len(first) + len(last) <= _MOST else None


def _piece(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, str):
        return _VALUE + value.translate(_ESCAPES) + _TEXT_END
    assert isinstance(value, int)
    return f"{_VALUE}{value + (1 << 63):016x}"

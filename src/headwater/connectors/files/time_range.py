"""Times of typed files that cannot be kept: beyond nanoseconds, beyond the years of a text, or wrapped by a reader.

Arrow casts such times without an error: a text becomes `<value out of range: ...>`, or names another instant, and an
INT96 beyond its unit wraps around.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at

from headwater.base.types import is_list
from headwater.coerce.times import FIRST_NS, LAST_NS

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECOND = 10**9
_TEXT_RANGE = (-1_096_162_243_200 * _SECOND, 971_859_427_200 * _SECOND - 1)
"""Nanoseconds since 1970 of the years -32766 and 32766: Arrow formats a year as 16 bits. A year is left at either end for
zones."""


def times_fit(column: pa.Array, target: pa.DataType) -> bool:
    """Whether every time of the column, at any depth, that becomes a text or a timestamp in `target` fits there. The
    range of timestamps excludes the nanoseconds that DuckDB and pandas read as infinity or as no time."""
    unit = _nanoseconds_per_unit(column.type)
    if at.is_timestamp(target) and at.is_integer(column.type):
        unit = 1
    if unit and (at.is_timestamp(target) or at.is_string(target)):
        values = column.cast(pa.int32()) if at.is_date32(column.type) else column
        first, last = (FIRST_NS, LAST_NS) if at.is_timestamp(target) else _TEXT_RANGE
        return is_within(values.cast(pa.int64()), -(-first // unit), last // unit)
    if is_list(target) and is_list(column.type):
        return times_fit(column.flatten(), target.value_type)
    if at.is_struct(target) and at.is_struct(column.type):
        parts = {part.name: part.type for part in target}
        found = zip(column.type, column.flatten())
        return all(times_fit(part, parts[field.name]) for field, part in found if field.name in parts)
    return True


def wrapped_rows(column: pa.Array, seconds: pa.Array) -> list[int]:
    """The rows in which a time that was read in a small unit differs from the one that was read in seconds."""
    if _agrees(column, seconds):
        return []
    if len(column) == 1:
        return [0]
    middle = len(column) // 2
    left = wrapped_rows(column.slice(0, middle), seconds.slice(0, middle))
    return left + [middle + row for row in wrapped_rows(column.slice(middle), seconds.slice(middle))]


def _agrees(column: pa.Array, seconds: pa.Array) -> bool:
    if at.is_timestamp(column.type):
        values = column.drop_null().cast(pa.int64()).to_numpy()
        whole = seconds.drop_null().cast(pa.int64()).to_numpy()
        return bool(np.array_equal(np.floor_divide(values, PER_SECOND[column.type.unit]), whole))
    if is_list(column.type):
        return _agrees(column.flatten(), seconds.flatten())
    if at.is_map(column.type):
        return _agrees(column.keys, seconds.keys) and _agrees(column.items, seconds.items)
    if at.is_struct(column.type):
        return all(map(_agrees, column.flatten(), seconds.flatten()))
    return True


def _nanoseconds_per_unit(type_: pa.DataType) -> int:
    """Of a type of instants or days; 0 of any other."""
    if at.is_timestamp(type_):
        return _SECOND // PER_SECOND[type_.unit]
    return 86_400 * _SECOND if at.is_date32(type_) else 10**6 if at.is_date64(type_) else 0


def is_within(values: pa.Array, first: int, last: int) -> bool:
    """Whether no value is below `first` or above `last`, which may lie beyond 64 bits."""
    found = pc.min_max(values).as_py()
    return found["min"] is None or (first <= found["min"] and found["max"] <= last)

"""Times of typed files that cannot be kept: beyond nanoseconds, beyond what a text can say, or wrapped by a reader.

Arrow casts such times without an error: a text becomes `<value out of range: ...>`, or names another instant, and an
INT96 beyond its unit wraps around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_FIRST_TEXT, _LAST_TEXT = -1_096_162_243_200, 971_859_427_199
"""Seconds since 1970 of the years -32766 and 32766: Arrow formats a year as 16 bits. A year is left at either end for
zones."""


def beyond_nanoseconds(column: pa.Array) -> list[int]:
    """The rows of a timestamp column in nanoseconds that DuckDB and pandas read as infinity or as no time."""
    import pyarrow as pa

    from headwater.coerce.times import FIRST_NS, LAST_NS

    return _outside(column.cast(pa.int64()), FIRST_NS, LAST_NS)


def has_text(column: pa.Array, target: pa.DataType) -> bool:
    """Whether every time of the column, at any depth, that becomes a text in `target` has one."""
    import pyarrow as pa
    from pyarrow import types as at

    if at.is_string(target) and at.is_timestamp(column.type):
        scale = PER_SECOND[column.type.unit]
        return not _outside(column.cast(pa.int64()), _FIRST_TEXT * scale, (_LAST_TEXT + 1) * scale - 1)
    if at.is_string(target) and at.is_date32(column.type):
        return not _outside(column.cast(pa.int32()).cast(pa.int64()), _FIRST_TEXT // _DAY, _LAST_TEXT // _DAY)
    if at.is_string(target) and at.is_date64(column.type):
        return not _outside(column.cast(pa.int64()), _FIRST_TEXT * 1000, (_LAST_TEXT + 1) * 1000 - 1)
    if _is_list(target) and _is_list(column.type):
        return has_text(column.flatten(), target.value_type)
    if at.is_struct(target) and at.is_struct(column.type):
        parts = {part.name: part.type for part in target}
        found = zip(column.type, column.flatten())
        return all(has_text(part, parts[field.name]) for field, part in found if field.name in parts)
    return True


def wrapped_rows(column: pa.Array, seconds: pa.Array) -> list[int]:
    """The rows in which a time that was read in a small unit is not the one that was read in seconds."""
    if _agrees(column, seconds):
        return []
    if len(column) == 1:
        return [0]
    middle = len(column) // 2
    left = wrapped_rows(column.slice(0, middle), seconds.slice(0, middle))
    return left + [middle + row for row in wrapped_rows(column.slice(middle), seconds.slice(middle))]


def _agrees(column: pa.Array, seconds: pa.Array) -> bool:
    import numpy as np
    import pyarrow as pa
    from pyarrow import types as at

    if at.is_timestamp(column.type):
        values = column.drop_null().cast(pa.int64()).to_numpy()
        whole = seconds.drop_null().cast(pa.int64()).to_numpy()
        return bool(np.array_equal(np.floor_divide(values, PER_SECOND[column.type.unit]), whole))
    if _is_list(column.type):
        return _agrees(column.flatten(), seconds.flatten())
    if at.is_map(column.type):
        return _agrees(column.keys, seconds.keys) and _agrees(column.items, seconds.items)
    if at.is_struct(column.type):
        return all(map(_agrees, column.flatten(), seconds.flatten()))
    return True


def _outside(values: pa.Array, first: int, last: int) -> list[int]:
    """The positions of the values below `first` or above `last`, which may lie beyond 64 bits."""
    import pyarrow.compute as pc

    found = pc.min_max(values).as_py()
    if found["min"] is None or (first <= found["min"] and found["max"] <= last):
        return []
    return [row for row, value in enumerate(values.to_pylist()) if value is not None and not first <= value <= last]


def _is_list(type_: pa.DataType) -> bool:
    from pyarrow import types as at

    return bool(at.is_list(type_) or at.is_large_list(type_) or at.is_fixed_size_list(type_))

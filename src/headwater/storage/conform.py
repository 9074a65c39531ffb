"""A batch from anywhere, as the columns of one table: by name, in the table's types, without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.base.errors import HeadwaterError, did_you_mean
from headwater.base.table_schema import Column, TableSchema
from headwater.base.types import Type, is_list, to_arrow
from headwater.coerce.batches import record_batch
from headwater.storage.system_columns import SOURCE_ID, SOURCE_POS

if TYPE_CHECKING:
    import pyarrow as pa


def conform(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The batch with exactly the schema's columns. A column that is missing is null; one that is not in the schema
    is an error (`_source_id` and `_source_pos` are left out: they are not the table's). Values change their type only
    where nothing is lost: a wider number, a time of another unit, a text of another layout. Raises HW-S03, naming the
    column."""
    import pyarrow as pa

    _refuse_strangers(batch, schema)
    fields = schema.to_arrow()
    present = set(batch.schema.names)
    columns = []
    for column, field in zip(schema.columns, fields):
        if column.name in present:
            array = _convert(batch.column(column.name), column, field.type)
        else:
            array = pa.nulls(batch.num_rows, field.type)
        if not column.nullable and array.null_count:
            raise HeadwaterError(
                "HW-S03",
                f"column `{column.name}` may not be null, and {array.null_count} rows have no value for it",
                hint="let the source fill it, or declare a primary key whose columns are never null",
            )
        columns.append(array)
    return record_batch(columns, schema, rows=batch.num_rows)


def _refuse_strangers(batch: pa.RecordBatch, schema: TableSchema) -> None:
    names = batch.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise HeadwaterError("HW-S03", f"column `{twice}` occurs twice in one batch", hint="rename one of them")
    known = {*schema.names(), SOURCE_ID.name, SOURCE_POS.name}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, schema.names(), "add the column to the schema before writing rows")
            raise HeadwaterError("HW-S03", f"column `{name}` is not in the table's schema", hint=hint)


def _convert(array: pa.Array, column: Column, target: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if array.type.equals(target):
        return array
    if not _fits(array.type, column.type):
        raise HeadwaterError(
            "HW-S03",
            f"column `{column.name}` has Arrow type `{array.type}`, which does not become `{column.type}` without loss",
            hint="cast it at the source, or change the column's type with `schema accept`",
        )
    try:
        if isinstance(array.type, pa.UuidType):
            return _uuid_text(array)
        if pa.types.is_decimal(target) and pa.types.is_signed_integer(array.type):
            array = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
        return array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow's own message quotes the value, which must not reach a log.
        raise HeadwaterError(
            "HW-S03",
            f"a value of column `{column.name}` (Arrow type `{array.type}`) does not fit `{column.type}`",
            hint="widen the column's type, or fix the rows at the source",
        ) from None


def _fits(arrow: pa.DataType, type_: Type) -> bool:
    """True if values of the Arrow type that fit at all are the same values in the table's type."""
    import pyarrow as pa
    from pyarrow import types as at

    if at.is_null(arrow) or arrow.equals(to_arrow(type_)):
        return True
    if at.is_dictionary(arrow):
        return _fits(arrow.value_type, type_)
    text = (at.is_string, at.is_large_string, at.is_string_view)
    simple = {
        "bool": (at.is_boolean,),
        "int": (at.is_integer,),
        "long": (at.is_integer,),
        "real": (at.is_floating, at.is_integer),
        "decimal": (at.is_decimal, at.is_integer),
        "string": (*text, lambda kind: isinstance(kind, pa.JsonType | pa.UuidType)),
        "dynamic": (*text, lambda kind: isinstance(kind, pa.JsonType)),
        "timestamp": (at.is_timestamp, at.is_int64),
        "date": (at.is_date,),
        "binary": (at.is_binary, at.is_large_binary, at.is_binary_view, at.is_fixed_size_binary),
    }
    match type_.kind:
        case kind if kind in simple:
            return any(is_kind(arrow) for is_kind in simple[kind])
        case "vector":
            return is_list(arrow) and bool(at.is_floating(arrow.value_type) or at.is_integer(arrow.value_type))
        case "list":
            return is_list(arrow) and _fits_inside(arrow.value_type, type_.fields[0][1])
        case "struct":
            parts = dict(type_.fields)
            return bool(at.is_struct(arrow)) and all(
                field.name in parts and _fits_inside(field.type, parts[field.name]) for field in arrow
            )
        case kind:
            raise AssertionError(kind)


def _fits_inside(arrow: pa.DataType, type_: Type) -> bool:
    """Within a list or struct Arrow alone converts, and it would take a UUID's bytes for text."""
    import pyarrow as pa

    return not isinstance(arrow, pa.UuidType) and _fits(arrow, type_)


def _uuid_text(array: pa.Array) -> pa.Array:
    """UUIDs in their usual form of 36 characters."""
    import numpy as np
    import pyarrow as pa

    storage = array.storage
    rows = len(storage)
    raw = np.frombuffer(storage.buffers()[1], np.uint8)[storage.offset * 16 : (storage.offset + rows) * 16]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    places = [i for i in range(36) if i not in (8, 13, 18, 23)]
    text[:, places[0::2]] = digits[raw.reshape(rows, 16) >> 4]
    text[:, places[1::2]] = digits[raw.reshape(rows, 16) & 15]
    offsets = np.arange(0, 36 * rows + 1, 36, dtype=np.int32)
    found = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    if storage.null_count:
        found = pa.compute.if_else(storage.is_valid(), found, None)
    return found

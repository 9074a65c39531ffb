"""Converts the Arrow columns of a file to columns of the table: exactly, or as a bad row.

Text that is declared as another type follows the rules for texts of `coerce`. (connectors -> coerce is a sideways
import; coerce knows nothing of connectors.) Values that become JSON text keep their digits; a value of a type that JSON
lacks is a text. A map whose keys are texts is an object; any other map is an array of `{"key": ..., "value": ...}`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at

from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, STRING, Type, from_arrow, is_list, to_arrow
from headwater.coerce.forms import local_instants
from headwater.coerce.rescued import dynamic_array, rescue_cells, without_rescued
from headwater.coerce.row_errors import RowError
from headwater.coerce.text_columns import coerce_strings
from headwater.connectors.files.streams import unreadable
from headwater.connectors.files.time_range import is_within, times_fit

_NUMERIC = ("int", "long", "real", "decimal")
_NESTED = ("list", "struct")
_NULL = "null"
_DAY_NS = 86_400 * 10**9
_CASTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(_NUMERIC, _NUMERIC) | {
    "string": ("bool", *_NUMERIC, "timestamp", "date", "binary", *_NESTED),
    "binary": ("string",),
    "timestamp": ("date", "int", "long"),
    "date": ("timestamp",),
    "list": ("vector",),
    "vector": ("list",),
    "dynamic": ("bool", "int", "long", "decimal", *_NESTED),
}
"""The types that can become a type, besides itself."""


class _OutOfRange(Exception):
    """A time, at any depth, that cannot be kept. Its text is the reason of the row error."""


Converted = tuple[pa.Array, Sequence[RowError]]
"""A column, and its refused values; the line of such an error is the row of the value, counted from 0."""
Convert = Callable[[pa.Array, Type, TextForm | None], Converted]
"""A column as one of a type, given how its texts are written."""


def check_names(names: Iterable[str], *, source_id: str) -> None:
    """Refuse a file that has one name twice: it is unknown which of the two columns is meant."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            what = f"has two columns named `{name}`"
            raise unreadable(source_id, what, reason="duplicate_column", hint="rename one where the file is made")
        seen.add(name)


def convert_batch(
    batch: pa.RecordBatch, schema: TableSchema, convert: Convert, nameless: Collection[str] = ()
) -> tuple[pa.RecordBatch, list[RowError]]:
    """The batch with exactly the columns of `schema`: null where it has none, and the cells that do not fit. The columns
    `nameless` go to `_rescued`, if the schema has it."""
    arrays: list[pa.Array] = []
    bad: list[RowError] = []
    present = set(batch.schema.names)
    rescued, no_texts = _rescued(batch, [name for name in batch.schema.names if name in nameless])
    for column in schema.columns:
        array: pa.Array = rescued
        errors: Sequence[RowError] = ()
        if column.name != RESCUED and column.name in present:
            array, errors = convert(batch.column(column.name), column.type, column.form)
        elif column.name != RESCUED:
            array = pa.nulls(batch.num_rows, to_arrow(column.type))
        bad += [replace(error, column=column.name) for error in errors]
        if not column.nullable and array.null_count:
            known = {error.line for error in errors}
            nulls = (row for row, valid in enumerate(array.is_valid().to_pylist()) if not valid)
            bad += [RowError(row, column.name, "null_in_non_null", "null") for row in nulls if row not in known]
        arrays.append(array)
    if not arrays:  # a table without columns yet still has rows
        return batch.select([]), bad
    bad = sorted([*bad, *no_texts], key=lambda error: error.line)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow()), bad


def _rescued(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[pa.Array, list[RowError]]:
    """What the rows hold in columns whose names no table can have, and the values there that have no text."""
    if not names:
        return pa.nulls(batch.num_rows, to_arrow(DYNAMIC)), []
    texts: dict[str, list[str]] = {}
    bad: list[RowError] = []
    for name in names:
        column = batch.column(name)
        try:
            texts[name] = json_texts(column)
        except pa.ArrowInvalid:
            texts[name] = []
            for row in range(batch.num_rows):
                try:
                    texts[name] += json_texts(column.slice(row, 1))
                except pa.ArrowInvalid:
                    texts[name].append("null")
                    bad.append(RowError(row, name, "does_not_fit_dynamic", str(column.type)))
    return dynamic_array(rescue_cells(texts)), bad


def without_rows(batch: pa.RecordBatch, wrong: Collection[RowError]) -> pa.RecordBatch:
    """The batch without its wrong rows, each of which has one error."""
    if not wrong:
        return batch
    if not batch.num_columns:  # Arrow does not filter such a batch: it gives all of its rows
        return batch.slice(len(wrong))
    rows = {error.line for error in wrong}
    return batch.filter(pa.array([row not in rows for row in range(batch.num_rows)]))


def convert_typed(column: pa.Array, type_: Type, form: TextForm | None = None) -> Converted:
    """A typed column as `type_`. Values that `type_` does not hold exactly are null here and listed as bad; a
    whole number may become the nearest real. `form` is how texts, and times without a zone, are written."""
    target = to_arrow(type_)
    if column.type == target and type_.kind != "dynamic" and times_fit(column, target):
        return column, []  # not for JSON: a column that is called JSON must still be checked
    if at.is_null(column.type):
        return pa.nulls(len(column), target), []
    column = _stored(column)
    source = source_type(column.type, type_)
    if form is not None and form.format and source.kind in ("int", "long"):
        column, source = column.cast(pa.string()), STRING  # digits that a format reads are not nanoseconds
    if source.kind == "string" and type_.kind not in ("string", "binary"):
        return coerce_strings(column.cast(pa.string()), type_, form)
    if form is not None and form.timezone and at.is_timestamp(column.type) and column.type.tz is None:
        return _in_zone(column, source, type_, form.timezone)
    if source.kind != type_.kind and source.kind not in _CASTS.get(type_.kind, ()):
        return _all_bad(column, type_, source)
    return _cast(column, source, type_)


def convert_any(column: pa.Array, type_: Type, form: TextForm | None = None) -> Converted:
    """As `convert_typed`, but a column of text takes every value: bytes as base64, vectors as JSON."""
    plain = _stored(column)
    if type_ == STRING and _is_bytes(plain.type):
        return pa.array(_base64(plain), pa.string()), []
    if type_ == STRING and at.is_fixed_size_list(plain.type):
        return _as_json(plain), []
    return convert_typed(column, type_, form)


def with_unknown(schema: TableSchema, columns: Mapping[str, Type | None]) -> TableSchema:
    """The schema without `_rescued`, and with the columns that it lacks; a column of nulls is text."""
    schema = without_rescued(schema)
    for name, type_ in columns.items():
        schema = schema if schema.column(name) is not None else schema.added(name, type_ or STRING)
    return schema


def _in_zone(column: pa.Array, source: Type, type_: Type, zone: str) -> Converted:
    """Times without a zone as local times of a zone."""
    local, bad = _cast(column, source, type_)
    array, refusals = local_instants(local.cast(pa.int64()), zone)
    refused = [RowError(row, "", each.reason, str(source), each.detail) for row, each in refusals.items()]
    return array, [*bad, *refused]


def source_type(arrow: pa.DataType, declared: Type | None = None) -> Type:
    """The type of a column of a typed file. A type that Headwater does not have can still be read as a declared type:
    decimals of more than 38 digits as numbers or text, anything nested as JSON. Raises HW-S03."""
    try:
        return from_arrow(arrow)
    except HeadwaterError as error:
        wanted = declared.kind if declared else None
        if at.is_decimal(arrow) and wanted in (*_NUMERIC, "string"):
            return Type("decimal", (arrow.precision, arrow.scale))
        if at.is_nested(arrow) and wanted in ("string", "dynamic"):
            return Type("list" if at.is_list(arrow) or at.is_map(arrow) else "struct")
        hint = 'leave the column out (`exclude = ["..."]`), or cast it at the source'
        if at.is_decimal(arrow):
            hint = 'declare the column as "string", or leave it out: `exclude = ["..."]`'
        raise HeadwaterError(error.code, error.message, hint=hint) from error


def _all_bad(column: pa.Array, type_: Type, source: Type) -> Converted:
    valid = column.is_valid().to_pylist()
    bad = [RowError(row, "", f"expected_{type_.kind}", str(source)) for row, is_valid in enumerate(valid) if is_valid]
    return pa.nulls(len(column), to_arrow(type_)), bad


def _cast(column: pa.Array, source: Type, type_: Type) -> Converted:
    if at.is_nested(column.type):  # a cast of a slice of lists also casts the items outside the slice
        column = pa.concat_arrays([column])
    try:
        return _exact_cast(column, source, type_), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, _OutOfRange) as error:
        if len(column) == 1:
            reason = str(error) if isinstance(error, _OutOfRange) else f"does_not_fit_{type_.kind}"
            return pa.nulls(1, to_arrow(type_)), [RowError(0, "", reason, str(source))]
    # Halving finds a few bad values with few casts.
    middle = len(column) // 2
    left, bad_left = _cast(column.slice(0, middle), source, type_)
    right, bad_right = _cast(column.slice(middle), source, type_)
    moved = [replace(error, line=error.line + middle) for error in bad_right]
    return pa.concat_arrays([left, right]), [*bad_left, *moved]


def _exact_cast(column: pa.Array, source: Type, type_: Type) -> pa.Array:
    """A cast that raises ArrowInvalid or _OutOfRange where a value would become another one."""
    target = to_arrow(type_)
    is_rounded = source.kind in ("int", "long", "decimal") and type_.kind == "real"
    if source.kind in _NESTED and type_.kind in ("dynamic", "string"):
        return _as_json(column).cast(target)
    if source.kind == "decimal" and type_.kind in ("dynamic", "string"):
        return _digits(column).cast(target)
    if type_.kind == "dynamic":
        return column.cast(pa.string()).cast(target)
    column = _without_times(column)
    if not times_fit(column, target):
        raise _OutOfRange("timestamp_out_of_range")
    cast = column.cast(target, safe=not is_rounded)
    if (source.kind, type_.kind) in {("real", "decimal"), ("timestamp", "date")}:
        # Arrow drops digits, and the time of day, without an error.
        back = cast.cast(column.type)
        if not back.equals(column):
            raise pa.ArrowInvalid("not exact")
    return cast


def json_texts(column: pa.Array) -> list[str]:
    """Every value as JSON text. Raises ArrowInvalid for a value that has none, such as a time outside its day."""
    column = _stored(column)
    type_ = column.type
    if at.is_null(type_):
        return [_NULL] * len(column)
    if at.is_struct(type_):
        names = [_quoted(field.name) for field in type_]
        members = [json_texts(column.field(index)) for index in range(len(names))]
        rows = zip(*members) if members else (() for _ in range(len(column)))
        texts = ["{" + ",".join(f"{name}:{text}" for name, text in zip(names, row)) + "}" for row in rows]
    elif at.is_map(type_):
        texts = _maps(column)
    elif is_list(type_):
        texts = [f"[{','.join(items)}]" for items in _runs(column, json_texts(column.flatten()))]
    elif _is_bytes(type_):
        texts = [_quoted(text) for text in _base64(column)]
    else:
        texts = _scalars(column)
    return [text if is_valid else _NULL for text, is_valid in zip(texts, column.is_valid().to_pylist())]


def _stored(column: pa.Array) -> pa.Array:
    """The column without types that only say how values are stored; UUIDs as text."""
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if at.is_dictionary(column.type) else column


def _is_bytes(type_: pa.DataType) -> bool:
    known = (at.is_binary, at.is_large_binary, at.is_fixed_size_binary, at.is_binary_view)
    return any(is_kind(type_) for is_kind in known)


def _base64(column: pa.Array) -> list[str | None]:
    return [None if value is None else b64encode(value).decode() for value in column.to_pylist()]


def _scalars(column: pa.Array) -> list[str]:
    type_ = column.type
    texts, bad = convert_typed(column, STRING)
    if bad:
        raise pa.ArrowInvalid("a value without a text")
    found = [text or "" for text in texts.to_pylist()]
    if at.is_floating(type_):
        return [_quoted(text) if text.endswith(("nan", "inf")) else text for text in found]
    if at.is_boolean(type_) or at.is_integer(type_) or at.is_decimal(type_):
        return found
    return [_quoted(text) for text in found]


def _maps(column: pa.Array) -> list[str]:
    type_ = column.type
    lists = column.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)])))
    entries = lists.flatten()
    if not (at.is_string(type_.key_type) or at.is_large_string(type_.key_type)):
        return [f"[{','.join(run)}]" for run in _runs(lists, json_texts(entries))]
    keys, values = (json_texts(entries.field(index)) for index in range(2))
    return ["{" + ",".join(run) + "}" for run in _runs(lists, [f"{key}:{value}" for key, value in zip(keys, values)])]


def _runs(column: pa.Array, texts: list[str]) -> list[list[str]]:
    """The texts of all items, cut into those of each list; none of a null."""
    ends = [0, *accumulate(pc.list_value_length(column).fill_null(0).to_pylist())]
    return [texts[start:end] for start, end in pairwise(ends)]


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)


def _as_json(column: pa.Array) -> pa.Array:
    valid = column.is_valid().to_pylist()
    return pa.array([text if known else None for text, known in zip(json_texts(column), valid)], pa.string())


def _digits(column: pa.Array) -> pa.Array:
    """Decimals as plain digits: for small ones Arrow writes an exponent."""
    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())


def _without_times(column: pa.Array) -> pa.Array:
    """The column with every time of day, at any depth, as the text `HH:MM:SS.nnnnnnnnn`, and every map as a list of its
    entries. Raises _OutOfRange for a time that no day has."""
    exact = _replaced(column.type, pa.time64("ns"))
    texts = _replaced(column.type, pa.string())
    if texts == column.type:
        return column
    try:
        column = column.cast(exact)
    except pa.ArrowInvalid as error:  # a time so far outside its day that nanoseconds do not hold it
        raise _OutOfRange("time_out_of_range") from error
    _check_times(column)
    return column.cast(texts)


def _replaced(arrow: pa.DataType, time: pa.DataType) -> pa.DataType:
    """An Arrow type with `time` for times of day, and lists for maps."""
    if at.is_time(arrow):
        return time
    if at.is_map(arrow):
        entry = [("key", _replaced(arrow.key_type, time)), ("value", _replaced(arrow.item_type, time))]
        return pa.list_(pa.struct(entry))
    if is_list(arrow):
        item = _replaced(arrow.value_type, time)
        return arrow if item == arrow.value_type else pa.list_(item)
    if at.is_struct(arrow):
        parts = [(part.name, _replaced(part.type, time)) for part in arrow]
        return arrow if [part for _, part in parts] == [part.type for part in arrow] else pa.struct(parts)
    return arrow


def _check_times(column: pa.Array) -> None:
    if at.is_time(column.type):
        if not is_within(column.cast(pa.int64()), 0, _DAY_NS - 1):
            raise _OutOfRange("time_out_of_range")
    elif at.is_list(column.type):
        _check_times(column.flatten())
    elif at.is_struct(column.type):
        for part in column.flatten():
            _check_times(part)

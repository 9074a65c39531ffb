"""Converts the Arrow columns of a typed file to columns of the table: exactly, or as a bad row.

Text that is declared as another type follows the rules for texts of `coerce`. (connectors -> coerce is a sideways
import; coerce knows nothing of connectors.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import STRING, Type, from_arrow, to_arrow
from headwater.connectors.files.json_texts import base64_texts, is_bytes, json_texts_of, stored
from headwater.connectors.files.streams import unreadable
from headwater.connectors.files.time_range import times_fit
from headwater.connectors.protocol import BadRows

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.coerce.row_errors import BadRow

_NUMERIC = ("int", "long", "real", "decimal")
_NESTED = ("list", "struct")
_DAY_NS = 86_400 * 10**9
_SCALAR = ("bool", *_NUMERIC, "string", "timestamp", "date", "binary")


class UnknownKeys(Exception):
    """Rows have values under names that the schema has no column for."""


class _OutOfRange(Exception):
    """A time, at any depth, that cannot be kept. Its text is the reason of the row error."""


@dataclass
class BadRowList:
    """The bad rows of one partition. Up to `room` of them are kept. With one more, or with too many bytes, the
    partition is over: nothing of it lands, the first bad rows are reported and the others counted."""

    room: int = 0
    rows: list[BadRow] = field(default_factory=list)
    total: int = 0
    size: int = 0

    @property
    def is_over(self) -> bool:
        return self.total > self.room or self.size > limits.BAD_ROWS_BYTES

    def kept(self, source: bytes) -> bytes:
        """The row as it is kept: empty if no bad rows are kept."""
        if not self.room or self.is_over:
            return b""
        self.size += len(source)
        return source

    def add(self, row: BadRow) -> None:
        """Adds a row that was counted in `total`, in order."""
        if len(self.rows) < max(self.room, limits.ERRORS_SHOWN):
            self.rows.append(row)

    def raise_if_over(self) -> None:
        if self.is_over:
            raise BadRows(tuple(row.error for row in self.rows[: limits.ERRORS_SHOWN]), self.total)


@dataclass(frozen=True)
class BadCell:
    """A row (counted from 0 within a batch) whose value in a column is refused; or the row as a whole."""

    row: int
    column: str | None
    reason: str
    value_type: str | None = None
    detail: str = ""


Convert = Callable[["pa.Array", Type, TextForm | None], tuple["pa.Array", list[BadCell]]]
"""A column as one of a type, given how its texts are written."""


def check_names(names: Iterable[str], *, source_id: str) -> None:
    """Refuse a file that has one name twice: it is unknown which of the two columns is meant."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            what = f"has two columns named `{name}`"
            raise unreadable(source_id, what, reason="duplicate_column", hint="rename one where the file is made")
        seen.add(name)


def convert_batch(batch: pa.RecordBatch, schema: TableSchema, convert: Convert) -> tuple[pa.RecordBatch, list[BadCell]]:
    """The batch with exactly the columns of `schema`: null where it has none, and the cells that do not fit."""
    import pyarrow as pa

    arrays: list[pa.Array] = []
    bad: list[BadCell] = []
    present = set(batch.schema.names)
    for column in schema.columns:
        if column.name in present:
            array, cells = convert(batch.column(column.name), column.type, column.form)
        else:
            array, cells = pa.nulls(batch.num_rows, to_arrow(column.type)), []
        bad += [replace(cell, column=column.name) for cell in cells]
        if not column.nullable and array.null_count:
            known = {cell.row for cell in cells}
            nulls = (row for row, valid in enumerate(array.is_valid().to_pylist()) if not valid)
            bad += [BadCell(row, column.name, "null_in_non_null", "null") for row in nulls if row not in known]
        arrays.append(array)
    if not arrays:  # a table without columns yet still has rows
        return batch.select([]), bad
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow()), sorted(bad, key=lambda cell: cell.row)


def first_cells(cells: Iterable[BadCell]) -> dict[int, BadCell]:
    """The first bad cell of each bad row, by row."""
    found: dict[int, BadCell] = {}
    for cell in cells:
        found.setdefault(cell.row, cell)
    return found


def without_rows(batch: pa.RecordBatch, wrong: Collection[int]) -> pa.RecordBatch:
    """The batch without some of its rows."""
    import pyarrow as pa

    if not wrong:
        return batch
    if not batch.num_columns:  # Arrow does not filter such a batch: it gives all of its rows
        return batch.slice(len(wrong))
    return batch.filter(pa.array([row not in wrong for row in range(batch.num_rows)]))


def with_source_id(batch: pa.RecordBatch, source_id: str) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.append_column("_source_id", pa.repeat(pa.scalar(source_id, pa.string()), batch.num_rows))


def convert_typed(column: pa.Array, type_: Type, form: TextForm | None = None) -> tuple[pa.Array, list[BadCell]]:
    """A typed column as `type_`. Values that `type_` does not hold exactly are null here and listed as bad; a
    whole number may become the nearest real. `form` is how texts, and times without a zone, are written."""
    import pyarrow as pa

    target = to_arrow(type_)
    if column.type == target and type_.kind != "dynamic" and times_fit(column, target):
        return column, []  # not for JSON: a column that is called JSON must still be checked
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target), []
    if isinstance(column.type, pa.UuidType):
        column = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    elif isinstance(column.type, pa.JsonType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    source = source_type(column.type, type_)
    if form is not None and form.format and source.kind in ("int", "long"):
        column, source = column.cast(pa.string()), STRING  # digits that a format reads are not nanoseconds
    if source.kind == "string" and type_.kind not in ("string", "binary"):
        return convert_text(column.cast(pa.string()), type_, form)
    if form is not None and form.timezone and pa.types.is_timestamp(column.type) and column.type.tz is None:
        return _in_zone(column, source, type_, form.timezone)
    if not _is_castable(source, type_):
        return _all_bad(column, type_, source)
    return _cast(column, source, type_)


def convert_any(column: pa.Array, type_: Type, form: TextForm | None = None) -> tuple[pa.Array, list[BadCell]]:
    """As `convert_typed`, but a column of text takes every value: bytes as base64, vectors as JSON."""
    import pyarrow as pa

    plain = stored(column, texts_of_scalars)
    if type_ != STRING or not (is_bytes(plain.type) or pa.types.is_fixed_size_list(plain.type)):
        return convert_typed(column, type_, form)
    texts = base64_texts(plain) if is_bytes(plain.type) else json_texts(plain)
    return pa.array([t if known else None for t, known in zip(texts, plain.is_valid().to_pylist())], pa.string()), []


def with_unknown(schema: TableSchema, columns: Mapping[str, Type | None]) -> TableSchema:
    """The schema without `_rescued`, and with the columns that it lacks; a column of nulls is text."""
    from headwater.coerce.rescued import without_rescued

    schema = without_rescued(schema)
    for name, type_ in columns.items():
        schema = schema if schema.column(name) is not None else schema.added(name, type_ or STRING)
    return schema


def convert_text(column: pa.Array, type_: Type, form: TextForm | None = None) -> tuple[pa.Array, list[BadCell]]:
    """A column of texts as `type_`, by the rules of `coerce`."""
    from headwater.coerce.text_columns import coerce_strings

    array, errors = coerce_strings(column, type_, form, first_line=0)
    return array, [BadCell(error.line, "", error.reason, error.value_type, error.detail) for error in errors]


def _in_zone(column: pa.Array, source: Type, type_: Type, zone: str) -> tuple[pa.Array, list[BadCell]]:
    """Times without a zone as local times of a zone."""
    import pyarrow as pa

    from headwater.coerce.forms import local_instants

    local, bad = _cast(column, source, type_)
    array, refusals = local_instants(local.cast(pa.int64()), zone)
    bad += [BadCell(row, "", refused.reason, str(source), refused.detail) for row, refused in refusals.items()]
    return array, bad


def source_type(arrow: pa.DataType, declared: Type | None = None) -> Type:
    """The type of a column of a typed file. A type that Headwater does not have can still be read as a declared type:
    decimals of more than 38 digits as numbers or text, anything nested as JSON. Raises HW-S03."""
    import pyarrow as pa

    try:
        return from_arrow(arrow)
    except HeadwaterError as error:
        wanted = declared.kind if declared else None
        if pa.types.is_decimal(arrow) and wanted in (*_NUMERIC, "string"):
            return Type("decimal", (arrow.precision, arrow.scale))
        if pa.types.is_nested(arrow) and wanted in ("string", "dynamic"):
            return Type("list" if pa.types.is_list(arrow) or pa.types.is_map(arrow) else "struct")
        hint = 'leave the column out (`exclude = ["..."]`), or cast it at the source'
        if pa.types.is_decimal(arrow):
            hint = 'declare the column as "string", or leave it out: `exclude = ["..."]`'
        raise HeadwaterError(error.code, error.message, hint=hint) from error


def _is_castable(source: Type, target: Type) -> bool:
    match source.kind, target.kind:
        case (a, b) if a == b:
            return True
        case (a, b) if a in _NUMERIC and b in _NUMERIC:
            return True
        case ("list" | "struct", "dynamic" | "string"):
            return True
        case (a, "string" | "binary"):
            return a in _SCALAR and not (target.kind == "binary" and a != "string")
        case ("date", "timestamp") | ("timestamp", "date") | ("int" | "long", "timestamp"):
            return True
        case ("list" | "vector", "list" | "vector"):
            return True
        case ("bool" | "int" | "long" | "decimal", "dynamic"):
            return True
        case _:
            return False


def _all_bad(column: pa.Array, type_: Type, source: Type) -> tuple[pa.Array, list[BadCell]]:
    import pyarrow as pa

    valid = column.is_valid().to_pylist()
    bad = [BadCell(row, "", f"expected_{type_.kind}", str(source)) for row, is_valid in enumerate(valid) if is_valid]
    return pa.nulls(len(column), to_arrow(type_)), bad


def _cast(column: pa.Array, source: Type, type_: Type) -> tuple[pa.Array, list[BadCell]]:
    import pyarrow as pa

    if pa.types.is_nested(column.type):  # a cast of a slice of lists also casts the items outside the slice
        column = pa.concat_arrays([column])
    try:
        return _exact_cast(column, source, type_), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, _OutOfRange) as error:
        if len(column) == 1:
            reason = str(error) if isinstance(error, _OutOfRange) else f"does_not_fit_{type_.kind}"
            return pa.nulls(1, to_arrow(type_)), [BadCell(0, "", reason, str(source))]
    # Halving finds a few bad values with few casts.
    middle = len(column) // 2
    left, bad_left = _cast(column.slice(0, middle), source, type_)
    right, bad_right = _cast(column.slice(middle), source, type_)
    moved = [replace(cell, row=cell.row + middle) for cell in bad_right]
    return pa.concat_arrays([left, right]), bad_left + moved


def _exact_cast(column: pa.Array, source: Type, type_: Type) -> pa.Array:
    """A cast that raises ArrowInvalid or _OutOfRange where a value would become another one."""
    import pyarrow as pa

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


def texts_of_scalars(column: pa.Array) -> pa.Array:
    """Every scalar as its text in a column of text. Raises ArrowInvalid for a value that has none, such as a time
    outside its day."""
    import pyarrow as pa

    texts, bad = convert_typed(column, STRING)
    if bad:
        raise pa.ArrowInvalid("a value without a text")
    return texts


def json_texts(column: pa.Array) -> list[str]:
    """Every value as JSON text. Raises as `texts_of_scalars` does."""
    return json_texts_of(column, texts_of_scalars)


def _as_json(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    valid = column.is_valid().to_pylist()
    return pa.array([text if known else None for text, known in zip(json_texts(column), valid)], pa.string())


def _digits(column: pa.Array) -> pa.Array:
    """Decimals as plain digits: for small ones Arrow writes an exponent."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())


def _without_times(column: pa.Array) -> pa.Array:
    """The column with every time of day, at any depth, as the text `HH:MM:SS.nnnnnnnnn`, and every map as a list of its
    entries. Raises _OutOfRange for a time that no day has."""
    import pyarrow as pa

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
    import pyarrow as pa
    from pyarrow import types as at

    if at.is_time(arrow):
        return time
    if at.is_map(arrow):
        entry = [("key", _replaced(arrow.key_type, time)), ("value", _replaced(arrow.item_type, time))]
        return pa.list_(pa.struct(entry))
    if at.is_list(arrow) or at.is_large_list(arrow) or at.is_fixed_size_list(arrow):
        item = _replaced(arrow.value_type, time)
        return arrow if item == arrow.value_type else pa.list_(item)
    if at.is_struct(arrow):
        parts = [(part.name, _replaced(part.type, time)) for part in arrow]
        return arrow if [part for _, part in parts] == [part.type for part in arrow] else pa.struct(parts)
    return arrow


def _check_times(column: pa.Array) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_time(column.type):
        found = pc.min_max(column.cast(pa.int64())).as_py()
        if found["min"] is not None and not 0 <= found["min"] <= found["max"] < _DAY_NS:
            raise _OutOfRange("time_out_of_range")
    elif pa.types.is_list(column.type):
        _check_times(column.flatten())
    elif pa.types.is_struct(column.type):
        for part in column.flatten():
            _check_times(part)

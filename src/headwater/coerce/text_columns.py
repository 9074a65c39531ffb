"""Columns of plain text, as CSV has them, by the same rules as JSON strings.

Differences, because plain text has no literals: an empty field is null in every column but a string column (where
it is the empty string; a reader that knows the empty field was not quoted gives null for it); `true` and `false` are
taken in any case; dynamic, vector, list and struct columns take JSON text. Digits alone are no timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from headwater.base.limits import MAX_BAD_ROWS, MAX_JSON_DEPTH
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import BOOL, LONG, REAL, STRING, Type, to_arrow
from headwater.coerce.batches import Coerced, record_batch
from headwater.coerce.columns import column_from_values
from headwater.coerce.forms import swapped_texts, texts_by_form, with_comma
from headwater.coerce.infer import join_types, number_type
from headwater.coerce.malformed import fault_in
from headwater.coerce.numbers import PLAIN_INTEGER, PLAIN_NUMBER, castable_decimal
from headwater.coerce.row_errors import Refused, RowError, first_of_each_row
from headwater.coerce.times import timestamps
from headwater.coerce.values import Value, coerce_text, coerce_value, nesting

if TYPE_CHECKING:
    import pyarrow as pa

_JSON_KINDS = ("dynamic", "vector", "list", "struct")
_CANONICAL_INTEGER = r"^-?(?:0|[1-9][0-9]{0,17})$"
"""An integer as programs write it, short enough for 64 bits."""
_CANONICAL_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_LONG_INTEGER = r"^-?[0-9]{19,}$"
_WORD = r"^(?i:true|false)$"

_json = msgspec.json.Decoder(Raw).decode


def infer_csv_strings(column: pa.Array) -> Type | None:
    """The type of a text column: long, real or bool if every field that is neither null nor empty is written as one;
    None if there is no such field. Numbers with leading zeros or a plus are texts, and so are columns with an
    integer beyond 64 bits or a number beyond a double."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.cast(column, pa.string()).drop_null()
    texts = texts.filter(pc.not_equal(texts, ""))
    if not len(texts):
        return None
    if _all_match(texts, _WORD):
        return BOOL
    if _all_match(texts, _CANONICAL_INTEGER):
        return LONG
    if not _all_match(texts, _CANONICAL_NUMBER):
        return STRING
    if pc.any(pc.match_substring_regex(texts, _LONG_INTEGER)).as_py():
        return _exact_number_type(texts.to_pylist())
    return REAL if pc.all(pc.is_finite(pc.cast(texts, pa.float64()))).as_py() else STRING


def coerce_strings(
    column: pa.Array,
    type_: Type,
    form: TextForm | None = None,
    *,
    name: str = "",
    nullable: bool = True,
    first_line: int = 1,
    place: str = "",
) -> tuple[pa.Array, tuple[RowError, ...]]:
    """A text column as values of `type_`, of the same length: null where a text is refused, with one error each, in
    order. The line of an error is `first_line` plus the row's position. `form` says how the texts are written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.cast(column, pa.string())
    if type_ != STRING:
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    array, refusals = _by_form(texts, type_, form) if form else _by_rules(texts, type_)
    if not nullable and array.null_count > len(refusals):
        for index, missing in enumerate(array.is_null().to_pylist()):
            if missing and index not in refusals:
                refusals[index] = Refused("null_in_non_null", "null")
    errors = (refusals[index].at(first_line + index, name, place) for index in sorted(refusals))
    return array, tuple(errors)


def coerce_text_batch(batch: pa.RecordBatch, schema: TableSchema, *, first_line: int = 1, place: str = "") -> Coerced:
    """A batch of text columns coerced to the schema; columns that it lacks are null, and of two with one name the last
    one counts. The line of a row is `first_line` plus its position; a reader that skips a header or joins lines says so
    by `first_line`."""
    import pyarrow as pa

    errors: list[RowError] = []
    arrays: list[pa.Array] = []
    for column in schema.columns:
        places = batch.schema.get_all_field_indices(column.name)
        texts = batch.column(places[-1]) if places else pa.nulls(batch.num_rows, pa.string())
        array, refused = coerce_strings(
            texts,
            column.type,
            column.form,
            name=column.name,
            nullable=column.nullable,
            first_line=first_line,
            place=place,
        )
        arrays.append(array)
        errors.extend(refused)
    errors.sort(key=lambda error: error.line)
    bad = {error.line - first_line for error in errors}
    if bad:
        kept = pa.array([index for index in range(batch.num_rows) if index not in bad], pa.int64())
        arrays = [array.take(kept) for array in arrays]
    known = set(schema.names())
    return Coerced(
        batch=record_batch(arrays, schema, rows=batch.num_rows - len(bad)),
        rows=batch.num_rows - len(bad),
        lines=batch.num_rows,
        unknown_seen={
            name: infer_csv_strings(batch.column(index))
            for index, name in enumerate(batch.schema.names)
            if name not in known
        },
        errors=tuple(errors[:MAX_BAD_ROWS]),
        error_total=len(errors),
        bad=first_of_each_row(errors),
    )


def _by_form(texts: pa.Array, type_: Type, form: TextForm) -> tuple[pa.Array, dict[int, Refused]]:
    if type_.kind in ("timestamp", "date"):
        return texts_by_form(texts, type_, form)
    array, refusals = _by_rules(swapped_texts(texts), type_)
    return array, {index: with_comma(refused) for index, refused in refusals.items()}


def _by_rules(texts: pa.Array, type_: Type) -> tuple[pa.Array, dict[int, Refused]]:
    array = _quickly(texts, type_)
    return (array, {}) if array is not None else _exactly(texts.to_pylist(), type_)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """True if every text that is not null matches."""
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _exact_number_type(texts: Sequence[str]) -> Type | None:
    found: Type | None = None
    for text in texts:
        found = join_types(found, number_type(text))
    return found


def _quickly(texts: pa.Array, type_: Type) -> pa.Array | None:
    """The whole column at once; None if something in it must be judged by itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        match type_.kind:
            case "string":
                return texts
            case "bool" if _all_match(texts, _WORD):
                return pc.cast(pc.utf8_lower(texts), pa.bool_())
            case "int" | "long" if _all_match(texts, f"^{PLAIN_INTEGER}$"):
                return pc.cast(texts, to_arrow(type_))
            case "real" if _all_match(texts, f"^{PLAIN_NUMBER}$"):
                numbers = pc.cast(texts, pa.float64())
                if not pc.all(pc.is_finite(numbers), min_count=0).as_py():
                    return None
                return pc.if_else(pc.match_substring_regex(texts, "^-0+$"), 0.0, numbers)
            case "decimal" if _all_match(texts, f"^{castable_decimal(type_)}$"):
                return pc.cast(texts, to_arrow(type_))
            case "timestamp":
                return timestamps(texts)
    except (pa.ArrowInvalid, Refused):
        return None
    return None


def _exactly(texts: Sequence[str | None], type_: Type) -> tuple[pa.Array, dict[int, Refused]]:
    values: list[Value] = []
    refusals: dict[int, Refused] = {}
    for index, text in enumerate(texts):
        try:
            values.append(None if text is None else _value(text, type_))
        except Refused as refused:
            refusals[index] = refused.with_traceback(None)
            values.append(None)
    return column_from_values(values, type_), refusals


def _value(text: str, type_: Type) -> Value:
    if type_ == BOOL:
        word = text.lower()
        if word not in ("true", "false"):
            raise Refused("expected_bool", "string")
        return word == "true"
    if type_.kind not in _JSON_KINDS:
        return coerce_text(text, type_)
    source = text.encode()
    if nesting(source, beyond=MAX_JSON_DEPTH) is not None:
        raise Refused("too_deep", "string")
    try:
        return coerce_value(str(_json(source), "utf-8"), type_)
    except (msgspec.DecodeError, RecursionError):
        fault = fault_in(source)
        detail = f"character {fault.column} of the text: {fault.reason}" if fault is not None else ""
        raise Refused("invalid_json", "string", detail=detail) from None

"""Columns of Arrow from Python values: the quick way, from what msgspec decodes by type, and the exact way.

For the quick way, what a type of `row_types.py` decodes to is built into an array at once; `Unfit` means that the exact
rules of `values.py` must check each value. Both ways give equal arrays.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from headwater.base.limits import MAX_JSON_DEPTH
from headwater.base.types import BOOL, Type, to_arrow
from headwater.coerce.malformed import fault_in
from headwater.coerce.numbers import PLAIN_INTEGER, PLAIN_NUMBER, castable_decimal
from headwater.coerce.row_errors import Refused, Unfit
from headwater.coerce.row_types import DECODED_AS, NULL, QUICK_DEPTH, Decoded, decoded_as
from headwater.coerce.time_columns import timestamps
from headwater.coerce.times import days_of, nanoseconds_of
from headwater.coerce.values import Value, coerce_text, coerce_value, nesting, raw_value

Column = tuple[pa.Array, dict[int, Refused]]
"""An array, null where a value is refused, and the refusals by position."""
_Builders = dict[str, Callable[[Sequence[Any], Type], pa.Array]]
"""How an array is built of the values of each kind of type, if not as Arrow does it."""
BOOL_WORD = r"^(?i:true|false)$"


@lru_cache(maxsize=256)
def _list_decoder(type_: Type) -> msgspec.json.Decoder[list[Decoded]]:
    return msgspec.json.Decoder(list[decoded_as(type_)])  # type: ignore[misc]


def column_from_sources(sources: Sequence[Raw], type_: Type) -> pa.Array:
    """The quick way over one column's JSON values. Raises `Unfit`."""
    try:
        values = _list_decoder(type_).decode(b"[" + b",".join(sources) + b"]")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unfit from error
    return column_from_decoded(values, type_)


def column_from_decoded(values: Sequence[Decoded], type_: Type) -> pa.Array:
    """An array of values that were decoded as `decoded_as(type_)`. Raises `Unfit`."""
    try:
        return _build(values, type_, _QUICK, msgspec.structs.astuple)
    except (Refused, ValueError, pa.ArrowException) as error:
        raise Unfit from error


def column_exactly(sources: Iterable[Raw], type_: Type) -> Column:
    """The exact way over one column's JSON values."""
    return _by_rule((str(source, "utf-8") for source in sources), type_, coerce_value)


def column_from_texts(texts: pa.Array, type_: Type) -> Column:
    """A column of plain texts, as `text_columns.py` says, of which none is the empty text of a null."""
    array = _quick_texts(texts, type_)
    return (array, {}) if array is not None else _by_rule(texts.to_pylist(), type_, _text_value)


def _by_rule(texts: Iterable[str | None], type_: Type, rule: Callable[[str, Type], Value]) -> Column:
    values: list[Value] = []
    refusals: dict[int, Refused] = {}
    for index, text in enumerate(texts):
        try:
            values.append(None if text is None else rule(text, type_))
        except Refused as refused:
            refusals[index] = refused.with_traceback(None)  # there may be many, and its frames are large
            values.append(None)
    return column_from_values(values, type_), refusals


def column_from_values(values: Sequence[Value], type_: Type) -> pa.Array:
    """An array of values as `values.py` gives them."""
    return _build(values, type_, _EXACT, tuple)


def _build(
    values: Sequence[Any],
    type_: Type,
    leaves: _Builders,
    parts_of: Callable[[Any], tuple[Any, ...]],
) -> pa.Array:
    arrow = to_arrow(type_)
    if type_.kind not in ("list", "struct"):
        return leaves.get(type_.kind, _plain)(values, type_)
    nulls = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
    mask = pa.array(nulls) if nulls.any() else None
    if type_.kind == "list":
        lengths = np.fromiter((len(value or ()) for value in values), dtype=np.int32, count=len(values))
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        flat = list(chain.from_iterable(value for value in values if value is not None))
        items = _build(flat, type_.fields[0][1], leaves, parts_of)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=arrow, mask=mask)
    absent = tuple(NULL if leaves is _QUICK and DECODED_AS.get(part.kind) is Raw else None for _, part in type_.fields)
    rows = [absent if value is None else parts_of(value) for value in values]
    children = [
        _build([row[index] for row in rows], part, leaves, parts_of) for index, (_, part) in enumerate(type_.fields)
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow), mask=mask)


def _plain(values: Sequence[Any], type_: Type) -> pa.Array:
    return pa.array(values, to_arrow(type_))


def _quick_vectors(values: Sequence[Raw], type_: Type) -> pa.Array:
    """All elements of all vectors in one go, without a Python object for any of them."""
    (length,) = type_.numbers
    nulls = [value == NULL for value in values]
    if any(nulls):
        zeros = Raw(b"[" + b",".join([b"0"] * length) + b"]")
        values = [zeros if null else value for value, null in zip(values, nulls)]
    joined = b";".join([Raw(b""), *values])
    if not joined.count(b"[") == joined.count(b";[") == len(values):
        raise Unfit
    # Every value is an array without arrays in it. With brackets and spaces gone, each element follows a mark, and
    # the first one of each vector follows a `;`. What is not a number, or has a mark inside, cannot be cast to one.
    flat = joined.translate(None, b"[] \t\r\n")
    codes = np.frombuffer(flat, dtype=np.uint8)
    marks = np.flatnonzero((codes == ord(",")) | (codes == ord(";")))
    if len(marks) != len(values) * length or (codes[marks[::length]] != ord(";")).any():
        raise Unfit
    offsets = np.append(marks, len(flat)) - np.arange(len(marks) + 1)
    text = pa.py_buffer(flat.translate(None, b",;"))
    numbers = pa.StringArray.from_buffers(len(marks), pa.py_buffer(offsets.astype(np.int32)), text)
    found = pc.cast(numbers, pa.float64()).to_numpy()
    if ((found == 0) & np.signbit(found)).any():
        raise Unfit
    return _vector_array(found, nulls, type_)


def _vectors(values: Sequence[list[float] | None], type_: Type) -> pa.Array:
    zeros = [0.0] * type_.numbers[0]
    flat = chain.from_iterable(zeros if value is None else value for value in values)
    return _vector_array(np.fromiter(flat, dtype=np.float64), [value is None for value in values], type_)


def _vector_array(numbers: npt.NDArray[np.float64], nulls: Sequence[bool], type_: Type) -> pa.Array:
    """The vectors of all these elements after each other, as 32-bit floats."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise Unfit
    mask = pa.array(nulls) if any(nulls) else None
    return pa.FixedSizeListArray.from_arrays(pa.array(narrow), type=to_arrow(type_), mask=mask)


def _quick_timestamps(values: Sequence[str | int | None], type_: Type) -> pa.Array:
    try:
        return timestamps(pa.array(values, pa.string()))
    except pa.ArrowTypeError:
        return _plain([nanoseconds_of(value) if isinstance(value, str) else value for value in values], type_)


def _quick_dates(values: Sequence[str | None], type_: Type) -> pa.Array:
    return _plain([None if value is None else days_of(value) for value in values], type_)


def _quick_binaries(values: Sequence[str | None], type_: Type) -> pa.Array:
    return _plain([None if value is None else binascii.a2b_base64(value, strict_mode=True) for value in values], type_)


def _sources(values: Sequence[Raw]) -> pa.Array:
    """The source texts as one array, null for `null`."""
    # One join instead of a Python object for each text. Byte 0 occurs in no JSON text.
    joined = b"\0".join([*values, b""])
    ends = np.flatnonzero(np.frombuffer(joined, dtype=np.uint8) == 0)
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = ends - np.arange(len(values))
    text = pa.py_buffer(joined.translate(None, b"\0"))
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), text)
    nulls = pc.equal(texts, "null")
    return pc.if_else(nulls, pa.scalar(None, pa.string()), texts) if pc.any(nulls).as_py() else texts


def _quick_decimals(values: Sequence[Raw], type_: Type) -> pa.Array:
    texts = _sources(values)
    number = castable_decimal(type_)
    if not all_match(texts, f'^(?:{number}|"{number}")$'):
        raise Unfit
    return pc.cast(pc.utf8_trim(texts, '"'), to_arrow(type_))


def _quick_dynamics(values: Sequence[Raw], type_: Type) -> pa.Array:
    texts = _sources(values)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > 2 * QUICK_DEPTH and any(nesting(bytes(value), beyond=QUICK_DEPTH) for value in values):
        raise Unfit
    return pa.ExtensionArray.from_storage(to_arrow(type_), texts)


def _quick_texts(texts: pa.Array, type_: Type) -> pa.Array | None:
    """The whole column at once; None if something in it must be judged by itself."""
    try:
        match type_.kind:
            case "string":
                return texts
            case "bool" if all_match(texts, BOOL_WORD):
                return pc.cast(pc.utf8_lower(texts), pa.bool_())
            case "int" | "long" if all_match(texts, f"^{PLAIN_INTEGER}$"):
                return pc.cast(texts, to_arrow(type_))
            case "real" if all_match(texts, f"^{PLAIN_NUMBER}$"):
                numbers = pc.cast(texts, pa.float64())
                if not pc.all(pc.is_finite(numbers), min_count=0).as_py():
                    return None
                return pc.if_else(pc.match_substring_regex(texts, "^-0+$"), 0.0, numbers)
            case "decimal" if all_match(texts, f"^{castable_decimal(type_)}$"):
                return pc.cast(texts, to_arrow(type_))
            case "timestamp":
                return timestamps(texts)
    except (pa.ArrowInvalid, Refused):
        return None
    return None


def _text_value(text: str, type_: Type) -> Value:
    if type_ == BOOL:
        word = text.lower()
        if word not in ("true", "false"):
            raise Refused("expected_bool", "string")
        return word == "true"
    if type_.kind not in ("dynamic", "vector", "list", "struct"):
        return coerce_text(text, type_)
    source = text.encode()
    if nesting(source, beyond=MAX_JSON_DEPTH) is not None:
        raise Refused("too_deep", "string")
    try:
        return coerce_value(str(raw_value(source), "utf-8"), type_)
    except (msgspec.DecodeError, RecursionError):
        fault = fault_in(source)
        detail = f"character {fault.column} of the text: {fault.reason}" if fault is not None else ""
        raise Refused("invalid_json", "string", detail=detail) from None


def all_match(texts: pa.Array, pattern: str) -> bool:
    """True if every text that is not null matches."""
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


_QUICK: _Builders = {
    "timestamp": _quick_timestamps,
    "date": _quick_dates,
    "decimal": _quick_decimals,
    "binary": _quick_binaries,
    "dynamic": _quick_dynamics,
    "vector": _quick_vectors,
}
_EXACT: _Builders = {"vector": _vectors}

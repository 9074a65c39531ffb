"""Columns of Arrow from Python values: the quick way, from what msgspec decodes by type, and the exact way.

For the quick way each column type has a msgspec type that takes only what is certainly right (and so refuses some
good values, such as `1.0` for a long). What msgspec then gives is built into an array at once; `Unfit` means that
the exact rules of `values.py` must check each value. Both ways give equal arrays.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Raw

from headwater.base.limits import MAX_JSON_DEPTH
from headwater.base.types import Type, to_arrow
from headwater.coerce.numbers import castable_decimal
from headwater.coerce.row_errors import Refused, Unfit
from headwater.coerce.times import FIRST_NS, INT64_MAX, INT64_MIN, LAST_NS, days_of, nanoseconds_of, timestamps
from headwater.coerce.values import INT32_MAX, INT32_MIN, Value, coerce_value, nesting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Decoded = Any
"""What a msgspec type of this module decodes to."""
MsgspecType = Any
"""A type as msgspec takes it; such types are made here at run time, so no type checker can know them."""

NULL = Raw(b"null")
INT64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
_QUICK_DEPTH = MAX_JSON_DEPTH // 2
"""Values nested deeper are judged by the exact rules, which know how deep the whole value is."""
_INT32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
_SIMPLE: dict[str, MsgspecType] = {
    "bool": bool | None,
    "int": _INT32 | None,
    "long": INT64 | None,
    "real": float | None,
    "string": str | None,
    "timestamp": str | Annotated[int, Meta(ge=FIRST_NS, le=LAST_NS)] | None,
    "date": str | None,
    "decimal": Raw,
    "binary": str | None,
    "dynamic": Raw,
    "vector": Raw,
}


def decoded_as(type_: Type, *, level: int = 0) -> MsgspecType:
    """The msgspec type of the quick way. Raises `Unfit` for a struct with a field name that msgspec cannot take, and
    for a type that is nested very deep."""
    if level > _QUICK_DEPTH:
        raise Unfit
    match type_.kind:
        case "list":
            return list[decoded_as(type_.fields[0][1], level=level + 1)] | None  # type: ignore[misc]
        case "struct":
            return row_type(type_.fields, level=level + 1) | None
        case kind:
            return _SIMPLE[kind]


@lru_cache(maxsize=256)
def row_type(fields: tuple[tuple[str, Type], ...], *, level: int = 0) -> type[msgspec.Struct]:
    """A struct for objects with these keys and no others: the fields `f0`, `f1`, ... hold what `decoded_as` says,
    and absent keys are null. Raises `Unfit`."""
    members: list[tuple[str, MsgspecType, object]] = []
    for index, (_, type_) in enumerate(fields):
        decoded = decoded_as(type_, level=level)
        members.append((f"f{index}", decoded, NULL if decoded is Raw else None))
    try:
        return msgspec.defstruct(
            "Row",
            members,
            rename={f"f{index}": name for index, (name, _) in enumerate(fields)},
            forbid_unknown_fields=True,
            gc=False,
        )
    except ValueError as error:
        raise Unfit from error


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
    import pyarrow as pa

    try:
        return _build(values, type_, _QUICK, msgspec.structs.astuple)
    except (Refused, ValueError, pa.ArrowException) as error:
        raise Unfit from error


def column_exactly(sources: Sequence[Raw], type_: Type) -> tuple[pa.Array, dict[int, Refused]]:
    """The exact way over one column's JSON values: the array, null where a value was refused, and the refusals by
    position."""
    values: list[Value] = []
    refusals: dict[int, Refused] = {}
    for index, source in enumerate(sources):
        try:
            values.append(coerce_value(str(source, "utf-8"), type_))
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
    leaves: dict[str, Callable[[Sequence[Any], Type], pa.Array]],
    parts_of: Callable[[Any], tuple[Any, ...]],
) -> pa.Array:
    import numpy as np
    import pyarrow as pa

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
    rows = [None if value is None else parts_of(value) for value in values]
    children = [
        _build([_absent(leaves, part) if row is None else row[index] for row in rows], part, leaves, parts_of)
        for index, (_, part) in enumerate(type_.fields)
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow), mask=mask)


def _absent(leaves: dict[str, Callable[[Sequence[Any], Type], pa.Array]], type_: Type) -> object:
    return NULL if leaves is _QUICK and _SIMPLE.get(type_.kind) is Raw else None


def _plain(values: Sequence[Any], type_: Type) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, to_arrow(type_))


def _quick_vectors(values: Sequence[Raw], type_: Type) -> pa.Array:
    """All elements of all vectors in one go, without a Python object for any of them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import numpy as np

    zeros = [0.0] * type_.numbers[0]
    flat = chain.from_iterable(zeros if value is None else value for value in values)
    return _vector_array(np.fromiter(flat, dtype=np.float64), [value is None for value in values], type_)


def _vector_array(numbers: npt.NDArray[np.float64], nulls: Sequence[bool], type_: Type) -> pa.Array:
    """The vectors of all these elements after each other, as 32-bit floats."""
    import numpy as np
    import pyarrow as pa

    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise Unfit
    mask = pa.array(nulls) if any(nulls) else None
    return pa.FixedSizeListArray.from_arrays(pa.array(narrow), type=to_arrow(type_), mask=mask)


def _quick_timestamps(values: Sequence[str | int | None], _type: Type) -> pa.Array:
    import pyarrow as pa

    try:
        return timestamps(pa.array(values, pa.string()))
    except pa.ArrowTypeError:
        return _instants([nanoseconds_of(value) if isinstance(value, str) else value for value in values], _type)


def _instants(values: Sequence[int | None], type_: Type) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.int64()).view(to_arrow(type_))


def _quick_dates(values: Sequence[str | None], type_: Type) -> pa.Array:
    return _days([None if value is None else days_of(value) for value in values], type_)


def _days(values: Sequence[int | None], type_: Type) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.int32()).view(to_arrow(type_))


def _quick_binaries(values: Sequence[str | None], type_: Type) -> pa.Array:
    return _plain([None if value is None else binascii.a2b_base64(value, strict_mode=True) for value in values], type_)


def _sources(values: Sequence[Raw]) -> pa.Array:
    """The source texts as one array, null for `null`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow.compute as pc

    texts = _sources(values)
    number = castable_decimal(type_)
    pattern = f'^(?:{number}|"{number}")$'
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        raise Unfit
    return pc.cast(pc.utf8_trim(texts, '"'), to_arrow(type_))


def _quick_dynamics(values: Sequence[Raw], type_: Type) -> pa.Array:
    import pyarrow.compute as pc

    texts = _sources(values)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > 2 * _QUICK_DEPTH and any(nesting(bytes(value), beyond=_QUICK_DEPTH) for value in values):
        raise Unfit
    return _wrap(texts, type_)


def _dynamics(values: Sequence[str | None], type_: Type) -> pa.Array:
    import pyarrow as pa

    return _wrap(pa.array(values, pa.string()), type_)


def _wrap(texts: pa.Array, type_: Type) -> pa.Array:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(to_arrow(type_), texts)


_QUICK: dict[str, Callable[[Sequence[Any], Type], pa.Array]] = {
    "timestamp": _quick_timestamps,
    "date": _quick_dates,
    "decimal": _quick_decimals,
    "binary": _quick_binaries,
    "dynamic": _quick_dynamics,
    "vector": _quick_vectors,
}
_EXACT: dict[str, Callable[[Sequence[Any], Type], pa.Array]] = {
    "timestamp": _instants,
    "date": _days,
    "dynamic": _dynamics,
    "vector": _vectors,
}

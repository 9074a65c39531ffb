"""The msgspec type of each column type, which takes only what is certainly right (and so refuses some good values, such
as `1.0` for a long). `columns.py` builds arrays from what it decodes to."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from headwater.base.limits import MAX_JSON_DEPTH
from headwater.base.types import Type
from headwater.coerce.row_errors import Unfit
from headwater.coerce.times import FIRST_NS, INT64_MAX, INT64_MIN, LAST_NS
from headwater.coerce.values import INT32_MAX, INT32_MIN

Decoded = Any
"""What a msgspec type of this module decodes to."""
MsgspecType = Any
"""A type as msgspec takes it; such types are made here at run time, so no type checker can know them."""

NULL = Raw(b"null")
INT64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
QUICK_DEPTH = MAX_JSON_DEPTH // 2
"""Values nested deeper are judged by the exact rules, which know how deep the whole value is."""
_INT32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
DECODED_AS: dict[str, MsgspecType] = {
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
    if level > QUICK_DEPTH:
        raise Unfit
    match type_.kind:
        case "list":
            return list[decoded_as(type_.fields[0][1], level=level + 1)] | None  # type: ignore[misc]
        case "struct":
            return row_type(type_.fields, level=level + 1) | None
        case kind:
            return DECODED_AS[kind]


@lru_cache(maxsize=256)
def row_type(fields: tuple[tuple[str, Type], ...], *, level: int = 0) -> type[msgspec.Struct]:
    """A struct for objects with these keys and no others: the fields `f0`, `f1`, ... hold what `decoded_as` says,
    and absent keys are null. Raises `Unfit`."""
    types = [decoded_as(type_, level=level) for _, type_ in fields]
    members = [(f"f{index}", type_, NULL if type_ is Raw else None) for index, type_ in enumerate(types)]
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


@lru_cache(maxsize=64)
def row_decoder(fields: tuple[tuple[str, Type], ...], *, many: bool = False) -> msgspec.json.Decoder[Any] | None:
    """A decoder of `row_type`, or of `many` of them in an array; None if a name or a type cannot be decoded so."""
    try:
        row = row_type(fields)
    except Unfit:
        return None
    return msgspec.json.Decoder(list[row] if many else row)  # type: ignore[valid-type]

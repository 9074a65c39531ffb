"""The exact rules: one JSON value, as its source text, into a value of one column type.

This is the reference. Every quick way in this package gives what these functions give, or leaves the value to them.
The values returned are: bool, int, float, str (string, and the source text of dynamic), int for timestamps
(nanoseconds) and dates (days), Decimal, bytes, list (vector and list), tuple in field order (struct).
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw

from headwater.base.limits import NAME_BYTES
from headwater.base.types import Type
from headwater.coerce.numbers import (
    decimal_of,
    integer_of,
    is_not_finite_word,
    is_plain_integer,
    is_plain_number,
    real_of,
)
from headwater.coerce.row_errors import Refused
from headwater.coerce.times import FIRST_NS, INT64_MAX, INT64_MIN, LAST_NS, days_of, nanoseconds_of

Value = Any
"""A value of a column, in the form that the module's docstring lists; None is null."""

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
_FLOAT32_LIMIT = float.fromhex("0x1.ffffffp+127")
"""The least absolute value that rounds to infinity as a 32-bit float."""
_NULL = b"null"
_TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}

_text = msgspec.json.Decoder(str).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_marks = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def type_of(source: str) -> str:
    """The JSON type of a value by its source text."""
    return _TYPES.get(source[0], "number")


def coerce_value(source: str, type_: Type) -> Value:
    """The value that a valid JSON text of at most 200 levels, without lone surrogates, has in a column of `type_`.
    Raises `Refused`."""
    if source == "null":
        return None
    return _RULES[type_.kind](source, type_)


def coerce_text(text: str, type_: Type) -> Value:
    """The value that a decoded string has in a column of a scalar type. Raises `Refused`."""
    return _TEXT_RULES[type_.kind](text, type_)


def nesting(source: bytes, *, beyond: int) -> tuple[int, bytes | None] | None:
    """If brackets outside strings are nested more than `beyond` deep: where the second-level value that holds them
    begins, and its key as source text; else None. The text need not be valid JSON."""
    if len(source) <= 2 * beyond or source.count(b"[") + source.count(b"{") <= beyond:
        return None
    level, start, key = 0, 0, None
    for found in _marks.finditer(source):
        mark = found.group()
        if mark in b"[{":
            level += 1
            if level == 2:
                start = found.start()
            if level > beyond:
                return start, key
        elif mark in b"]}":
            level -= 1
        elif level == 1:
            key = mark
    return None


def _bool(source: str, _type: Type) -> bool:
    if source == "true":
        return True
    if source == "false":
        return False
    raise Refused("expected_bool", type_of(source))


def _integer(low: int, high: int, reason: str) -> tuple[Callable[[str, Type], int], Callable[[str, Type], int]]:
    def fitting(text: str, value_type: str) -> int:
        found = integer_of(text)
        if found is None:
            raise Refused("not_integral", value_type)
        if not low <= found <= high:
            raise Refused(reason, value_type)
        return found

    def from_text(text: str, _type: Type) -> int:
        if is_plain_integer(text):
            return fitting(text, "string")
        raise Refused("not_integral" if is_plain_number(text) else "not_a_number", "string")

    def from_json(source: str, type_: Type) -> int:
        found: int = _number_or_text(source, type_, fitting, from_text)
        return found

    return from_json, from_text


def _number_or_text(
    source: str, type_: Type, number: Callable[[str, str], Value], text: Callable[[str, Type], Value]
) -> Value:
    match type_of(source):
        case "number":
            return number(source, "number")
        case "string":
            return text(_text(source), type_)
        case other:
            raise Refused("expected_number", other)


def _real(source: str, type_: Type) -> float:
    found: float = _number_or_text(source, type_, real_of, _real_text)
    return found


def _real_text(text: str, _type: Type) -> float:
    if is_plain_number(text):
        return real_of(text, "string")
    raise Refused("not_finite" if is_not_finite_word(text) else "not_a_number", "string")


def _decimal(source: str, type_: Type) -> Decimal:
    def number(text: str, value_type: str) -> Decimal:
        return decimal_of(text, type_, value_type)

    found: Decimal = _number_or_text(source, type_, number, _decimal_text)
    return found


def _decimal_text(text: str, type_: Type) -> Decimal:
    if not is_plain_number(text):
        raise Refused("not_a_number", "string")
    return decimal_of(text, type_, "string")


def _string(source: str, _type: Type) -> str:
    return _text(source) if source[0] == '"' else source


def _string_text(text: str, _type: Type) -> str:
    return text


def _timestamp(source: str, _type: Type) -> int:
    match type_of(source):
        case "string":
            return nanoseconds_of(_text(source))
        case "number":
            found = integer_of(source)
            if found is None:
                raise Refused("bad_timestamp", "number")
            if not FIRST_NS <= found <= LAST_NS:
                raise Refused("timestamp_out_of_range", "number")
            return found
        case other:
            raise Refused("bad_timestamp", other)


def _timestamp_text(text: str, _type: Type) -> int:
    return nanoseconds_of(text)


def _date(source: str, _type: Type) -> int:
    if source[0] != '"':
        raise Refused("bad_date", type_of(source))
    return days_of(_text(source))


def _date_text(text: str, _type: Type) -> int:
    return days_of(text)


def _binary(source: str, type_: Type) -> bytes:
    if source[0] != '"':
        raise Refused("expected_string", type_of(source))
    return _binary_text(_text(source), type_)


def _binary_text(text: str, _type: Type) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise Refused("bad_base64", "string") from None


def _dynamic(source: str, _type: Type) -> str:
    return source


def _vector(source: str, type_: Type) -> list[float]:
    (length,) = type_.numbers
    items = list(_array(source))
    if len(items) != length:
        raise Refused("vector_length", "array", detail=f"expected {length}, got {len(items)}")
    found: list[float] = []
    for index, item in enumerate(items):
        if type_of(item) != "number":
            raise Refused("non_numeric_element", type_of(item), detail=f"index {index}")
        number = float(item)
        if not math.isfinite(number) or abs(number) >= _FLOAT32_LIMIT:
            raise Refused("not_finite", "number", detail=f"index {index}")
        found.append(number + 0.0 if is_plain_integer(item) else number)
    return found


def _list(source: str, type_: Type) -> list[Value]:
    item_type = type_.fields[0][1]
    found: list[Value] = []
    for index, item in enumerate(_array(source)):
        try:
            found.append(coerce_value(item, item_type))
        except Refused as refused:
            raise refused.under(f"[{index}]") from None
    return found


def _array(source: str) -> Iterator[str]:
    if source[0] != "[":
        raise Refused("expected_array", type_of(source))
    return (str(item, "utf-8") for item in _items(source))


def _struct(source: str, type_: Type) -> tuple[Value, ...]:
    if source[0] != "{":
        raise Refused("expected_object", type_of(source))
    members = _members(source)
    known = {name for name, _ in type_.fields}
    unknown = next((name for name in members if name not in known), None)
    if unknown is not None:
        raise Refused("unknown_field", type_of(str(members[unknown], "utf-8")), path="." + unknown[:NAME_BYTES])
    found: list[Value] = []
    for name, part in type_.fields:
        try:
            found.append(coerce_value(str(members.get(name, _NULL), "utf-8"), part))
        except Refused as refused:
            raise refused.under("." + name) from None
    return tuple(found)


_int_json, _int_text = _integer(INT32_MIN, INT32_MAX, "int32_out_of_range")
_long_json, _long_text = _integer(INT64_MIN, INT64_MAX, "int64_out_of_range")

_RULES: dict[str, Callable[[str, Type], Value]] = {
    "bool": _bool,
    "int": _int_json,
    "long": _long_json,
    "real": _real,
    "string": _string,
    "timestamp": _timestamp,
    "date": _date,
    "decimal": _decimal,
    "binary": _binary,
    "dynamic": _dynamic,
    "vector": _vector,
    "list": _list,
    "struct": _struct,
}
_TEXT_RULES: dict[str, Callable[[str, Type], Value]] = {
    "int": _int_text,
    "long": _long_text,
    "real": _real_text,
    "string": _string_text,
    "timestamp": _timestamp_text,
    "date": _date_text,
    "decimal": _decimal_text,
    "binary": _binary_text,
}

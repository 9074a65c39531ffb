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
_INTEGERS = {
    "int": (INT32_MIN, INT32_MAX, "int32_out_of_range"),
    "long": (INT64_MIN, INT64_MAX, "int64_out_of_range"),
}
_NULL = b"null"
_TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}

text_of = msgspec.json.Decoder(str).decode
raw_value = msgspec.json.Decoder(Raw).decode
raw_items = msgspec.json.Decoder(list[Raw]).decode
raw_members = msgspec.json.Decoder(dict[str, Raw]).decode
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
    match type_.kind:
        case "int" | "long" | "real" | "decimal":
            _check_number_text(text, type_)
            return _number(text, type_, "string")
        case "string":
            return text
        case "timestamp":
            return nanoseconds_of(text)
        case "date":
            return days_of(text)
        case kind:
            assert kind == "binary", kind
            return _binary_text(text)


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


def _number_or_text(source: str, type_: Type) -> Value:
    match type_of(source):
        case "number":
            return _number(source, type_, "number")
        case "string":
            return coerce_text(text_of(source), type_)
        case other:
            raise Refused("expected_number", other)


def _number(text: str, type_: Type, value_type: str) -> Value:
    """A plain number in a column of numbers."""
    if type_.kind == "real":
        return real_of(text, value_type)
    if type_.kind == "decimal":
        return decimal_of(text, type_, value_type)
    low, high, reason = _INTEGERS[type_.kind]
    found = integer_of(text)
    if found is None:
        raise Refused("not_integral", value_type)
    if not low <= found <= high:
        raise Refused(reason, value_type)
    return found


def _check_number_text(text: str, type_: Type) -> None:
    if type_.kind in _INTEGERS and not is_plain_integer(text):
        raise Refused("not_integral" if is_plain_number(text) else "not_a_number", "string")
    if not is_plain_number(text):
        raise Refused("not_finite" if type_.kind == "real" and is_not_finite_word(text) else "not_a_number", "string")


def _string(source: str, _type: Type) -> str:
    return text_of(source) if source[0] == '"' else source


def _timestamp(source: str, _type: Type) -> int:
    match type_of(source):
        case "string":
            return nanoseconds_of(text_of(source))
        case "number":
            found = integer_of(source)
            if found is None:
                raise Refused("bad_timestamp", "number")
            if not FIRST_NS <= found <= LAST_NS:
                raise Refused("timestamp_out_of_range", "number")
            return found
        case other:
            raise Refused("bad_timestamp", other)


def _date(source: str, _type: Type) -> int:
    if source[0] != '"':
        raise Refused("bad_date", type_of(source))
    return days_of(text_of(source))


def _binary(source: str, _type: Type) -> bytes:
    if source[0] != '"':
        raise Refused("expected_string", type_of(source))
    return _binary_text(text_of(source))


def _binary_text(text: str) -> bytes:
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
    return (str(item, "utf-8") for item in raw_items(source))


def _struct(source: str, type_: Type) -> tuple[Value, ...]:
    if source[0] != "{":
        raise Refused("expected_object", type_of(source))
    members = raw_members(source)
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


_RULES: dict[str, Callable[[str, Type], Value]] = {
    "bool": _bool,
    "int": _number_or_text,
    "long": _number_or_text,
    "real": _number_or_text,
    "string": _string,
    "timestamp": _timestamp,
    "date": _date,
    "decimal": _number_or_text,
    "binary": _binary,
    "dynamic": _dynamic,
    "vector": _vector,
    "list": _list,
    "struct": _struct,
}

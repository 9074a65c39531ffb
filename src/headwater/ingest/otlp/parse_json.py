"""Messages of protobuf from JSON, by the rules of OTLP.

These are protobuf's own rules with two differences: ids of traces and spans are hex digits, not base64, and unknown
keys are ignored. 64-bit integers come as text or as numbers, enumerations as numbers.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor

Message = Any
"""A protobuf message; its classes are made at run time."""

_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_REALS = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})


class Misfit(ValueError):
    """JSON that does not fit the message. `path` says where, and holds only names of the message."""

    def __init__(self, path: str = ""):
        super().__init__(path)
        self.path = path

    def under(self, name: str) -> Misfit:
        return Misfit(f"{name}.{self.path}" if self.path and self.path[0] != "[" else name + self.path)


def parse_json(kind: Message, body: bytes) -> Message:
    """Raises `Misfit`, also for numbers that JSON does not have and keys of the wrong type."""
    try:
        found = _object(kind.DESCRIPTOR, json.loads(body, parse_constant=_not_json))
        return kind(**found)
    except Misfit:
        raise
    except (ValueError, TypeError, RecursionError) as error:  # a number out of range, a lone surrogate, 5,000 digits
        raise Misfit from error


def _object(kind: Descriptor, data: object) -> dict[str, Any]:
    """The arguments for the message: its own names, and values of the types that it needs."""
    if not isinstance(data, dict):
        raise Misfit
    known = _fields(kind)
    found: dict[str, Any] = {}
    for name, value in data.items():
        field = known.get(name)
        if field is not None and value is not None:
            try:
                found[field[0]] = field[1](value)
            except Misfit as misfit:
                raise misfit.under(name) from None
            except (ValueError, KeyError, OverflowError):
                raise Misfit(name) from None
    return found


@lru_cache(maxsize=64)
def _fields(kind: Descriptor) -> Mapping[str, tuple[str, Callable[[Any], Any]]]:
    """The fields by their JSON names (camel case) and by their own names."""
    found: dict[str, tuple[str, Callable[[Any], Any]]] = {}
    for field in kind.fields:
        read = _reader(field)
        found[field.name] = found[field.json_name] = (field.name, _list_of(read) if field.is_repeated else read)
    return found


def _reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            kind = field.message_type
            return lambda value: _object(kind, value)
        case FieldDescriptor.CPPTYPE_ENUM:
            words = {word: value.number for word, value in field.enum_type.values_by_name.items()}
            return lambda value: words[value] if isinstance(value, str) else _whole(value)
        case FieldDescriptor.CPPTYPE_BOOL:
            return lambda value: _exactly(value, bool)
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            read = binascii.unhexlify if field.name in _IDS else _base64
            return lambda value: read(_exactly(value, str))
        case FieldDescriptor.CPPTYPE_STRING:
            return lambda value: _exactly(value, str)
        case number:
            return _real if number in _REALS else _whole


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(values: object) -> list[Any]:
        found = []
        for number, value in enumerate(_exactly(values, list)):
            try:
                found.append(read(value))
            except Misfit as misfit:
                raise misfit.under(f"[{number}]") from None
            except (ValueError, KeyError, OverflowError):
                raise Misfit(f"[{number}]") from None
        return found

    return read_all


def _exactly(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Misfit
    return value


def _whole(value: object) -> int:
    match value:
        case bool():
            raise Misfit
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if value.isascii() and value.removeprefix("-").isdigit():
            return int(value)
        case _:
            raise Misfit


def _real(value: object) -> float:
    """Texts are numbers too. Non-finite numbers come only as texts."""
    match value:
        case "NaN" | "Infinity" | "-Infinity":
            return float(value)
        case str() if _NUMBER.fullmatch(value) is None:
            raise Misfit
        case bool():
            raise Misfit
        case int() | float() | str() if math.isfinite(found := float(value)):
            return found
        case _:
            raise Misfit


def _base64(text: str) -> bytes:
    return b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)


def _not_json(_word: str) -> NoReturn:
    raise Misfit

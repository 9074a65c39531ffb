"""Infers the types of undeclared columns from all the values seen.

The types form a ladder, so that pieces can be read in any order and merged: null is below everything; long is below
real; two different scalars make string (which keeps the source text of numbers); an object or an array makes the column
dynamic whatever else it holds. Integers beyond 64 bits and numbers beyond a double count as string, because that keeps
their digits. A string is never taken for a number or a time. Every good row fits the types inferred from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import msgspec
from msgspec import Raw

from headwater.base import limits
from headwater.base.limits import MAX_BAD_ROWS
from headwater.base.types import BOOL, DYNAMIC, LONG, REAL, STRING, Type
from headwater.coerce.numbers import integer_of, is_plain_integer, real_of
from headwater.coerce.objects import Objects, read_document, read_lines, typed_lines, without_bom
from headwater.coerce.row_errors import Refused, RowError, Unfit
from headwater.coerce.row_types import INT64, row_decoder
from headwater.coerce.times import INT64_MAX, INT64_MIN
from headwater.coerce.values import type_of

_Seen = bool | INT64 | float | str | list[Raw] | dict[str, Raw] | None
_seen = msgspec.json.Decoder(list[_Seen]).decode
_TYPES: dict[type, Type | None] = {
    bool: BOOL,
    int: LONG,
    float: REAL,
    str: STRING,
    list: DYNAMIC,
    dict: DYNAMIC,
    type(None): None,
}
_JSON_TYPES = {"null": None, "boolean": BOOL, "string": STRING, "object": DYNAMIC, "array": DYNAMIC}


@dataclass(frozen=True)
class Inferred:
    """Columns in order of first appearance; None where only nulls were seen. `errors` are the rows that are no
    objects (the first `MAX_BAD_ROWS`)."""

    columns: Mapping[str, Type | None] = field(default_factory=dict)
    rows: int = 0
    errors: tuple[RowError, ...] = ()


def infer_lines(data: bytes | memoryview, *, first_line: int = 1) -> Inferred:
    """The columns of whole lines of NDJSON."""
    text = without_bom(data, first_line=first_line)
    guess = _inferred(read_lines(_head(text), first_line=first_line, place=""))
    rows = None if guess.errors else _confirmed(text, guess.columns)
    if rows is not None:
        return Inferred(guess.columns, rows)
    return _inferred(read_lines(text, first_line=first_line, place=""))


def infer_document(data: bytes | memoryview, *, place: str = "") -> Inferred:
    """The columns of an array of objects, or of one object."""
    return _inferred(read_document(without_bom(data), place=place))


def merge_inferred(first: Inferred, second: Inferred) -> Inferred:
    """What both pieces together show; the order of columns is that of `first`, then of `second`."""
    columns = dict(first.columns)
    for name, type_ in second.columns.items():
        columns[name] = join_types(columns.get(name), type_)
    return Inferred(columns, first.rows + second.rows, (*first.errors, *second.errors)[:MAX_BAD_ROWS])


def join_types(first: Type | None, second: Type | None) -> Type | None:
    """The least type of the ladder that holds the values of both."""
    if first is None or first == second:
        return second
    if second is None:
        return first
    if DYNAMIC in (first, second):
        return DYNAMIC
    return REAL if {first, second} == {LONG, REAL} else STRING


def infer_members(
    rows: Sequence[Mapping[str, Raw]], *, without: frozenset[str] = frozenset()
) -> dict[str, Type | None]:
    """The columns of objects whose values are source text, except those named in `without`."""
    names = set().union(*rows) - without
    if not names:
        return {}
    found: dict[str, list[Raw]] = {}
    for row in rows:
        for name, source in row.items():
            if name in names:
                found.setdefault(name, []).append(source)
    return {name: _infer_sources(sources) for name, sources in found.items()}


def _inferred(objects: Objects) -> Inferred:
    return Inferred(infer_members(objects.rows), len(objects.rows), tuple(objects.errors[:MAX_BAD_ROWS]))


def _infer_sources(sources: Sequence[Raw]) -> Type | None:
    try:
        values: list[Any] = _seen(b"[" + b",".join(sources) + b"]")
    except msgspec.DecodeError:
        return reduce(join_types, (_exact_type(str(source, "utf-8")) for source in sources))
    return reduce(join_types, (_TYPES[kind] for kind in set(map(type, values))))


def _exact_type(source: str) -> Type | None:
    kind = type_of(source)
    return number_type(source) if kind == "number" else _JSON_TYPES[kind]


def number_type(source: str) -> Type:
    """The type that holds a plain number: long, real, or string where neither does."""
    if is_plain_integer(source):
        value = integer_of(source)
        return LONG if value is not None and INT64_MIN <= value <= INT64_MAX else STRING
    try:
        real_of(source, "number")
    except Refused:
        return STRING
    return REAL


def _head(data: bytes) -> bytes:
    at = -1
    for _ in range(limits.INFER_SAMPLE_LINES):
        at = data.find(b"\n", at + 1)
        if at < 0:
            return data
    return data[: at + 1]


def _confirmed(data: bytes, columns: Mapping[str, Type | None]) -> int | None:
    """The number of rows, if every row has only these keys and fits the types exactly; else None."""
    # A real column also takes integers, which changes nothing: one real value makes it real. A column that was null
    # so far is decoded as bool, and only nulls are accepted in it.
    guess = tuple((name, type_ or BOOL) for name, type_ in columns.items())
    rows = typed_lines(data, row_decoder(guess))
    if rows is None:
        return None
    for index, (name, type_) in enumerate(guess):
        if columns[name] is None and any(getattr(row, f"f{index}") is not None for row in rows):
            return None
        if type_ == DYNAMIC:
            from headwater.coerce.columns import column_from_decoded

            try:
                column_from_decoded([getattr(row, f"f{index}") for row in rows], type_)
            except Unfit:
                return None
    return len(rows)

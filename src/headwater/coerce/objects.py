"""From bytes to JSON objects: splits lines and documents into rows, and checks each row by itself.

A row is checked in this order: valid UTF-8, at most 200 levels in each of its values, valid JSON, no lone surrogate
anywhere (DuckDB refuses to read a file with one), an object. None of it depends on a schema. If an object has a key
twice, only the last value counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.limits import MAX_DOCUMENT_DEPTH, MAX_JSON_DEPTH
from headwater.coerce.malformed import fault_in, refuse_constant
from headwater.coerce.row_errors import BadRow, Refused, RowError
from headwater.coerce.values import nesting, raw_items, raw_members, raw_value, text_of, type_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")

BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_spaces = re.compile(r"[ \t\r\n]*")


@dataclass
class Objects:
    """The rows of a piece of input, in order: their keys with the source text of each value, and their lines.
    `errors` are the rows that are not good objects; `seen` counts physical lines, or elements."""

    rows: list[dict[str, Raw]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    seen: int = 0


def without_bom(data: bytes | memoryview, *, first_line: int = 1) -> bytes:
    """The bytes without a byte order mark before line 1. Raises HW-C02 for more than `JSON_PIECE_BYTES`."""
    whole = bytes(data)
    if len(whole) > limits.JSON_PIECE_BYTES:
        raise HeadwaterError(
            "HW-C02",
            f"{len(whole)} bytes of JSON in one piece, and {limits.JSON_PIECE_BYTES} is the most",
            hint="write it as NDJSON, which is read piece by piece",
        )
    return whole.removeprefix(BOM) if first_line == 1 else whole


def line_pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Whole lines in pieces that are a little larger than `size`; at least one piece."""
    at = 0
    while True:
        end = data.find(b"\n", at + size) + 1 or len(data)
        yield data[at:end]
        at = end
        if at == len(data):
            return


def typed_lines(data: bytes, decoder: msgspec.json.Decoder[T] | None) -> list[T] | None:
    """All lines decoded at once; None if that fails, or if it is not certain that every line holds one object."""
    lines = None if decoder is None else _plain_lines(data)
    if decoder is None or lines is None or not _is_utf8(data):
        return None
    try:
        rows = decoder.decode_lines(data)
    except _REFUSALS:
        return None
    return rows if len(rows) == lines else None


def typed_document(data: bytes, decoder: msgspec.json.Decoder[list[T]] | None) -> list[T] | None:
    """An array decoded at once; None if that fails."""
    if decoder is None or not _is_utf8(data):
        return None
    try:
        return decoder.decode(data)
    except _REFUSALS:
        return None


def read_lines(data: bytes, *, first_line: int, place: str) -> Objects:
    """Each line by itself. Blank lines are skipped, but counted."""
    found = Objects()
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    sound = _is_utf8(data)
    for number, line in enumerate(lines, first_line):
        if line.strip(_BLANK):
            _read_row(line, number, found, place=place, sound=sound)
    found.seen = len(lines)
    return found


def bad_lines(data: bytes, bad: Iterable[RowError], *, first_line: int = 1) -> list[BadRow]:
    """The lines that are bad rows, without the ends of the lines."""
    lines = data.split(b"\n")
    return [BadRow(error, lines[error.line - first_line].rstrip(b"\r")) for error in bad]


def read_document(data: bytes, *, place: str) -> Objects:
    """An array of objects, or one object. An error of the document itself is at line 0."""
    found = Objects()
    try:
        sources = elements(data)
    except Refused as refused:
        found.errors.append(_located(refused.at(0, None, place), data, in_document=True))
        return found
    for number, source in enumerate(sources, 1):
        _read_row(source, number, found, place=place, sound=True)
    if len(sources) == 1 and found.errors:
        found.errors[0] = _located(found.errors[0], data, in_document=True)  # the document is one object
    found.seen = len(sources)
    return found


def read_sources(sources: Iterable[bytes]) -> Objects:
    """Rows that are already split, each by itself; their lines count from 1."""
    found = Objects()
    for found.seen, source in enumerate(sources, 1):
        _read_row(source, found.seen, found, place="", sound=False)
    return found


def _read_row(source: bytes, number: int, found: Objects, *, place: str, sound: bool) -> None:
    """Adds one row to the objects or the errors of `found`. `sound` means that its UTF-8 is known to be valid."""
    try:
        if not sound:
            source.decode()
        row = raw_members(source)
        if nesting(source, beyond=MAX_JSON_DEPTH + 1) is None or not any(map(_is_too_deep, row.values())):
            found.rows.append(row)
            found.lines.append(number)
            return
    except _REFUSALS:
        pass
    column, refused = _judge(source)
    found.errors.append(_located(refused.at(number, column, place), source))


def _located(error: RowError, source: bytes, *, in_document: bool = False) -> RowError:
    """An error of invalid JSON with the position in its line, or in the document, at which the text is no longer JSON;
    another error as it is."""
    fault = fault_in(source) if error.reason == "invalid_json" else None
    if fault is None:
        return error
    line = f"line {fault.line}, " if in_document else ""
    return replace(error, detail=f"{line}column {fault.column}: {fault.reason}", fault=fault)


def _judge(source: bytes) -> tuple[str | None, Refused]:
    """What is wrong with a bad row, and in which top-level key."""
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return None, Refused("invalid_json", "text")
    deep = nesting(source, beyond=MAX_JSON_DEPTH + 1)
    if deep is not None:
        at, key = deep
        return _key(key), Refused("too_deep", type_of(chr(source[at])))
    try:
        raw_value(source)
    except _REFUSALS:
        return _surrogate(text) or (None, Refused("invalid_json", "text"))
    return None, Refused("expected_object", type_of(text.strip(" \t\r\n")))


def _is_too_deep(source: Raw) -> bool:
    return nesting(bytes(source), beyond=MAX_JSON_DEPTH) is not None


def elements(document: bytes) -> list[bytes]:
    """The sources of a document's rows. Raises `Refused` if it is neither an array nor an object."""
    text = document.strip(_BLANK)
    if not _is_utf8(text):
        raise Refused("invalid_json", "text")
    if text[:1] == b"{":
        return [text]
    try:
        found = list(map(bytes, raw_items(text)))
        if any(nesting(source, beyond=MAX_DOCUMENT_DEPTH) for source in found):
            raise RecursionError  # the decoder's own limit depends on the version of Python
        return found
    except RecursionError:
        raise Refused("too_deep", "array") from None
    except msgspec.DecodeError:
        if text[:1] == b"[":
            return [part.encode() for _, part in parts(text.decode())]
    try:
        raw_value(text)
    except msgspec.DecodeError:
        raise Refused("invalid_json", "text") from None
    raise Refused("expected_object", type_of(text[:1].decode()))


class _Members(list[tuple[str, object]]):
    """The members of an object, with repeated keys; a type of its own, so that it is not taken for an array."""


_patient = json.JSONDecoder(object_pairs_hook=_Members, parse_int=str, parse_float=str, parse_constant=refuse_constant)
"""Slow, but it accepts lone surrogates, which msgspec takes for malformed text."""


def _surrogate(text: str) -> tuple[str | None, Refused] | None:
    """The top-level key with a lone surrogate, if nothing else is wrong with a text."""
    try:
        value = _patient.decode(text.strip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, _Members):
        return (None, Refused("lone_surrogate", type_of(text.strip(" \t\r\n")))) if _has_surrogate(value) else None
    for key, member in value:
        if _has_surrogate(key):
            return None, Refused("lone_surrogate", "string", detail="in a key")
        if _has_surrogate(member):
            kind = "object" if isinstance(member, _Members) else "array" if isinstance(member, list) else "string"
            return key, Refused("lone_surrogate", kind)
    return None


def _skip(text: str, at: int) -> int:
    spaces = _spaces.match(text, at)
    return spaces.end() if spaces else at


def parts(text: str) -> Iterator[tuple[str | None, str]]:
    """The source text of each element of an array, or of each member of an object with its key, in order; also where
    msgspec refuses one. Raises `Refused` where the text is not valid JSON."""
    closing = "]" if text[0] == "[" else "}"
    at = _skip(text, 1)
    has_more = text[at : at + 1] != closing
    try:
        while has_more:
            key = None
            if closing == "}":
                key, at = _patient.raw_decode(text, at)
                at = _skip(text, at)
                if not isinstance(key, str) or text[at : at + 1] != ":":
                    raise ValueError
                at = _skip(text, at + 1)
            _, end = _patient.raw_decode(text, at)
            yield key, text[at:end]
            at = _skip(text, end)
            has_more = text[at : at + 1] == ","
            at = _skip(text, at + 1) if has_more else at
        if text[at:] != closing:
            raise ValueError
    except (ValueError, RecursionError):
        raise Refused("invalid_json", "text") from None


def _has_surrogate(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _key(source: bytes | None) -> str | None:
    if source is None:
        return None
    try:
        return text_of(source)
    except _REFUSALS:
        return None


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_lines(data: bytes) -> int | None:
    """The number of lines, if every line break is between a `}` and a `{`; else None.

    Inside a JSON value a `}` is never followed by a `{`, and a string holds no line break: so each of these breaks
    lies between two values, and as many values as lines means one value on each line.
    """
    import numpy as np

    end = len(data) - data.endswith(b"\n")
    end -= data.endswith(b"\r", 0, end)
    if not (data.startswith(b"{") and data.endswith(b"}", 0, end)):
        return None
    codes: npt.NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8, count=end)
    breaks = np.flatnonzero(codes == 10)
    before = codes[breaks - 1]
    if (before == 13).any():
        before = np.where(before == 13, codes[breaks - 2], before)
    if (before != ord("}")).any() or (codes[breaks + 1] != ord("{")).any():
        return None
    return len(breaks) + 1

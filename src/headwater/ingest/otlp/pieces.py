"""Cuts large requests into small ones: a decoded message takes up to 200 times its size.

So a request is not decoded as a whole. It is cut where its records begin, without decoding them, and each piece is a
request with the same resource and scope. A single large record cannot be cut, so its size in memory is estimated first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.ingest.decode import TooLarge
from headwater.ingest.otlp.parse_json import Misfit

Levels = Sequence[Set[str]]
"""The fields that lead from a request down to its records."""
Chunk = bytes | msgspec.Raw

_PARTS_A_HEAD = 20
"""How many parts a field that is not a record counts as. There are few of them."""
_BYTES_A_PART, _ITEMS_A_PART = 16, 8
"""How many bytes of a list of numbers, and how many undecoded items of a JSON list, take as much memory as a
message."""
_CONTROLS = bytes(range(32))
_BOM = b"\xef\xbb\xbf"
_FIXED = {1: 8, 5: 4}
_LENGTH = 2
_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TooMuch(TooLarge):
    """HW-I04 for a request that is small enough itself, but would fill the memory when decoded."""

    def __init__(self, what: str):
        HeadwaterError.__init__(self, "HW-I04", what, hint="send less at a time")


@dataclass(frozen=True)
class RequestPiece:
    """A request by itself. `parts` is how much it takes in memory, if that is much. `first` has the numbers of its
    first resource, scope and record in the whole request."""

    body: bytes
    parts: int = 0
    first: tuple[int, ...] = ()


def protobuf_pieces(kind: Descriptor, body: bytes, levels: Levels) -> Iterator[RequestPiece]:
    """Pieces with the rows of the request, in its order. Raises `TooMuch`, and `DecodeError` for a body that is no
    message."""
    if len(body) <= limits.OTLP_PIECE_BYTES:
        yield RequestPiece(body)
        return
    try:
        for chunks in _cut_message(kind, body, 0, len(body), levels, most=limits.OTLP_PIECE_BYTES, count=_Count()):
            piece = b"".join(chunks)
            yield RequestPiece(piece, _parts(kind, piece) if len(piece) > 2 * limits.OTLP_PIECE_BYTES else 0)
    except IndexError as error:
        raise DecodeError("it ends within a field") from error


def json_pieces(kind: Descriptor, body: bytes, levels: Levels) -> Iterator[RequestPiece]:
    """The same for JSON. Raises `TooMuch` and `Misfit`."""
    if len(body) <= limits.OTLP_PIECE_BYTES:
        yield RequestPiece(body)
        return
    count = _Count()
    count.add(body.count(b",") // _ITEMS_A_PART)
    try:
        for chunks, first in _cut_object(kind, body.removeprefix(_BOM), levels, most=limits.OTLP_PIECE_BYTES):
            piece, parts = b"".join(chunks), 0
            if len(piece) > 2 * limits.OTLP_PIECE_BYTES:
                parts = piece.count(b"{") + piece.count(b"[")
            count.check(parts)
            yield RequestPiece(piece, count.found + parts, first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misfit from error


def in_whole(path: str, first: tuple[int, ...]) -> str:
    """The path in the whole request for a path in a piece."""
    numbers = iter(first)
    return re.sub(r"\[(\d+)\]", lambda found: f"[{int(found[1]) + next(numbers, 0)}]", path)


class _Count:
    """Counts the parts that were found, with a limit on all of them together."""

    def __init__(self) -> None:
        self.found = 0

    def add(self, more: int = 1) -> None:
        self.found += more
        self.check(0)

    def check(self, more: int) -> None:
        if self.found + more > limits.OTLP_PARTS:
            raise TooMuch(f"the request has more than {limits.OTLP_PARTS:,} records, or one with as many values")


def _cut_message(
    kind: Descriptor, data: bytes, at: int, stop: int, levels: Levels, *, most: int, count: _Count
) -> Iterator[list[bytes]]:
    """The pieces of the message at these positions."""
    if stop - at <= most or not levels:
        yield [data[at:stop]]
        return
    below = {_tag(field): field.message_type for field in kind.fields if field.name in levels[0]}
    others = {field.number for field in kind.fields if field.name not in levels[0]}
    head, runs = _runs(data, at, stop, below.keys(), others, count)
    most = max(most, len(head))  # else a large resource would be repeated too often
    group = [head]
    for tag, start, content, end in runs:
        if len(group) > 1 and sum(map(len, group)) + end - start > len(head) + most:
            yield group
            group = [head]
        if end - start <= most:
            group.append(data[start:end])
            continue
        for inner in _cut_message(below[tag], data, content, end, levels[1:], most=most, count=count):
            yield [head, _varint(tag), _varint(sum(map(len, inner))), *inner]
    if len(group) > 1 or not runs:
        yield group


def _runs(
    data: bytes, at: int, stop: int, below: Set[int], others: Set[int], count: _Count
) -> tuple[bytes, list[list[int]]]:
    """What all pieces of a message share, and its other fields, grouped to pieces: for each group the tag of its first
    field, where that starts, where its content starts, and where the last field ends."""
    head, runs, most = bytearray(), list[list[int]](), limits.OTLP_PIECE_BYTES
    run, seen = [0, 0, 0, -1], 0
    for tag, start, content, end in _fields(data, at, stop):
        seen += 1
        if start == run[3] and end - run[1] <= most and tag in below:
            run[3] = end
            continue
        count.add(seen)
        seen = 0
        if tag in below:
            run = [tag, start, content, end]
            runs.append(run)
            continue
        count.add(_PARTS_A_HEAD)
        if tag >> 3 in others:
            head += data[start:end]
    return bytes(head), runs


def _fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """For each field: its tag, where it starts, where its content starts, and where it ends. Raises `DecodeError`, and
    `IndexError` at the end of the data."""
    while at < stop:
        start, tag = at, data[at]
        at += 1
        if tag > 127:
            tag, at = _read_varint(data, start)
        kind = tag & 7
        if kind == _LENGTH:
            length = data[at]
            at += 1
            if length > 127:
                if data[at] < 128:  # true for most records
                    length += (data[at] - 1) * 128
                    at += 1
                else:
                    length, at = _read_varint(data, at - 1)
            end = at + length
        elif kind == 0:
            _, end = _read_varint(data, at)
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        else:
            raise DecodeError("a field of a type that OTLP does not have")
        if end > stop:
            raise DecodeError("a field that ends after its message")
        yield tag, start, at, end
        at = end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise DecodeError("a number that does not end")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def _parts(kind: Descriptor, data: bytes) -> int:
    """How much a message takes in memory: one for each message, each item of a list, and each character that JSON
    writes as `\\u0000`."""
    count = _Count()
    count.add((len(data) - len(data.translate(None, _CONTROLS))) // _BYTES_A_PART)
    stack = [(_lists(kind), _fields(data, 0, len(data)))]
    while stack:
        known, fields = stack[-1]
        for tag, _, content, end in fields:
            if tag not in known:
                continue
            below = known[tag]
            if below is None:
                count.add(1 + (end - content) // _BYTES_A_PART)
                continue
            count.add()
            if len(stack) > limits.OTLP_DEPTH:
                raise DecodeError("it is nested too deep")
            stack.append((_lists(below), _fields(data, content, end)))
            break
        else:
            stack.pop()
    return count.found


@lru_cache(maxsize=64)
def _lists(kind: Descriptor) -> Mapping[int, Descriptor | None]:
    """By tag: the messages in a message, and None for lists of other values."""
    return {
        _tag(field): field.message_type
        for field in kind.fields
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE or field.is_repeated
    }


def _tag(field: FieldDescriptor) -> int:
    """The tag of a field that is a message or a list."""
    return int(field.number) << 3 | _LENGTH


def _cut_object(
    kind: Descriptor, data: Chunk, levels: Levels, *, most: int
) -> Iterator[tuple[list[Chunk], tuple[int, ...]]]:
    """The pieces of the object, and where each of them begins."""
    if len(data) <= most or not levels:
        yield [data], ()
        return
    known = {name for field in kind.fields for name in (field.name, field.json_name)}
    found = next(field for field in kind.fields if field.name in levels[0])
    shared, items = b"{", list[msgspec.Raw]()
    for name, value in _read_object(data).items():
        if name in (found.name, found.json_name):
            items = _read_list(value) if bytes(memoryview(value)[:4]) != b"null" else []
        elif name in known:
            shared += b'"%b":%b,' % (name.encode(), bytes(value))
    head = b'%b"%b":[' % (shared, found.json_name.encode())
    most = max(most, len(head))
    group, size = list[Chunk](), 0
    for number, item in enumerate(items):
        if group and size + len(item) > most:
            yield [head, *group[1:], b"]}"], (number - len(group) // 2,)
            group, size = [], 0
        if len(item) <= most:
            group += (b",", item)
            size += len(item)
            continue
        for inner, first in _cut_object(found.message_type, item, levels[1:], most=most):
            yield [head, *inner, b"]}"], (number, *first)
    if group or not items:
        yield [head, *group[1:], b"]}"], (len(items) - len(group) // 2,)

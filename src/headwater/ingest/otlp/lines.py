"""Requests as NDJSON, for the one write path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from headwater.base import limits
from headwater.ingest.otlp.any_values import Row, present
from headwater.ingest.otlp.pieces import TooMuch

_encode = msgspec.json.Encoder().encode


def lines(
    found: Iterable[tuple[Row, Iterator[Row]]],
    *,
    most: int = limits.MAX_BODY_BYTES,
    grow: Callable[[int], None] = lambda _size: None,
) -> bytes:
    """Rows, one a line, in the order in which they were sent: equal requests give equal bytes. Each row repeats what
    the rows of its scope share, so a small request can become large: raises `TooMuch` before it holds more than `most`
    bytes. `grow` is called with the size of each line, and may raise."""
    parts: list[bytes] = []
    size = 0
    for shared, rows in found:
        end = b"," + _encode(present(shared))[1:] + b"\n"
        before = len(parts)
        for row in rows:
            line = _encode(present(row))[:-1] + end
            size = _bounded(size + len(line), most)
            grow(len(line))
            parts.append(line)
        if len(parts) == before:  # a scope without rows counts too: millions of them would take minutes
            size = _bounded(size + len(end), most)
    return b"".join(parts)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise TooMuch(f"the rows of the request are larger than {most} bytes: each repeats its resource and its scope")
    return size

"""Messages between a server and the processes that run its clients' queries.

A message is its length, a byte for its kind, and JSON. A process answers `Ask` with `Parsed`; then `RunStatement`, for the
statement that was parsed last, with `Columns`, any number of `Rows` and `End`. A `Failure` may replace any answer. The
server does not trust a length that a process sends.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from headwater.base import limits
from headwater.duck.sandbox import Resources, SessionDefinitions

_HEAD = struct.Struct("!Ic")
_CHUNK = 1 << 20
MOST_BYTES = limits.QUERY_ANSWER_BYTES + limits.QUERY_FRAME_BYTES
"""A longer message to a server is a fault of its sender."""


@dataclass(frozen=True)
class Ready:
    """A process can be asked."""


@dataclass(frozen=True)
class Ask:
    """Parse a client's SQL. The process ends itself if it is busy for much longer than `seconds`."""

    sql: str
    seconds: float


@dataclass(frozen=True)
class Parsed:
    """What a statement names; see `Statement`."""

    names: tuple[str, ...]
    lists: bool


@dataclass(frozen=True)
class RunStatement:
    """Answer the statement with at most `rows` rows and `bytes` bytes of JSON. Paths are relative to `root`."""

    seconds: float
    root: str
    definitions: SessionDefinitions
    resources: Resources
    rows: int
    bytes: int


@dataclass(frozen=True)
class Columns:
    columns: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Rows as the text of a JSON array of objects."""

    text: bytes


@dataclass(frozen=True)
class End:
    truncated: bool


@dataclass(frozen=True)
class Failure:
    """A `HeadwaterError`."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    detail: dict[str, Any] = field(default_factory=dict)


Message = Ready | Ask | Parsed | RunStatement | Columns | Rows | End | Failure
_KINDS: dict[bytes, type[Any]] = {bytes([code]): kind for code, kind in enumerate(get_args(Message))}
_CODES = {kind: code for code, kind in _KINDS.items()}


class Channel:
    """One end of a connection. With a `deadline` sending and receiving raise TimeoutError once it has passed."""

    def __init__(self, connection: socket.socket, *, most_bytes: int | None = None):
        self._connection = connection
        self._most_bytes = most_bytes
        self.deadline: float | None = None

    def send(self, message: Message) -> None:
        body = message.text if isinstance(message, Rows) else msgspec.json.encode(message)
        self._set_timeout()
        self._connection.sendall(_HEAD.pack(len(body), _CODES[type(message)]) + body)

    def receive(self) -> Message:
        """Raises EOFError at the end, and ValueError for bytes that are not a message."""
        length, code = _HEAD.unpack(self._read(_HEAD.size))
        kind = _KINDS.get(code)
        if kind is None or (self._most_bytes is not None and length > self._most_bytes):
            raise ValueError("not a message")
        body = self._read(length)
        found: Message = Rows(body) if kind is Rows else msgspec.json.decode(body, type=kind)
        return found

    def close(self) -> None:
        self._connection.close()

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            self._set_timeout()
            part = self._connection.recv(min(length, _CHUNK))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _set_timeout(self) -> None:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)

"""The open connections of a server: how many there may be, how long each may wait for its client, which one is closed
to make space for another.

A connection is in one of four phases:

| phase | deadline | closed to make space |
|---|---|---|
| waits for a header | `HTTP_HEADER_SECONDS` from the connect or the first byte; `HTTP_IDLE_SECONDS` after an answer | first, the longest wait first |
| receives a body | `interfaces/http/guard.py` counts it | next, if no byte came for `HTTP_STALLED_SECONDS` |
| the server works on the answer | none here | never |
| sends an answer | `HTTP_SEND_BYTES` in `HTTP_SEND_SECONDS` | never |

All of it runs in the event loop of the server; nothing here is shared between threads.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.base import limits

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

_LOG = logging.getLogger("headwater.http")
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def raise_file_limit() -> int:
    """Raise this process's limit of open files, at most to `OPEN_FILES`; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, limits.OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connection_limit(open_files: int) -> int:
    """The connections that one listener may hold."""
    return max(1, min(limits.HTTP_CONNECTIONS, open_files // limits.HTTP_FILES_SHARE))


class Connections:
    """The connections of one listener, at most `most` of them."""

    def __init__(self, most: int):
        self.most = most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        """Those that wait for a header, the longest wait first."""
        self._closed: Counter[str] = Counter()
        self._reported_at = float("-inf")

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        self._waiting[connection] = None

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """The wait for a header begins now."""
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._waiting[connection] = None

    def works(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def has_space(self, now: float) -> bool:
        """Whether one more connection may be accepted. At the limit, one that waits for its client is closed."""
        return len(self._open) < self.most or self.close_one(now)

    def close_one(self, now: float) -> bool:
        """Close the connection that has waited longest for its client; False if none does."""
        found = next((one for one in self._waiting if one.is_silent), None)
        if found is None:
            stalled = [one for one in self._open if one.has_stalled(now)]
            found = min(stalled, key=lambda one: one.heard_at, default=None)
        if found is None:
            return False
        self.count("closed for others: no complete request")
        self.abort(found)
        return True

    def abort(self, connection: Connection) -> None:
        self.discard(connection)  # its descriptor is freed in the next turn of the loop
        connection.transport.abort()

    def count(self, what: str) -> None:
        """For the report in the log."""
        self._closed[what] += 1

    def sweep(self, now: float) -> None:
        """Close connections that are over their deadline, and report."""
        for connection in list(self._open):
            connection.check(now)
        unsent = sorted((one for one in self._open if one.unsent), key=lambda one: one.sending_since)
        total = sum(one.unsent for one in unsent)
        for connection in unsent:
            if total <= limits.HTTP_UNSENT_BYTES:
                break
            total -= connection.unsent
            self.count("closed: too many unread answers")
            self.abort(connection)
        self._report(now)

    def _report(self, now: float) -> None:
        if not self._closed or now < self._reported_at + limits.HTTP_REPORT_SECONDS:
            return
        said = "; ".join(f"{count} {what}" for what, count in self._closed.most_common())
        _LOG.warning("connections (%d open, at most %d): %s", len(self._open), self.most, said)
        self._closed.clear()
        self._reported_at = now


class Connection(H11Protocol):
    """One connection of a client."""

    def __init__(
        self, connections: Connections, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state, asyncio.get_running_loop())
        self._all = connections
        now = self.loop.time()
        self.heard_at = now
        self._deadline = now + limits.HTTP_HEADER_SECONDS
        self._is_idle = False  # an answer was sent, and nothing has come since
        self.sending_since = now
        self._sent = 0
        self._sent_before = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Counting(transport))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        super().data_received(data)
        if not self._waits_for_header():
            self._all.works(self)
        elif self._is_idle and self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._is_idle = False
            self._deadline = self.heard_at + limits.HTTP_HEADER_SECONDS

    def on_response_complete(self) -> None:
        # Must come first: the next request may have been sent ahead and be here already.
        self._is_idle = True
        self._deadline = self.loop.time() + limits.HTTP_IDLE_SECONDS
        self._all.waits(self)
        super().on_response_complete()
        if not self._waits_for_header():
            self._all.works(self)

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def is_silent(self) -> bool:
        """Nothing is being sent to the client."""
        return self.transport is not None and self.unsent == 0

    def has_stalled(self, now: float) -> bool:
        """The server waits for more of a body, and nothing comes."""
        if not self._waits_for_body() or self.cycle.waiting_for_100_continue or self.flow.read_paused:
            return False
        return now - self.heard_at >= limits.HTTP_STALLED_SECONDS

    def shutdown(self) -> None:
        """The server ends: it waits for an answer in progress, but not for a body that does not come."""
        super().shutdown()
        if self._waits_for_body():
            self.loop.call_later(limits.HTTP_STOP_SECONDS / 2, self._end_body)

    def _end_body(self) -> None:
        if self._waits_for_body():
            self._all.abort(self)

    def check(self, now: float) -> None:
        """Close it if its client is too slow."""
        if self.unsent:
            self._check_sending(now)
            return
        self.sending_since, self._sent_before = now, self._total_sent()
        if self._waits_for_header() and now >= self._deadline and self.transport is not None:
            if not self._is_idle:
                self._all.count("closed: no complete header in time")
                self.transport.write(_TOO_SLOW)
            self.transport.close()

    def _check_sending(self, now: float) -> None:
        if now < self.sending_since + limits.HTTP_SEND_SECONDS:
            return
        sent = self._total_sent()
        if sent - self._sent_before < limits.HTTP_SEND_BYTES:
            self._all.count("closed: an answer that the client does not read")
            self._all.abort(self)
        self.sending_since, self._sent_before = now, sent

    def _total_sent(self) -> int:
        return self.transport.written - self.unsent if isinstance(self.transport, _Counting) else 0

    def _waits_for_body(self) -> bool:
        return not self._waits_for_header() and self.cycle.more_body

    def _waits_for_header(self) -> bool:
        """Also true while the rest of a body comes that nothing reads."""
        return self.cycle is None or self.cycle.response_complete


class _Counting:
    """A transport that counts what is written to it."""

    def __init__(self, transport: asyncio.Transport):
        self._transport = transport
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

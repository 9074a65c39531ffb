"""How a server accepts connections.

asyncio's own loop accepts as many connections as the backlog holds before it reads from any, and writes a traceback for
each one that the system refuses: without a free file descriptor that is megabytes of log a second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import cast

import uvicorn

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.connections import Connection, Connections
from headwater.interfaces.http.problems import problem

_LOG = logging.getLogger("headwater.http")


class BoundedServer(uvicorn.Server):
    """uvicorn's server, with a bound on connections and deadlines for slow clients."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, most_connections: int):
        super().__init__(config)
        self._listening = listening
        self._connections = Connections(most_connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self.servers.append(cast(asyncio.Server, ConnectionAcceptor(self, self._listening, self._connections)))

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls it ten times a second."""
        self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def connection(self) -> Connection:
        return Connection(self._connections, self.config, self.server_state, self.lifespan.state)


class ConnectionAcceptor:
    """Accepts connections from one listening socket until `close`."""

    def __init__(self, server: BoundedServer, listening: socket.socket, connections: Connections):
        self._server, self._listening, self._connections = server, listening, connections
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._refused_at = float("-inf")
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listening.fileno())

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    def _accept(self) -> None:
        for _ in range(limits.HTTP_ACCEPTS_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error, self._loop.time())
                return
            accepted.setblocking(False)
            if not self._connections.has_space(self._loop.time()):
                self._refuse(accepted)
                continue
            connection = self._server.connection()
            self._connections.add(connection)
            task = self._loop.create_task(self._connect(accepted, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, connection: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # the client is gone
            self._connections.discard(connection)
            accepted.close()

    def _refuse(self, accepted: socket.socket) -> None:
        """Answer 503 to a client, without waiting for its request."""
        self._connections.count("refused: every connection works on a request")
        with accepted, suppress(OSError):
            accepted.send(_full())
            accepted.shutdown(socket.SHUT_WR)

    def _pause(self, error: OSError, now: float) -> None:
        """The system accepts no connection, most likely because no file descriptor is free: close some and wait."""
        if now >= self._refused_at + limits.HTTP_REPORT_SECONDS:
            self._refused_at = now
            _LOG.error("cannot accept connections: %s", error.strerror)
        for _ in range(limits.HTTP_ACCEPTS_AT_ONCE):
            self._connections.close_one(now)
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(limits.HTTP_ACCEPT_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)


def _full() -> bytes:
    error = HeadwaterError("HW-H05", "the server has no free connection", hint="try again later", retryable=True)
    answer = problem(error)
    head = [b"HTTP/1.1 503 Service Unavailable", b"connection: close"]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])

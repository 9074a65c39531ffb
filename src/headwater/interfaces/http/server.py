"""A server in a thread: it binds, serves, and stops without leaving a request hanging."""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.app.access import joined
from headwater.base import limits
from headwater.base.errors import HeadwaterError

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"


class HttpServer:
    """One server, started once and stopped once. It catches no signals: its owner does, and calls `stop`."""

    def __init__(self) -> None:
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._closing: Callable[[], None] = lambda: None

    def start(self, app: Starlette, host: str, port: int, *, setting: str = "[serve] port") -> int:
        """Start to listen; returns the port, which is a free one if 0 was asked for. Raises HW-H01 if it cannot listen
        on that address; `setting` is the setting of the port."""
        import uvicorn

        from headwater.interfaces.http.bounded_server import BoundedServer
        from headwater.interfaces.http.connections import connection_limit, raise_file_limit

        assert self._thread is None, "a server starts once"
        _spare_memory()
        listening = listen(host, port, setting)
        bound = int(listening.getsockname()[1])
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=math.ceil(limits.HTTP_IDLE_SECONDS),
            timeout_graceful_shutdown=math.ceil(limits.HTTP_STOP_SECONDS),
        )
        server = self._server = BoundedServer(config, listening, connection_limit(raise_file_limit()))
        self._closing = app.state.closing
        self._thread = threading.Thread(target=_run, args=(server, listening), name="headwater http", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + limits.HTTP_START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise HeadwaterError("HW-H01", "the HTTP server did not start", hint="its log says why")
            time.sleep(limits.HTTP_START_POLL_SECONDS)
        return bound

    def stop(self) -> None:
        """Accept no more requests, end the event streams, give the other requests time to finish, and end."""
        if self._server is None or self._thread is None:
            return
        self._closing()
        self._server.should_exit = True
        self._thread.join(2 * limits.HTTP_STOP_SECONDS)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(limits.HTTP_STOP_SECONDS)


def _spare_memory() -> None:
    """Arrow's own allocator keeps the memory that each thread once needed, and a server has many threads: after a
    minute of pushes that is a third of its memory. The system's allocator frees it, and is as fast here. Arrow reads
    the setting once; child processes choose their own."""
    if "pyarrow" in sys.modules or _ALLOCATOR in os.environ:
        return
    os.environ[_ALLOCATOR] = "system"
    try:
        import pyarrow  # noqa: F401
    finally:
        del os.environ[_ALLOCATOR]


def _run(server: uvicorn.Server, listening: socket.socket) -> None:
    with listening:
        server.run(sockets=[listening])


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A socket that listens. Raises HW-H01 with the reason, and `setting` as the setting of the port."""
    where = joined(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        found.sort(key=lambda one: one[0] != socket.AF_INET)  # prefer 127.0.0.1 if `localhost` has both
        family, _, _, _, address = found[0]
        # If the protocol is named, asyncio sends small answers at once; otherwise each waits 40 ms for an
        # acknowledgement.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(limits.HTTP_BACKLOG)
        except BaseException:
            listening.close()
            raise
        return listening
    except OSError as error:
        message = f"cannot listen on `{where}`: {_reason(error)}"
        raise HeadwaterError("HW-H01", message, hint=_hint(error, setting)) from error


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process already listens there"
    return (error.strerror or "no such address").lower()


def _hint(error: OSError, setting: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"stop the other one, or choose another port: `{setting}`, `0` for any free one"
        case errno.EACCES:
            return f"ports below 1024 are for the system: choose another one in `{setting}`"
        case _:
            return "`[serve] host` must be an address of this machine; `127.0.0.1` always is"

"""The HTTP API of a project in a process of its own, which a test may kill: what `serve` is to those who push."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from forked import context

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HOST = "127.0.0.1"
END_SECONDS = 30
"""How long the end of a process may take that must end."""


class ApiServer:
    """Listens when it is made. `crash_at` arms a crash point in it."""

    def __init__(self, root: Path, *, crash_at: str | None = None):
        forking = context()
        here, there = forking.Pipe()
        self._process = forking.Process(target=_serve, args=(root, crash_at, there), daemon=True)
        self._process.start()
        there.close()
        self.url: str = here.recv()

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def ended(self) -> int | None:
        """How it ended, once it has; None if it goes on."""
        self._process.join(END_SECONDS)
        return self._process.exitcode


def _serve(root: Path, crash_at: str | None, told: Connection) -> None:
    from headwater.app.access import access_of
    from headwater.app.workspace import workspace
    from headwater.interfaces.http.api import api
    from headwater.interfaces.http.server import HttpServer

    with workspace(root) as opened:
        opened.store()
        port = HttpServer().start(api(lambda: opened, access=access_of(opened.project)), HOST, 0)
        if crash_at is not None:
            os.environ["HEADWATER_CRASH_AT"] = crash_at
        told.send(f"http://{HOST}:{port}")
        threading.Event().wait()

"""Wake-ups: a process that waits for the catalog to change learns of it within moments.

SQLite tells by `PRAGMA data_version`, looked at every 25 ms, and within one process at once; PostgreSQL by LISTEN and
NOTIFY, on a channel of the project's own. A wake-up is a hint: it may come for nothing, and none comes for what
happened before the waker was made. So: make the waker, look, then wait and look again.
"""

from __future__ import annotations

import selectors
import socket
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection

from headwater.base import limits
from headwater.catalog.database import TELLS, Catalog

if TYPE_CHECKING:
    import psycopg


class Waker(Protocol):
    """One waiting thread's ear. `poke` may be called by any thread, the rest only by the one that waits."""

    def wait(self, timeout: float) -> bool:
        """True as soon as something may have changed since the last wait, or on a poke; False after `timeout`
        seconds. A database that is away does not raise here: it is found by the look that follows."""

    def poke(self) -> None:
        """End the wait that is under way, or else the next one."""

    def close(self) -> None: ...


def changes(catalog: Catalog) -> Waker:
    """A waker for every change of this catalog, by whatever process (SQLite), or for every event and every job and
    state of the engine (PostgreSQL)."""
    return _SqliteWaker(catalog) if catalog.is_sqlite else _PostgresWaker(catalog)


def notify(connection: Connection) -> None:
    """Wake all waiters, once this transaction has been committed. Other processes see it of SQLite by themselves."""
    if connection.dialect.name == "sqlite":
        connection.info[TELLS] = True
    else:
        connection.exec_driver_sql("SELECT pg_notify(current_schema(), '')")


class _SqliteWaker:
    def __init__(self, catalog: Catalog):
        database = catalog.engine.url.database
        assert database is not None
        self._connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self._poked = threading.Event()
        self._seen = self._version()
        self._listeners = catalog.listeners
        self._listeners.add(self.poke)

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            before, self._seen = self._seen, self._version()
            if self._poked.is_set() or self._seen != before:
                self._poked.clear()
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._poked.wait(min(limits.WAKE_POLL_SECONDS, left))

    def poke(self) -> None:
        self._poked.set()

    def close(self) -> None:
        self._listeners.discard(self.poke)
        self._connection.close()

    def _version(self) -> int:
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return -1  # another number than before: the waiter wakes, and its next read finds the error
        return int(version)


class _PostgresWaker:
    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._poker, self._poked = socket.socketpair()
        for end in (self._poker, self._poked):
            end.setblocking(False)
        self._connection: psycopg.Connection[Any] | None = None
        self._listen()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            if self._connection is None:
                # What was sent meanwhile is lost, so it wakes either way; not in a rush if the server is still away.
                if not self._listen():
                    self._select(min(timeout, limits.WAKE_RETRY_SECONDS))
                return True
            if self._told() or self._was_poked():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._select(left)

    def poke(self) -> None:
        with suppress(BlockingIOError):  # so many pokes are waiting that one more would say nothing
            self._poker.send(b"!")

    def close(self) -> None:
        self._forget()
        self._poker.close()
        self._poked.close()

    def _listen(self) -> bool:
        import psycopg

        engine = self._catalog.engine
        arguments, options = engine.dialect.create_connect_args(engine.url)
        try:
            connection = psycopg.connect(*arguments, **{"connect_timeout": 10, **options}, autocommit=True)
        except psycopg.OperationalError:
            return False
        self._connection = connection
        try:
            connection.execute(f'LISTEN "{self._catalog.schema}"'.encode())
        except psycopg.Error:
            self._forget()
            return False
        return True

    def _told(self) -> bool:
        """Whether a notification has arrived since the last time; True as well if the connection is lost."""
        import psycopg

        assert self._connection is not None
        try:
            return bool(list(self._connection.notifies(timeout=0)))
        except psycopg.Error:
            self._forget()
            return True

    def _was_poked(self) -> bool:
        try:
            return bool(self._poked.recv(4096))
        except BlockingIOError:
            return False

    def _select(self, timeout: float) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._poked, selectors.EVENT_READ)
            if self._connection is not None:
                waiting.register(self._connection.fileno(), selectors.EVENT_READ)
            waiting.select(timeout)

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

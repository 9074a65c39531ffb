"""The processes that run clients' queries: a few of them, ready before they are needed, replaced when they fail.

A process that takes too long, or whose client has left, is killed, and its place is free at once. One thread starts all
processes and lives as long as the pool: Linux ends a process with the thread that started it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError, OutOfMemory
from headwater.duck.query_wire import (
    MOST_BYTES,
    Ask,
    Channel,
    Columns,
    End,
    Failure,
    Message,
    Parsed,
    Ready,
    Rows,
    RunStatement,
)
from headwater.duck.query_worker import data_bytes
from headwater.duck.sandbox import Resources, SessionDefinitions
from headwater.duck.statement import Statement, too_deep

_LOG = logging.getLogger("headwater.query")
_SPILL, _LOCK = "headwater-query-", "lock"
_SERVER_ENDS, _CLIENT_LEFT = "the server ends", "the client has left"


@dataclass(frozen=True)
class Answer:
    """The first rows of an answer, each as the text of a JSON object. `truncated` if there were more."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[bytes, ...]
    truncated: bool


@dataclass(eq=False)
class Query:
    """A query under way. The pool that it runs in writes both fields."""

    process: QueryProcess | None = None
    is_cancelled: bool = False


class QueryPool:
    """At most `size` processes, and as many queries at once; `waiting` more wait for one."""

    def __init__(self, size: int = limits.QUERIES_AT_ONCE, waiting: int = limits.QUERIES_WAITING):
        self._size = size
        self.capacity = size + waiting
        """The most queries that the pool takes, running and waiting."""
        self._queries = 0
        self._changed = threading.Condition()
        self._idle: list[QueryProcess] = []
        self._busy: set[QueryProcess] = set()
        self._closed = False
        self._starter: threading.Thread | None = None

    @property
    def running(self) -> int:
        """The number of queries under way."""
        with self._changed:
            return self._queries

    def start(self) -> None:
        """Make one process ready, so that the first query does not wait for it."""
        with self._changed:
            if self._starter is None and not self._closed:
                self._starter = threading.Thread(target=self._start_processes, name="query processes", daemon=True)
                self._starter.start()

    def close(self) -> None:
        """Kill all processes: the queries that they run fail. No more queries are taken."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = tuple(self._busy)
            self._changed.notify_all()
        for process in busy:
            process.stop(_SERVER_ENDS)  # the thread that waits for its answer removes what it left
        for process in idle:
            process.end()
        if self._starter is not None and self._starter is not threading.current_thread():
            self._starter.join()

    @contextmanager
    def reserve(self) -> Iterator[Query]:
        """A place for one query. Raises HW-H05 at once if there is none."""
        with self._changed:
            if self._queries >= self.capacity:
                raise _full(f"{self.capacity} queries are under way")
            self._queries += 1
        try:
            yield Query()
        finally:
            with self._changed:
                self._queries -= 1

    def cancel(self, query: Query) -> None:
        """End a query: its process is killed, or it stops waiting for one. Any thread may call this, at any time; a
        query that has its answer is left alone."""
        with self._changed:
            query.is_cancelled = True
            if query.process is not None:
                query.process.stop(_CLIENT_LEFT)
            self._changed.notify_all()

    @contextmanager
    def process(self, seconds: float, query: Query | None = None) -> Iterator[QueryProcess]:
        """A process for one query, for as long as it runs. Raises HW-H05 if none is free in time, and HW-Q02 if the
        query is cancelled."""
        query = query or Query()
        process = self._take(seconds, query)
        try:
            yield process
        finally:
            self._put_back(process, query)

    def _take(self, seconds: float, query: Query) -> QueryProcess:
        self.start()
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                while not (self._idle or self._closed or query.is_cancelled):
                    if not self._changed.wait(max(deadline - time.monotonic(), 0)):
                        raise _full(f"no process was free for {seconds:g} s")
                if self._closed:
                    raise _stopped(_SERVER_ENDS)
                if query.is_cancelled:
                    raise _stopped(_CLIENT_LEFT)
                process = query.process = self._idle.pop()
                self._busy.add(process)
                self._changed.notify_all()  # a spare one is wanted
            if process.is_alive():
                return process
            self._put_back(process, query)

    def _put_back(self, process: QueryProcess, query: Query | None = None) -> None:
        with self._changed:
            self._busy.discard(process)
            if query is not None:
                query.process = None  # `cancel` does not kill it for the next query
            usable = process.is_usable() and not self._closed
            if usable:
                self._idle.append(process)
            self._changed.notify_all()
        if not usable:
            process.end()

    def _start_processes(self) -> None:
        """Keep one process idle, within the limit of processes."""
        with _spill_directory() as spill:
            number = 0
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or (not self._idle and len(self._busy) < self._size))
                    if self._closed:
                        return
                number += 1
                self._start_one(spill / str(number) if spill is not None else None)

    def _start_one(self, spill: Path | None) -> None:
        process = None
        try:
            process = QueryProcess(spill)
            with self._changed:
                self._busy.add(process)  # `close` kills it
                if self._closed:
                    process.kill()
            process.wait()
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            if process is not None:
                process.kill()
            with self._changed:
                if not self._closed:
                    _LOG.error("a process for queries did not start: %s", str(error) or type(error).__name__)
                    self._changed.wait_for(lambda: self._closed, limits.QUERY_WORKER_PAUSE_SECONDS)
        if process is not None:
            self._put_back(process)


class QueryProcess:
    """One process. What it sends is checked: a query may have taken it over."""

    def __init__(self, spill: Path | None):
        """Start it. It takes queries once `wait` has returned."""
        self._spill = spill
        self._queries = 0
        self._first_bytes = 0
        self._failed = False
        self._stopped: str | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headwater.duck.query_worker", str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,
            )
        self._channel = Channel(ours, most_bytes=MOST_BYTES)

    def wait(self) -> None:
        """Raises OSError, EOFError or ValueError if it does not start."""
        self._channel.deadline = time.monotonic() + limits.QUERY_WORKER_START_SECONDS
        if not isinstance(self._channel.receive(), Ready):
            raise ValueError("it does not say that it is ready")
        self._first_bytes = data_bytes(self._process.pid)

    def parse(self, sql: str, *, seconds: float) -> Statement:
        """Check a client's SQL; see `statement.parse`. Parsing and answering take `seconds` at most: after that HW-Q02
        is raised, and the process is gone."""
        self._queries += 1
        self._channel.deadline = time.monotonic() + seconds
        with self._watched(seconds):
            self._channel.send(Ask(sql, seconds))
            match self._receive():
                case Parsed(names, lists):
                    return Statement("", frozenset(names), lists)
                case _:
                    raise ValueError("not an answer")

    def run(
        self, definitions: SessionDefinitions, *, root: Path, resources: Resources, rows: int, seconds: float
    ) -> Answer:
        """Answer the statement that was parsed last, with at most `rows` rows and `QUERY_ANSWER_BYTES`."""
        most = limits.QUERY_ANSWER_BYTES
        run = RunStatement(seconds, str(root), definitions, resources, rows, most)
        with self._watched(seconds):
            self._channel.send(run)
            match self._receive():
                case Columns(columns, types):
                    return self._rest(columns, types, rows, most)
                case _:
                    raise ValueError("not an answer")

    @property
    def temp_directory(self) -> str | None:
        """Where a query may use the disk. It is removed with the process."""
        return str(self._spill) if self._spill is not None else None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_usable(self) -> bool:
        if self._failed or self._queries >= limits.QUERY_WORKER_QUERIES or not self.is_alive():
            return False
        return data_bytes(self._process.pid) - self._first_bytes <= limits.QUERY_WORKER_KEPT_BYTES

    def kill(self) -> None:
        self._failed = True
        self._process.kill()

    def stop(self, why: str) -> None:
        """Kill it: the query that it runs fails with this reason."""
        self._stopped = why
        self.kill()

    def end(self) -> None:
        """Kill it, and remove what it left on the disk."""
        self.kill()
        self._process.wait()
        self._channel.close()
        if self._spill is not None:
            shutil.rmtree(self._spill, ignore_errors=True)

    def _receive(self) -> Message:
        message = self._channel.receive()
        if isinstance(message, Failure):
            if message.code not in CODES:
                raise ValueError("not an error")
            error = HeadwaterError(message.code, message.message, message.hint, message.retryable, message.detail)
            self._failed |= isinstance(error, OutOfMemory)  # it may not give back the memory that it has taken
            raise error
        return message

    def _rest(self, columns: tuple[str, ...], types: tuple[str, ...], most_rows: int, most_bytes: int) -> Answer:
        rows: list[bytes] = []
        size = 0
        while True:
            match self._receive():
                case Rows(text):
                    rows += [bytes(row) for row in msgspec.json.decode(text, type=list[msgspec.Raw])]
                    size += len(text)
                    if len(rows) > most_rows or size > most_bytes + limits.QUERY_FRAME_BYTES:
                        raise ValueError("more than was asked for")
                case End(truncated):
                    return Answer(columns, types, tuple(rows), truncated)
                case _:
                    raise ValueError("not an answer")

    @contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        """After any failure the process is not used again; an error that it reports itself is not a failure."""
        try:
            yield
        except HeadwaterError:
            raise
        except RecursionError as error:
            self.kill()
            raise too_deep() from error
        except TimeoutError as error:
            self.kill()
            message, hint = f"the query was stopped after {seconds:g} s", "ask for less, or allow more time"
            raise HeadwaterError("HW-Q02", message, hint=hint, detail={"timeout_seconds": seconds}) from error
        except (EOFError, OSError, ValueError, msgspec.MsgspecError) as error:
            self.kill()
            if self._stopped is not None:
                raise _stopped(self._stopped) from error
            code = self._process.wait()
            _LOG.warning("a process for queries ended by itself, with %d", code)
            raise HeadwaterError(
                "HW-Q01",
                "the query ended the process that ran it",
                hint="write the query in another way; other queries are not affected",
            ) from error
        except BaseException:
            self.kill()
            raise


def _stopped(why: str) -> HeadwaterError:
    return HeadwaterError("HW-Q02", f"the query was stopped: {why}", hint="ask again", retryable=True)


def _full(what: str) -> HeadwaterError:
    return HeadwaterError("HW-H05", f"the server is busy: {what}", hint="send the query again later", retryable=True)


def _environment() -> dict[str, str]:
    """What Python needs to start as it did here, and nothing else."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {**kept, "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def _spill_directory() -> Iterator[Path | None]:
    """A directory for what queries put on the disk; None if none can be made. A lock says that it is in use: the next
    server removes the directory that a killed server left."""
    try:
        for left in Path(tempfile.gettempdir()).glob(f"{_SPILL}*"):
            _remove_if_left(left)
        directory = Path(tempfile.mkdtemp(prefix=_SPILL))
        lock = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _remove_if_left(directory: Path) -> None:
    with suppress(OSError):
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(lock)

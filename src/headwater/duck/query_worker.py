"""The process that runs clients' queries: `python -m headwater.duck.query_worker PARENT`.

It has none of the server's files, sockets and secrets: its stdin is a socket to the server, and its environment holds
what Python needs to start. The server ends it when a query takes too long. The kernel keeps it from taking more
memory than it may have, and ends it with the server.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.json_form import distinct, json_value, plain
from headwater.duck.query_wire import Ask, Channel, Columns, End, Failure, Message, Parsed, Ready, Rows, RunStatement
from headwater.duck.sandbox import QueryResult, new_database, open_session, out_of_memory, run_statement
from headwater.duck.statement import Statement, parse, too_deep

_SET_PDEATHSIG = 1


def main() -> None:
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parse("SELECT 1")  # loads DuckDB, and makes the parser
    _limit_memory(limits.QUERY_MEMORY_BYTES + limits.QUERY_EXTRA_BYTES)
    worker = _QueryWorker(Channel(socket.socket(fileno=0)))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the server is gone
        worker.serve()


class _QueryWorker:
    """Answers one message after the other; each statement runs in a database of its own."""

    def __init__(self, channel: Channel):
        self._channel = channel
        self._statement: Statement | None = None
        self._database = new_database()

    def serve(self) -> None:
        self._channel.send(Ready())
        while True:
            message = self._channel.receive()
            try:
                self._answer(message)
            except HeadwaterError as error:
                self._channel.send(Failure(error.code, error.message, error.hint, error.retryable, error.detail))

    def _answer(self, message: Message) -> None:
        try:
            match message:
                case Ask():
                    with _alarm(message.seconds):
                        self._statement = parse(message.sql)
                    self._channel.send(Parsed(tuple(sorted(self._statement.names)), self._statement.lists))
                case RunStatement():
                    try:
                        with _alarm(message.seconds):
                            self._run(message)
                    finally:
                        self._database = new_database()
                case _:
                    raise ValueError("not a question")
        except MemoryError as error:
            raise out_of_memory() from error
        except RecursionError as error:
            raise too_deep() from error

    def _run(self, run: RunStatement) -> None:
        assert self._statement is not None
        # No absolute path is in the session: not in its views, its plans or its errors.
        os.chdir(run.root)
        session = open_session(run.definitions, run.resources, self._database)
        try:
            found = run_statement(session, self._statement)
            names = distinct(list(found.columns))
            self._channel.send(Columns(tuple(names), found.types))
            pieces = _Pieces(run)
            for piece in pieces.of(found, names):
                self._channel.send(Rows(piece))
        finally:
            session.close()
        self._channel.send(End(pieces.truncated))  # now the server checks how much memory this process keeps


class _Pieces:
    """The rows of an answer as JSON arrays, cut where there are too many."""

    def __init__(self, run: RunStatement):
        self._rows, self._bytes = run.rows, run.bytes
        self._step = limits.QUERY_FIRST_ROWS
        self.truncated = False

    def of(self, found: QueryResult, names: list[str]) -> Iterator[bytes]:
        for batch in found.batches():
            self.truncated |= len(batch) > self._rows
            rows = [dict(zip(names, map(json_value, row))) for row in batch[: self._rows]]
            self._rows -= len(rows)
            while rows:
                piece, rows = rows[: self._step], rows[self._step :]
                yield from self._fitting(piece)
            if self.truncated:
                return

    def _fitting(self, rows: list[dict[str, Any]]) -> Iterator[bytes]:
        """Rows as one text, or one by one up to the first that is too long. The next piece has as many rows as make
        about `QUERY_FRAME_BYTES`."""
        if self._bytes < 0:
            return
        text = _encode(rows).encode()
        if len(text) <= self._bytes:
            self._bytes -= len(text)
            self._step = max(1, min(limits.QUERY_FETCH_ROWS, len(rows) * limits.QUERY_FRAME_BYTES // len(text)))
            yield text
        elif len(rows) == 1:
            self._bytes, self.truncated = -1, True
        else:
            for row in rows:
                yield from self._fitting([row])


_encode = json.JSONEncoder(default=plain, ensure_ascii=False).encode


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Ends this process if the server does not: outside Linux nothing else ends a query whose server is gone."""
    signal.setitimer(signal.ITIMER_REAL, seconds + limits.QUERY_ALARM_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _die_with(parent: int) -> None:
    """The kernel ends this process with the thread that started it; see `QueryPool`."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)


def _limit_memory(size: int) -> None:
    """Limits the process's own data, without the programs and files that it maps. A process that the kernel ends leaves
    no image of its memory behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with_all = size + data_bytes(os.getpid())
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        with_all = min(with_all, most)
    resource.setrlimit(resource.RLIMIT_DATA, (with_all, with_all))


def data_bytes(pid: int) -> int:
    """The process's own data now. 0 on systems other than Linux, which do not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:")), 0)


if __name__ == "__main__":
    main()

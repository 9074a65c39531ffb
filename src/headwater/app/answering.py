"""query, for a stranger: the same fenced reader, with a bound on rows, on bytes, on memory and on time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headwater.app.querying import reader
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError


@dataclass(frozen=True)
class Rows:
    """An answer in columns and rows. `truncated` if there was more."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool


def answer_query(
    workspace: Workspace,
    sql: str,
    *,
    limit: int,
    timeout_seconds: float,
    as_of: int | None = None,
    room_for: Callable[[tuple[Any, ...]], bool] = lambda _row: True,
    closing: threading.Event | None = None,
) -> Rows:
    """The first rows of one statement that reads. Raises HW-Q02 once it has taken too long, or `closing` is set.
    `room_for` is asked for each row, and ends the answer where it says no."""
    from headwater.store.read import run_query

    with reader(workspace, as_of=as_of, sql=sql, memory_bytes=limits.QUERY_MEMORY_BYTES) as session:
        found = run_query(session, sql)
        cursor = found.cursor()
        rows: list[tuple[Any, ...]] = []
        truncated = False
        with _time_limit(cursor.interrupt, timeout_seconds, closing or threading.Event()):
            for row in found.rows(cursor):
                if len(rows) == limit or not room_for(row):
                    truncated = True
                    break
                rows.append(row)
    return Rows(found.columns, found.types, tuple(rows), truncated)


@contextmanager
def _time_limit(interrupt: Callable[[], None], seconds: float, closing: threading.Event) -> Iterator[None]:
    """Interrupt what goes on for longer. An interrupt that comes between two steps of a query is not heard, so it is
    repeated until one is."""
    import duckdb

    done, over = threading.Event(), threading.Event()
    deadline = time.monotonic() + seconds

    def watch() -> None:
        while not done.wait(min(limits.POLL_SECONDS, max(deadline - time.monotonic(), 0.001))):
            if closing.is_set() or time.monotonic() >= deadline:
                over.set()
                with suppress(duckdb.Error):  # closed a moment ago
                    interrupt()

    watcher = threading.Thread(target=watch, name="query time limit", daemon=True)
    watcher.start()
    try:
        yield
    except HeadwaterError as error:
        if over.is_set() and error.code == "HW-Q01":
            raise _stopped(seconds, closing=closing.is_set()) from error
        raise
    finally:
        done.set()
        watcher.join()


def _stopped(seconds: float, *, closing: bool) -> HeadwaterError:
    if closing:
        return HeadwaterError("HW-Q02", "the query was stopped: the server ends", hint="ask again", retryable=True)
    return HeadwaterError(
        "HW-Q02",
        f"the query was stopped after {seconds:g} s",
        hint="ask for less, or allow more time",
        detail={"timeout_seconds": seconds},
    )

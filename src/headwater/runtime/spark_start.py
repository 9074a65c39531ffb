"""How long work waits for Spark to start: it is no part of the time that the work takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

LEAST_US = 50_000
"""A session that is there is had in less; what takes longer was a start, or the wait for one."""

_current: ContextVar[SparkStart | None] = ContextVar("spark_start", default=None)


class SparkStart:
    """The time that one job waited for Spark, by all its threads: where two waited at once it counts once."""

    def __init__(self) -> None:
        self.us = 0
        self._until = 0
        self._lock = threading.Lock()

    def waited(self, begin_us: int, end_us: int) -> None:
        if end_us - begin_us < LEAST_US:
            return
        with self._lock:
            self.us += max(0, end_us - max(begin_us, self._until))
            self._until = max(self._until, end_us)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Waits of this thread, and of threads that run in a copy of its context, count for this job."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def measuring(spark: Callable[[], T]) -> Callable[[], T]:
    """The same way to have a session, with what it took noted for the job that asked."""

    def session() -> T:
        begin = time.monotonic_ns()
        try:
            return spark()
        finally:
            job = _current.get()
            if job is not None:
                job.waited(begin // 1000, time.monotonic_ns() // 1000)

    return session

"""How long work waits for Spark to start: this is not part of the time that the work takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

LEAST_US = 50_000
"""A running session answers faster; anything slower was a start, or the wait for one."""

_current: ContextVar[SparkStart | None] = ContextVar("spark_start", default=None)


class SparkStart:
    """The time that one job waited for Spark, in all its threads: overlapping waits count once."""

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
        """Count the waits of this thread, and of threads that run in a copy of its context, for this job."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def measuring(spark: Callable[[], T]) -> Callable[[], T]:
    """The same function for a session, which also records the wait for the job that called it."""

    def session() -> T:
        begin = time.monotonic_ns()
        try:
            return spark()
        finally:
            job = _current.get()
            if job is not None:
                job.waited(begin // 1000, time.monotonic_ns() // 1000)

    return session

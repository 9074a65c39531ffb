"""What is recorded of the work for a job: its output, its duration, and how long it waited for Spark to start. That is
not part of the time that the work takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog.engine_records import JobEnd, JobOutput
from headwater.runtime.user_output import Mask, UserOutput

if TYPE_CHECKING:
    from headwater.spark.user_code import Code


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


class Execution:
    """One execution of a ripple. `seconds` is its duration without the start of Spark; known after the block of `noted`."""

    def __init__(self, mask: Mask):
        self.seconds = 0.0
        self._mask = mask
        self._output = UserOutput(mask)
        self._start = SparkStart()

    @contextmanager
    def noted(self) -> Iterator[None]:
        begin = time.monotonic()
        try:
            with self._start.measured(), self._output.captured():
                yield
        finally:
            self.seconds = max(0.0, time.monotonic() - begin - self._start.us / 1e6)

    def ended(self, end: JobEnd) -> JobEnd:
        """The end of a successful job, with what is known of its execution."""
        return replace(end, spark_start_us=self._start.us, output=JobOutput(output=self._output.text()))

    def failed(self, end: JobEnd, error: HeadwaterError, code: Code) -> JobEnd:
        """The end of a failed job, with the message of its exception."""
        from headwater.spark.user_errors import exception_text

        message, lines = exception_text(code, error)
        output = JobOutput(
            output=self._output.text(), exception=_cut(self._mask(message)), traceback=_cut(self._mask(lines))
        )
        return replace(end, spark_start_us=self._start.us, output=output)


def _cut(text: str) -> str:
    data = text.encode(errors="surrogatepass")
    if len(data) <= limits.RUN_EXCEPTION_BYTES:
        return text
    return data[: limits.RUN_EXCEPTION_BYTES].decode(errors="ignore") + " ..."

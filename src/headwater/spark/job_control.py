"""Stops the Spark jobs of one block of code, and no others.

The jobs that a thread starts carry the thread's properties: pyspark keeps one Java thread for each Python thread.
Inside a block they run in a pool of its name, so that a large block and a small one share the machine fairly, and under
a tag that no other block has, so that they can be cancelled alone. A thread that user code starts is outside of the
block, unless it is pyspark's `InheritableThread`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.spark.failure import translated

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_POOL = "spark.scheduler.pool"
_INTERRUPT = "spark.job.interruptOnCancel"
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


class Control:
    """Stops a block, from any thread. The first reason counts."""

    def __init__(self, context: SparkContext, name: str):
        self.name = name
        self.tag = f"headwater-{uuid7()}"
        self._context = context
        self._lock = threading.Lock()
        self._reason: HeadwaterError | None = None
        self._ended = threading.Event()

    def cancel(self, reason: HeadwaterError | None = None) -> None:
        """Makes the block's running jobs fail now, and any that it starts later; returns at once. The block raises
        `reason`. Does nothing if the block has ended or was stopped already."""
        with self._lock:
            if self._reason is not None or self._ended.is_set():
                return
            self._reason = reason or HeadwaterError("HW-R03", f"`{self.name}` was stopped", hint="nothing was landed")
        threading.Thread(target=self._keep_cancelling, name="job-control", daemon=True).start()

    def lose(self) -> None:
        """Stops the block because the lease on its work was lost (HW-T03): its commit would be refused."""
        hint = "nothing to do; another worker's result counts"
        self.cancel(HeadwaterError("HW-T03", f"the lease on `{self.name}` was lost", hint=hint))

    def check(self) -> None:
        """Raises the reason if the block was stopped. Call it before the block's result is used."""
        if self._reason is not None:
            raise self._reason

    def end(self) -> None:
        """From now on there is nothing to stop."""
        self._ended.set()

    def _keep_cancelling(self) -> None:
        """Repeats until the block ends: only running jobs are cancelled, and the block may start another."""
        while True:
            with contextlib.suppress(Exception):  # a Spark that has ended has no jobs
                self._context.cancelJobsWithTag(self.tag)
            if self._ended.wait(limits.CANCEL_AGAIN_SECONDS):
                return


@contextmanager
def controlled(spark: SparkSession, name: str, *, timeout_seconds: float | None = None) -> Iterator[Control]:
    """Runs the block's jobs in the pool `name`, and allows to stop them: by `cancel`, or after the timeout (HW-R03). A
    block that was stopped raises the reason, not the errors that stopping caused in its code. Code that is busy outside
    of Spark is not interrupted: it is stopped by its next job, or by `check` before its result is used."""
    context = spark.sparkContext
    control = Control(context, name)
    timer = None
    if timeout_seconds is not None:
        timer = threading.Timer(timeout_seconds, control.cancel, [_timeout(name, timeout_seconds)])
        timer.daemon = True
        timer.start()
    try:
        with _in_pool(context, name, control.tag):
            yield control
    except Exception as error:
        try:
            control.check()
        except HeadwaterError as reason:
            raise reason from error
        raise
    finally:
        control.end()
        if timer is not None:
            timer.cancel()


@contextmanager
def _in_pool(context: SparkContext, pool: str, tag: str) -> Iterator[None]:
    """Sets a pool and a tag for the jobs of this thread during a block. The tasks of a cancelled job are interrupted,
    even if other code has set a job group for this thread."""
    mine = {_POOL: pool, _INTERRUPT: "true"}
    with translated():
        before = {name: context.getLocalProperty(name) for name in mine}
        for name, value in mine.items():
            context.setLocalProperty(name, value)
        context.addJobTag(tag)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # if Spark has ended, its properties are gone too
            context.removeJobTag(tag)
            for name, earlier in before.items():
                context.setLocalProperty(name, earlier)  # type: ignore[arg-type]  # None removes it


def _timeout(name: str, seconds: float) -> HeadwaterError:
    hint = "nothing was landed; raise its `timeout`, or reduce its work"
    return HeadwaterError("HW-R03", f"`{name}` was stopped after {_spoken(seconds)}", hint=hint)


def _spoken(seconds: float) -> str:
    """A duration in the largest unit in which it is a whole number."""
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"

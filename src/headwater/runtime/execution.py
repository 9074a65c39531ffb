"""What is recorded of one execution of a ripple: its output, its duration, and how much of that is Spark's start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog.engine_records import JobEnd, JobOutput
from headwater.runtime.spark_start import SparkStart
from headwater.runtime.user_output import Mask, UserOutput

if TYPE_CHECKING:
    from headwater.spark.user_code import Code


class Execution:
    """`seconds` is its duration without the start of Spark; known after the block of `noted`."""

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

        said, lines = exception_text(code, error)
        output = JobOutput(
            output=self._output.text(), exception=_cut(self._mask(said)), traceback=_cut(self._mask(lines))
        )
        return replace(end, spark_start_us=self._start.us, output=output)


def _cut(text: str) -> str:
    data = text.encode(errors="surrogatepass")
    if len(data) <= limits.RUN_EXCEPTION_BYTES:
        return text
    return data[: limits.RUN_EXCEPTION_BYTES].decode(errors="ignore") + " ..."

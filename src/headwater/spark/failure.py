"""Translates Spark's own failures, once, where they enter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import TransientError

_DIED = ("Python worker exited unexpectedly", "SparkContext was shut down", "executor lost", "ExecutorLostFailure")
_NOBODY_THERE = "does not exist in the JVM"
"""py4j's message for a name that it looked up in a JVM that has ended."""
_CANCELLED = ("cancelled", "CANCELLED")
_NO_ANSWER = "An error occurred while calling"
"""py4j's message for a call without an answer; if Java answered, its trace follows."""


@contextmanager
def translated() -> Iterator[None]:
    """A process that died during a job is worth another try; a job that failed is an error with a code."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, ConnectionError, EOFError) as error:
        raise TransientError("Spark's process ended during a job") from error
    except (Py4JError, PySparkException) as error:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        if not isinstance(error, Py4JJavaError) and text.startswith(_NO_ANSWER) and "Trace:" not in text:
            raise TransientError("Spark's process ended during a job") from error
        if not isinstance(error, Py4JJavaError) and _NOBODY_THERE in text:
            raise TransientError("Spark's process ended between two calls") from error
        if any(word in text for word in _DIED):
            raise TransientError("a Spark worker died during a job") from error
        raise HeadwaterError(
            "HW-J03",
            f"a Spark job {'was cancelled' if any(word in text for word in _CANCELLED) else 'failed'}: {_shorten(text)}",
            hint="run the command again with HEADWATER_DEBUG=1 to see the whole error",
        ) from error


def _shorten(text: str) -> str:
    """The last cause that names an error; the lines before it are Spark's call stack."""
    causes = re.findall(r"^(?:Caused by: )?([\w.]*(?:Error|Exception): .*)$", text, flags=re.MULTILINE)
    line = causes[-1] if causes else text.strip().splitlines()[0] if text.strip() else "no reason given"
    return line[: limits.MESSAGE_CHARACTERS]

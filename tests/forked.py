"""Processes that tests start and see die. They are forked off a server that has the imports done already, so that
one costs milliseconds; where the start of a process is what is tested, it has to be a real one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

IMPORTED = (
    "duckdb",
    "headwater.connectors.registry",
    "headwater.catalog.commit",
    "headwater.duck.view_files",
    "headwater.storage.part_writer",
    "pandas",  # pyarrow looks for it when it makes its first array
    "psycopg",
    "pyarrow.parquet",
    "pytest",
    "sqlalchemy.dialects.sqlite",
)


def context() -> ForkServerContext:
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(IMPORTED))
    return found


def exit_code(function: Callable[..., object], *arguments: object, crash_at: str | None = None) -> int | None:
    """How a process ends that calls a function, armed with a crash point: negative if a signal ended it."""
    process = context().Process(target=_call, args=(crash_at, function, arguments))
    process.start()
    process.join()
    return process.exitcode


def _call(crash_at: str | None, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    if crash_at is not None:
        os.environ["HEADWATER_CRASH_AT"] = crash_at
    function(*arguments)

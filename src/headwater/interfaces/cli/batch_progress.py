"""Progress of pushed batches: a bar on a terminal, once there is much to push; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from headwater.base import limits
from headwater.interfaces.cli.output import size_text


class ShownBatches(Protocol):
    def began(self, size: int) -> None: ...

    def landed(self, size: int) -> None: ...


@contextmanager
def batches_bar(table: str, total: int) -> Iterator[ShownBatches]:
    """A bar on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield _QuietBatches()
        return
    with ExitStack() as stack:
        yield _BatchBar(stack, table, total)


class _QuietBatches:
    def began(self, size: int) -> None:
        """Says nothing."""

    def landed(self, size: int) -> None:
        """Says nothing."""


class _BatchBar:
    """Batches that have landed, of all, and their bytes."""

    def __init__(self, stack: ExitStack, table: str, total: int):
        self.stack, self.table, self.total = stack, table, total
        self.bars: Any = None
        self.task: Any = None
        self.batches, self.bytes = 0, 0

    def began(self, size: int) -> None:
        if self.bars is None and self.bytes + size >= limits.PROGRESS_BYTES:
            self._open()

    def landed(self, size: int) -> None:
        self.batches, self.bytes = self.batches + 1, self.bytes + size
        if self.bars is not None:
            self.bars.update(self.task, completed=self.batches, landed=size_text(self.bytes))

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} batches"),
            TextColumn("{task.fields[landed]}"),
            TimeElapsedColumn(),
        )
        # Answers on a terminal are written above the bar; where they go elsewhere it must not touch them.
        self.bars = self.stack.enter_context(
            Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
        )
        self.task = self.bars.add_task(
            self.table, total=self.total, completed=self.batches, landed=size_text(self.bytes)
        )

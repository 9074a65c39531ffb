"""Progress of an apply and of pushed batches: bars on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, assert_never

from headwater.app.apply import Event, RunBegan, RunFinished, SliceBegan, SliceEnded, SliceRetried, Waiting
from headwater.base import limits
from headwater.interfaces.cli.output import count_text, say, size_text


@contextmanager
def progress() -> Iterator[Callable[[Event], None]]:
    """Shows events: as bars on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield _say_event
        return
    with _bars("slices") as bars:
        yield _Bars(bars).on_event


def _bars(unit: str, *, redirect_stdout: bool = True) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed}}/{{task.total}} {unit}"),
        TextColumn("{task.fields[landed]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect_stdout)


def _say_event(event: Event) -> None:
    match event:
        case SliceRetried():
            say(f"{event.pipeline}: the source failed, trying again: {event.reason}")
        case Waiting():
            say("another process holds what is left to do; waiting for it")


class _Bars:
    """One bar for each pipeline, for its newest run: slices done, rows, bytes, rows a second."""

    def __init__(self, bars: Any):
        self.bars = bars
        self.tasks: dict[str, Any] = {}
        self.units: dict[str, int] = {}
        self.totals: dict[str, tuple[int, int, float]] = {}
        self.lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        with self.lock:
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case RunBegan():
                if event.pipeline not in self.tasks:
                    self.tasks[event.pipeline] = self.bars.add_task(event.pipeline, total=event.units, landed="")
                self.bars.reset(self.tasks[event.pipeline], total=event.units, landed="")
                self.units[event.pipeline] = event.units
                self.totals[event.pipeline] = (0, 0, time.monotonic())
            case SliceBegan():
                self.bars.update(self.tasks[event.pipeline], landed=f"reading {event.describe}")
            case SliceEnded():
                self._landed(event)
            case SliceRetried():
                self.bars.update(self.tasks[event.pipeline], landed=f"trying again: {event.reason}")
            case RunFinished():
                if event.pipeline in self.tasks:
                    self.bars.update(self.tasks[event.pipeline], completed=self.units[event.pipeline])
            case Waiting():
                for task in self.tasks.values():
                    self.bars.update(task, landed="waiting for another process")
            case _:
                assert_never(event)

    def _landed(self, event: SliceEnded) -> None:
        rows, size, began = self.totals[event.pipeline]
        rows, size = rows + event.rows, size + event.bytes
        self.totals[event.pipeline] = (rows, size, began)
        rate = rows / max(time.monotonic() - began, 1e-3)
        text = f"{count_text(rows, 'row')}, {size_text(size)}, {rate:,.0f} rows/s"
        self.bars.update(self.tasks[event.pipeline], advance=1, landed=text)


class BatchBar:
    """Batches landed of all batches, and their bytes: a bar on a terminal, if there is much to push."""

    def __init__(self, stack: ExitStack, table: str, total: int):
        self.stack, self.table, self.total = stack, table, total
        self.bars: Any = None
        self.task: Any = None
        self.batches, self.bytes = 0, 0

    def began(self, size: int) -> None:
        if self.bars is None and sys.stderr.isatty() and self.bytes + size >= limits.PROGRESS_BYTES:
            # Answers on a terminal are written above the bar; redirected answers must not be touched.
            self.bars = self.stack.enter_context(_bars("batches", redirect_stdout=sys.stdout.isatty()))
            self.task = self.bars.add_task(
                self.table, total=self.total, completed=self.batches, landed=size_text(self.bytes)
            )

    def landed(self, size: int) -> None:
        self.batches, self.bytes = self.batches + 1, self.bytes + size
        if self.bars is not None:
            self.bars.update(self.task, completed=self.batches, landed=size_text(self.bytes))

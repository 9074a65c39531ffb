"""Progress of an apply: bars on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, assert_never

from headwater.app.apply import Event, RunBegan, RunFinished, SliceBegan, SliceEnded, SliceRetried, Waiting
from headwater.interfaces.cli.output import count_text, say, size_text


class ShownProgress(Protocol):
    def on_event(self, event: Event) -> None: ...


@contextmanager
def progress() -> Iterator[ShownProgress]:
    """Bars on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} slices"),
        TextColumn("{task.fields[landed]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bars(bars)


class _Quiet:
    def on_event(self, event: Event) -> None:
        match event:
            case SliceRetried():
                say(f"{event.pipeline}: the source failed, trying again: {event.reason}")
            case Waiting():
                say("another process holds what is left to do; waiting for it")
            case _:
                pass


class _Bars:
    """One bar per pipeline, for its newest run: slices done, rows, bytes, rows a second."""

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

"""Counts of events in this process since it started. They only grow; the monitoring system computes rates.

The process that sees an event counts it: a server counts the runs that the engine reports, a worker the leases that it
takes over. Counting costs a lock and an addition.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Literal

Counted = Literal[
    "runs",
    "ripple_failures",
    "lease_takeovers",
    "demands_refused",
    "rows_pushed",
    "rows_rescued",
    "rows_dead_lettered",
    "files_dead_lettered",
]

LABELS: Mapping[Counted, tuple[str, ...]] = {
    "runs": ("pipeline", "state"),
    "ripple_failures": ("pipeline", "ripple"),
    "lease_takeovers": (),
    "demands_refused": ("pipeline",),
    "rows_pushed": ("table",),
    "rows_rescued": ("table",),
    "rows_dead_lettered": ("table",),
    "files_dead_lettered": ("table",),
}
"""The labels of each kind of count."""


class Counters:
    """Counts by kind and labels. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Counted, Counter[tuple[str, ...]]] = {kind: Counter() for kind in LABELS}

    def add(self, kind: Counted, *labels: str, times: int = 1) -> None:
        assert len(labels) == len(LABELS[kind]), kind
        with self._lock:
            self._counts[kind][labels] += times

    def counts(self, kind: Counted) -> dict[tuple[str, ...], int]:
        """The counts so far. A kind without labels always has its one count."""
        with self._lock:
            found = dict(self._counts[kind])
        return found if LABELS[kind] else {(): found.get((), 0)}


COUNTERS = Counters()
"""The counters of this process."""

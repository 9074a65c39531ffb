"""Rows that are pushed in this process wake the engine, at a limited rate.

This is a hint. If it is lost, because the process ends or another one runs the engine, the pushed rows are found by the
next scan of the pushed pipeline (`poll`).
"""

from __future__ import annotations

import threading
import time

from headwater.base import limits
from headwater.freshness.events import Delivered


class Deliveries:
    """Any thread may `add`; the thread that steps the engine takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipelines: set[str] = set()
        self._next_at = 0.0

    def add(self, pipeline: str) -> bool:
        """Note pushed rows. True if the engine must be woken for them."""
        with self._lock:
            first = not self._pipelines
            self._pipelines.add(pipeline)
            return first

    def take(self) -> list[Delivered]:
        """The events that are due for the engine now."""
        with self._lock:
            if not self._pipelines or time.monotonic() < self._next_at:
                return []
            found, self._pipelines = sorted(self._pipelines), set()
            self._next_at = time.monotonic() + limits.DELIVERY_SECONDS
            return [Delivered(name) for name in found]

    def wait_seconds(self, most: float) -> float:
        """How long to wait, at most, until the next event is due."""
        with self._lock:
            return min(most, max(0.0, self._next_at - time.monotonic())) if self._pipelines else most

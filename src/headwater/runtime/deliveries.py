"""What is pushed in this process wakes the engine, and not more often than is of use.

It is a hint: one that is lost, because the process ends or another one runs the engine, costs a consumer that waits the
time to the next look at the pushed pipeline (`poll`), and nothing else.
"""

from __future__ import annotations

import threading
import time

from headwater.base import limits
from headwater.freshness.events import Delivered


class Deliveries:
    """Any thread may `add`; the one that steps the engine takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipelines: set[str] = set()
        self._next_at = 0.0

    def add(self, pipeline: str) -> bool:
        """Rows have come. True if nobody has been woken for what waits here."""
        with self._lock:
            first = not self._pipelines
            self._pipelines.add(pipeline)
            return first

    def take(self) -> list[Delivered]:
        """What the engine is to be told now."""
        with self._lock:
            if not self._pipelines or time.monotonic() < self._next_at:
                return []
            found, self._pipelines = sorted(self._pipelines), set()
            self._next_at = time.monotonic() + limits.DELIVERY_SECONDS
            return [Delivered(name) for name in found]

    def wait_seconds(self, most: float) -> float:
        """How long it may take until something is to be told."""
        with self._lock:
            return min(most, max(0.0, self._next_at - time.monotonic())) if self._pipelines else most

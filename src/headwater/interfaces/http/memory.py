"""Limits the memory that all pushed batches of a server hold together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.interfaces.http.problems import RequestError


class MemoryBudget:
    """The memory and the number of batches that may be held at once."""

    def __init__(self, batches: int, size: int):
        self._lock = threading.Lock()
        self.batches_left, self.bytes_left = batches, size

    @contextmanager
    def hold(self) -> Iterator[Reservation]:
        """Memory for a body while it is received: a slow sender holds what it has sent, but takes no batch."""
        place = Reservation(self)
        try:
            yield place
        finally:
            with self._lock:
                self.bytes_left += place.held

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Takes one batch, for a body that has been received. Raises 429 if none is free."""
        with self._lock:
            if not self.batches_left:
                raise _full()
            self.batches_left -= 1
        try:
            yield
        finally:
            with self._lock:
                self.batches_left += 1

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Both: memory and a batch."""
        with self.batch(), self.hold() as place:
            yield place

    def check(self) -> None:
        """Raises 429 if no batch is free now, before the body is received."""
        if not self.batches_left:
            raise _full()

    def take(self, size: int) -> None:
        with self._lock:
            if self.bytes_left < size:
                raise _full()
            self.bytes_left -= size


class Reservation:
    """The memory of one batch: it grows with what is read, and is freed as a whole."""

    def __init__(self, budget: MemoryBudget):
        self._budget = budget
        self.held = 0

    def grow(self, size: int) -> None:
        self._budget.take(size)
        self.held += size


def _full() -> RequestError:
    message = "the server holds as many requests as it can"
    return RequestError(429, message, "send it again in a moment", code="HW-H05", retryable=True)

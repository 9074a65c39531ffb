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
        self._batches, self._size = batches, size

    @property
    def batches_left(self) -> int:
        return self._batches

    @property
    def bytes_left(self) -> int:
        return self._size

    @contextmanager
    def hold(self) -> Iterator[Reservation]:
        """Memory for a body while it is received: a slow sender holds what it has sent, but takes no batch."""
        place = Reservation(self)
        try:
            yield place
        finally:
            with self._lock:
                self._size += place.held

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Takes one batch, for a body that has been received. Raises 429 if none is free."""
        with self._lock:
            if not self._batches:
                raise _full()
            self._batches -= 1
        try:
            yield
        finally:
            with self._lock:
                self._batches += 1

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Both: memory and a batch."""
        with self.batch(), self.hold() as place:
            yield place

    def check(self) -> None:
        """Raises 429 if no batch is free now, before the body is received."""
        if not self._batches:
            raise _full()

    def take(self, size: int) -> None:
        with self._lock:
            if self._size < size:
                raise _full()
            self._size -= size


class Reservation:
    """The memory of one batch: it grows with what is read, and is freed as a whole."""

    def __init__(self, room: MemoryBudget):
        self._budget = room
        self.held = 0

    def grow(self, size: int) -> None:
        self._budget.take(size)
        self.held += size


def _full() -> RequestError:
    error = RequestError(429, "the server holds as many requests as it can", "send it again in a moment", code="HW-H05")
    error.retryable = True
    return error

"""How much of pushed batches a server holds in its memory: a bound for all of them together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.faces.http.problems import RequestError


class Room:
    """What pushed batches may hold of the memory, all together."""

    def __init__(self, batches: int, size: int):
        self._lock = threading.Lock()
        self._batches, self._size = batches, size

    @property
    def batches_left(self) -> int:
        return self._batches

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Room for one batch. Raises 429 if there is none."""
        with self._lock:
            if not self._batches:
                raise _full()
            self._batches -= 1
        place = Place(self)
        try:
            yield place
        finally:
            with self._lock:
                self._batches += 1
                self._size += place.held

    def take(self, size: int) -> None:
        with self._lock:
            if self._size < size:
                raise _full()
            self._size -= size


class Place:
    """The room of one batch: it grows with what is read, and is given back as a whole."""

    def __init__(self, room: Room):
        self._room = room
        self.held = 0

    def grow(self, size: int) -> None:
        self._room.take(size)
        self.held += size


def _full() -> RequestError:
    error = RequestError(429, "many batches are on their way already", "send it again in a moment", code="HW-H05")
    error.retryable = True
    return error

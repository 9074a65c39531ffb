"""Events of the engine: stored ones, and new ones as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from headwater.app.workspace import Workspace
from headwater.catalog.history import StoredEvent, engine_events, last_event_id
from headwater.catalog.wakeups import Waker, changes

__all__ = ["StoredEvent"]


def events(workspace: Workspace, *, after: int, limit: int) -> list[StoredEvent]:
    """The events after the one with that id, oldest first."""
    return workspace.read(partial(engine_events, after=after, limit=limit)) or []


def newest_event(workspace: Workspace) -> int:
    """The id of the newest event; 0 if there is none."""
    return workspace.read(last_event_id) or 0


class EventWatch:
    """New events, starting with the first `read`. One thread reads, waits and closes; any thread may call `wake`."""

    def __init__(self, current: Callable[[], Workspace]):
        self.last: int | None = None
        """The id of the newest event that was read; None before the first `read`."""
        self._current = current
        self._waker: Waker | None = None
        self._lock = threading.Lock()

    def read(self) -> list[StoredEvent]:
        """The events since the last call, oldest first, at most a page of them. The first call returns none."""
        store = self._current().existing_store()
        if store is None:
            return []
        if self._waker is None:
            waker = changes(store.catalog)
            with self._lock:
                self._waker = waker
        with store.catalog.snapshot() as connection:
            newest = last_event_id(connection)
            if self.last is None or newest < self.last:  # the first call, or a catalog that was rebuilt
                self.last = newest
            found = engine_events(connection, after=self.last) if newest > self.last else []
        if found:
            self.last = found[-1].id
        return found

    def wait(self, seconds: float, ended: threading.Event) -> None:
        """Wait for a change of the catalog, a call of `wake` or the time. Without a store: until `ended`."""
        if self._waker is None:
            ended.wait(seconds)
        else:
            self._waker.wait(seconds)

    def wake(self) -> None:
        with self._lock:
            if self._waker is not None:
                self._waker.poke()

    def close(self) -> None:
        with self._lock:
            if self._waker is not None:
                self._waker.close()
                self._waker = None

"""Open sources: one for each run whose slices this process lands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.connectors.protocol import Source
from headwater.runtime.inlet import Inlet
from headwater.runtime.plan import Planned


@dataclass
class PipelineJob:
    """A pipeline whose source was scanned: its plan, how to plan it again, and its open source."""

    pipeline: str
    plan: Callable[[], tuple[Planned, Source]]
    planned: Planned
    source: Source
    evolved: tuple[str, ...] = ()

    def replan(self) -> None:
        """Scan the source and the catalog again, with a new source."""
        self.source.close()
        self.planned, self.source = self.plan()


@dataclass
class OpenSource:
    inlet: Inlet
    source: Source
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Sources hold connections: only one thread at a time may ask for a read."""
    users: int = 0
    used_at: float = 0.0


class OpenSources:
    """The sources of this process, by run. One that no slice has used for a while is closed: its run may have ended in
    another process."""

    def __init__(self) -> None:
        self._open: dict[str, OpenSource] = {}
        self._lock = threading.Lock()

    def put(self, run_id: str, inlet: Inlet, source: Source) -> None:
        opened = OpenSource(inlet, source, used_at=time.monotonic())
        with self._lock:
            found = self._open.setdefault(run_id, opened)
        if found is not opened:
            source.close()

    @contextmanager
    def use(self, run_id: str, open_source: Callable[[], tuple[Inlet, Source]]) -> Iterator[OpenSource]:
        """The source of a run; it is opened if this process has none."""
        with self._lock:
            found = self._open.get(run_id)
            if found is not None:
                found.users += 1
        if found is None:
            opened = OpenSource(*open_source())
            with self._lock:
                found = self._open.setdefault(run_id, opened)
                found.users += 1
            if found is not opened:  # another thread was faster
                opened.source.close()
        try:
            yield found
        finally:
            with self._lock:
                found.users -= 1
                found.used_at = time.monotonic()

    def close(self, run_id: str) -> None:
        """Close the source of a run that is over."""
        self._close(lambda found: found is self._open.get(run_id))

    def close_all(self, *, idle_seconds: float = 0.0) -> None:
        """Close the sources that no slice has used for so long."""
        before = time.monotonic() - idle_seconds
        self._close(lambda found: found.used_at <= before)

    def _close(self, chosen: Callable[[OpenSource], bool]) -> None:
        with self._lock:
            gone = [each for each, found in self._open.items() if not found.users and chosen(found)]
            closed = [self._open.pop(run_id) for run_id in gone]
        for found in closed:
            found.source.close()

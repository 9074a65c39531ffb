"""Jobs that a step of the engine gives to idle workers of its own process, without a way through the queue."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from headwater.base.holder import new_holder
from headwater.catalog.engine_records import Weight
from headwater.catalog.queue import JobLease


@dataclass
class Hand:
    """Room for as many jobs as workers will begin with. A job that none of them takes in time is given back, as every
    claim that its holder does not know of."""

    room: int
    holder: str = field(default_factory=new_holder)
    _jobs: list[JobLease] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self) -> bool:
        with self._lock:
            self.room -= 1
            return self.room >= 0

    def put(self, jobs: Sequence[JobLease]) -> None:
        with self._lock:
            self._jobs += jobs

    def take(self, weights: Collection[Weight]) -> JobLease | None:
        with self._lock:
            found = next((job for job in self._jobs if job.weight in weights), None)
            if found is not None:
                self._jobs.remove(found)
            return found

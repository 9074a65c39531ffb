"""Jobs that the engine gives to idle workers of its own process: they are claimed in the step that creates them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from headwater.base.crash import crash_point
from headwater.base.holder import new_holder
from headwater.catalog.engine_records import Weight
from headwater.catalog.queue import JobLease


@dataclass
class ReservedJobs:
    """Jobs that were claimed for the workers of this process, until a worker takes them. A job that no worker takes in
    time returns to the queue (`give_back_strays`)."""

    free: int
    """How many more jobs may be claimed in advance: one for each idle worker at the start."""
    holder: str = field(default_factory=new_holder)
    _jobs: list[JobLease] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self) -> bool:
        with self._lock:
            self.free -= 1
            return self.free >= 0

    def put(self, jobs: Sequence[JobLease]) -> None:
        with self._lock:
            self._jobs += jobs

    def take(self, weights: Collection[Weight]) -> JobLease | None:
        with self._lock:
            found = next((job for job in self._jobs if job.weight in weights), None)
            if found is not None:
                self._jobs.remove(found)
        if found is not None:
            crash_point("job.after_lease")
        return found

"""Runs the engine and its workers in one process until everything has settled: `apply` and `run` without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.catalog.lease import ENGINE, lease_seconds, renew
from headwater.catalog.wakeups import Waker, changes
from headwater.freshness.explain import explain
from headwater.runtime.engine import Engine
from headwater.runtime.worker import Worker
from headwater.runtime.worker_threads import WorkerThreads


@dataclass
class Renewal:
    """Renews the engine's lease between steps. It renews by the clock, not at every wake-up: the renewal itself wakes
    SQLite's waker, which would never rest."""

    renewed_us: int = field(default_factory=now_us)

    def renew(self, engine: Engine) -> None:
        if now_us() >= self.renewed_us + _renew_seconds() * 1e6:
            renew(engine.store.catalog, engine.owner)
            self.renewed_us = now_us()


def patience(*wakes_us: int | None) -> float:
    """How long to wait for events before the lease must be renewed, or one of these times has come."""
    seconds = _renew_seconds()
    for wake_us in wakes_us:
        if wake_us is not None:
            seconds = min(seconds, max(0.0, (wake_us - now_us()) / 1e6))
    return seconds


def _renew_seconds() -> float:
    return lease_seconds(ENGINE) * limits.LEASE_RENEW_SECONDS / limits.LEASE_SECONDS


@dataclass
class Drive:
    engine: Engine
    worker: Worker
    threads: int
    leaves: bool = False
    """Whether the engine is released as soon as all has settled."""

    def until_settled(self, *, stay: Callable[[], bool] = lambda: False) -> None:
        """Works until nothing is under way and only a window could bring more; with `stay`, as long as that returns
        True. Ctrl-C gives back claimed jobs; the next owner continues them."""
        waker = changes(self.engine.store.catalog)
        if self.leaves:
            self.engine.may_leave = lambda: not self._may_go_on() and not stay()
        try:
            with WorkerThreads(self.worker, self.threads, reserved=self.engine.reserved) as workers:
                self._watch(waker, workers, stay)
        finally:
            waker.close()

    def _watch(self, waker: Waker, workers: WorkerThreads, stay: Callable[[], bool]) -> None:
        """Steps the engine whenever something has happened, or its time has come."""
        renewal = Renewal()
        while True:
            self.engine.advance()
            workers.poke()
            workers.check()
            if self.engine.left:
                return
            if not self.engine.busy() and not self._may_go_on() and not stay():
                return
            waker.wait(patience(self.engine.wake_us))
            renewal.renew(self.engine)

    def _may_go_on(self) -> bool:
        """Whether a short wait lets something start: the minimum time between two scans of a source. A source that a
        used window keeps fresh until later is not waited for."""
        state = self.engine.state
        waiting = [pond for pond in state.ponds.values() if pond.is_inlet and pond.needed_freshness is not None]
        recent = [pond.name for pond in waiting if pond.start_freshness <= state.now]
        return any(explain(state, name).rule == "min-interval" for name in recent)

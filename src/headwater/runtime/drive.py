"""Demand, and the work that follows from it, until all has settled: what `apply` and `run` do with the engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.freshness.events import Event
from headwater.freshness.explain import explain
from headwater.runtime.engine import Engine
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.worker import Workshop
from headwater.store.ownership import owner_lease_seconds, renew_engine
from headwater.store.units import new_holder
from headwater.store.wakeups import Waker, changes


@dataclass
class Drive:
    """The engine and a few worker threads in one process."""

    engine: Engine
    workshop: Workshop
    threads: int
    holder: str = field(default_factory=new_holder)
    ended: threading.Event = field(default_factory=threading.Event)
    renewed_us: int = field(default_factory=now_us)
    """When the engine's lease was last renewed for its own sake; the engine's steps renew it too."""

    def until_settled(self, told: Sequence[Event]) -> None:
        """Tells the engine, and works until nothing is under way and only a window could bring more. Ctrl-C gives
        back what was claimed; the next owner goes on with it."""
        waker = changes(self.engine.store.catalog)
        try:
            self.engine.advance(told)
            with LeaseKeeper(self.engine.store.catalog) as keeper, ThreadPoolExecutor(self.threads) as pool:
                workers = [pool.submit(self._work, keeper) for _ in range(self.threads)]
                try:
                    self._watch(waker, workers)
                except BaseException:
                    self.workshop.applier.stopping.set()
                    self.ended.set()
                    self.workshop.applier.cancel()
                    while wait(workers, timeout=limits.RETRY_FIRST_SECONDS).not_done:
                        self.workshop.applier.cancel()  # a worker was just about to begin its job
                    raise
                finally:
                    self.ended.set()
        finally:
            waker.close()

    def _watch(self, waker: Waker, workers: Sequence[Future[None]]) -> None:
        """Steps the engine whenever something has happened, or its time has come."""
        while True:
            for worker in workers:
                if worker.done():
                    worker.result()  # raises what went wrong with it
            if not self.engine.busy() and not self._may_go_on():
                return
            waker.wait(self._patience())
            self.engine.advance()
            self._renew()

    def _renew(self) -> None:
        """By the clock, not at every wake-up: SQLite's waker hears of the renewal itself, and would never rest."""
        if now_us() >= self.renewed_us + owner_lease_seconds() / 3 * 1e6:
            renew_engine(self.engine.store.catalog, self.engine.owner)
            self.renewed_us = now_us()

    def _may_go_on(self) -> bool:
        """Whether time alone, and not much of it, lets something start: a source that was looked at a moment ago."""
        waiting = [name for name, pond in self.engine.state.ponds.items() if pond.is_inlet and pond.need is not None]
        return any(explain(self.engine.state, name).rule == "min-interval" for name in waiting)

    def _patience(self) -> float:
        """How long to wait for news before the lease is renewed, or a source may be looked at again."""
        seconds = owner_lease_seconds() / 3
        if self.engine.wake_us is not None:
            seconds = min(seconds, max(0.0, (self.engine.wake_us - now_us()) / 1e6))
        return seconds

    def _work(self, keeper: LeaseKeeper) -> None:
        while not self.ended.is_set():
            if not self.workshop.work(self.holder, keeper):
                self.ended.wait(limits.WAKE_POLL_SECONDS)

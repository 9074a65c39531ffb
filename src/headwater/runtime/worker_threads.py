"""The worker threads of one process: they take jobs from the queue until they are ended.

One thread listens for new jobs for all of them, so that an idle process costs next to nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog.engine_records import Weight
from headwater.catalog.queue import give_back_strays, release_job, take_over
from headwater.catalog.wakeups import changes
from headwater.observe.counters import COUNTERS
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.reserved_jobs import ReservedJobs
from headwater.runtime.worker import ALL, Worker

SMALL: tuple[Weight, ...] = ("small",)

OnError = Callable[[BaseException], bool]
"""Called with errors of a worker itself; returns True if the worker should go on."""


class WorkerThreads:
    """Worker threads. If there are several, one takes only small jobs, so that big ones never occupy all of them."""

    def __init__(
        self,
        worker: Worker,
        threads: int,
        *,
        on_error: OnError = lambda _error: False,
        reserved: ReservedJobs | None = None,
    ):
        self.worker, self.on_error = worker, on_error
        self.reserved = reserved or ReservedJobs(0)
        self.holder = self.reserved.holder
        self.ended = threading.Event()
        self._over = False
        self.error: BaseException | None = None
        self._news = threading.Condition()
        self._wakeups = 0
        self._keeper = LeaseKeeper(worker.store.catalog)
        self._waker = changes(worker.store.catalog)
        weights = [SMALL if number == 1 else ALL for number in range(threads)]
        self._workers = [
            threading.Thread(target=self._work, args=(weight,), name=f"worker-{number}", daemon=True)
            for number, weight in enumerate(weights)
        ]
        self._listener = threading.Thread(target=self._listen, name="worker-listener", daemon=True)

    def __enter__(self) -> WorkerThreads:
        self._keeper.__enter__()
        for thread in (*self._workers, self._listener):
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        """Ends when the claimed jobs have ended; after an error they are given back instead."""
        self.end(give_back=kind is not None)

    def end(self, *, give_back: bool) -> None:
        """May be called more than once."""
        if self._over:
            return
        self._over = True
        if give_back:
            self.worker.inlets.stopping.set()
        self.ended.set()
        self.poke()
        self._waker.poke()
        for thread in self._workers:
            while thread.is_alive():
                if give_back:
                    self.worker.cancel()  # repeatedly: a thread may be just about to begin its Spark job
                thread.join(limits.RETRY_FIRST_SECONDS)
        self._listener.join()
        self._waker.close()
        self._keeper.__exit__(None, None, None)
        while (lease := self.reserved.take(ALL)) is not None:
            release_job(self.worker.store.catalog, lease)
        self.worker.inlets.sources.close_all()

    def check(self) -> None:
        """Raises the error that ended a worker."""
        if self.error is not None:
            raise self.error

    def poke(self) -> None:
        """Wake the workers: there may be a job."""
        with self._news:
            self._wakeups += 1
            self._news.notify_all()

    def _listen(self) -> None:
        """Wakes the workers, and every few seconds finds jobs whose workers are gone, or that were cancelled."""
        scan_at = time.monotonic() + limits.TAKE_OVER_SECONDS
        while not self.ended.is_set():
            self._waker.wait(max(0.0, scan_at - time.monotonic()))
            if time.monotonic() >= scan_at:
                scan_at = time.monotonic() + limits.TAKE_OVER_SECONDS
                self._take_over()
            self.poke()
            if self.worker.store.catalog.is_sqlite:
                # Every push is a change, and few changes are jobs. The engine of this process wakes the workers itself.
                self.ended.wait(limits.EAR_PAUSE_SECONDS)

    def _take_over(self) -> None:
        try:
            COUNTERS.add("lease_takeovers", times=len(take_over(self.worker.store.catalog)))
            self._keeper.drop_lost_jobs()
            give_back_strays(self.worker.store.catalog, self.holder, self._keeper.kept())
            self.worker.inlets.sources.close_all(idle_seconds=limits.SOURCE_IDLE_SECONDS)
        except HeadwaterError as error:  # the catalog is unreachable: the workers notice it themselves
            if not self.on_error(error):
                self.error = self.error or error

    def _work(self, weights: Collection[Weight]) -> None:
        while not self.ended.is_set():
            seen = self._wakeups
            try:
                if self.worker.work(self.holder, self._keeper, weights, self.reserved):
                    continue
            except BaseException as error:
                if self.ended.is_set():
                    return
                if not self.on_error(error):
                    self.error = self.error or error
                    return
                self.ended.wait(limits.WAKE_RETRY_SECONDS)
                continue
            with self._news:
                self._news.wait_for(lambda h=seen: self._wakeups != h or self.ended.is_set())  # type: ignore[misc]

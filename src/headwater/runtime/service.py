"""The long-running engine: what `serve` does, beside its HTTP interface.

One loop steps the engine whenever something happened or its time has come; workers do the jobs; a watcher reads the
manifest again when its files change. Any of these may fail for a moment: the loop loads the stored state and continues.
A second `serve` works too, and waits to take over the engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, as_headwater
from headwater.base.holder import new_holder
from headwater.catalog.engine_records import EngineEvent
from headwater.catalog.engine_state import last_step_us
from headwater.catalog.history import PondRun, forget_history, runs_of
from headwater.catalog.inbox import forget_answers
from headwater.catalog.queue import forget_ended
from headwater.catalog.standing_triggers import forget_expired
from headwater.catalog.wakeups import Waker, changes
from headwater.duck.view_mark import view_pause
from headwater.freshness.events import Delivered, Effect, RippleCompleted
from headwater.observe.tracing import shutdown, tracing
from headwater.runtime.compile import Compiled
from headwater.runtime.drive import patience
from headwater.runtime.engine import Engine, open_engine
from headwater.runtime.trigger_events import CronClock
from headwater.runtime.worker import Worker
from headwater.runtime.worker_threads import WorkerThreads


class ServiceErrors:
    """Reports errors; a repeated one, while a catalog is unreachable, once a minute. Any thread may call it."""

    def __init__(self, report: Callable[[HeadwaterError], None]):
        self._report = report
        self._lock = threading.Lock()
        self._reported_at: dict[str, float] = {}

    def __call__(self, error: BaseException) -> bool:
        """Report the error. True if the calling thread should go on."""
        reported = as_headwater(error)
        with self._lock:
            now = time.monotonic()
            recent = {text: at for text, at in self._reported_at.items() if now < at + limits.SWEEP_SECONDS}
            is_new = reported.message not in recent
            self._reported_at = {reported.message: now, **recent}
        if is_new:
            self._report(reported)
        return isinstance(error, Exception)


class Deliveries:
    """Rows that are pushed in this process wake the engine, at a limited rate. Any thread may `add`; the thread that
    steps the engine takes. This is a hint: if it is lost, because the process ends or another one runs the engine, the
    pushed rows are found by the next scan of the pushed pipeline (`poll`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipelines: set[str] = set()
        self._next_at = 0.0

    def add(self, pipeline: str) -> bool:
        """Note pushed rows. True if the engine must be woken for them."""
        with self._lock:
            first = not self._pipelines
            self._pipelines.add(pipeline)
            return first

    def take(self) -> list[Delivered]:
        """The events that are due for the engine now."""
        with self._lock:
            if not self._pipelines or time.monotonic() < self._next_at:
                return []
            found, self._pipelines = sorted(self._pipelines), set()
            self._next_at = time.monotonic() + limits.DELIVERY_SECONDS
            return [Delivered(name) for name in found]

    def wait_seconds(self, most: float) -> float:
        """How long to wait, at most, until the next event is due."""
        with self._lock:
            return min(most, max(0.0, self._next_at - time.monotonic())) if self._pipelines else most


@dataclass
class Service:
    """`worker` has the current definitions; `offer` replaces them. `complain` is called with errors of the service
    itself, `on_run` with every run that is over, `on_pass` with every pipeline for which a single request found nothing
    new; `on_landed` is called, from a thread of its own, after tables have changed, and again only after `view_pause`;
    `on_ready` once, when this process runs the engine or waits for another one to release it."""

    worker: Worker
    threads: int
    complain: ServiceErrors
    on_run: Callable[[PondRun], None] | None = None
    on_pass: Callable[[str], None] = lambda _pipeline: None
    on_landed: Callable[[], None] = lambda: None
    on_ready: Callable[[], None] = lambda: None
    holder: str = field(default_factory=new_holder)
    ended: threading.Event = field(default_factory=threading.Event)
    _offered: Compiled | None = None
    _news: list[EngineEvent] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _landed: threading.Event = field(default_factory=threading.Event)
    _waker: Waker | None = None
    _crons: CronClock = field(default_factory=CronClock)
    _is_ready: bool = False
    _deliveries: Deliveries = field(default_factory=Deliveries)

    def run(self) -> None:
        """Serves until `stop`. Claimed jobs are then given back, and the next process continues them."""
        tracing()  # raises for bad settings, before the work begins
        self._waker = changes(self.worker.store.catalog)
        views = threading.Thread(target=self._keep_views, name="views", daemon=True)
        views.start()
        try:
            with WorkerThreads(self.worker, self.threads, on_error=self.complain) as workers:
                try:
                    while not self.ended.is_set():
                        self._serve_once(workers)
                finally:
                    workers.end(give_back=True)
        finally:
            self.ended.set()
            self._landed.set()
            views.join()
            waker, self._waker = self._waker, None  # a late call of the watcher or a signal wakes nothing
            waker.close()
            shutdown()

    def stop(self) -> None:
        """May be called by any thread, but not by a signal handler: it takes locks."""
        self.ended.set()
        self._wake()

    def offer(self, compiled: Compiled) -> None:
        """Continue with another graph, at the next step."""
        with self._lock:
            self._offered = compiled
        self._wake()

    def deliver(self, pipeline: str) -> None:
        """Rows were pushed to a pipeline: its consumers need not wait for the next scan."""
        if self._deliveries.add(pipeline):
            self._wake()

    def announce(self, event: EngineEvent) -> None:
        """Report an event to listeners, with the next step."""
        with self._lock:
            self._news.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.poke()

    def _serve_once(self, workers: WorkerThreads) -> None:
        """Run the engine as long as possible, or wait a moment for the process that runs it."""
        assert self._waker is not None
        try:
            engine = self._open()
            if not self._is_ready:
                self._is_ready = True
                self.on_ready()
            if engine is None:
                self._waker.wait(limits.WAKE_RETRY_SECONDS)
                return
            try:
                self._own(engine, workers)
            finally:
                engine.release()
        except Exception as error:
            self.complain(error)
            self.ended.wait(limits.WAKE_RETRY_SECONDS)

    def _open(self) -> Engine | None:
        with self._lock:
            compiled, self._offered = self._offered or self.worker.definitions.compiled, None
        before = last_step_us(self.worker.store.catalog)
        engine = open_engine(self.worker.store, compiled, holder=self.holder, runs_triggers=True)
        if engine is not None:
            # Ticks that were missed because no server was running count once.
            self._crons = CronClock()
            self._crons.set(compiled, after_us=before if before is not None else now_us())
        return engine

    def _own(self, engine: Engine, workers: WorkerThreads) -> None:
        assert self._waker is not None
        engine.newest = self._newest
        self._landed.set()  # the previous owner may have been killed before it wrote the views
        sweep_at = time.monotonic()
        while not self.ended.is_set():
            with self._lock:
                offered, self._offered = self._offered, None
                news, self._news = self._news, []
            effects: list[Effect] = []
            if offered is not None:
                effects += engine.change_graph(offered)
                self._crons.set(offered, after_us=now_us())
            pulses, causes = self._crons.due(now_us())
            effects += engine.advance([*pulses, *self._deliveries.take()], causes=causes, news=news)
            self._note(engine, effects)
            if effects:
                workers.poke()
            engine.renew()
            if time.monotonic() >= sweep_at:
                self._sweep()
                sweep_at = time.monotonic() + limits.SWEEP_SECONDS
            self._waker.wait(self._deliveries.wait_seconds(patience(engine.wake_us, self._crons.wake_us)))

    def _newest(self) -> Compiled | None:
        """The graph of the current manifest, if it has changed."""
        self.worker.reload()
        with self._lock:
            offered, self._offered = self._offered, None
        if offered is not None:
            self._crons.set(offered, after_us=now_us())
        return offered

    def _note(self, engine: Engine, effects: Sequence[Effect]) -> None:
        if any(isinstance(effect, RippleCompleted) for effect in effects):
            self._landed.set()
        over, engine.ended = engine.ended, []
        for each in over:
            if each.state is None and each.requested:
                self.on_pass(each.pond)
        ended = [each.run_id for each in over if each.state is not None]
        if ended and self.on_run is not None:
            with self.worker.store.catalog.snapshot() as connection:
                runs = runs_of(connection, ended)
            for run in runs:
                self.on_run(run)

    def _sweep(self) -> None:
        """Deletes old answers, jobs and runs, and expired triggers."""
        for forget in (forget_answers, forget_ended, forget_history, forget_expired):
            forget(self.worker.store.catalog)

    def _keep_views(self) -> None:
        while not self.ended.is_set():
            self._landed.wait()
            if self.ended.is_set():
                return
            self._landed.clear()
            began = time.monotonic()
            try:
                self.on_landed()
            except Exception as error:  # a query refreshes views itself; this is only for other readers
                self.complain(error)
            self.ended.wait(view_pause(time.monotonic() - began))

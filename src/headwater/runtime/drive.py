"""Runs the engine and its workers in one process until everything has settled: `apply` and `run` without a server."""

from __future__ import annotations

from collections.abc import Callable

from headwater.base.clock import now_us
from headwater.catalog.lease import ENGINE
from headwater.catalog.wakeups import changes
from headwater.freshness.explain import explain
from headwater.runtime.engine import Engine
from headwater.runtime.leases import renew_seconds
from headwater.runtime.worker import Worker
from headwater.runtime.worker_threads import WorkerThreads


def patience(*wakes_us: int | None) -> float:
    """How long to wait for events before the lease must be renewed, or one of these times has come."""
    waits = [max(0.0, (wake_us - now_us()) / 1e6) for wake_us in wakes_us if wake_us is not None]
    return min([renew_seconds(ENGINE), *waits])


def drive_until_settled(
    engine: Engine,
    worker: Worker,
    threads: int,
    *,
    stay: Callable[[], bool] = lambda: False,
    leaves: bool = False,
) -> None:
    """Works until nothing is under way and only a window could bring more; with `stay`, as long as that returns True.
    The engine is stepped whenever something has happened, or its time has come. With `leaves`, it is released as soon
    as all has settled. Ctrl-C gives back claimed jobs; the next owner continues them."""

    def goes_on() -> bool:
        return may_go_on(engine) or stay()

    if leaves:
        engine.may_leave = lambda: not goes_on()
    waker = changes(engine.store.catalog)
    try:
        with WorkerThreads(worker, threads, reserved=engine.reserved) as workers:
            while True:
                engine.advance()
                workers.poke()
                workers.check()
                if engine.left or not (engine.busy() or goes_on()):
                    return
                waker.wait(patience(engine.wake_us))
                engine.renew()
    finally:
        waker.close()


def may_go_on(engine: Engine) -> bool:
    """Whether a short wait lets something start: the minimum time between two scans of a source. A source that a used
    window keeps fresh until later is not waited for."""
    state = engine.state
    waiting = [pond for pond in state.ponds.values() if pond.is_inlet and pond.needed_freshness is not None]
    recent = [pond.name for pond in waiting if pond.start_freshness <= state.now]
    return any(explain(state, name).rule == "min-interval" for name in recent)

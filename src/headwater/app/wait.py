"""Sends demand and waits until it is met: by this process if no other one runs the engine, else by that one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from headwater.app.engine_events import newest_event
from headwater.app.inspect_sources import scan_now
from headwater.app.make_workers import OnEvent, definitions_of, make_worker, worker_threads
from headwater.app.workspace import Workspace, actor
from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError, error_of
from headwater.base.holder import new_holder
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import dead_letters_by_engine_run
from headwater.catalog.engine_state import load_engine
from headwater.catalog.history import PondRun, engine_events, pond_runs
from headwater.catalog.wakeups import changes
from headwater.freshness.explain import explain
from headwater.freshness.state import State
from headwater.observe.tracing import tracing
from headwater.runtime.compile import Compiled
from headwater.runtime.drive import drive_until_settled
from headwater.runtime.engine import Engine, open_engine, restored
from headwater.runtime.inlet_jobs import ScanSource
from headwater.runtime.open_sources import PipelineJob
from headwater.runtime.reserved_jobs import ReservedJobs
from headwater.runtime.results import PipelineResult, RunBegan, RunFinished, Waiting
from headwater.runtime.send_demand import Request, answered_request, direct_demand, is_under_way, send_demand, window_of

Looked = Mapping[str, PipelineJob | HeadwaterError]


@dataclass
class Settling:
    """Clear, pulse, and wait until everything has settled. Ctrl-C leaves the demand to the engine's next owner."""

    workspace: Workspace
    compiled: Compiled
    asked: Sequence[str]
    demand: Sequence[Sequence[str]]
    """The pipelines in the groups of the plan: a group is cleared and asked for when the one before it has settled."""
    trigger: str
    wait: bool = False
    """Whether to go on waiting if only a closed window is left to wait for."""
    on_event: OnEvent = lambda _event: None
    holder: str = field(default_factory=new_holder)

    def settle(self, looked: Looked) -> dict[str, PipelineResult]:
        """The outcome of each requested pipeline. Scans of sources from before the engine began (`looked`) are used for
        the first run of an Inlet, if this process runs it."""
        tracing()  # raises for bad settings of the environment, before there is demand
        store = self.workspace.store()
        began_us = now_us()
        first = self.demand[0] if self.demand else ()
        reserved = ReservedJobs(max(1, worker_threads() - 1))
        asked = direct_demand(first, cause=self.trigger, actor=actor())
        engine = open_engine(store, self.compiled, holder=self.holder, asked=asked, reserved=reserved)
        if engine is not None:
            return self._drive(engine, answered_request(first, engine.answered), looked, began_us)
        request = Request({}, {})
        self._ask_next(request)
        told = False
        heard = newest_event(self.workspace)
        with closing(changes(store.catalog)) as waker:
            while True:
                engine = open_engine(store, self.compiled, holder=self.holder)
                if engine is not None:
                    return self._drive(engine, request, looked, began_us)
                if not told:
                    self.on_event(Waiting())
                    told = True
                heard = self._pass_on(store, heard)
                found = self._seen(request, began_us)
                if found is not None and not self._ask_next(request):
                    return found
                waker.wait(limits.WAKE_RETRY_SECONDS)
                time.sleep(limits.POLL_SECONDS)  # a busy engine makes events faster than a user can read them

    def _drive(self, engine: Engine, request: Request, looked: Looked, began_us: int) -> dict[str, PipelineResult]:
        """Run the engine in this process until everything has settled."""
        scan = _look_first(looked, partial(scan_now, self.workspace))
        definitions = definitions_of(self.workspace, self.compiled, scan)
        worker = make_worker(self.workspace, definitions, trigger=self.trigger, on_event=self.on_event)

        def stay() -> bool:
            request.listen(engine.store.catalog)
            return self.wait and any(self._window(engine.state, request, name) is not None for name in self.asked)

        try:
            leaves = len(self.demand) <= 1
            drive_until_settled(engine, worker, worker_threads(), stay=stay, leaves=leaves)
            while self._ask_next(request):
                drive_until_settled(engine, worker, worker_threads(), stay=stay)
            request.listen(engine.store.catalog)
            found = {name: worker.result_of(name) for name in self.asked}
            if None in found.values():  # other processes may have landed the last slices
                elsewhere = self._done_since(began_us)
                found = {name: result or elsewhere[name] for name, result in found.items()}
            return {name: self._outcome(engine.state, request, name, found[name]) for name in self.asked}
        finally:
            engine.release()

    def _ask_next(self, request: Request) -> bool:
        """Clears and asks for the next group, with the target freshness of the first. False if there is none."""
        group = next((group for group in self.demand if group[0] not in request.sent), None)
        if group is None:
            return False
        catalog = self.workspace.store().catalog
        request.listen(catalog)
        target = max((found for name in request.sent if (found := request.target(name)) is not None), default=None)
        sent = send_demand(catalog, group, "pulse", cause=self.trigger, actor=actor(), clear=True, target_us=target)
        request.sent.update(sent.sent)
        return True

    def _pass_on(self, store: Store, after: int) -> int:
        """Shows what the engine elsewhere does for the requested pipelines; returns the last event that was read."""
        with store.catalog.snapshot() as connection:
            events = engine_events(connection, after=after)
        for event in events:
            if event.pond in self.asked and event.run_id is not None:
                match event.kind:
                    case "run_started":
                        self.on_event(RunBegan(event.pond, 1))
                    case "run_completed" | "run_passed" | "run_failed":
                        self.on_event(RunFinished(event.pond))
        return events[-1].id if events else after

    def _seen(self, request: Request, began_us: int) -> dict[str, PipelineResult] | None:
        """What another process did for the demand; None while it is at work."""
        store = self.workspace.store()
        if not request.listen(store.catalog):
            return None
        with store.catalog.snapshot() as connection:
            saved = load_engine(connection)
        state = restored(self.compiled.ponds, saved)
        for name in request.sent:
            if request.refused(name) is None and is_under_way(state, name, request.target(name)):
                window = self._window(state, request, name)
                if window is None or self.wait:
                    return None
        told = self._done_since(began_us)
        return {name: self._outcome(state, request, name, told[name]) for name in self.asked}

    def _done_since(self, began_us: int) -> dict[str, PipelineResult | None]:
        """What the history says of the requested pipelines."""
        with self.workspace.store().catalog.snapshot() as connection:
            runs = pond_runs(connection, since_us=began_us, limit=None)
            bad = dead_letters_by_engine_run(connection, [run.run_id for run in runs])
        return {name: self._told(name, [run for run in runs if run.pond == name], bad) for name in self.asked}

    def _told(self, name: str, runs: Sequence[PondRun], bad: Mapping[str, Mapping[str, int]]) -> PipelineResult | None:
        """The runs of a pipeline (newest first) by another process, as one result; `bad` are the bad rows of each."""
        ended = [run for run in runs if run.state in ("success", "failed")]
        if not ended:
            return None
        newest = ended[0]
        is_model = bool(self.compiled.pipelines[name].ripples)
        seconds = sum(run.took_us or 0 for run in ended) / 1e6 if is_model else None
        if newest.state == "success" and not any(run.changed for run in ended):
            return PipelineResult(name, "unchanged", seconds=seconds)
        return PipelineResult(
            name,
            newest.state,
            run_id=newest.run_id,
            rows=sum(run.rows for run in ended),
            bytes=sum(run.bytes for run in ended),
            slices=len(ended),
            bad_rows=sum((Counter(bad.get(run.run_id, {})) for run in ended), Counter()),
            seconds=seconds,
            error=error_of(newest.error or {}) if newest.state == "failed" else None,
        )

    def _window(self, state: State, request: Request, name: str) -> tuple[str, int | None] | None:
        return window_of(state, name) if is_under_way(state, name, request.target(name)) else None

    def _outcome(self, state: State, request: Request, name: str, found: PipelineResult | None) -> PipelineResult:
        """The outcome of a pipeline: the result of its own runs, or why they never began."""
        if name not in state.ponds:
            error = HeadwaterError("HW-R01", f"the running engine does not know `{name}` yet", retryable=True)
            return PipelineResult(name, "failed", error=error)
        why = explain(state, name)
        if found is not None and (found.error is not None or why.state not in ("failed", "blocked")):
            return found
        if why.state in ("failed", "blocked"):
            hint = f"fix `{why.values['because']}`, then run the same command again" if why.state == "blocked" else ""
            return PipelineResult(name, "failed", error=HeadwaterError("HW-R01", why.sentence, hint=hint))
        window = self._window(state, request, name)
        if window is not None:
            until = to_text(window[1]) if window[1] is not None else None
            return PipelineResult(name, "waiting", waits_until=until)
        return PipelineResult(name, "unchanged")


def _look_first(looked: Looked, look: ScanSource) -> ScanSource:
    first = dict(looked)
    lock = threading.Lock()

    def look_once(name: str) -> PipelineJob:
        with lock:
            seen = first.pop(name, None)
        if seen is None:
            return look(name)
        if isinstance(seen, HeadwaterError):
            raise seen
        return seen

    return look_once

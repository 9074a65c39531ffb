"""The running engine: its one owner takes events from the inbox, steps, and stores the result.

A step is one transaction: events consumed, ponds touched, jobs queued or cancelled, the history written. If the owner
is killed, its successor finds state and inbox as before the step or as after it, and continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import Conflict, LeaseLost
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import INLET_JOB, RIPPLE_JOB, EngineEvent, NewJob, RunEnds, Step
from headwater.catalog.engine_state import SavedEngine, claim_engine, is_busy, load_engine, store_step
from headwater.catalog.history import newest_runs, pond_runs
from headwater.catalog.inbox import Arrived, take
from headwater.catalog.lease import ENGINE, Lease, engine_owner, release, renew
from headwater.catalog.log import write_unlogged
from headwater.catalog.lookup import table_versions
from headwater.catalog.queue import OPEN, jobs, take_over
from headwater.catalog.standing_triggers import CHANGED, standing
from headwater.freshness.events import CancelRipple, Completed, Demand, Effect, Event, GraphChanged, StartRipple
from headwater.freshness.graph import PondSpec
from headwater.freshness.machine import step
from headwater.freshness.saving import graph_change, load, save_header, save_pond
from headwater.freshness.state import State
from headwater.observe.counters import COUNTERS
from headwater.observe.tracing import tracing
from headwater.runtime.compile import Compiled
from headwater.runtime.leases import renew_seconds
from headwater.runtime.reserved_jobs import ReservedJobs
from headwater.runtime.run_history import Cause, RunHistory, StartedRun, answers
from headwater.runtime.trigger_events import sleeping, trigger_changes

WAITS = "waits"
"""Marks, among an event's ids, the sender that waits for an answer; `CAUSE` says what made it ask."""
CAUSE = "cause"
SLOWER = 2
"""How much slower the engine's clock goes while it is ahead of the system's."""


@dataclass
class EngineClock:
    """Always moves forward. If the system's clock is set back, the engine's continues from its last time at half the
    speed until the system's has caught up: nothing runs twice, and nothing waits for a day."""

    last_us: int = 0
    _ticked: float = field(default_factory=time.monotonic)

    def now_us(self) -> int:
        ticked = time.monotonic()
        slowly = self.last_us + int((ticked - self._ticked) * 1e6) // SLOWER
        self.last_us, self._ticked = max(now_us(), slowly), ticked
        return self.last_us

    def on_the_system(self, moment_us: int) -> int:
        """The system's time at which the engine's clock will show this time."""
        ours = self.now_us()
        now = now_us()
        return now + (moment_us - ours) * (SLOWER if ours > now else 1)


@dataclass
class Engine:
    """The freshness engine of one project, owned by this process. If a step cannot be stored (HW-T03: another owner),
    this object must not be used any more: its state is ahead of the stored one."""

    store: Store
    owner: Lease
    compiled: Compiled
    state: State
    runs_triggers: bool
    """Whether triggers make demand: they do for `serve`, and sleep while an `apply` is the owner."""
    run_history: RunHistory = field(default_factory=RunHistory)
    ended: list[RunEnds] = field(default_factory=list)
    """The runs that have ended since the owner last read this list."""
    clock: EngineClock = field(default_factory=EngineClock)
    follows: int = 0
    """The step from which the state was loaded, until this process owns the engine."""
    reserved: ReservedJobs | None = None
    """Idle workers of this process."""
    may_leave: Callable[[], bool] = lambda: False
    """Whether the engine may be released with a step after which nothing is under way."""
    left: bool = False
    answered: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """The answers to requests that were sent to this engine directly."""
    renewed_us: int = field(default_factory=now_us)
    newest: Callable[[], Compiled | None] = lambda: None
    """A new graph, if the manifest has changed: the sender of demand means the manifest as it is now."""

    @property
    def wake_us(self) -> int | None:
        """When the engine must be stepped even if nothing has happened."""
        announced = self.state.announced
        return self.clock.on_the_system(announced) if announced is not None else None

    def advance(
        self,
        own: Sequence[Event] = (),
        *,
        causes: Mapping[str, Cause] | None = None,
        news: Sequence[EngineEvent] = (),
        asked: Sequence[Arrived] = (),
    ) -> list[Effect]:
        """One step: the events of the inbox, and the owner's own. `causes` gives the origin of the owner's own
        demand, by pond; `news` is for listeners; `asked` are requests that did not come through the inbox."""
        with self.store.catalog.snapshot() as connection:
            arrived = [*take(connection), *asked]
            completed = {each.event.ripple for each in arrived if isinstance(each.event, Completed)}
            versions = table_versions(connection, completed) if completed else {}
        if any(isinstance(each.event, Demand) for each in arrived) and (compiled := self.newest()) is not None:
            return [*self.change_graph(compiled), *self.advance(own, causes=causes, news=news, asked=asked)]
        events = [*own, *resolved(arrived, versions)]
        if self.runs_triggers and any(each.kind == CHANGED for each in arrived):
            events += self.trigger_changes()
        self.run_history.asked.update(causes or {})
        for each in arrived:
            if isinstance(each.event, Demand):
                self.run_history.asked[each.event.pond] = Cause(each.ids.get(CAUSE, each.event.kind), each.actor)
        senders = self._senders(own, arrived)
        effects, touched = step(self.state, events, self.clock.now_us())
        removed = tuple(name for event in own if isinstance(event, GraphChanged) for name in event.removed)
        if touched or arrived or removed or news:
            self._store(effects, touched, arrived, removed=removed, senders=senders, news=news)
        return effects

    def trigger_changes(self) -> list[Event]:
        """The events that bring the triggers to what the manifest and the users say now."""
        with self.store.catalog.snapshot() as connection:
            asked = standing(connection)
        return trigger_changes(self.state, self.compiled, asked)

    def change_graph(self, compiled: Compiled) -> list[Effect]:
        """Continue with another graph: ponds that are equal in both keep their state."""
        self.compiled = compiled
        change = graph_change(self.state, compiled.ponds)
        news = [EngineEvent(kind="graph_changed", body={"pipelines": len(compiled.pipelines)})]
        effects = self.advance([change] if change is not None else [], news=news)
        return [*effects, *(self.advance(self.trigger_changes()) if self.runs_triggers else [])]

    def busy(self) -> bool:
        """Whether anything is under way, or an event waits in the inbox."""
        with self.store.catalog.snapshot() as connection:
            return is_busy(connection)

    def renew(self) -> None:
        """Renew the lease between steps. It renews by the clock, not at every wake-up: the renewal itself wakes SQLite's
        waker, which would never rest."""
        if now_us() >= self.renewed_us + renew_seconds(ENGINE) * 1e6:
            renew(self.store.catalog, self.owner)
            self.renewed_us = now_us()

    def release(self) -> None:
        """Let another process own the engine."""
        if not self.left:
            release(self.store.catalog, self.owner)

    def _senders(self, own: Sequence[Event], arrived: Sequence[Arrived]) -> list[int | None]:
        """The ids of the demands that the step will take, in its order; None where no sender waits for an answer.
        Demand for a pond that does not exist, or no longer exists when it is taken, is not taken."""
        known = set(self.state.ponds)
        found: list[int | None] = []
        for event in own:
            if isinstance(event, GraphChanged):
                known = (known | {spec.name for spec in event.ponds}) - set(event.removed)
            elif isinstance(event, Demand) and event.pond in known:
                found.append(None)
        for each in arrived:
            if isinstance(each.event, Demand) and each.event.pond in known:
                found.append(each.id if WAITS in each.ids else None)
        return found

    def _store(
        self,
        effects: Sequence[Effect],
        touched: Iterable[str],
        arrived: Sequence[Arrived],
        *,
        removed: tuple[str, ...],
        senders: Sequence[int | None],
        news: Sequence[EngineEvent],
    ) -> None:
        cancelled = [effect for effect in effects if isinstance(effect, CancelRipple)]
        chapter = self.run_history.note(self.state, effects, (*touched, *removed))
        self.ended += [*chapter.unwritten, *chapter.ended]
        replies = answers(senders, effects)
        replies |= {each.id: {"unknown": True} for each in arrived if WAITS in each.ids and each.id not in replies}
        self.answered |= {event_id: answer for event_id, answer in replies.items() if event_id < 0}
        leaves = self.may_leave()
        stored = store_step(
            self.store.catalog,
            Step(
                owner=self.owner,
                header=save_header(self.state),
                ponds={name: self._record(name) for name in touched if name in self.state.ponds},
                removed=removed,
                consumed=tuple(each.id for each in arrived if each.id > 0),
                answers={event_id: answer for event_id, answer in replies.items() if event_id > 0},
                new_jobs=self._jobs([effect for effect in effects if isinstance(effect, StartRipple)]),
                cancelled=self._unwanted(cancelled) if cancelled else (),
                begun=tuple(chapter.begun),
                ended=tuple(chapter.ended),
                told=(*news, *chapter.events),
                follows=self.follows,
                leaves=leaves,
                logged=write_unlogged(self.store.catalog, self.store.layout)[0] if leaves else None,
            ),
        )
        self.owner, self.left = stored.owner, stored.left
        if self.reserved is not None:
            self.reserved.put(stored.jobs)

    def _record(self, name: str) -> dict[str, Any]:
        """A pond's record, with the cause of its demand."""
        cause = self.run_history.asked.get(name)
        return save_pond(self.state, name) | ({} if cause is None else {"asked": list(cause)})

    def _jobs(self, starts: Sequence[StartRipple]) -> tuple[NewJob, ...]:
        """One job for each ripple of a model; one for all tables of an Inlet that start together."""
        scans: dict[tuple[str, int], list[StartRipple]] = {}
        found = []
        for start in starts:
            if self.state.ponds[start.pond].is_inlet:
                scans.setdefault((start.pond, start.freshness), []).append(start)
            else:
                found.append(self._job(RIPPLE_JOB, start, ripple=start.ripple, body=self._ripple_body(start)))
        for together in scans.values():
            found.append(self._job(INLET_JOB, together[0], body={"ripples": [start.ripple for start in together]}))
        return tuple(found)

    def _job(self, kind: str, start: StartRipple, *, body: Mapping[str, object], ripple: str = "") -> NewJob:
        run = self.run_history.run_at(start.pond, start.freshness)
        return NewJob(
            kind=kind,
            pond=start.pond,
            ripple=ripple,
            freshness_us=start.freshness,
            body=body,
            weight=self.compiled.weight_of(start.pond),
            holder=self.reserved.holder if self.reserved is not None and self.reserved.reserve() else None,
            run_id=run.run_id if run is not None else None,
            trace_id=run.trace_id if run is not None else None,
        )

    def _ripple_body(self, start: StartRipple) -> dict[str, object]:
        """What the execution reads: the version of every table of its sources and of its parents (None where a source
        has never completed a run), and the definition of the ripple."""
        reads = dict(chain(*(part.versions or () for part in start.cut), start.parents))
        ripples = self.state.ponds[start.pond].ripples
        definition = next(ripple.spec.fingerprint for ripple in ripples if ripple.spec.name == start.ripple)
        return {"reads": reads, "attempt": start.attempt, "definition": definition}

    def _unwanted(self, cancelled: Sequence[CancelRipple]) -> tuple[str, ...]:
        """The jobs of cancelled executions. One scan of a source serves all tables of an Inlet, so its job continues
        while one of them is still wanted."""
        gone = {(effect.pond, effect.ripple, effect.freshness) for effect in cancelled}
        ponds = sorted({effect.pond for effect in cancelled})
        with self.store.catalog.snapshot() as connection:
            found = [job for pond in ponds for job in jobs(connection, pond=pond, states=OPEN, limit=None)]
        return tuple(
            job.job_id
            for job in found
            if all((job.pond, ripple, job.freshness_us) in gone for ripple in job.body.get("ripples", [job.ripple]))
        )


def open_engine(
    store: Store,
    compiled: Compiled,
    *,
    holder: str,
    runs_triggers: bool = False,
    asked: Sequence[Arrived] = (),
    reserved: ReservedJobs | None = None,
) -> Engine | None:
    """Become the owner with the first step: it brings the stored state to the graph that the manifest declares now, and
    takes the events in `asked`; the jobs that it makes go to the `reserved` workers. None while another process owns
    the engine. Jobs whose workers are gone are queued again."""
    traced = tracing()  # raises for bad settings, before this process owns the engine
    for _ in range(limits.CLAIM_TRIES):
        with store.catalog.snapshot() as connection:
            owner = engine_owner(connection)
            if owner is not None and owner.holder != holder:
                return None
            saved = load_engine(connection)
            under_way = pond_runs(connection, states=["running"], limit=None)
            newest = newest_runs(connection)
        state = restored(compiled.ponds, saved)
        kept = RunHistory(tracing=traced)
        for run in under_way:
            published = state.ponds[run.pond].published if run.pond in state.ponds else None
            kept.open.setdefault(run.pond, {})[run.freshness_us] = StartedRun(run.run_id, run.trace_id, published)
        kept.failed = {name for name, run in newest.items() if run.state == "failed"}
        kept.asked = {name: Cause(*record["asked"]) for name, record in saved.ponds.items() if "asked" in record}
        unclaimed = Lease(kind=ENGINE, id="", attempt=0, epoch=0, holder=holder)
        engine = Engine(store, unclaimed, compiled, state, runs_triggers, kept, clock=EngineClock(state.now))
        engine.follows, engine.reserved = saved.step, reserved
        try:
            if not _take_engine(engine, opening(state, compiled.ponds, runs_triggers=runs_triggers), asked):
                return None
        except LeaseLost:
            return None
        except Conflict:
            continue  # another owner came and went: start from its state
        COUNTERS.add("lease_takeovers", times=len(take_over(store.catalog)))
        if runs_triggers:
            engine.advance(engine.trigger_changes())
        return engine
    return None


def _take_engine(engine: Engine, own: Sequence[Event], asked: Sequence[Arrived]) -> bool:
    """Claim the engine with its first step, or without one if there is nothing to store."""
    engine.advance(own, asked=asked)
    if engine.owner.epoch:
        return True
    owner = claim_engine(engine.store.catalog, holder=engine.owner.holder, follows=engine.follows)
    if owner is not None:
        engine.owner = owner
    return owner is not None


def restored(ponds: Iterable[PondSpec], saved: SavedEngine) -> State:
    """The engine as its last step left it; without one, an engine with no ponds."""
    if saved.header is None:
        return State()
    return load(ponds, {**saved.header, "ponds": saved.ponds})


def opening(state: State, ponds: Iterable[PondSpec], *, runs_triggers: bool = False) -> list[Event]:
    """The first events for a restored engine: the declared graph; triggers sleep unless the owner runs them."""
    change = graph_change(state, ponds)
    return [*([change] if change is not None else []), *([] if runs_triggers else sleeping(state))]


def resolved(arrived: Iterable[Arrived], versions: Mapping[str, int]) -> list[Event]:
    """The inbox as events of the engine. A completion gets the current version of its table: the sequence that last
    changed it. Only its own ripple changes a table, and it runs again only after this step."""
    return [
        event._replace(version=versions.get(event.ripple, 0)) if isinstance(event, Completed) else event
        for each in arrived
        if (event := each.event) is not None
    ]

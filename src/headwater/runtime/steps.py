"""The steps of an apply: one list, made once. `plan` shows it, `apply` sends the demand that it was made for.

The engine itself finds the list, in memory: it gets what apply would send, and every execution ends at once. This is
played twice: first every read and every execution brings something new, then none does. What executes in both is
certain; what executes only in the first depends on what is read.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headwater.base.clock import to_text
from headwater.catalog.engine_state import SavedEngine
from headwater.catalog.lookup import CatalogView
from headwater.freshness.events import Cleared, Completed, Demand, Event, Failed, StartRipple
from headwater.freshness.graph import depths
from headwater.freshness.machine import step
from headwater.freshness.runs import has_new_definition
from headwater.freshness.state import Pond, State
from headwater.runtime.compile import Compiled, CompiledPipeline
from headwater.runtime.engine import opening, restored
from headwater.runtime.plan import PipelinePlan, Plan, Reason, TablePlan, plan_of


@dataclass(frozen=True)
class EngineFacts:
    """The engine before an apply. `arrived` are the events in its inbox, `versions` are those of all tables."""

    compiled: Compiled
    saved: SavedEngine
    now_us: int
    arrived: Sequence[Event] = ()
    versions: Mapping[str, int] = field(default_factory=dict)


def inlets_reached(facts: EngineFacts, asked: Sequence[str]) -> set[str]:
    """The Inlets that run if these pipelines are asked for, including those of earlier demand that the engine holds."""
    played = _play(facts, _demand(facts, asked), {}, changes=True)
    return {name for name in played.ponds if played.state.ponds[name].is_inlet}


def plan_steps(facts: EngineFacts, asked: Sequence[str], scans: Mapping[str, PipelinePlan], view: CatalogView) -> Plan:
    """The plan of an apply that asks for these pipelines and all that they read, given the scans of Inlets. Pure."""
    demand, chosen = _demand(facts, asked), set(asked)
    most = _play(facts, demand, scans, changes=True)
    plans = [_unless_it_waits(plan, most) for plan in scans.values()]
    models = [
        pipeline
        for name, pipeline in facts.compiled.pipelines.items()
        if pipeline.ripples and (name in chosen or name in most.ponds)
    ]
    if models:
        least = _play(facts, demand, scans, changes=False)
        plans += [_model(pipeline, most, least, view) for pipeline in models]
    saved = [facts.saved.ponds[name] for name in asked if name in facts.saved.ponds]
    unfinished = any(pond["failed"] or any(each["running"] for each in pond["ripples"].values()) for pond in saved)
    if not unfinished and all(plan.action == "nothing" for plan in plans if plan.pipeline in chosen):
        return plan_of([plan for plan in plans if plan.pipeline in chosen], ())
    return plan_of(plans, demand)


def _demand(facts: EngineFacts, asked: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The pipelines in groups; each group is asked for when the one before it has settled. A failed model comes after
    what it reads: otherwise it would run at once on the rows that made it fail. A reader comes after its optional
    sources: no run waits for those, so what it reads of them would depend on chance."""
    ponds = {name: facts.compiled.pipelines[name].pond for name in asked}
    depth = depths({name: pond.sources for name, pond in ponds.items()})
    group: dict[str, int] = {}
    for name in sorted(asked, key=lambda each: depth[each]):
        pond = ponds[name]
        record = facts.saved.ponds.get(name, {})
        held = int(bool(pond.sources and (record.get("failed") or record.get("blocked"))))
        after = [*(group[source] for source in pond.required), *(group[source] + 1 for source in pond.optional)]
        group[name] = max([held, *after])
    return tuple(
        tuple(name for name in asked if group[name] == each) for each in range(max(group.values(), default=-1) + 1)
    )


def _unless_it_waits(plan: PipelinePlan, played: _Played) -> PipelinePlan:
    """The plan, or `wait` if the source must not be read now: its window is closed, or was used."""
    pond = played.state.ponds[plan.pipeline]
    if plan.action not in ("land", "resume", "evolve") or plan.pipeline in played.ponds:
        return plan
    opens = pond.spec.windows.next_start(played.now, pond.end_freshness + 1) if pond.spec.windows is not None else None
    return replace(plan, action="wait", waits_until=to_text(opens) if opens is not None else None)


def _model(pipeline: CompiledPipeline, most: _Played, least: _Played, view: CatalogView) -> PipelinePlan:
    tables = []
    for ripple in pipeline.ripples:
        reason = most.started.get((pipeline.id, ripple.name))
        tables.append(
            TablePlan(
                table=ripple.name,
                mode="view" if ripple.kind == "view" else ripple.mode,
                is_new=ripple.name not in view.tables and ripple.name not in view.views,
                runs=reason is not None,
                reason=reason,
                depends_on_read=reason is not None and (pipeline.id, ripple.name) not in least.started,
            )
        )
    due = [[table.table, table.depends_on_read] for table in tables if table.runs]
    return PipelinePlan(
        pipeline=pipeline.id,
        action="run" if due else "nothing",
        is_new=pipeline.id not in view.have_run,
        tables=tuple(tables),
        fingerprint=hashlib.sha256(json.dumps([pipeline.id, due]).encode()).hexdigest(),
    )


@dataclass
class _Played:
    """The engine and its executions. `started` are those that began, by pond and ripple, with the reason."""

    state: State
    now: int
    scans: Mapping[str, PipelinePlan]
    versions: Mapping[str, int]
    changes: bool
    started: dict[tuple[str, str], Reason] = field(default_factory=dict)
    failed: set[tuple[str, str]] = field(default_factory=set)

    @cached_property
    def ponds(self) -> set[str]:
        """The ponds of which something began."""
        return {pond for pond, _ in self.started}

    def play(self, events: Sequence[Event]) -> None:
        """Play everything that follows from these events, until only a window or more demand could bring more."""
        ripples = [ripple for pond in self.state.ponds.values() for ripple in pond.ripples if ripple.running]
        before = [(ripple, ripple.start_freshness) for ripple in ripples]
        ends = self._step(events)
        for ripple, freshness in before:
            if ripple.running and ripple.start_freshness == freshness:
                ends.append(self._end(ripple.pond, ripple.spec.name, freshness, "under way"))
        while ends:
            ends += self._step([ends.popleft()])

    def _step(self, events: Sequence[Event]) -> deque[Event]:
        self.now += 1
        effects, _ = step(self.state, events, self.now)
        ends: deque[Event] = deque()
        for start in effects:
            if isinstance(start, StartRipple):
                pond = self.state.ponds[start.pond]
                ends.append(self._end(pond, start.ripple, start.freshness, _reason(pond, start.ripple)))
        return ends

    def _end(self, pond: Pond, ripple: str, freshness: int, reason: Reason) -> Completed | Failed:
        """How the execution ends. A source that could not be scanned may be available when a retry scans it."""
        execution = pond.name, ripple
        self.started.setdefault(execution, reason)
        action = self.scans[pond.name].action if pond.name in self.scans else "run"
        if action in ("fail", "refuse") and not (self.changes and execution in self.failed):
            self.failed.add(execution)
            return Failed(pond.name, ripple, freshness)
        is_new = action == "evolve" or (self.changes and action != "nothing")
        return Completed(pond.name, ripple, freshness, "new" if is_new else self.versions.get(ripple, 0))


def _play(
    facts: EngineFacts, demand: Sequence[Sequence[str]], scans: Mapping[str, PipelinePlan], *, changes: bool
) -> _Played:
    # Apply waits for the minimum time between two scans of a source; here that takes no time.
    ponds = [replace(pond, min_interval=1) for pond in facts.compiled.ponds]
    state = restored(ponds, facts.saved)
    played = _Played(state, max(facts.now_us, state.now), scans, facts.versions, changes)
    first, target = [*opening(state, ponds), *facts.arrived], played.now + 1
    for names in demand:
        cleared = [Cleared(name) for name in names]
        played.play([*first, *cleared, *(Demand(name, "pulse", target) for name in names)])
        first = []
    return played


def _reason(pond: Pond, name: str) -> Reason:
    ripple = next(each for each in pond.ripples if each.spec.name == name)
    if pond.spec.always_run:
        return "always_run"
    if ripple.inputs is None:
        return "new"
    return "definition changed" if has_new_definition(ripple) else "inputs changed"

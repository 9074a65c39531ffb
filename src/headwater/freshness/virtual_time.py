"""Runs the engine on virtual time: takes a scenario, returns what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import assert_never

from headwater.base import limits
from headwater.freshness.account import Account
from headwater.freshness.events import (
    Cleared,
    Completed,
    Delivered,
    Demand,
    Effect,
    Event,
    Failed,
    StartRipple,
    Tick,
    Trigger,
    TriggerCleared,
    TriggerSet,
    WakeAt,
)
from headwater.freshness.graph import PondSpec
from headwater.freshness.machine import new_state, step
from headwater.freshness.scenario import Scenario, ScenarioEvent
from headwater.freshness.state import State
from headwater.freshness.windows import Windows

FACTS = ("fail", "unchanged", "changed")
"""Events that decide how executions will end; the engine learns of them only when the executions end."""


STANDING = {"wave", "tide"}


class EndlessScenario(ValueError):
    """The scenario needs more than `limits.SIMULATION_STEPS` steps."""


def simulate(scenario: Scenario) -> Account:
    """Runs the scenario to its end. Raises EndlessScenario after `limits.SIMULATION_STEPS` steps."""
    world = World(scenario)
    for _ in range(limits.SIMULATION_STEPS):
        now = world.next_time()
        if now is None or (scenario.until is not None and now > scenario.until):
            world.account.close(world.state, world.now if scenario.until is None else scenario.until)
            return world.account
        world.live(now)
    raise EndlessScenario(f"the scenario is not over after {limits.SIMULATION_STEPS} steps, at {world.now / 1e6} s")


def ponds_of(scenario: Scenario) -> Iterator[PondSpec]:
    """The ponds of a scenario, with their windows."""
    for pond in scenario.pipelines:
        windows = scenario.windows.get(pond.name)
        yield replace(pond, windows=Windows(windows)) if windows else pond


@dataclass
class World:
    """Everything outside the engine: executions that take their time, failures to come, sources that are quiet."""

    scenario: Scenario
    now: int = 0
    wake: int | None = None
    started: int = 0
    touched: list[str] = field(default_factory=list)
    """The ponds that the last step touched."""
    executions: list[tuple[int, int, StartRipple]] = field(default_factory=list)
    versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """By ripple: how many of its executions have changed its table; the first one always does."""
    failing: dict[tuple[str, str], int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.state: State = new_state(ponds_of(self.scenario))
        coming = sorted(self.scenario.events, key=lambda event: event.at)
        self.facts = deque(event for event in coming if event.do in FACTS)
        self.events = deque(event for event in coming if event.do not in FACTS)
        self.account = Account(self.state)

    def next_time(self) -> int | None:
        """When something will happen next; None: nothing will."""
        times = [self.executions[0][0]] if self.executions else []
        times += [waiting[0].at for waiting in (self.facts, self.events) if waiting]
        if self.wake is not None:
            times.append(self.wake)
        return min(times, default=None)

    def live(self, now: int) -> None:
        """One instant: first the executions that end, as one batch, or else a tick; then the events of the scenario.

        A scenario's event about executions also holds for those that end at this instant.
        """
        self.now = now
        while self.facts and self.facts[0].at == now:
            self._learn(self.facts.popleft())
        ended: list[Event] = []
        while self.executions and self.executions[0][0] == now:
            ended.append(self._outcome(heappop(self.executions)[2]))
        if ended:
            self.step(ended)
        elif self.wake is not None and self.wake <= now:
            self.step([Tick()])
        while self.events and self.events[0].at == now:
            self.step(self._next_batch())

    def _next_batch(self) -> list[Event]:
        """The next event of the scenario; waves and tides that are listed one after the other begin together."""
        first = self.events.popleft()
        batch = [first]
        while self.events and self.events[0].at == first.at and {first.do, self.events[0].do} <= STANDING:
            batch.append(self.events.popleft())
        return [_told(event) for event in batch]

    def step(self, events: list[Event]) -> list[Effect]:
        """Gives the events to the engine, and begins the executions that it starts."""
        effects, self.touched = step(self.state, events, self.now)
        self.account.note(self.state, self.now, effects)
        for effect in effects:
            if isinstance(effect, StartRipple):
                end = self.now + self.scenario.durations[effect.pond, effect.ripple]
                heappush(self.executions, (end, self.started, effect))
                self.started += 1
            elif isinstance(effect, WakeAt):
                self.wake = effect.time
        return effects

    def _outcome(self, start: StartRipple) -> Completed | Failed:
        ripple = start.pond, start.ripple
        if self.failing.get(ripple, 0):
            self.failing[ripple] -= 1
            return Failed(start.pond, start.ripple, start.freshness)
        version = self.versions.get(ripple, 0)
        if start.pond not in self.quiet or not version:
            version = self.versions[ripple] = version + 1
        return Completed(start.pond, start.ripple, start.freshness, version)

    def _learn(self, fact: ScenarioEvent) -> None:
        if fact.do == "fail":
            ripple = fact.pipeline, fact.ripple
            self.failing[ripple] = max(self.failing.get(ripple, 0), fact.times)
        elif fact.do == "unchanged":
            self.quiet.add(fact.pipeline)
        else:
            self.quiet.discard(fact.pipeline)


def _told(event: ScenarioEvent) -> Event:
    """The engine's event for an event of the scenario."""
    match event.do:
        case "tap" | "pulse":
            return Demand(event.pipeline, event.do)
        case "wave" | "tide":
            return TriggerSet(
                event.pipeline, Trigger(event.trigger_id or event.do, event.do, limit=event.max_staleness)
            )
        case "untrigger":
            return TriggerCleared(event.pipeline, event.trigger_id or None)
        case "clear":
            return Cleared(event.pipeline)
        case "deliver":
            return Delivered(event.pipeline)
        case "fail" | "unchanged" | "changed":
            raise AssertionError("a fact about executions is not an event of the engine")
        case _:
            assert_never(event.do)

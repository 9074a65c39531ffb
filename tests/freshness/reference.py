"""An independent, naive interpreter of the freshness theory: after every single start it looks at everything again.

It is written from the theory's pseudocode and the design page only, and shares no code with `headwater.freshness`.
Random scenarios go through both; the answers must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshness.reference_rules import (
    clear,
    complete_ripple_run,
    deliver,
    fail_ripple_run,
    look_at_standing_triggers,
    pond_may_start,
    pulse,
    ripple_may_start,
    set_trigger,
    start_pond_run,
    start_ripple_run,
    tap,
    untrigger,
    wake_ups,
)
from freshness.reference_world import Execution, Pond, Ripple, Trigger, World, microseconds, seconds

FACTS = ("fail", "unchanged", "changed")
"""What is said about executions holds for those, too, that end at that very instant."""

Scenario = dict[str, Any]
Answer = dict[str, Any]


def reference_answer(scenario: Scenario) -> Answer:
    """The complete answer to a valid scenario (the JSON value of a scenario file)."""
    until = scenario.get("until")
    simulation = Simulation(World(scenario["pipelines"]), scenario.get("events", []))
    end = simulation.run(None if until is None else microseconds(until))
    ponds = simulation.world.ponds
    return {"pipelines": {pond.name: described(pond, end) for pond in ponds}, "timeline": simulation.world.timeline}


class Simulation:
    """A world, the events that are still to come, and what the executions of its ripples will do."""

    def __init__(self, world: World, events: list[dict[str, Any]]) -> None:
        self.world = world
        self.events = sorted(events, key=lambda event: microseconds(event["at"]))
        self.failures_left: dict[Ripple, int] = {}

    def run(self, until: int | None) -> int:
        """Everything up to `until`. Returns the time at which the simulation ends."""
        last = 0
        while True:
            waking = min(wake_ups(self.world), default=None)
            times = [execution.ends_at for execution in self.world.executions]
            times += [microseconds(event["at"]) for event in self.events]
            times += [] if waking is None else [waking]
            if not times or (until is not None and min(times) > until):
                return last if until is None else until
            last = min(times)
            self.instant(last, wake_up_is_due=waking == last)

    def instant(self, now: int, *, wake_up_is_due: bool) -> None:
        for fact in [event for event in self.events if microseconds(event["at"]) == now and event["do"] in FACTS]:
            self.events.remove(fact)
            self.happens(now, fact)
        if self.ended(now):
            self.step(now, self.endings_of(self.ended(now)))
        elif wake_up_is_due:
            self.step(now, lambda: None)
        while self.events and microseconds(self.events[0]["at"]) == now:
            together = [self.events.pop(0)]
            while self.events and microseconds(self.events[0]["at"]) == now and both_stand(together[0], self.events[0]):
                together.append(self.events.pop(0))
            if len(together) > 1:
                self.step(now, self.triggers_of(together))
            else:
                self.happens(now, together[0])
        while self.ended(now):
            self.step(now, self.endings_of(self.ended(now)))

    def ended(self, now: int) -> list[Execution]:
        return [execution for execution in self.world.executions if execution.ends_at == now]

    def endings_of(self, executions: list[Execution]) -> Callable[[], None]:
        def end_all() -> None:
            for execution in executions:
                self.world.executions.remove(execution)
                left = self.failures_left.get(execution.ripple, 0)
                self.failures_left[execution.ripple] = max(0, left - 1)
                if left > 0:
                    fail_ripple_run(execution)
                else:
                    complete_ripple_run(execution)

        return end_all

    def happens(self, now: int, event: dict[str, Any]) -> None:
        pond = self.world.pond(event["pipeline"])
        match event["do"]:
            case "fail":
                ripple = next(r for r in pond.ripples if r.name == event.get("ripple", pond.ripples[0].name))
                self.failures_left[ripple] = max(self.failures_left.get(ripple, 0), event.get("times", 1))
            case "unchanged":
                pond.reports_no_change = True
            case "changed":
                pond.reports_no_change = False
            case "tap":
                self.step(now, lambda: tap(pond))
            case "pulse":
                self.step(now, lambda: pulse(pond))
            case "clear":
                self.step(now, lambda: clear(pond))
            case "deliver":
                self.step(now, lambda: deliver(pond))
            case "untrigger":
                self.step(now, lambda: untrigger(pond, event.get("id")))
            case "wave" | "tide":
                self.step(now, self.triggers_of([event]))

    def triggers_of(self, events: list[dict[str, Any]]) -> Callable[[], None]:
        """Waves and tides that are listed one after the other begin together: their order does not matter."""

        def set_all() -> None:
            for event in events:
                trigger_id, limit = event.get("id", event["do"]), microseconds(event.get("max_staleness", 0))
                set_trigger(self.world.pond(event["pipeline"]), Trigger(trigger_id, event["do"], limit))

        return set_all

    def step(self, now: int, apply_events: Callable[[], None]) -> None:
        """One batch of events and all that follows from it at once."""
        self.world.now = max(now, self.world.now)
        apply_events()
        start_all_that_may(self.world)
        while look_at_standing_triggers(self.world):
            start_all_that_may(self.world)


def both_stand(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return {first["do"], second["do"]} <= {"wave", "tide"}


def start_all_that_may(world: World) -> None:
    """One start at a time, and then everything is looked at again."""
    while True:
        pond = next((pond for pond in world.pond_order if pond_may_start(pond)), None)
        if pond is not None:
            start_pond_run(pond)
            continue
        ripple = next((ripple for ripple in world.ripple_order if ripple_may_start(ripple)), None)
        if ripple is None:
            return
        start_ripple_run(ripple)


def described(pond: Pond, end: int) -> Answer:
    """What the answer says of one pipeline."""
    return {
        "runs": pond.completed_runs,
        "passes": pond.passes,
        "waste": pond.waste,
        "failures": pond.failures,
        "start_freshness": seconds(pond.start_f),
        "end_freshness": seconds(pond.end_f),
        "delay": seconds(pond.end_d),
        "pull": pond.has_pull,
        "targets": [seconds(target) for target in sorted(pond.targets)],
        "state": state_of(pond),
        "staleness": staleness_of(pond, end),
        "completions": [seconds(when) for when, _, _ in pond.finished],
        "ripples": {
            ripple.name: {"starts": ripple.starts, "completions": ripple.completions} for ripple in pond.ripples
        },
    }


def state_of(pond: Pond) -> str:
    if pond.is_failed:
        return "failed"
    if pond.is_blocked:
        return "blocked"
    if pond.is_running:
        return "running"
    return "queued" if (pond.has_pull or pond.targets) and not waits_quietly(pond) else "idle"


def waits_quietly(pond: Pond) -> bool:
    """Only Waves ask for it, and nothing that it waits for runs or is to run: time or the world outside moves next."""
    under_way = [source for source in pond.push_sources if state_of(source) in ("running", "queued")]
    return only_waves_ask(pond) and not under_way


def only_waves_ask(pond: Pond) -> bool:
    asking = [sink for sink in pond.sinks if sink.has_pull or sink.targets or any(run.took_pull for run in sink.runs)]
    asked = bool(asking) or any(trigger.kind == "wave" for trigger in pond.triggers)
    return asked and not pond.targets and all(only_waves_ask(sink) for sink in asking)


def staleness_of(pond: Pond, end: int) -> Answer:
    """Between completions staleness grows as time does: its mean is the area under those slopes over the whole span."""
    if not pond.finished:
        return {"mean": None, "max": None}
    doubled_area, largest = 0, 0
    ends = [when for when, _, _ in pond.finished[1:]] + [end]
    for (when, f, d), until in zip(pond.finished, ends, strict=True):
        at_first, at_last = when + d - f, until + d - f
        doubled_area += (at_first + at_last) * (until - when)
        largest = max(largest, at_last)
    span = end - pond.finished[0][0]
    mean = doubled_area / (2 * span) if span else float(largest)
    return {"mean": mean / 1_000_000, "max": largest / 1_000_000}

"""The engine's history, step by step: which pond runs began and ended, what asked for them, which events to report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headwater.base.ids import uuid7
from headwater.catalog.engine_records import EngineEvent, RunBegins, RunEnds, RunState
from headwater.freshness.account import EFFECT_NAMES
from headwater.freshness.events import (
    CancelRipple,
    Demanded,
    DemandRefused,
    Effect,
    PondRunStarted,
    RunCompleted,
    RunFailed,
    RunPassed,
    RunSuperseded,
    StartRipple,
    Version,
    WakeAt,
)
from headwater.freshness.explain import origins
from headwater.freshness.state import Pond, State
from headwater.observe.spans import Tracing

_ENDS: dict[type[Effect], RunState] = {
    RunCompleted: "success",
    RunFailed: "failed",
    RunSuperseded: "superseded",
}


class Cause(NamedTuple):
    """What asked for a run (`apply`, `pulse`, the id of a trigger), and the user."""

    cause: str
    actor: str


UNKNOWN = Cause("demand", "")
"""The cause if it is no longer known."""


@dataclass
class StartedRun:
    """A pond run under way. `before`: what an Inlet had published at its start; `requested`: by a request, no trigger."""

    run_id: str
    trace_id: str | None
    before: tuple[tuple[str, Version], ...] | None
    requested: bool = False


@dataclass
class Chapter:
    """What one step adds to the history."""

    begun: list[RunBegins] = field(default_factory=list)
    ended: list[RunEnds] = field(default_factory=list)
    events: list[EngineEvent] = field(default_factory=list)
    unwritten: list[RunEnds] = field(default_factory=list)
    """Runs that began and passed within the step: nothing is stored of them."""


@dataclass
class RunHistory:
    open: dict[str, dict[int, StartedRun]] = field(default_factory=dict)
    """By pond and freshness."""
    asked: dict[str, Cause] = field(default_factory=dict)
    """The outside cause of a pond's demand, until its run for that has ended."""
    failed: set[str] = field(default_factory=set)
    """The ponds whose last run failed: the next run is stored, whatever it finds."""
    tracing: Tracing = field(default_factory=Tracing)

    def run_at(self, pond: str, freshness: int) -> StartedRun | None:
        return self.open.get(pond, {}).get(freshness)

    def note(self, state: State, effects: Sequence[Effect], touched: Iterable[str]) -> Chapter:
        """Record a step; `touched` includes removed ponds. Runs that began and passed within it leave only events."""
        chapter = Chapter()
        for effect in effects:
            if isinstance(effect, PondRunStarted):
                self._begin(chapter, state, state.ponds[effect.pond], effect.freshness)
            if not isinstance(effect, WakeAt | CancelRipple):
                chapter.events.append(self._event(effect))
            if isinstance(effect, RunCompleted | RunPassed | RunFailed | RunSuperseded):
                self._end(chapter, state.ponds[effect.pond], effect)
        for name in touched:
            self._close_abandoned(chapter, state, name)
        return chapter

    def _begin(self, chapter: Chapter, state: State, pond: Pond, freshness: int) -> None:
        cause = self._cause(state, pond)
        run_id = uuid7()
        begins = RunBegins(
            run_id=run_id,
            pond=pond.name,
            freshness_us=freshness,
            cause=cause.cause,
            actor=cause.actor,
            trace_id=self.tracing.begin_run(pond.name, run_id),
        )
        chapter.begun.append(begins)
        requested = cause in self.asked.values()
        self.open.setdefault(pond.name, {})[freshness] = StartedRun(run_id, begins.trace_id, pond.published, requested)

    def _end(self, chapter: Chapter, pond: Pond, effect: RunCompleted | RunPassed | RunFailed | RunSuperseded) -> None:
        run = self.open.get(pond.name, {}).pop(effect.freshness, None)
        if run is None:
            return
        state = _ENDS.get(type(effect))
        if state == "success" and pond.is_inlet and run.before == pond.published and pond.name not in self.failed:
            state = None  # a scan of the source that found nothing new
        if state is not None:
            (self.failed.add if state == "failed" else self.failed.discard)(pond.name)
        # A Wave asks again at once: the next run is no longer the request's.
        if not pond.targets and (not pond.has_pull or any(each.kind == "wave" for each in pond.triggers.values())):
            self.asked.pop(pond.name, None)
        self._close(chapter, pond.name, run, state)

    def _close_abandoned(self, chapter: Chapter, state: State, name: str) -> None:
        """Close runs that the engine has dropped without an event: their pond was changed, removed or cleared."""
        pond, runs = state.ponds.get(name), self.open.get(name, {})
        for freshness in list(runs):
            if pond is None or not _in_flight(pond, freshness):
                self._close(chapter, name, runs.pop(freshness), "cancelled")
        if not runs:
            self.open.pop(name, None)

    def _close(self, chapter: Chapter, pond: str, run: StartedRun, state: RunState | None) -> None:
        """A run that began in this step and is not worth keeping is never stored."""
        self.tracing.end_run(run.run_id, state)
        ends = RunEnds(run.run_id, state, pond, run.requested)
        earlier = [begun for begun in chapter.begun if begun.run_id != run.run_id]
        if state is None and len(earlier) < len(chapter.begun):
            chapter.begun = earlier
            chapter.unwritten.append(ends)
        else:
            chapter.ended.append(ends)

    def _cause(self, state: State, pond: Pond) -> Cause:
        """The outside cause of its demand, else the trigger that is set on it or downstream of it."""
        asking = [pond.name, *(each.pond for each in origins(pond))]
        for name in asking:
            if name in self.asked:
                return self.asked[name]
        for name in asking:
            for trigger in state.ponds[name].triggers.values():
                return Cause(trigger.id, trigger.owner)
        return UNKNOWN

    def _event(self, effect: Effect) -> EngineEvent:
        values: dict[str, Any] = effect._asdict()
        pond = str(values.pop("pond"))
        freshness = values.get("freshness")
        run = self.run_at(pond, freshness) if isinstance(freshness, int) else None
        if isinstance(effect, StartRipple):
            values = {"ripple": effect.ripple, "freshness": effect.freshness, "attempt": effect.attempt}
        return EngineEvent(
            kind=EFFECT_NAMES[type(effect)], pond=pond, run_id=run.run_id if run is not None else None, body=values
        )


def answers(senders: Sequence[int | None], effects: Sequence[Effect]) -> dict[int, Mapping[str, Any]]:
    """The answers to the senders of demand: the freshness that their pulse asks for, or why it was refused. `senders`
    are the ids of the events of each Tap and Pulse that the step took, in order; None where no sender waits."""
    taken = [
        effect
        for effect in effects
        if isinstance(effect, DemandRefused) or (isinstance(effect, Demanded) and effect.kind in ("tap", "pulse"))
    ]
    return {
        event_id: {"refused": True, "because": effect.because}
        if isinstance(effect, DemandRefused)
        else {"refused": False, "target": effect.target}
        for event_id, effect in zip(senders, taken, strict=True)
        if event_id is not None
    }


def _in_flight(pond: Pond, freshness: int) -> bool:
    return any(run.freshness == freshness and not run.gave_up and not run.abandoned for run in pond.runs)

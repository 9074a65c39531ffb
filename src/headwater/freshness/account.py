"""What happened in a simulation, pipeline by pipeline and as a timeline: the answer of `headwater simulate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.freshness.events import (
    Blocked,
    CancelRipple,
    Demanded,
    DemandRefused,
    Effect,
    PondRunStarted,
    RippleCompleted,
    RippleFailed,
    RipplePassed,
    RunCompleted,
    RunFailed,
    RunPassed,
    RunSuperseded,
    SourceCut,
    StartRipple,
    Unblocked,
    WakeAt,
)
from headwater.freshness.explain import PondState, pond_states
from headwater.freshness.state import NEVER, SECOND, Pond, State

EFFECT_NAMES: dict[type[Effect], str] = {
    Demanded: "demand",
    DemandRefused: "demand_refused",
    StartRipple: "ripple_started",
    RippleCompleted: "ripple_completed",
    RippleFailed: "ripple_failed",
    RipplePassed: "ripple_passed",
    PondRunStarted: "run_started",
    RunCompleted: "run_completed",
    RunPassed: "run_passed",
    RunFailed: "run_failed",
    RunSuperseded: "run_superseded",
    Blocked: "blocked",
    Unblocked: "unblocked",
}
"""What a timeline calls an effect."""


@dataclass
class PipelineAccount:
    """The counts of one pipeline. Times are in microseconds."""

    runs: int = 0
    passes: int = 0
    waste: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    unread: bool = False
    """Its newest completion was a run, and no sink has read it yet."""
    fresh_at: int = 0
    """The freshness of its newest completion minus the delay: staleness is the time since then."""
    drops: list[tuple[int, int]] = field(default_factory=list)
    """The time of each completion, and `fresh_at` from then on."""
    noted_until: int = 0
    stale_area: int = 0
    """Twice the integral of its staleness from its first completion to `noted_until`."""
    stale_most: int = 0

    def grow_stale(self, now: int) -> None:
        """Adds the time since `noted_until` to the area under the staleness."""
        if self.drops:
            begin, end = self.noted_until - self.fresh_at, now - self.fresh_at
            self.stale_area += (end - begin) * (begin + end)
            self.stale_most = max(self.stale_most, end)
        self.noted_until = now

    def staleness(self, end: int) -> dict[str, float | None]:
        """Mean and maximum from the first completion to the end."""
        if not self.drops:
            return {"mean": None, "max": None}
        span = end - self.drops[0][0]
        mean = self.stale_area / (2 * span) if span else float(self.stale_most)
        return {"mean": mean / SECOND, "max": self.stale_most / SECOND}


class Account:
    """Notes the effects of every step; `close` ends it."""

    def __init__(self, state: State) -> None:
        self.pipelines: dict[str, PipelineAccount] = {}
        for name, pond in state.ponds.items():
            none = dict.fromkeys((ripple.spec.name for ripple in pond.ripples), 0)
            self.pipelines[name] = PipelineAccount(starts=none, executions=dict(none))
        self.timeline: list[dict[str, Any]] = []
        self._answers: dict[str, Any] = {}

    def as_json(self) -> dict[str, Any]:
        """The answer, as `docs/reference/scenarios.md` describes it."""
        return {"pipelines": self._answers, "timeline": self.timeline}

    def note(self, state: State, now: int, effects: list[Effect]) -> None:
        """Records the effects of a step."""
        for effect in effects:
            if isinstance(effect, WakeAt | CancelRipple):
                continue
            self.timeline.append({"at": now / SECOND, "event": EFFECT_NAMES[type(effect)], **_entry(effect)})
            account = self.pipelines[effect.pond]
            match effect:
                case StartRipple():
                    account.starts[effect.ripple] += 1
                case RippleCompleted():
                    account.executions[effect.ripple] += 1
                case PondRunStarted():
                    for source in state.ponds[effect.pond].sources:
                        self.pipelines[source.name].unread = False
                case RunCompleted() | RunPassed():
                    _note_completion(account, effect, now, has_sinks=bool(state.ponds[effect.pond].sinks))
                case _:
                    pass

    def close(self, state: State, end: int) -> None:
        """The simulation is over."""
        states = pond_states(state)
        for name, account in self.pipelines.items():
            account.grow_stale(end)
            self._answers[name] = _answer(state.ponds[name], account, end, states[name])


def _entry(effect: Effect) -> dict[str, Any]:
    """What a timeline says of an effect."""
    entry: dict[str, Any] = {}
    for key, value in effect._asdict().items():
        match key:
            case "pond":
                entry["pipeline"] = value
            case "freshness":
                entry[key] = value / SECOND
            case "target" if value is not None:
                entry[key] = value / SECOND
            case "ripple" | "attempt" | "kind" | "because":
                entry[key] = value
            case "cut" if value:
                entry[key] = {part.source: _version(part) for part in value}
    return entry


def _note_completion(account: PipelineAccount, effect: RunCompleted | RunPassed, now: int, *, has_sinks: bool) -> None:
    account.grow_stale(now)
    account.fresh_at = effect.freshness - effect.delay
    account.drops.append((now, account.fresh_at))
    account.stale_most = max(account.stale_most, now - account.fresh_at)
    account.waste += account.unread and has_sinks
    account.unread = isinstance(effect, RunCompleted)
    account.runs += account.unread
    account.passes += not account.unread


def _answer(pond: Pond, account: PipelineAccount, end: int, state: PondState) -> dict[str, Any]:
    return {
        "runs": account.runs,
        "passes": account.passes,
        "failures": pond.failures,
        "waste": account.waste,
        "start_freshness": _seconds(pond.start_freshness),
        "end_freshness": _seconds(pond.end_freshness),
        "delay": pond.delay_end / SECOND,
        "pull": pond.has_pull,
        "targets": [target / SECOND for target in pond.targets],
        "state": state,
        "staleness": account.staleness(end),
        "completions": [time / SECOND for time, _ in account.drops],
        "ripples": {
            name: {"starts": starts, "completions": account.executions[name]} for name, starts in account.starts.items()
        },
    }


def _version(part: SourceCut) -> int | None:
    """A number for what is read of a source: in a simulation the version of a ripple counts its executions that changed
    something. Two cuts have the same number for a source only if they read the same versions of it."""
    return None if part.versions is None else sum(int(version) for _, version in part.versions)


def _seconds(freshness: int) -> float | None:
    return None if freshness == NEVER else freshness / SECOND

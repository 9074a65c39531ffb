"""Triggers: Tap and Pulse demand once, Wave and Tide until they are removed.

A trigger acts like one more sink of its pond, with zero duration.
"""

from __future__ import annotations

from typing import Literal

from headwater.freshness.events import Demanded, DemandRefused, Trigger
from headwater.freshness.faults import culprit
from headwater.freshness.state import NEVER, Pond, State
from headwater.freshness.upstream import receive_pull, receive_target


def demand_once(state: State, pond: Pond, kind: Literal["tap", "pulse"], target: int | None = None) -> None:
    """A Tap or a Pulse. A blocked pond refuses, and names the pond that is the cause."""
    if pond.blocked:
        state.effects.append(DemandRefused(pond.name, kind, culprit(pond)))
        return
    if kind == "tap":
        _tap(state, pond, "tap")
    else:
        _push(state, pond, "pulse", state.now if target is None else min(target, state.now))


def retap(state: State, pond: Pond) -> None:
    """Every Wave taps again when a run of its pond completes."""
    if pond.blocked:
        return
    for trigger in pond.triggers.values():
        if trigger.kind == "wave":
            _tap(state, pond, "wave")


def look_at_triggers(state: State, pond: Pond) -> None:
    """Called when nothing more can start: a Wave taps a pond that runs nothing and has no pull, a Tide pushes one that
    has become too stale. Waves come first, so the order in which triggers were set makes no difference."""
    _expire(state, pond)
    if pond.blocked:
        return
    for trigger in pond.triggers.values():
        if trigger.kind == "wave" and not pond.has_pull and not pond.is_running:
            _tap(state, pond, "wave")
    for trigger in pond.triggers.values():
        if trigger.kind == "tide" and tide_time(pond, trigger, now=state.now) <= state.now:
            _push(state, pond, "tide", state.now)


def tide_time(pond: Pond, tide: Trigger, *, now: int) -> int:
    """When the Tide will push, if nothing changes. While the pond's freshness is later than now, the Tide sleeps."""
    if now <= pond.end_freshness:
        return pond.end_freshness + 1
    if pond.targets:
        return pond.targets[-1] + tide.limit
    if pond.start_freshness == NEVER:
        return now
    return pond.start_freshness - pond.delay_start + tide.limit


def trigger_wake(pond: Pond, *, now: int) -> int | None:
    """When one of its triggers must be checked again."""
    times = [trigger.expires_at for trigger in pond.triggers.values() if trigger.expires_at is not None]
    if not pond.blocked:
        times += [tide_time(pond, trigger, now=now) for trigger in pond.triggers.values() if trigger.kind == "tide"]
    return min(times, default=None)


def _tap(state: State, pond: Pond, kind: Literal["tap", "wave"]) -> None:
    state.effects.append(Demanded(pond.name, kind, None))
    receive_pull(state, pond)


def _push(state: State, pond: Pond, kind: Literal["pulse", "tide"], target: int) -> None:
    state.effects.append(Demanded(pond.name, kind, target))
    receive_target(state, pond, target)


def _expire(state: State, pond: Pond) -> None:
    gone = [t.id for t in pond.triggers.values() if t.expires_at is not None and t.expires_at <= state.now]
    for trigger_id in gone:
        del pond.triggers[trigger_id]
        state.touch(pond)

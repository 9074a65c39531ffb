"""The engine: events in, effects out.

    effects, touched = step(state, events, now)

All events of the call are applied first; then starts are decided one at a time, ponds before ripples, furthest
downstream first; when nothing more can start, standing triggers are checked. The work is proportional to what the
events touch, not to the size of the graph (except for a change of the graph itself).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import assert_never

from headwater.freshness.change import change_graph
from headwater.freshness.events import (
    Cleared,
    Completed,
    Delivered,
    Demand,
    Effect,
    Event,
    Failed,
    GraphChanged,
    Tick,
    TriggerCleared,
    TriggerSet,
    WakeAt,
)
from headwater.freshness.faults import clear_failure, fail_ripple_run
from headwater.freshness.graph import PondSpec
from headwater.freshness.runs import (
    complete_ripple_run,
    deliver,
    inlet_wake,
    start_pond_run_if_due,
    start_ripple_run_if_due,
)
from headwater.freshness.state import Pond, Ripple, State
from headwater.freshness.triggers import demand_once, look_at_triggers, trigger_wake


def new_state(ponds: Iterable[PondSpec], *, now: int = 0) -> State:
    """A graph in which nothing has ever run. Raises GraphError for an invalid graph."""
    state = State()
    state.now = now
    change_graph(state, GraphChanged(tuple(ponds)))
    _close(state)
    return state


def step(state: State, events: Iterable[Event], now: int) -> tuple[list[Effect], list[str]]:
    """Applies the events of one instant. Changes the state in place; returns the effects, and the ponds it touched.

    If the clock jumps back, time does not move. Events about ponds, ripples or executions that do not exist (any more)
    are ignored, so that an event may come twice.
    """
    if now > state.now:
        state.now = now
    if state.timers:
        _wake_up(state)
    for event in events:
        _apply(state, event)
    _start_all(state)
    return _close(state)


def set_timers(state: State) -> None:
    """Sets the timers of all ponds again after a state was loaded."""
    for pond in state.ponds.values():
        _set_timer(state, pond)
    for pond in state.touched:
        pond.touched = False
    state.touched = []


def _apply(state: State, event: Event) -> None:
    if isinstance(event, GraphChanged):
        change_graph(state, event)
    elif not isinstance(event, Tick) and event.pond in state.ponds:
        _apply_to_pond(state, state.ponds[event.pond], event)


def _apply_to_pond(
    state: State,
    pond: Pond,
    event: Completed | Failed | Demand | TriggerSet | TriggerCleared | Cleared | Delivered,
) -> None:
    match event:
        case Completed():
            for ripple in _executing(pond, event):
                complete_ripple_run(state, ripple, version=event.version)
        case Failed():
            for ripple in _executing(pond, event):
                fail_ripple_run(state, ripple)
        case Demand():
            demand_once(state, pond, event.kind, event.target)
        case TriggerSet():
            pond.triggers[event.trigger.id] = event.trigger
            state.touch(pond)
        case TriggerCleared():
            if event.id is None:
                pond.triggers.clear()
            else:
                pond.triggers.pop(event.id, None)
            state.touch(pond)
        case Cleared():
            clear_failure(state, pond)
        case Delivered():
            deliver(state, pond)
        case _:
            assert_never(event)


def _executing(pond: Pond, event: Completed | Failed) -> list[Ripple]:
    """The ripple whose execution under way the event is about, if there is one."""
    return [
        ripple
        for ripple in pond.ripples
        if ripple.spec.name == event.ripple and ripple.running and ripple.start_freshness == event.freshness
    ]


def _start_all(state: State) -> None:
    """Decides starts one at a time, in order, until nothing can start and no trigger demands anything."""
    ready_ponds, ready_ripples, to_look = state.ready_ponds, state.ready_ripples, state.to_look
    while True:
        if ready_ponds:
            pond = state.pond_at[heappop(ready_ponds)]
            pond.queued = False
            start_pond_run_if_due(state, pond)
        elif ready_ripples:
            ripple = state.ripple_at[heappop(ready_ripples)]
            ripple.queued = False
            start_ripple_run_if_due(state, ripple)
        elif to_look:
            while to_look:
                pond = state.pond_at[heappop(to_look)]
                pond.looked_for = False
                look_at_triggers(state, pond)
        else:
            return


def _wake_up(state: State) -> None:
    """Queues the ponds whose time has come."""
    while state.timers and state.timers[0][0] <= state.now:
        time, name = heappop(state.timers)
        pond = state.ponds.get(name)
        if pond is not None and pond.wake == time:
            pond.wake = None
            state.touch(pond)
            if pond.needed_freshness is not None:
                state.queue_pond(pond)


def _close(state: State) -> tuple[list[Effect], list[str]]:
    """Sets the timers of the touched ponds, and returns the effects and names that the step has gathered."""
    for pond in state.touched:
        pond.touched = False
        if pond.triggers or not pond.sources:
            _set_timer(state, pond)
    if len(state.timers) > 64 + 2 * len(state.ponds):
        state.timers = [(pond.wake, pond.name) for pond in state.ponds.values() if pond.wake is not None]
        heapify(state.timers)
    earliest = _earliest(state) if state.timers else None
    if earliest != state.announced:
        state.announced = earliest
        state.effects.append(WakeAt(earliest))
    effects, touched = state.effects, [pond.name for pond in state.touched]
    state.effects, state.touched = [], []
    return effects, touched


def _set_timer(state: State, pond: Pond) -> None:
    wake = inlet_wake(pond, state.now) if pond.needed_freshness is not None and not pond.sources else None
    if pond.triggers:
        trigger = trigger_wake(pond, now=state.now)
        wake = trigger if wake is None or (trigger is not None and trigger < wake) else wake
    if wake != pond.wake:
        pond.wake = wake
        if wake is not None:
            heappush(state.timers, (wake, pond.name))


def _earliest(state: State) -> int | None:
    while state.timers:
        time, name = state.timers[0]
        pond = state.ponds.get(name)
        if pond is not None and pond.wake == time:
            return time
        heappop(state.timers)
    return None

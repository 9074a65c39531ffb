"""Demand travels upstream: a pull asks for resupply, a push asks for a freshness.

Each rule works through its own list, without recursion. The order in which demand arrives does not matter: demand only
sets flags and adds targets, and none of them decides about another.
"""

from __future__ import annotations

from headwater.freshness.gates import refresh_pond, refresh_ripple
from headwater.freshness.state import Pond, Ripple, State, add_target


def receive_pull(state: State, pond: Pond) -> None:
    """The pond is asked for resupply, by a trigger or by a sink. A blocked pond takes no demand.

    From a cold start the pull reaches the whole pond. While the pond runs, it reaches only the leaves.
    """
    asked = [pond]
    while asked:
        pond = asked.pop()
        if pond.blocked:
            continue
        if pond.start_freshness == pond.end_freshness:
            for ripple in pond.ripples:
                if not ripple.has_pull:
                    ripple.has_pull = True
                    refresh_ripple(state, ripple)
            _pull_becomes_true(state, pond, asked)
        else:
            for leaf in pond.leaves:
                _pull_ripple(state, leaf, asked)
        state.touch(pond)


def take_pull(state: State, ripple: Ripple) -> None:
    """A ripple that starts with pull asks all its parents for resupply."""
    if not ripple.has_pull:
        return
    ripple.has_pull, ripple.pulled_freshness = False, ripple.start_freshness
    asked: list[Pond] = []
    for parent in ripple.parents:
        _pull_ripple(state, parent, asked)
    for pond in asked:
        receive_pull(state, pond)


def receive_target(state: State, pond: Pond, target: int) -> None:
    """The pond is asked to become at least this fresh; so are, at once, the ponds that gate it."""
    asked = [pond]
    while asked:
        pond = asked.pop()
        if pond.blocked or (target <= pond.end_freshness and not pond.is_due):
            continue
        if add_target(pond.targets, target):
            refresh_pond(state, pond)
            state.touch(pond)
            asked.extend(pond.push_sources)


def resend_demand(state: State, pond: Pond) -> None:
    """A pond that was unblocked tells its sources what it still waits for, and its readers tell it."""
    for source in pond.push_sources:
        for target in tuple(pond.targets):
            receive_target(state, source, target)
    if pond.has_pull:
        for source in pond.sources:
            if source.start_freshness <= pond.start_freshness:
                receive_pull(state, source)
    for sink in pond.sinks:
        if sink.blocked:
            continue
        if pond in sink.push_sources:
            for target in tuple(sink.targets):
                receive_target(state, pond, target)
        if sink.has_pull and pond.start_freshness <= sink.start_freshness:
            receive_pull(state, pond)


def stamp(state: State, ripple: Ripple, target: int) -> None:
    """The run start, or a retry, tells a ripple to reach this freshness."""
    if target > ripple.end_freshness and add_target(ripple.targets, target):
        refresh_ripple(state, ripple)


def _pull_becomes_true(state: State, pond: Pond, asked: list[Pond]) -> None:
    """Cold-start propagation: adds to `asked` the sources that have not started work ahead of this pond."""
    if pond.has_pull:
        return
    pond.has_pull = True
    refresh_pond(state, pond)
    state.touch(pond)
    if not pond.blocked:
        asked.extend(source for source in pond.sources if source.start_freshness <= pond.start_freshness)


def _pull_ripple(state: State, ripple: Ripple, asked: list[Pond]) -> None:
    """The ripple's pull becomes true; it goes on to parents that have not started work ahead of it."""
    pulled = [ripple]
    while pulled:
        ripple = pulled.pop()
        if ripple.has_pull:
            continue
        ripple.has_pull = True
        refresh_ripple(state, ripple)
        if ripple.parents:
            pulled.extend(parent for parent in ripple.parents if parent.start_freshness <= ripple.start_freshness)
        else:
            _pull_becomes_true(state, ripple.pond, asked)

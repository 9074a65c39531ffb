"""Changes of the graph while it runs: what is still valid stays.

Links, order and gates are made anew for the whole graph: the cost of a change grows with the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.freshness.events import GraphChanged
from headwater.freshness.faults import set_blocked
from headwater.freshness.gates import refresh_pond, refresh_ripple
from headwater.freshness.graph import PondSpec, check_graph, depths
from headwater.freshness.runs import forget_execution, make_due, restamp, settle_runs
from headwater.freshness.state import Pond, Ripple, State
from headwater.freshness.upstream import resend_demand


def change_graph(state: State, change: GraphChanged) -> None:
    """Adds, replaces and removes ponds. Raises GraphError, and changes nothing, if the result is not a valid graph.

    A new ripple, a ripple whose definition changed, and all ripples of the pond that read one, will be executed again:
    the pond becomes due. Executions of removed ripples are forgotten; their completion will be ignored.
    """
    specs = {name: pond.spec for name, pond in state.ponds.items() if name not in change.removed}
    specs.update({spec.name: spec for spec in change.ponds})
    check_graph(specs)
    for name in change.removed:
        gone = state.ponds.pop(name, None)
        for ripple in gone.ripples if gone is not None else ():
            forget_execution(state, ripple)
    changed = []
    for spec in change.ponds:
        pond = state.ponds.get(spec.name)
        if pond is None:
            pond = state.ponds[spec.name] = Pond(spec)
        _change_pond(state, pond, spec)
        changed.append(pond)
    derive(state)
    for pond in state.ponds.values():
        set_blocked(state, pond)
    for pond in changed:
        _go_on(state, pond)


def derive(state: State) -> None:
    """Makes links, order and gates from the ponds' specs and records."""
    ponds = state.ponds
    for pond in ponds.values():
        pond.sinks, pond.required_by = [], []
        pond.waiters = {}
        pond.sources = tuple(ponds[name] for name in pond.spec.sources)
        pond.push_sources = tuple(ponds[name] for name in pond.spec.required) or pond.sources
        pond.gated_by_all = bool(pond.spec.required) or not pond.sources
        pond.needed_freshness, pond.behind = None, 0
    for pond in ponds.values():
        pond.blocked_sources = sum(ponds[name].blocked for name in pond.spec.required)
        for source in pond.sources:
            source.sinks.append(pond)
            if source.name in pond.spec.required:
                source.required_by.append(pond)
    _put_in_order(state)
    for pond in ponds.values():
        for ripple in pond.ripples:
            refresh_ripple(state, ripple)
        refresh_pond(state, pond)
        if pond.triggers:
            state.touch(pond)


def link_ripples(pond: Pond, ripples: Iterable[Ripple]) -> None:
    """Gives the pond these ripples, with their parents, children, roots and leaves."""
    pond.ripples = tuple(ripples)
    named = {ripple.spec.name: ripple for ripple in pond.ripples}
    children: dict[str, list[Ripple]] = {name: [] for name in named}
    for ripple in pond.ripples:
        ripple.parents = tuple(named[name] for name in dict.fromkeys(ripple.spec.after))
        for parent in ripple.parents:
            children[parent.spec.name].append(ripple)
    for ripple in pond.ripples:
        ripple.children = tuple(children[ripple.spec.name])
    pond.roots = tuple(ripple for ripple in pond.ripples if not ripple.parents)
    pond.leaves = tuple(ripple for ripple in pond.ripples if not ripple.children)
    pond.running = sum(ripple.running for ripple in pond.ripples)
    pond.find_lowest()


def _change_pond(state: State, pond: Pond, spec: PondSpec) -> None:
    was = {ripple.spec.name: ripple for ripple in pond.ripples}
    new_sources = pond.spec.sources != spec.sources
    pond.spec = spec
    ripples = []
    stale = []
    for ripple_spec in spec.ripples:
        ripple = was.get(ripple_spec.name)
        if ripple is None:
            ripple = Ripple(pond, ripple_spec)
            stale.append(ripple)
        elif ripple.spec != ripple_spec or new_sources:
            stale.append(ripple)
        ripple.spec = ripple_spec
        ripples.append(ripple)
    for name in was.keys() - {ripple.spec.name for ripple in ripples}:
        forget_execution(state, was[name])
    link_ripples(pond, ripples)
    make_due(state, pond, stale)


def _go_on(state: State, pond: Pond) -> None:
    """Sends the pond's demand to its new ripples and sources; a run may now be complete."""
    restamp(state, pond)
    settle_runs(state, pond)
    if not pond.blocked:
        resend_demand(state, pond)
    state.touch(pond)


def _put_in_order(state: State) -> None:
    """Furthest downstream first, then as declared; ripples by their pond, then the same inside it."""
    ponds = state.ponds
    pond_depths = depths({name: pond.spec.sources for name, pond in ponds.items()})
    queued_ponds = [pond for pond in ponds.values() if pond.queued]
    queued_ripples = [ripple for pond in ponds.values() for ripple in pond.ripples if ripple.queued]
    looked_for = [pond for pond in ponds.values() if pond.looked_for]
    state.pond_at = sorted(ponds.values(), key=lambda pond: -pond_depths[pond.name])
    state.ripple_at = []
    for order, pond in enumerate(state.pond_at):
        pond.order, pond.depth = order, pond_depths[pond.name]
        after = {ripple.spec.name: ripple.spec.after for ripple in pond.ripples}
        ripple_depths = depths(after)
        state.ripple_at.extend(sorted(pond.ripples, key=lambda ripple: -ripple_depths[ripple.spec.name]))
    for order, ripple in enumerate(state.ripple_at):
        ripple.order = order
    state.ready_ponds = sorted(pond.order for pond in queued_ponds)
    state.ready_ripples = sorted(ripple.order for ripple in queued_ripples)
    state.to_look = sorted(pond.order for pond in looked_for)

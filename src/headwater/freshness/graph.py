"""The graph as declared: ponds, their ripples, which ponds they read. Checked, and put in order.

An Inlet is a pond without sources. Starts are decided in this order: furthest downstream first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.freshness.windows import Windows


class GraphError(ValueError):
    """An invalid graph: a name that does not exist, a name twice, a cycle, windows on a pond with sources."""


@dataclass(frozen=True)
class RippleNode:
    """One step. `reads` names the sources whose tables it reads; without it a root ripple reads all.

    `fingerprint` identifies what the ripple does; a change of it makes the ripple due.
    """

    name: str
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class PondSpec:
    """One pond. `min_interval` is the least time between two runs of an Inlet without windows, in microseconds."""

    name: str
    ripples: tuple[RippleNode, ...]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    windows: Windows | None = field(default=None, compare=False)
    min_interval: int = 1
    retry_immediately: int = 0
    retry_on_change: int = 0
    always_run: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Required sources first, then optional ones: the order of a cut."""
        return self.required + self.optional


def check_graph(ponds: Mapping[str, PondSpec]) -> None:
    """Raises GraphError for the first thing that is wrong with the graph as a whole."""
    for pond in ponds.values():
        _check_pond(pond, ponds)
    depths({pond.name: pond.sources for pond in ponds.values()})


def depths(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The longest path to each node from a node without parents. Raises GraphError, naming a node, on a cycle."""
    waiting = {name: len(set(above)) for name, above in parents.items()}
    children: dict[str, list[str]] = {name: [] for name in waiting}
    for name, above in parents.items():
        for parent in set(above):
            children[parent].append(name)
    depth = {name: 0 for name, count in waiting.items() if count == 0}
    reached = list(depth)
    for name in reached:
        for child in children[name]:
            depth[child] = max(depth.get(child, 0), depth[name] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                reached.append(child)
    if len(reached) < len(waiting):
        stuck = next(name for name, count in waiting.items() if count > 0)
        raise GraphError(f"`{stuck}` is part of, or behind, a cycle")
    return depth


def _check_pond(pond: PondSpec, ponds: Mapping[str, PondSpec]) -> None:
    if not pond.ripples:
        raise GraphError(f"pond `{pond.name}` has no ripple")
    if len(set(pond.sources)) < len(pond.sources):
        raise GraphError(f"pond `{pond.name}` names a source twice")
    for source in pond.sources:
        if source not in ponds:
            raise GraphError(f"pond `{pond.name}` reads `{source}`, which does not exist")
    if pond.windows is not None and pond.sources:
        raise GraphError(f"pond `{pond.name}` has sources and windows; windows are for Inlets")
    if pond.min_interval < 1:
        raise GraphError(f"pond `{pond.name}` has a min_interval below one microsecond")
    after = {ripple.name: ripple.after for ripple in pond.ripples}
    if len(after) < len(pond.ripples):
        raise GraphError(f"pond `{pond.name}` has two ripples of one name")
    for ripple in pond.ripples:
        for parent in ripple.after:
            if parent not in after:
                raise GraphError(f"ripple `{pond.name}.{ripple.name}` is after `{parent}`, which does not exist")
        for source in ripple.reads or ():
            if source not in pond.sources:
                raise GraphError(f"ripple `{pond.name}.{ripple.name}` reads `{source}`, which is no source of its pond")
    depths(after)

"""Change gating: the freshness at which a pond or ripple would start, and how many of its parents are behind that.

`needed_freshness` is the least freshness of its inputs at which it would start, None without demand; `behind` counts
the parents that have not reached it. A parent that advances checks only the ponds or ripples that wait for it, so the
cost of a completion depends on how many it releases, not on how many read the same pond.
"""

from __future__ import annotations

from bisect import bisect_left

from headwater.freshness.state import NEVER, Pond, Ripple, State


def refresh_pond(state: State, pond: Pond) -> None:
    """Must be called whenever the pond's demand, its start_freshness or its failure has changed."""
    need = _need_of_pond(pond)
    if need != pond.needed_freshness:
        pond.needed_freshness = need
        if need is not None and pond.push_sources:
            _count_behind(pond, need)
    if need is not None and not pond.behind:
        state.queue_pond(pond)


def refresh_ripple(state: State, ripple: Ripple) -> None:
    """Must be called whenever the ripple's demand, its start_freshness or (for a root) the pond's has changed."""
    need = None
    if not ripple.running:
        if ripple.targets:
            need = ripple.targets[0]
        if ripple.has_pull and (need is None or ripple.start_freshness < need):
            need = ripple.start_freshness + 1
    ripple.needed_freshness = need
    if need is None:
        return
    behind = 0
    if ripple.parents:
        for parent in ripple.parents:
            if parent.end_freshness < need:
                behind += 1
    elif ripple.pond.start_freshness < need:
        behind = 1
    ripple.behind = behind
    if not behind:
        state.queue_ripple(ripple)


def release_sinks(state: State, pond: Pond, before: int) -> None:
    """The pond's end_freshness has advanced from `before`: sinks that waited for that may start."""
    waiters = pond.waiters
    if not waiters:
        return
    reached = pond.end_freshness
    gone = []
    for sink in waiters:
        need = sink.needed_freshness
        if need is not None and need > reached:
            continue
        gone.append(sink)
        if need is None or not sink.behind or need <= before:
            continue
        sink.behind = sink.behind - 1 if sink.gated_by_all else 0
        if not sink.behind:
            state.queue_pond(sink)
    if len(gone) == len(waiters):
        waiters.clear()
    else:
        for sink in gone:
            del waiters[sink]


def release_children(state: State, ripple: Ripple, before: int) -> None:
    """The ripple's end_freshness has advanced from `before`: children in its pond may start."""
    reached = ripple.end_freshness
    for child in ripple.children:
        need = child.needed_freshness
        if need is not None and need <= reached:
            if before < need:
                child.behind -= 1
            if not child.behind:
                state.queue_ripple(child)


def _need_of_pond(pond: Pond) -> int | None:
    if pond.failed:
        return pond.start_freshness + 1 if pond.failures <= pond.spec.retry_on_change else None
    if not pond.has_pull and not pond.targets:
        return None
    again = pond.is_due and pond.start_freshness != NEVER and pond.run_at(pond.start_freshness) is None
    floor = pond.start_freshness if again else pond.start_freshness + 1
    if pond.has_pull:
        return floor
    if again:
        return max(floor, pond.targets[0])
    # Targets up to start_freshness wait for the run in flight, which covers them.
    covered = bisect_left(pond.targets, floor)
    return pond.targets[covered] if covered < len(pond.targets) else None


def _count_behind(pond: Pond, need: int) -> None:
    late = [source for source in pond.push_sources if source.end_freshness < need]
    if pond.gated_by_all:
        pond.behind = len(late)
    else:
        pond.behind = 1 if len(late) == len(pond.push_sources) else 0
    for source in late:
        source.waiters[pond] = None

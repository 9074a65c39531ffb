"""Pond runs and ripple runs: when they start, what starting does, what completing does."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.freshness.events import (
    CancelRipple,
    PondRunStarted,
    RippleCompleted,
    RipplePassed,
    RunCompleted,
    RunPassed,
    RunSuperseded,
    SourceCut,
    StartRipple,
    Version,
)
from headwater.freshness.faults import recover
from headwater.freshness.gates import refresh_pond, refresh_ripple, release_children, release_sinks
from headwater.freshness.state import NEVER, Pond, Ripple, Run, State, take_targets
from headwater.freshness.triggers import retap
from headwater.freshness.upstream import receive_pull, stamp, take_pull


def source_freshness(pond: Pond, now: int) -> tuple[int, int] | None:
    """The freshness that the pond's sources offer now, with its delay D; None while they offer nothing.

    For an Inlet it is the end of its open window, or now. For other ponds it is that of the stalest required source,
    or, if all are optional, of the freshest.
    """
    if pond.push_sources:
        ends = [source.end_freshness for source in pond.push_sources]
        offered = min(ends) if pond.gated_by_all else max(ends)
        if offered == NEVER:
            return None
        return offered, max(source.delay_end for source in pond.push_sources if source.end_freshness == offered)
    if pond.spec.windows is not None:
        window = pond.spec.windows.current(now)
        return (window[1], window[1] - window[0]) if window else None
    return (now, 0) if now >= _next_look(pond) else None


def inlet_wake(pond: Pond, now: int) -> int | None:
    """When an Inlet that holds demand may poll its source again; None if no later time allows it."""
    assert pond.needed_freshness is not None
    if pond.spec.windows is not None:
        window = pond.spec.windows.current(now)
        is_enough = window is not None and window[1] >= pond.needed_freshness
        return None if is_enough else pond.spec.windows.next_start(now, pond.needed_freshness)
    look = _next_look(pond)
    return look if look > now else None


def _next_look(pond: Pond) -> int:
    """When an Inlet without windows may poll its source again: after its interval, or at once if the source has
    something new. Two runs never have the same freshness."""
    if pond.start_freshness == NEVER:
        return NEVER
    return pond.start_freshness + (1 if pond.delivered else pond.spec.min_interval)


def deliver(state: State, pond: Pond) -> None:
    """The source has something new, which the next run will find."""
    if pond.is_inlet and pond.spec.windows is None and not pond.delivered:
        pond.delivered = True
        state.touch(pond)
        if pond.needed_freshness is not None:
            state.queue_pond(pond)


def start_pond_run_if_due(state: State, pond: Pond) -> None:
    """Starts a pond run if there is demand for it (or a retry on change) and the sources offer enough."""
    need = pond.needed_freshness
    if need is None or pond.behind:
        return
    if pond.failed and (pond.running or any(is_startable(ripple) for ripple in pond.ripples)):
        return
    if pond.running and pond.is_inlet and any(root.running for root in pond.roots):
        return
    offer = source_freshness(pond, state.now)
    if offer is not None and offer[0] >= need:
        _start_pond_run(state, pond, *offer)


def start_ripple_run_if_due(state: State, ripple: Ripple) -> None:
    """Starts the ripple if its inputs satisfy its oldest target, or are fresher than it and there is pull."""
    if not is_startable(ripple):
        return
    pond, freshness = ripple.pond, offered_freshness(ripple)
    ripple.start_freshness = freshness
    if ripple.targets:
        take_targets(ripple.targets, freshness)
    take_pull(state, ripple)
    state.touch(pond)
    _execute_or_pass(state, ripple)


def complete_ripple_run(state: State, ripple: Ripple, *, version: Version) -> None:
    """An execution succeeded: its version counts, and what waited for this ripple may go on."""
    state.effects.append(RippleCompleted(ripple.pond.name, ripple.spec.name, ripple.start_freshness))
    ripple.running = False
    ripple.pond.running -= 1
    ripple.inputs = ripple.running_inputs
    ripple.version = version
    runs = ripple.pond.runs
    if runs:  # it counts for its own run; if that was abandoned, for the newest
        (ripple.pond.run_at(ripple.start_freshness) or runs[-1]).executed = True
    if ripple.outdated:
        ripple.outdated = False
        ripple.start_freshness = ripple.end_freshness
        state.touch(ripple.pond)
        refresh_ripple(state, ripple)
        refresh_pond(state, ripple.pond)
        return
    _advance(state, ripple)


def has_new_definition(ripple: Ripple) -> bool:
    """Whether its last execution had another definition."""
    return ripple.inputs is not None and not ripple.inputs.startswith(repr((ripple.spec.fingerprint,))[:-1])


def is_startable(ripple: Ripple) -> bool:
    """Not running, there is demand, its parents have reached what it needs, and a run of that freshness is in flight.

    A new ripple in an idle pond may have demand before there is a run: it waits for one. A ripple that failed goes on in
    a fresher run that is in flight already, which may end the failure, but not once the pond has given up.
    """
    if (
        ripple.needed_freshness is None
        or ripple.running
        or (ripple.failed_freshness > ripple.end_freshness and ripple.pond.is_given_up)
    ):
        return False
    offered = offered_freshness(ripple)
    return offered >= ripple.needed_freshness and ripple.pond.run_at(offered) is not None


def offered_freshness(ripple: Ripple) -> int:
    """The freshness of its stalest parent; for a root, of the pond's newest run."""
    if ripple.parents:
        return min([parent.end_freshness for parent in ripple.parents])
    return ripple.pond.start_freshness


def settle_runs(state: State, pond: Pond) -> None:
    """Ends the runs in flight whose freshness all ripples have reached: the newest as completed, the others as
    superseded."""
    done = []
    for run in pond.runs:
        if run.freshness > pond.lowest_freshness or run.abandoned:
            break
        done.append(run)
    if not done:
        return
    del pond.runs[: len(done)]
    newest, before, executed = done[-1], pond.end_freshness, False
    for run in done:
        executed = executed or run.executed
        if run is not newest and not run.gave_up:
            state.effects.append(RunSuperseded(pond.name, run.freshness))
    pond.end_freshness, pond.delay_end = newest.freshness, newest.delay
    pond.retried = 0
    pond.published = tuple([(ripple.spec.name, ripple.version_at(pond.end_freshness)) for ripple in pond.ripples])
    if pond.targets:
        take_targets(pond.targets, pond.end_freshness)
    state.effects.append((RunCompleted if executed else RunPassed)(pond.name, pond.end_freshness, pond.delay_end))
    if executed and pond.end_freshness == before:
        _make_sinks_due(state, pond)
    release_sinks(state, pond, before)
    refresh_pond(state, pond)
    recover(state, pond)
    if pond.triggers:
        retap(state, pond)


def restamp(state: State, pond: Pond) -> None:
    """Every ripple must reach the freshness of the runs in flight, also one that is new or due again."""
    for run in pond.runs:
        if not run.gave_up and not run.abandoned:
            for ripple in pond.ripples:
                stamp(state, ripple, run.freshness)


def make_due(state: State, pond: Pond, ripples: Iterable[Ripple]) -> None:
    """These ripples, and all that read them in the pond, must run again, if need be at the pond's present freshness.

    An execution of one of them that is under way is forgotten: its result is not wanted any more.
    """
    stale = list(ripples)
    for ripple in stale:
        stale.extend(child for child in ripple.children if child not in stale)
        forget_execution(state, ripple)
        ripple.start_freshness = ripple.end_freshness = NEVER
        ripple.past_versions.clear()
    pond.is_due = pond.is_due or (bool(stale) and pond.end_freshness != NEVER)
    pond.find_lowest()


def forget_execution(state: State, ripple: Ripple) -> None:
    """Its completion will be ignored."""
    if ripple.running:
        ripple.running = ripple.outdated = False
        ripple.pond.running -= 1
        state.effects.append(CancelRipple(ripple.pond.name, ripple.spec.name, ripple.start_freshness))


def _start_pond_run(state: State, pond: Pond, freshness: int, delay: int) -> None:
    """Takes the pull and every target that this freshness satisfies, asks the sources for more, tells the ripples."""
    run = Run(freshness, delay, _cut(pond))
    abandoned = pond.runs.pop() if pond.runs and pond.runs[-1].abandoned else None
    pond.start_freshness, pond.delay_start = freshness, delay
    run.took_pull, pond.has_pull = pond.has_pull, False
    if pond.targets:
        run.taken = take_targets(pond.targets, freshness)
    pond.is_due = pond.delivered = False
    pond.runs.append(run)
    state.effects.append(PondRunStarted(pond.name, freshness, delay))
    refresh_pond(state, pond)
    state.touch(pond)
    # A pull asks all sources for resupply, required and optional. A blocked pond consumes what its sources have, but
    # never asks them for more.
    for source in pond.sources if run.took_pull and not pond.blocked else ():
        receive_pull(state, source)
    if abandoned is not None:
        _go_on_from(state, pond, abandoned, run)
    for ripple in pond.ripples:
        # An execution from before a clear that counts for this run is the one that the run asks for.
        if not (ripple.running and ripple.start_freshness == freshness and not ripple.outdated):
            stamp(state, ripple, freshness)
    if pond.lowest_freshness >= freshness:
        settle_runs(state, pond)


def _go_on_from(state: State, pond: Pond, abandoned: Run, run: Run) -> None:
    """A run begins after a clear. If it has the freshness of the abandoned run, what a ripple completed there counts,
    and so will what it executes there, provided that it reads the same in the new cut and all its parents' results
    count. Such a ripple does not start in this run: it passes on its pull now."""
    run.executed = abandoned.executed
    if run.freshness != abandoned.freshness:
        return
    outdated: set[Ripple] = set()
    for ripple in sorted(pond.ripples, key=lambda ripple: -ripple.order):
        reached = ripple.end_freshness == run.freshness
        if not reached and not (ripple.running and ripple.start_freshness == run.freshness):
            continue
        same = _parts_read(ripple, run.cut) == _parts_read(ripple, abandoned.cut)
        if same and not ripple.outdated and outdated.isdisjoint(ripple.parents):
            take_pull(state, ripple)
            continue
        outdated.add(ripple)
        if reached:
            ripple.start_freshness = ripple.end_freshness = pond.end_freshness
            ripple.past_versions = [past for past in ripple.past_versions if past[0] <= pond.end_freshness]
        else:
            ripple.outdated = True
    pond.find_lowest()
    for ripple in pond.ripples:
        refresh_ripple(state, ripple)


def _cut(pond: Pond) -> tuple[SourceCut, ...]:
    """The versions of the newest completed run of each source, as of now: what every ripple of the run will read."""
    return tuple(
        [
            SourceCut(source.name, None if source.end_freshness == NEVER else source.end_freshness, source.published)
            for source in pond.sources
        ]
    )


def _execute_or_pass(state: State, ripple: Ripple) -> None:
    """Executes the ripple, or lets it pass if it would read and do the same as in its last successful execution."""
    pond, freshness = ripple.pond, ripple.start_freshness
    run = pond.run_at(freshness)
    assert run is not None
    parents = tuple([(parent.spec.name, parent.version_at(freshness)) for parent in ripple.parents])
    ripple.running_inputs = None
    # An Inlet always executes: only a poll of its source shows whether something has changed.
    if pond.sources and not pond.spec.always_run:
        ripple.running_inputs = repr((ripple.spec.fingerprint, _parts_read(ripple, run.cut), parents))
        if ripple.running_inputs == ripple.inputs:
            state.effects.append(RipplePassed(pond.name, ripple.spec.name, freshness))
            _advance(state, ripple)
            return
    ripple.running = True
    ripple.needed_freshness = None
    pond.running += 1
    attempt = ripple.attempts + 1 if ripple.failed_freshness == freshness else 1
    state.effects.append(StartRipple(pond.name, ripple.spec.name, freshness, attempt, run.cut, parents))


def _parts_read(ripple: Ripple, cut: tuple[SourceCut, ...]) -> list[tuple[str, tuple[tuple[str, Version], ...] | None]]:
    """The versions in the cut of each source that the ripple reads itself."""
    reads = ripple.spec.reads
    if reads is None:
        return [] if ripple.parents else [(part.source, part.versions) for part in cut]
    return [(part.source, part.versions) for part in cut if part.source in reads]


def _advance(state: State, ripple: Ripple) -> None:
    """The ripple has reached start_freshness, by an execution or a pass."""
    pond, before = ripple.pond, ripple.end_freshness
    ripple.end_freshness = ripple.start_freshness
    if ripple.targets:
        take_targets(ripple.targets, ripple.end_freshness)
    if len(pond.ripples) > 1 and ripple.version is not None:
        ripple.past_versions = [past for past in ripple.past_versions if past[0] >= pond.lowest_freshness]
        ripple.past_versions.append((ripple.end_freshness, ripple.version))
    state.touch(pond)
    refresh_ripple(state, ripple)
    release_children(state, ripple, before)
    if before == pond.lowest_freshness:
        pond.ripples_at_lowest -= 1
        if not pond.ripples_at_lowest:
            pond.find_lowest()
            settle_runs(state, pond)
    # The next run may have waited for a root to stop, or for a failed pond to end its last execution.
    if pond.needed_freshness is not None:
        refresh_pond(state, pond)


def _make_sinks_due(state: State, pond: Pond) -> None:
    """The pond ran again at the freshness it had, because it had changed: its sinks must run again too."""
    for sink in pond.sinks:
        make_due(state, sink, [ripple for ripple in sink.ripples if _reads(ripple, pond)])
        restamp(state, sink)
        refresh_pond(state, sink)
        state.touch(sink)


def _reads(ripple: Ripple, source: Pond) -> bool:
    """Root ripples read all sources of their pond unless they say which."""
    return not ripple.parents if ripple.spec.reads is None else source.name in ripple.spec.reads

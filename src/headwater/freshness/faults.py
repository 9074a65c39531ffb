"""Fault tolerance: retries, failed and blocked ponds, recovery and clearing.

A failure blocks the pond and everything downstream that requires it. Nothing else travels downstream.
"""

from __future__ import annotations

from headwater.freshness.events import Blocked, RippleFailed, RunFailed, Unblocked
from headwater.freshness.gates import refresh_pond, refresh_ripple
from headwater.freshness.state import NEVER, Pond, Ripple, State, add_target
from headwater.freshness.upstream import receive_target, resend_demand, stamp


def fail_ripple_run(state: State, ripple: Ripple) -> None:
    """An execution failed: retry immediately while the pond's budget lasts; else its run gives up.

    New demand and new runs do not renew the budget; a run that completes or fails, and a clear, do.
    """
    pond, freshness = ripple.pond, ripple.start_freshness
    state.effects.append(RippleFailed(pond.name, ripple.spec.name, freshness))
    ripple.running = False
    ripple.attempts = ripple.attempts + 1 if ripple.failed_freshness == freshness else 1
    ripple.failed_freshness = freshness
    pond.running -= 1
    state.touch(pond)
    run = pond.run_at(freshness)
    if run is None or ripple.outdated:
        # Its run was abandoned: the failure has no consequence.
        ripple.outdated = False
        ripple.start_freshness = ripple.end_freshness
    elif not run.gave_up:
        if pond.retried < pond.spec.retry_immediately:
            pond.retried += 1
            stamp(state, ripple, freshness)
        else:
            run.gave_up = True
            pond.retried = 0
            pond.failed_freshness = max(pond.failed_freshness, freshness)
            pond.failures += 1
            pond.failed = True
            state.effects.append(RunFailed(pond.name, freshness))
            set_blocked(state, pond)
            _ask_for_change(state, pond, pulled=run.took_pull)
    refresh_ripple(state, ripple)
    refresh_pond(state, pond)


def recover(state: State, pond: Pond) -> None:
    """A run completed: one that is fresher than the failure ends the failure."""
    if pond.failed and pond.end_freshness > pond.failed_freshness:
        _forget_failure(state, pond)
        refresh_pond(state, pond)
        set_blocked(state, pond)


def clear_failure(state: State, pond: Pond) -> None:
    """Goes on. If the newest run failed, all runs are abandoned, and the pond gets back the demand that they had taken.
    If not, the runs that have not failed go on, and the newest takes over the demand of the failed ones.

    Does nothing to a pond that has not failed. An execution under way always goes on.
    """
    if not pond.failed:
        return
    if pond.runs and not pond.runs[-1].gave_up:
        _drop_failed_runs(pond)
    else:
        _abandon_runs(state, pond)
    _forget_failure(state, pond)
    state.touch(pond)
    refresh_pond(state, pond)
    set_blocked(state, pond)


def set_blocked(state: State, pond: Pond) -> None:
    """A pond is blocked if it failed or a required source is blocked. A change is passed to all sinks downstream."""
    changed = [pond] if _set_blocked(state, pond) else []
    for pond in changed:
        changed.extend(sink for sink in pond.required_by if _set_blocked(state, sink))
    # Demand is sent only when all flags are set: a pond that is asked too early would still refuse.
    for pond in sorted(changed, key=lambda changed_pond: (changed_pond.depth, -changed_pond.order)):
        if not pond.blocked:
            resend_demand(state, pond)


def culprit(pond: Pond) -> str:
    """The failed pond because of which this one is blocked."""
    while not pond.failed:
        pond = next(source for source in pond.sources if source.blocked and source.name in pond.spec.required)
    return pond.name


def _set_blocked(state: State, pond: Pond) -> bool:
    blocked = pond.failed or pond.blocked_sources > 0
    if blocked == pond.blocked:
        return False
    pond.blocked = blocked
    for sink in pond.required_by:
        sink.blocked_sources += 1 if blocked else -1
    state.touch(pond)
    state.effects.append(Blocked(pond.name) if blocked else Unblocked(pond.name))
    return True


def _ask_for_change(state: State, pond: Pond, *, pulled: bool) -> None:
    """Retry on change needs sources that move on. After a push the pond asks, once, each source that holds no demand."""
    if pulled or pond.failures > pond.spec.retry_on_change:
        return
    for source in pond.push_sources:
        if not source.has_pull and not source.targets:
            receive_target(state, source, state.now)


def _drop_failed_runs(pond: Pond) -> None:
    """The newest run has not failed: it satisfies what the failed ones were started for."""
    newest = pond.runs[-1]
    for run in pond.runs:
        if run.gave_up:
            newest.took_pull = newest.took_pull or run.took_pull
            newest.executed = newest.executed or run.executed
            for target in run.taken:
                add_target(newest.taken, target)
    pond.runs = [run for run in pond.runs if not run.gave_up]


def _abandon_runs(state: State, pond: Pond) -> None:
    """Puts the pond back to its last completed run, with all the demand that it holds or has taken since then."""
    pulled = pond.has_pull
    executed = False
    for run in pond.runs:
        pulled = pulled or run.took_pull
        for target in run.taken:
            if target > pond.end_freshness:
                add_target(pond.targets, target)
        run.abandoned, run.taken, run.took_pull = True, [], False
        executed = run.executed = run.executed or executed
    pond.runs = pond.runs[-1:]
    pond.start_freshness, pond.delay_start = pond.end_freshness, pond.delay_end
    for ripple in pond.ripples:
        ripple.targets.clear()
        ripple.has_pull = ripple.has_pull or ripple.pulled_freshness > pond.end_freshness
        ripple.pulled_freshness = NEVER
        if not ripple.running:
            ripple.start_freshness = ripple.end_freshness
        refresh_ripple(state, ripple)
    # A pull on a ripple needs a run: a target makes one, or the pond's own pull.
    pond.has_pull = pulled or (not pond.targets and any(ripple.has_pull for ripple in pond.ripples))


def _forget_failure(state: State, pond: Pond) -> None:
    pond.retried = 0
    pond.failed = False
    pond.failed_freshness = NEVER
    pond.failures = 0
    for ripple in pond.ripples:
        refresh_ripple(state, ripple)

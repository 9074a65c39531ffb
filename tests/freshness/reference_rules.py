"""The rules of the freshness theory, one function each, in the order in which the theory's text tells them."""

from __future__ import annotations

from freshness.reference_world import (
    NEVER,
    Execution,
    Pond,
    Ripple,
    Run,
    Trigger,
    Versions,
    World,
    cut_as_told,
    inputs_of,
    pond_source_d,
    pond_source_f,
    ripple_source_f,
    run_of,
    seconds,
    versions_of_newest_run,
)

# Demand


def pond_receives_pull(pond: Pond) -> None:
    if pond.is_blocked:
        return
    if pond.start_f == pond.end_f:  # cold start: wake the whole pond
        set_pond_pull(pond)
        for ripple in pond.ripples:
            set_ripple_pull(ripple)
    else:  # running: only sustain the leaves
        for ripple in pond.ripples:
            if ripple.is_leaf:
                set_ripple_pull(ripple)


def set_pond_pull(pond: Pond) -> None:
    if pond.has_pull:
        return
    pond.has_pull = True
    if not pond.is_blocked:
        pull_from_sources_not_ahead(pond)


def pull_from_sources_not_ahead(pond: Pond) -> None:
    for source in pond.sources:
        if source.start_f <= pond.start_f:
            pond_receives_pull(source)


def set_ripple_pull(ripple: Ripple) -> None:
    if ripple.has_pull:
        return
    ripple.has_pull = True
    if ripple.is_root:
        set_pond_pull(ripple.pond)
    for parent in ripple.parents:
        if parent.start_f <= ripple.start_f:
            set_ripple_pull(parent)


def pond_receives_target(pond: Pond, target: int) -> None:
    if pond.is_blocked or target <= pond.end_f or target in pond.targets:
        return
    pond.targets.add(target)
    for source in pond.push_sources:
        pond_receives_target(source, target)


def ripple_receives_target(ripple: Ripple, target: int) -> None:
    if target > ripple.end_f:
        ripple.targets.add(target)


# Starting


def pond_would_start(pond: Pond, source_f: int) -> bool:
    """Whether the pond would start a run if this were the freshness available to it."""
    if source_f == NEVER or source_f <= pond.start_f:
        return False
    if pond.is_inlet and any(ripple.is_root and ripple.is_running for ripple in pond.ripples):
        return False
    if pond.is_failed:
        at_work = any(ripple.is_running or ripple_may_start(ripple) for ripple in pond.ripples)
        return pond.failures <= pond.retry_on_change and not at_work
    not_covered = [target for target in pond.targets if target > pond.start_f]
    return pond.has_pull or any(target <= source_f for target in not_covered)


def pond_may_start(pond: Pond) -> bool:
    source_f = pond_source_f(pond)
    return source_f is not None and pond_would_start(pond, source_f)


def start_pond_run(pond: Pond) -> None:
    source_f = pond_source_f(pond)
    assert source_f is not None
    run = Run(source_f, pond_source_d(pond, source_f))
    run.cut = tuple(versions_of_newest_run(source) for source in pond.sources)
    run.took_pull = pond.has_pull
    run.taken = {target for target in pond.targets if target <= source_f}
    run.executed, pond.executed_for_no_run = pond.executed_for_no_run, False
    pond.runs.append(run)
    pond.start_f = run.f
    pond.has_delivery = False
    pond.start_d = run.d
    pond.has_pull = False
    pond.targets -= run.taken
    pond.world.say("run_started", pond, freshness=seconds(run.f))
    for source in pond.sources:
        source.newest_is_unread_run = False
        if run.took_pull and not pond.is_blocked:
            pond_receives_pull(source)
    if run.f == pond.abandoned_f:
        use_what_was_abandoned(pond, run)
    pond.abandoned_f = NEVER
    for ripple in pond.ripples:
        on_its_way = [
            execution
            for execution in pond.world.executions
            if execution.ripple is ripple and execution.f == run.f and not execution.is_outdated
        ]
        if not on_its_way:
            ripple_receives_target(ripple, run.f)
    settle(pond)


def use_what_was_abandoned(pond: Pond, run: Run) -> None:
    """The new run is as fresh as the abandoned one. A ripple that got there, or is on its way, counts if it read there
    what it would read now; it will not start, so it hands its pull on now. Else it has to execute again."""
    for ripple in sorted(pond.ripples, key=lambda ripple: ripple.depth):
        at_work = [execution for execution in pond.world.executions if execution.ripple is ripple]
        if ripple.end_f == run.f:
            read = ripple.read_at[run.f]
        elif at_work and at_work[0].f == run.f:
            read = at_work[0].inputs
            at_work[0].is_outdated = at_work[0].is_outdated or not would_read(ripple, run.f, read)
        else:
            continue
        if would_read(ripple, run.f, read) and not (at_work and at_work[0].is_outdated):
            hand_on_pull(ripple)
        elif ripple.end_f == run.f:
            del ripple.version_at[run.f]
            ripple.start_f = ripple.end_f = pond.end_f


def would_read(ripple: Ripple, f: int, read: Versions) -> bool:
    return all(parent.end_f >= f for parent in ripple.parents) and inputs_of(ripple, f) == read


def hand_on_pull(ripple: Ripple) -> None:
    if ripple.has_pull:
        ripple.has_pull = False
        ripple.pull_used_at = ripple.start_f
        for parent in ripple.parents:
            set_ripple_pull(parent)


def ripple_may_start(ripple: Ripple) -> bool:
    source_f = ripple_source_f(ripple)
    if ripple.is_running or run_of(ripple.pond, source_f) is None or waits_for_a_clear(ripple):
        return False
    meets_target = bool(ripple.targets) and source_f >= min(ripple.targets)
    return meets_target or (ripple.has_pull and source_f > ripple.start_f)


def waits_for_a_clear(ripple: Ripple) -> bool:
    """Its last execution failed, and its pond has failed as often as the retries on change allow, and twice at least: a
    fresher run in flight may make one failure good."""
    pond = ripple.pond
    last_failed = bool(ripple.failed_at) and ripple.failed_at[-1] > ripple.end_f
    return last_failed and pond.is_failed and pond.failures > max(1, pond.retry_on_change)


def start_ripple_run(ripple: Ripple) -> None:
    pond = ripple.pond
    ripple.start_f = ripple_source_f(ripple)
    hand_on_pull(ripple)
    ripple.targets = {target for target in ripple.targets if target > ripple.start_f}
    inputs = inputs_of(ripple, ripple.start_f)
    if not pond.is_inlet and not pond.always_run and inputs == ripple.inputs_of_last_success:
        pass_ripple_run(ripple, inputs)
        return
    attempt = 1 + ripple.failed_at.count(ripple.start_f)
    ripple.is_running = True
    ripple.starts += 1
    pond.world.executions.append(Execution(ripple, pond.world.now + ripple.duration, inputs))
    said = {"ripple": ripple.name, "freshness": seconds(ripple.start_f), "attempt": attempt}
    if pond.sources:
        said["cut"] = cut_as_told(pond, ripple.start_f)
    pond.world.say("ripple_started", pond, **said)


# Completing


def pass_ripple_run(ripple: Ripple, inputs: Versions) -> None:
    ripple.pond.world.say("ripple_passed", ripple.pond, ripple=ripple.name, freshness=seconds(ripple.start_f))
    ripple_reaches(ripple, ripple.start_f, inputs)


def complete_ripple_run(execution: Execution) -> None:
    ripple = execution.ripple
    pond = ripple.pond
    ripple.is_running = False
    ripple.completions += 1
    ripple.inputs_of_last_success = execution.inputs
    if ripple.version == 0 or not pond.reports_no_change:
        ripple.version += 1
    run = run_of(pond, execution.f) or (pond.runs[-1] if pond.runs else None)
    if run is None:
        pond.executed_for_no_run = True
    else:
        run.executed = True
    pond.world.say("ripple_completed", pond, ripple=ripple.name, freshness=seconds(execution.f))
    if execution.is_outdated:
        ripple.start_f = ripple.end_f
    else:
        ripple_reaches(ripple, execution.f, execution.inputs)


def ripple_reaches(ripple: Ripple, f: int, inputs: Versions) -> None:
    """An execution or a pass has brought the ripple to f."""
    ripple.end_f = f
    ripple.version_at[f] = ripple.version
    ripple.read_at[f] = inputs
    ripple.targets = {target for target in ripple.targets if target > f}
    settle(ripple.pond)


def settle(pond: Pond) -> None:
    """The newest run whose freshness all ripples have reached is complete."""
    reached = [run.f for run in pond.runs if all(ripple.end_f >= run.f for ripple in pond.ripples)]
    if reached:
        complete_pond_run(pond, max(reached))


def complete_pond_run(pond: Pond, f: int) -> None:
    done = [run for run in pond.runs if run.f <= f]
    newest = run_of(pond, f)
    assert newest is not None
    pond.end_f = f
    pond.end_d = newest.d
    pond.immediate_retries = 0
    pond.targets = {target for target in pond.targets if target > f}
    for run in done:
        if run.f < f and not run.gave_up:
            pond.world.say("run_superseded", pond, freshness=seconds(run.f))
    pond.runs = [run for run in pond.runs if run.f > f]
    executed = any(run.executed for run in done)
    pond.world.say("run_completed" if executed else "run_passed", pond, freshness=seconds(f))
    count_completion(pond, executed)
    if pond.is_failed and pond.end_f > pond.failed_f:
        forget_failure(pond)
    for trigger in pond.triggers:
        if trigger.kind == "wave":
            tap_by_wave(pond)


def count_completion(pond: Pond, executed: bool) -> None:
    if pond.newest_is_unread_run and pond.sinks:
        pond.waste += 1
    pond.newest_is_unread_run = executed
    pond.finished.append((pond.world.now, pond.end_f, pond.end_d))
    if executed:
        pond.completed_runs += 1
    else:
        pond.passes += 1


# Faults


def fail_ripple_run(execution: Execution) -> None:
    ripple = execution.ripple
    pond = ripple.pond
    ripple.is_running = False
    ripple.failed_at.append(execution.f)
    pond.world.say("ripple_failed", pond, ripple=ripple.name, freshness=seconds(execution.f))
    run = run_of(pond, execution.f)
    if run is None or execution.is_outdated:
        ripple.start_f = ripple.end_f
        return
    if run.gave_up:
        return
    if pond.immediate_retries < pond.retry_immediately:
        pond.immediate_retries += 1
        ripple_receives_target(ripple, run.f)
        return
    run.gave_up = True
    pond.immediate_retries = 0
    pond.failed_f = max(pond.failed_f, run.f)
    pond.failures += 1
    pond.is_failed = True
    pond.world.say("run_failed", pond, freshness=seconds(run.f))
    set_blocked(pond, True)
    ask_for_change(pond, run)


def ask_for_change(pond: Pond, failed: Run) -> None:
    """Under push nobody else would move the Sources on, and the retry could never be used."""
    if pond.failures <= pond.retry_on_change and not failed.took_pull:
        for source in [source for source in pond.push_sources if not source.has_pull and not source.targets]:
            pond_receives_target(source, pond.world.now)


def should_be_blocked(pond: Pond) -> bool:
    return pond.is_failed or any(source.is_failed or source.is_blocked for source in pond.required)


def set_blocked(pond: Pond, blocked: bool) -> None:
    if blocked == pond.is_blocked:
        return
    changed = [pond]
    pond.is_blocked = blocked
    pond.world.say("blocked" if blocked else "unblocked", pond)
    for upper in changed:  # grows while it is walked: breadth first
        for sink in upper.required_sinks:
            if should_be_blocked(sink) != sink.is_blocked:
                sink.is_blocked = blocked
                pond.world.say("blocked" if blocked else "unblocked", sink)
                changed.append(sink)
    if not blocked:
        for opened in sorted(changed, key=lambda opened: (opened.depth, pond.world.ponds.index(opened))):
            resend_demand(opened)


def resend_demand(opened: Pond) -> None:
    """What was refused while the pond was blocked, or kept back by it, is asked again."""
    for target in sorted(opened.targets):
        for source in opened.push_sources:
            pond_receives_target(source, target)
    if opened.has_pull:
        pull_from_sources_not_ahead(opened)
    for reader in opened.sinks:
        if reader.is_blocked:
            continue
        if opened in reader.push_sources:
            for target in sorted(reader.targets):
                pond_receives_target(opened, target)
        if reader.has_pull and opened.start_f <= reader.start_f:
            pond_receives_pull(opened)


def forget_failure(pond: Pond) -> None:
    pond.is_failed = False
    pond.failed_f = NEVER
    pond.failures = 0
    set_blocked(pond, should_be_blocked(pond))


def deliver(pond: Pond) -> None:
    """The source has something new: the next look need not wait."""
    pond.has_delivery = True


def clear(pond: Pond) -> None:
    if not pond.is_failed:
        return
    failed = [run for run in pond.runs if run.gave_up]
    if pond.runs and pond.runs[-1] not in failed:
        give_to_the_newest(pond, failed)
    else:
        abandon_all(pond)
    pond.immediate_retries = 0
    forget_failure(pond)


def give_to_the_newest(pond: Pond, failed: list[Run]) -> None:
    """Runs that have not failed go on; the newest is fresh enough for what the failed ones were to satisfy."""
    newest = pond.runs[-1]
    pond.runs = [run for run in pond.runs if run not in failed]
    for run in failed:
        newest.taken |= run.taken
        newest.took_pull = newest.took_pull or run.took_pull
        newest.executed = newest.executed or run.executed


def abandon_all(pond: Pond) -> None:
    """As if nothing had begun since the last completion: the demand that was used since then is there again."""
    for run in pond.runs:
        pond.targets |= {target for target in run.taken if target > pond.end_f}
        pond.has_pull = pond.has_pull or run.took_pull
        pond.executed_for_no_run = pond.executed_for_no_run or run.executed
        pond.abandoned_f = run.f
    pond.runs = []
    pond.start_f = pond.end_f
    pond.start_d = pond.end_d
    for ripple in pond.ripples:
        ripple.targets = set()
        if ripple.pull_used_at > pond.end_f:
            ripple.has_pull = True
        ripple.pull_used_at = NEVER
        if not ripple.is_running:
            ripple.start_f = ripple.end_f
    if not pond.targets and any(ripple.has_pull for ripple in pond.ripples):
        pond.has_pull = True


def failed_above(pond: Pond) -> Pond:
    """Why a pond is blocked."""
    while not pond.is_failed:
        pond = next(source for source in pond.required if source.is_blocked)
    return pond


# Triggers


def tap(pond: Pond) -> None:
    if pond.is_blocked:
        pond.world.say("demand_refused", pond, kind="tap", because=failed_above(pond).name)
        return
    pond.world.say("demand", pond, kind="tap")
    pond_receives_pull(pond)


def pulse(pond: Pond) -> None:
    if pond.is_blocked:
        pond.world.say("demand_refused", pond, kind="pulse", because=failed_above(pond).name)
        return
    pond.world.say("demand", pond, kind="pulse", target=seconds(pond.world.now))
    pond_receives_target(pond, pond.world.now)


def tap_by_wave(pond: Pond) -> None:
    if not pond.is_blocked:
        pond.world.say("demand", pond, kind="wave")
        pond_receives_pull(pond)


def set_trigger(pond: Pond, new: Trigger) -> None:
    for place, trigger in enumerate(pond.triggers):
        if trigger.trigger_id == new.trigger_id:
            pond.triggers[place] = new
            return
    pond.triggers.append(new)


def untrigger(pond: Pond, trigger_id: str | None) -> None:
    pond.triggers = [
        trigger for trigger in pond.triggers if trigger_id is not None and trigger.trigger_id != trigger_id
    ]


def wave_fires(pond: Pond) -> bool:
    return not (pond.is_blocked or pond.is_running or pond.has_pull)


def tide_fires(pond: Pond, limit: int) -> bool:
    now = pond.world.now
    if pond.is_blocked or now <= pond.end_f:
        return False
    age = now - max(pond.targets) if pond.targets else now + pond.start_d - pond.start_f
    return age >= limit


def look_at_standing_triggers(world: World) -> bool:
    """Whether any of them made a demand."""
    fired = False
    for pond in world.pond_order:
        if any(trigger.kind == "wave" for trigger in pond.triggers) and wave_fires(pond):
            tap_by_wave(pond)
            fired = True
        for trigger in pond.triggers:
            if trigger.kind == "tide" and tide_fires(pond, trigger.limit):
                world.say("demand", pond, kind="tide", target=seconds(world.now))
                pond_receives_target(pond, world.now)
                fired = True
    return fired


# Time


def wake_ups(world: World) -> list[int]:
    """The times at which something may start or fire although nothing else happens."""
    times = []
    for pond in world.ponds:
        if pond.is_inlet and not pond.windows and pond_source_f(pond) is None:
            due = pond.start_f + (1 if pond.has_delivery else pond.min_interval)
            if pond_would_start(pond, due):
                times.append(due)
        for start, end in pond.windows:
            if start > world.now and pond_would_start(pond, end):
                times.append(start)
        for trigger in pond.triggers:
            if trigger.kind == "tide" and not pond.is_blocked:
                since = max(pond.targets) if pond.targets else pond.start_f - pond.start_d
                times.append(pond.end_f + 1 if world.now <= pond.end_f else since + trigger.limit)
    return times

"""A project as a scenario: its own graph, windows and triggers, from this moment on.

Pure: measured durations and triggers are arguments. Time counts from now; nothing has run yet, and every scan of a
source is assumed to find something new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from headwater.catalog.standing_triggers import Standing
from headwater.freshness.graph import depths
from headwater.freshness.scenario import Scenario, ScenarioEvent
from headwater.freshness.state import SECOND
from headwater.manifest.load import Project
from headwater.runtime.calendars import cron_times, windows_of
from headwater.runtime.compile import Compiled, CompiledPipeline

UNMEASURED_US = SECOND
"""The assumed duration of an execution that was never measured."""


@dataclass(frozen=True)
class Durations:
    """Measured durations in microseconds: executions by pond and ripple, whole runs by pond."""

    ripples: Mapping[tuple[str, str], int]
    runs: Mapping[str, int]

    def of(self, pipeline: CompiledPipeline, ripple: str) -> int | None:
        """The duration of a ripple. If only whole runs were measured, it is an equal part of them: along the longest
        path through the pond, executions follow one another."""
        found = self.ripples.get((pipeline.id, ripple))
        if found is not None or pipeline.id not in self.runs:
            return found
        after = {each.name: each.after for each in pipeline.pond.ripples}
        return self.runs[pipeline.id] // (1 + max(depths(after).values()))


def own_scenario(
    project: Project,
    compiled: Compiled,
    *,
    now_us: int,
    until_us: int,
    durations: Durations,
    asked: Sequence[Standing] = (),
    what_if: Sequence[ScenarioEvent] = (),
    with_standing: bool = True,
) -> tuple[Scenario, tuple[str, ...]]:
    """The project from `now_us` on, for `until_us`, and the ripples whose duration is a guess. `asked` are the triggers
    that users set; `what_if` is added to the triggers, or replaces them."""
    ponds = tuple(replace(each.pond, windows=None) for each in compiled.pipelines.values())
    measured = {
        (each.id, ripple.name): durations.of(each, ripple.name)
        for each in compiled.pipelines.values()
        for ripple in each.pond.ripples
    }
    taken = {key: UNMEASURED_US if found is None else found for key, found in measured.items()}
    windows = {name: _windows(project, name, now_us, until_us) for name in compiled.pipelines}
    events: list[ScenarioEvent] = []
    if with_standing:
        for each in compiled.pipelines.values():
            events += _declared(each, now_us, until_us)
        for trigger in asked:
            events += _set_by_user(trigger, now_us) if trigger.pond in compiled.pipelines else []
    events += what_if
    unmeasured = tuple(
        f"{pond}.{ripple}" if pond != ripple else ripple for (pond, ripple), found in measured.items() if found is None
    )
    return Scenario(ponds, taken, windows, tuple(events), until_us), unmeasured


def _windows(project: Project, name: str, now_us: int, until_us: int) -> tuple[tuple[int, int], ...]:
    every = windows_of(project.pipeline(name).spec.windows, after_us=now_us)
    return tuple(
        (start - now_us, end - now_us) for start, end in takewhile(lambda each: each[0] <= now_us + until_us, every)
    )


def _declared(compiled: CompiledPipeline, now_us: int, until_us: int) -> list[ScenarioEvent]:
    """The triggers of a pipeline in the manifest; cron is a pulse at each tick."""
    found = [
        ScenarioEvent(0, trigger.kind, compiled.id, max_staleness=trigger.limit, trigger_id=trigger.id)
        for trigger in compiled.triggers
    ]
    for cron in compiled.crons:
        ticks = cron_times(cron.at, cron.timezone, after_us=now_us)
        for tick in takewhile(lambda at: at <= now_us + until_us, ticks):
            found.append(ScenarioEvent(tick - now_us, "pulse", compiled.id))
    return found


def _set_by_user(trigger: Standing, now_us: int) -> list[ScenarioEvent]:
    begins = ScenarioEvent(0, trigger.kind, trigger.pond, max_staleness=trigger.limit_us, trigger_id=trigger.trigger_id)
    if trigger.expires_us is None:
        return [begins]
    expires = max(0, trigger.expires_us - now_us)
    return [begins, ScenarioEvent(expires, "untrigger", trigger.pond, trigger_id=trigger.trigger_id)]

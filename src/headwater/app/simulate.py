"""The engine on virtual time: runs a scenario file, or the project itself with its measured durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.base.errors import HeadwaterError, Position
from headwater.freshness.graph import PondSpec, depths
from headwater.freshness.scenario import Scenario, ScenarioEvent
from headwater.freshness.state import SECOND

if TYPE_CHECKING:
    from headwater.app.workspace import Workspace
    from headwater.catalog.standing_triggers import Standing
    from headwater.freshness.account import Account
    from headwater.runtime.project_scenario import Durations

__all__ = ["SECOND", "PondSpec", "Scenario", "depths"]

DemandKind = Literal["tap", "pulse", "wave", "tide"]


@dataclass(frozen=True)
class Simulated:
    """A scenario and what happened in it; `answer` is that as plain JSON values. `unmeasured` are the ripples of a
    project whose durations are guessed."""

    scenario: Scenario
    account: Account
    unmeasured: tuple[str, ...] = ()

    @property
    def answer(self) -> dict[str, Any]:
        return self.account.as_json()


def simulate_file(path: Path) -> Simulated:
    """Run the scenario of a file. Raises HW-M13 with every mistake in it."""
    from headwater.app.read_scenario import read_scenario

    hint = "shorten `until`, or let a source rest between two scans: `min_interval`"
    return _simulated(read_scenario(path), hint=hint, places=(Position(str(path)),))


def demand_to_try(kind: DemandKind, text: str) -> ScenarioEvent:
    """Demand from the beginning, as an option gives it: `P`, or `P=15m` for a tide. Raises HW-U01 for anything else."""
    from headwater.manifest.durations import given_duration_us

    name, _, limit = text.partition("=")
    if kind == "tide" and not limit:
        raise HeadwaterError("HW-U01", f"`--tide {text}` does not say which staleness is allowed", hint="--tide P=15m")
    if kind != "tide" and limit:
        raise HeadwaterError("HW-U01", f"`--{kind} {text}`: a {kind} takes no limit", hint="--tide P=15m has one")
    limit_us = given_duration_us(limit) if limit else 0
    trigger = f"what if: {kind} {limit_us}" if kind in ("wave", "tide") else ""  # no other trigger has this name
    return ScenarioEvent(0, kind, name, max_staleness=limit_us, trigger_id=trigger)


def simulate_project(
    workspace: Workspace, *, until: str = "1h", what_if: Sequence[ScenarioEvent] = (), alone: bool = False
) -> Simulated:
    """Simulate the project's own pipelines from now on: its graph, its windows, its triggers, the measured durations of
    its runs. `what_if` is additional demand to try; with `alone`, it replaces the triggers. Writes nothing."""
    from headwater.base.clock import now_us
    from headwater.manifest.durations import given_duration_us
    from headwater.runtime.compile import compile_pipelines
    from headwater.runtime.project_scenario import own_scenario

    workspace.chosen([])
    for one in what_if:
        workspace.project.pipeline(one.pipeline)
    now = now_us()
    compiled = compile_pipelines(workspace.project, now_us=now)
    durations, asked = _remembered(workspace, tuple(compiled.pipelines))
    scenario, unmeasured = own_scenario(
        workspace.project,
        compiled,
        now_us=now,
        until_us=given_duration_us(until),
        durations=durations,
        asked=asked,
        what_if=what_if,
        with_standing=not alone,
    )
    hint = "shorten `--until`, or let a source rest between two scans: `poll`"
    return _simulated(scenario, unmeasured, hint=hint)


def _simulated(
    scenario: Scenario, unmeasured: tuple[str, ...] = (), *, hint: str, places: tuple[Position, ...] = ()
) -> Simulated:
    from headwater.freshness.virtual_time import EndlessScenario, simulate

    try:
        return Simulated(scenario, simulate(scenario), unmeasured)
    except EndlessScenario as error:
        raise HeadwaterError("HW-M13", str(error), hint=hint, places=places) from error


def _remembered(workspace: Workspace, pipelines: Sequence[str]) -> tuple[Durations, list[Standing]]:
    """The measured executions in the catalog, and the triggers that users set."""
    from headwater.runtime.project_scenario import Durations

    store = workspace.existing_store()
    if store is None:
        return Durations({}, {}), []
    from headwater.catalog.history import measured_us, run_us
    from headwater.catalog.standing_triggers import standing

    with store.catalog.snapshot() as connection:
        ripples = measured_us(connection, pipelines)
        runs = {name: us for name in pipelines if (us := run_us(connection, name)) is not None}
        return Durations(ripples, runs), standing(connection)

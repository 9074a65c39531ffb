"""The engine on virtual time: a scenario file read, checked and run; or the project itself, with what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position, raise_all
from headwater.base.limits import MAX_JSON_DEPTH
from headwater.freshness.scenario import SECOND, Scenario, ScenarioPipeline

if TYPE_CHECKING:
    from headwater.app.workspace import Workspace
    from headwater.catalog.standing_triggers import Standing
    from headwater.freshness.account import Account
    from headwater.freshness.scenario_problems import ScenarioProblem
    from headwater.manifest.positions import Positions
    from headwater.runtime.project_scenario import Durations, WhatIf

__all__ = ["SECOND", "Scenario", "ScenarioPipeline"]

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
    """Run the scenario of a file. Raises HW-M13 with everything that is wrong with it."""
    from headwater.freshness.virtual_time import EndlessScenario, simulate

    scenario = read_scenario(path)
    try:
        return Simulated(scenario, simulate(scenario))
    except EndlessScenario as error:
        hint = "shorten `until`, or let a source rest between two looks: `min_interval`"
        raise HeadwaterError("HW-M13", str(error), hint=hint, places=(Position(str(path)),)) from error


def demand_to_try(kind: DemandKind, text: str) -> WhatIf:
    """Demand as an option says it: `P`, or `P=15m` for a tide. Raises HW-U01 for anything else."""
    from headwater.manifest.durations import given_duration_us
    from headwater.runtime.project_scenario import WhatIf

    name, _, limit = text.partition("=")
    if kind == "tide" and not limit:
        raise HeadwaterError("HW-U01", f"`--tide {text}` does not say how stale is too stale", hint="--tide P=15m")
    if kind != "tide" and limit:
        raise HeadwaterError("HW-U01", f"`--{kind} {text}`: a {kind} knows no limit", hint="--tide P=15m has one")
    return WhatIf(name, kind, given_duration_us(limit) if limit else 0)


def simulate_project(
    workspace: Workspace, *, until: str = "1h", what_if: Sequence[WhatIf] = (), alone: bool = False
) -> Simulated:
    """The project's own pipelines from now on: its graph, its windows, the demand that stands, the durations that its
    runs measured. `what_if` is demand to try on top of what stands; `alone`, instead of it. Writes nothing."""
    from headwater.base.clock import now_us
    from headwater.freshness.virtual_time import EndlessScenario, simulate
    from headwater.manifest.durations import given_duration_us
    from headwater.runtime.compile import compile_pipelines
    from headwater.runtime.project_scenario import own_scenario

    workspace.chosen([])
    for one in what_if:
        workspace.project.pipeline(one.pipeline)
    now = now_us()
    compiled = compile_pipelines(workspace.project, now_us=now)
    durations, asked = _remembered(workspace, tuple(compiled.pipelines))
    own = own_scenario(
        workspace.project,
        compiled,
        now_us=now,
        until_us=given_duration_us(until),
        durations=durations,
        asked=asked,
        what_if=what_if,
        with_standing=not alone,
    )
    try:
        return Simulated(own.scenario, simulate(own.scenario), own.unmeasured)
    except EndlessScenario as error:
        hint = "shorten `--until`, or let a source rest between two looks: `poll`"
        raise HeadwaterError("HW-M13", str(error), hint=hint) from error


def _remembered(workspace: Workspace, pipelines: Sequence[str]) -> tuple[Durations, list[Standing]]:
    """What the catalog knows of executions, and the triggers that users set."""
    from headwater.runtime.project_scenario import Durations

    store = workspace.existing_store()
    if store is None:
        return Durations({}, {}), []
    from headwater.catalog.execution_times import measured_us, run_us
    from headwater.catalog.standing_triggers import standing

    with store.catalog.snapshot() as connection:
        ripples = measured_us(connection, pipelines)
        runs = {name: us for name in pipelines if (us := run_us(connection, name)) is not None}
        return Durations(ripples, runs), standing(connection)


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file. Raises every mistake in it, each with its line, in the order of the file."""
    from headwater.freshness.read_scenario import problems, scenario_of

    file = str(path)
    text = _text(path)
    value = _parse(file, text)
    found = problems(value)
    if found:
        _raise(file, text, found)
    return scenario_of(value)


def _text(path: Path) -> str:
    file = str(path)
    try:
        if path.is_dir():
            raise _unreadable(file, "it is a directory", "name a file: `headwater simulate SCENARIO.json`")
        if path.stat().st_size > limits.SCENARIO_BYTES:
            raise _unreadable(file, f"it is larger than {limits.SCENARIO_BYTES >> 20} MiB")
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise _unreadable(file, "there is no such file", _beside(path)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _unreadable(file, reason, "check the file and its permissions") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        place = Position(file, line, column)
        bad = HeadwaterError("HW-M13", f"`{file}` is not UTF-8 text", hint="save it as UTF-8", places=(place,))
        raise bad from error


def _beside(path: Path) -> str:
    """The file that was meant, if one in the same directory has nearly that name."""
    from headwater.base.errors import nearest

    try:
        stems = {other.stem: other for other in sorted(path.parent.iterdir()) if other.suffix == ".json"}
    except OSError:
        return ""
    meant = nearest(path.stem, stems)
    return f"did you mean `{stems[meant]}`?" if meant is not None else ""


def _parse(file: str, text: str) -> object:
    from headwater.manifest.scan_json import load_json

    try:
        return load_json(text)
    except RecursionError as error:
        raise _unreadable(file, f"it is nested deeper than {MAX_JSON_DEPTH} levels") from error
    except ValueError as error:
        _raise_faults(file, text, error)


def _raise_faults(file: str, text: str, error: ValueError) -> NoReturn:
    """What is wrong with a text that `json` refused, in our words and with our places."""
    from headwater.manifest.positions import Positions
    from headwater.manifest.scan_json import JsonFault, scan_json

    if not text.strip():
        hint = 'write a scenario into it: `{"pipelines": {...}, "events": [...]}`'
        raise HeadwaterError("HW-M13", f"`{file}` is empty", hint=hint, places=(Position(file, 1, 1),)) from error
    try:
        found = scan_json(text)
    except JsonFault as fault:
        place = Positions(text).position(file, fault.offset)
        hint = "JSON has no comments" if fault.message == "a comment" else fault.hint
        message = f"`{file}` is not valid JSON: {fault.message}"
        raise HeadwaterError("HW-M13", message, hint=hint, places=(place,)) from error
    except RecursionError:
        raise _unreadable(file, f"it is nested deeper than {MAX_JSON_DEPTH} levels") from error
    twice = [
        HeadwaterError(
            "HW-M13",
            f"the key `{duplicate.path[-1]}` stands twice",
            hint="keep one of them",
            places=(found.position(file, duplicate.first), found.position(file, duplicate.second)),
        )
        for duplicate in found.duplicates
    ]
    raise_all(twice, code="HW-M13", where="the scenario")
    raise _unreadable(file, "it has a number that is too long") from error


def _raise(file: str, text: str, found: list[ScenarioProblem]) -> NoReturn:
    from headwater.manifest.positions import Positions
    from headwater.manifest.scan_json import scan_json

    try:
        positions = scan_json(text)
    except RecursionError:  # nested too deep to be walked: the places are left out
        positions = Positions(text)
    errors = [
        HeadwaterError("HW-M13", problem.message, hint=problem.hint, places=_places(file, positions, problem))
        for problem in found
    ]
    raise_all(sorted(errors, key=_rank), code="HW-M13", where="the scenario")
    raise AssertionError("there is a problem")


def _places(file: str, positions: Positions, problem: ScenarioProblem) -> tuple[Position, ...]:
    """Where the problem stands, and what it clashes with; the whole file for what has no place in it."""
    if not problem.path:
        return (Position(file),)
    at = positions.of_key(file, problem.path) if problem.key else positions.of_value(file, problem.path)
    return (at, *(positions.of_value(file, path) for path in problem.also))


def _rank(error: HeadwaterError) -> tuple[bool, int, int]:
    """In the order of the file; what concerns all of it comes last."""
    place = error.places[0]
    return not place.line, place.line, place.column


def _unreadable(file: str, reason: str, hint: str = "") -> HeadwaterError:
    return HeadwaterError("HW-M13", f"cannot read `{file}`: {reason}", hint=hint, places=(Position(file),))

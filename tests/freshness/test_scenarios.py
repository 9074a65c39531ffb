"""The scenarios of `tests/scenarios/freshness`: each is one claim about the theory, with what must come out of it.

A file holds a `title` (the claim), `why` (the rule that it shows), a `scenario` as `headwater simulate` reads it, and
what to `expect`: under `pipelines` the fields that matter (objects are partial at every level, lists are exact), under
`timeline` partial entries that appear in this order, under `absent` partial entries that do not appear at all. The
engine and the naive interpreter must both answer so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from freshness.reference import reference_answer
from headwater.app.read_scenario import scenario_of
from headwater.freshness.virtual_time import simulate
from headwater.interfaces.cli.main import main

Json = dict[str, Any]

FILES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "scenarios" / "freshness").glob("*.json"))}
ANSWERED_BY: dict[str, Callable[[Json], Json]] = {
    "engine": lambda scenario: simulate(scenario_of(scenario)).as_json(),
    "reference": reference_answer,
}
SHOWN = 12
"""Entries of the timeline that a failure prints."""

ROWS = (
    "one-at-a-time",
    "live-inlets",
    "push-to-optional-sources",
    "pull-to-optional-sources",
    "push-start-needs-fresher-input",
    "target-that-a-run-in-flight-covers",
    "several-triggers",
    "wave",
    "tide",
    "d",
    "no-change-pass",
    "immediate-retries",
    "retry-on-change",
    "clearing-a-failure",
    "unblocking",
    "superseded",
    "retries-and-windows",
    "windows",
    "cut",
    "optional-source-that-never-ran",
)
"""The rows of the design's table, as the files that show them begin. A ripple that is added is none of them: a scenario
cannot change its graph; the tests of `change.py` show that row."""

_OF_A_RUN, _OF_A_RIPPLE = {"freshness"}, {"freshness", "ripple"}
KEYS_OF_EVENTS: dict[str, set[str]] = {
    "demand": {"kind", "target"},
    "demand_refused": {"kind", "because"},
    "run_started": _OF_A_RUN,
    "run_completed": _OF_A_RUN,
    "run_passed": _OF_A_RUN,
    "run_failed": _OF_A_RUN,
    "run_superseded": _OF_A_RUN,
    "ripple_started": {*_OF_A_RIPPLE, "attempt", "cut"},
    "ripple_completed": _OF_A_RIPPLE,
    "ripple_failed": _OF_A_RIPPLE,
    "ripple_passed": _OF_A_RIPPLE,
    "blocked": set(),
    "unblocked": set(),
}


@cache
def read(name: str) -> Json:
    value = json.loads(FILES[name].read_text())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", ANSWERED_BY)
def test_every_scenario_is_answered_as_expected(name: str, by: str) -> None:
    value = read(name)
    found = list(differences(value["expect"], ANSWERED_BY[by](value["scenario"])))
    assert not found, "\n".join([f"{name}.json, answered by the {by}: {value['title']}", *found])


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_a_claim_a_reason_a_valid_scenario_and_an_expectation(name: str) -> None:
    value = read(name)
    assert list(value) == ["title", "why", "scenario", "expect"]
    assert value["title"] and re.fullmatch(r"[A-Z`].*[.]", value["why"]), "`why` is the rule, in whole sentences"
    scenario_of(value["scenario"])
    assert list(wrong_words(value)) == []


def test_no_two_scenarios_claim_the_same() -> None:
    titles = [read(name)["title"] for name in FILES]
    assert len(FILES) >= 70
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_design_has_a_scenario_of_its_name(row: str) -> None:
    assert [name for name in FILES if name == row or name.startswith(f"{row}-")]


@pytest.mark.parametrize("name", ["ponds-tap-three-and-one", "fault-four-attempts-pulse"])
def test_simulate_takes_the_scenario_of_a_file_and_gives_the_same_answer(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = read(name)
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(value["scenario"]))
    code = main(["simulate", str(path), "--json"])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert list(differences(value["expect"], json.loads(said.out))) == []


# ---- what differs


def differences(expect: Json, answer: Json) -> Iterator[str]:
    """Every expectation that the answer does not meet, one after the other, with its path."""
    yield from unequal(expect.get("pipelines", {}), answer["pipelines"], "pipelines")
    yield from missing(expect.get("timeline", []), answer["timeline"])
    for place, entry in enumerate(expect.get("absent", [])):
        for actual in answer["timeline"]:
            if not list(unequal(entry, actual, "")):
                yield f"absent[{place}]:\n  expected  none like {json.dumps(entry)}\n  actual    {json.dumps(actual)}"


def unequal(expected: object, actual: object, path: str) -> Iterator[str]:
    """Objects are compared in the fields that are expected; everything else is equal or not."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            yield from unequal(value, actual.get(key, "(no such field)"), f"{path}.{key}")
    elif expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        yield f"{path}:\n  expected  {json.dumps(expected)}\n  actual    {json.dumps(actual)}"


def missing(expected: list[Json], timeline: list[Json]) -> Iterator[str]:
    """The first entry that does not follow, somewhere, the entries before it."""
    after = 0
    for place, entry in enumerate(expected):
        found = (at for at in range(after, len(timeline)) if not list(unequal(entry, timeline[at], "")))
        at = next(found, None)
        if at is None:
            rest = [json.dumps(actual) for actual in timeline[after : after + SHOWN]] or ["(nothing more)"]
            yield "\n            ".join(
                [f"timeline[{place}]:\n  expected  {json.dumps(entry)}\n  actual    {rest[0]}", *rest[1:]]
            )
            return
        after = at + 1


def wrong_words(value: Json) -> Iterator[str]:
    """Pipelines, ripples, events and fields that cannot occur: an absent entry with a slip in it is always absent."""
    expect, pipelines = value["expect"], value["scenario"]["pipelines"]
    if not expect or {*expect} - {"pipelines", "timeline", "absent"}:
        yield f"expect has {sorted(expect)}"
    for entry in [*expect.get("timeline", []), *expect.get("absent", [])]:
        if entry == {}:
            continue
        named = [pipelines[entry["pipeline"]]] if entry.get("pipeline") in pipelines else []
        if entry.get("event") not in KEYS_OF_EVENTS or ("pipeline" in entry and not named):
            yield f"no such event or pipeline: {entry}"
        elif {*entry} - {"at", "event", "pipeline"} - KEYS_OF_EVENTS[entry["event"]]:
            yield f"no such field: {entry}"
        elif "ripple" in entry and not any(entry["ripple"] in pipeline["ripples"] for pipeline in named):
            yield f"no such ripple: {entry}"


ANSWER: Json = {
    "pipelines": {"A": {"runs": 2, "pull": False, "completions": [1.0, 2.0], "ripples": {"a": {"starts": 2}}}},
    "timeline": [
        {"at": 0.0, "event": "run_started", "pipeline": "A", "freshness": 0.0},
        {"at": 1.0, "event": "run_completed", "pipeline": "A", "freshness": 0.0},
    ],
}


@pytest.mark.parametrize(
    ("expect", "path"),
    [
        ({"pipelines": {"A": {"runs": 2, "completions": [1, 2], "ripples": {"a": {"starts": 2}}}}}, None),
        ({"pipelines": {"A": {"runs": 1}}}, "pipelines.A.runs"),
        ({"pipelines": {"A": {"pull": 0}}}, "pipelines.A.pull"),
        ({"pipelines": {"A": {"completions": [1]}}}, "pipelines.A.completions"),
        ({"pipelines": {"A": {"ripples": {"a": {"starts": 3}}}}}, "pipelines.A.ripples.a.starts"),
        ({"pipelines": {"A": {"run": 2}}}, "pipelines.A.run"),
        ({"pipelines": {"B": {"runs": 0}}}, "pipelines.B"),
        ({"timeline": [{"event": "run_started"}, {"event": "run_completed"}]}, None),
        ({"timeline": [{"event": "run_completed"}, {"event": "run_started"}]}, "timeline[1]"),
        ({"timeline": [{"at": 1, "event": "run_started"}]}, "timeline[0]"),
        ({"timeline": [{"event": "run_started"}, {"event": "run_started"}]}, "timeline[1]"),
        ({"absent": [{"at": 1, "event": "run_started"}]}, None),
        ({"absent": [{"at": 2}, {"event": "run_started", "freshness": 0}]}, "absent[1]"),
        ({"absent": [{}]}, "absent[0]"),
    ],
)
def test_what_differs_is_found_and_named(expect: Json, path: str | None) -> None:
    found = list(differences(expect, ANSWER))
    if path is None:
        assert found == []
    else:
        assert found[0].startswith(f"{path}:\n  expected  ") and "\n  actual    " in found[0]

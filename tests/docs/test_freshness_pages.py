"""The pages about freshness are true: pictures and numbers come from their scenarios, and no key is left out."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from docs.pages import ROOT
from docs.test_reference import column, rows, sections
from freshness.graphs import EMPHASES, many, scenarios
from headwater.app.read_scenario import DEEDS, scenario_of
from headwater.app.simulate import simulate_file
from headwater.base.errors import ErrorList, HeadwaterError
from headwater.freshness.virtual_time import simulate
from headwater.interfaces.cli.main import main

EXPLANATION = ROOT / "docs" / "explanation"
SCENARIOS = sorted((EXPLANATION / "scenarios").glob("*.json"))
PAGE = (EXPLANATION / "freshness.md").read_text()
REDRAW = "cd docs/explanation && for f in scenarios/*.json; do headwater simulate $f --svg pictures/$(basename $f .json).svg; done"

FULL: dict[str, Any] = {
    "pipelines": {
        "bank": {"ripples": {"r": {"seconds": 1}}, "windows": [{"start": 0, "end": 9}]},
        "books": {"sources": ["bank"], "retry": {}, "ripples": {"r": {"seconds": 1}, "s": {"seconds": 1}}},
    },
    "events": [{"at": 0, "do": "tap", "pipeline": "books"}],
    "until": 9,
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_a_picture_is_what_simulate_draws_now(scenario: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "picture.svg"
    assert main(["simulate", str(scenario), "--svg", str(drawn)]) == 0
    picture = EXPLANATION / "pictures" / f"{scenario.stem}.svg"
    assert picture.read_text() == drawn.read_text(), f"draw them again: {REDRAW}"


def test_every_scenario_has_its_picture_and_every_picture_its_place() -> None:
    names = [path.stem for path in SCENARIOS]
    assert sorted(path.stem for path in (EXPLANATION / "pictures").iterdir()) == names
    assert sorted(re.findall(r"^!\[[^\]]+\]\(pictures/(\w+)\.svg\)$", PAGE, re.MULTILINE)) == names


def test_the_numbers_of_the_pictures_are_those_of_the_answers() -> None:
    answers = {path.stem: simulate_file(path).answer["pipelines"] for path in SCENARIOS}
    expected = [
        [name, pipeline, found["runs"], found["passes"], found["waste"], *_staleness(found)]
        for name, pipelines in answers.items()
        for pipeline, found in pipelines.items()
    ]
    table = rows(PAGE.partition("## The numbers of the pictures")[2])
    told = [[re.findall(r"\[(\w+)\]\(scenarios/\1\.json\)", row[0])[0], *row[1:]] for row in table]
    assert sorted(told) == sorted([str(cell) for cell in row] for row in expected)


def _staleness(found: dict[str, Any]) -> list[str]:
    return [f"{found['staleness'][key]:.3f}".rstrip("0").rstrip(".") for key in ("mean", "max")]


def known_keys(*path: str | int, **replaced: Any) -> list[str]:
    """The keys that the reader of scenarios knows at a place: it lists them when it is given another one."""
    scenario = copy.deepcopy(FULL)
    here: Any = scenario
    for step in path:
        here = here[step]
    here.update(replaced)
    here["%"] = 1
    with pytest.raises(HeadwaterError) as raised:
        scenario_of(scenario)
    found = raised.value.errors if isinstance(raised.value, ErrorList) else [raised.value]
    (problem,) = [problem for problem in found if "%" in problem.message]
    return problem.hint.removeprefix("known keys: ").split(", ")


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("Scenario", ()),
        ("Pipeline", ("pipelines", "bank")),
        ("Ripple", ("pipelines", "bank", "ripples", "r")),
        ("Window", ("pipelines", "bank", "windows", 0)),
        ("Retry", ("pipelines", "books", "retry")),
    ],
)
def test_every_key_of_a_scenario_is_documented(section: str, path: tuple[str | int, ...]) -> None:
    assert set(column(sections("scenarios.md")[section], "key")) == set(known_keys(*path))


def test_every_deed_and_its_keys_are_documented() -> None:
    section = sections("scenarios.md")["Event"]
    deeds = {row[0].strip("`"): re.findall(r"`(\w+)`", row[2]) for row in rows(section) if row[0].strip("`") in DEEDS}
    assert tuple(deeds) == DEEDS
    for do, keys in deeds.items():
        assert known_keys("events", 0, do=do) == ["at", "do", "pipeline", *keys]
    own = {key for keys in deeds.values() for key in keys}
    assert set(column(section, "key")) == {"at", "do", "pipeline", *own}


@pytest.mark.long
def test_every_key_of_an_answer_is_documented() -> None:
    section = sections("scenarios.md")["Answer"]
    documented = {event: row for row in rows(section) for event in re.findall(r"`(\w+)`", row[0])}
    happened: set[str] = set()

    @many(100)
    @given(scenarios(EMPHASES["faults"]) | scenarios(EMPHASES["passes"]))
    def holds(value: dict[str, Any]) -> None:
        answer = simulate(scenario_of(value)).as_json()
        for found in answer["pipelines"].values():
            assert set(column(section, "key of a pipeline")) == set(found)
        for entry in answer["timeline"]:
            assert set(entry) <= {"at", "event", "pipeline", *re.findall(r"`(\w+)`", documented[entry["event"]][2])}
            happened.add(entry["event"])

    holds()
    assert set(column(section, "event")) == happened

"""The engine and the naive interpreter give the same answer to every scenario, entry by entry of the timeline.

The ordinary run takes 2,140 examples, always the same ones. `HEADWATER_EXAMPLES=20 pytest tests/freshness` takes twenty
times as many, others on each run. A failing example is printed as a scenario file: save it, run it with
`headwater simulate FILE`, and keep it among the scenarios once it is understood.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given

from freshness.graphs import EMPHASES, Scenario, clears, file_of, many, scenarios
from freshness.rare import RARE
from freshness.reference import reference_answer
from headwater.app.read_scenario import scenario_of
from headwater.freshness.virtual_time import simulate

Answer = dict[str, Any]


@pytest.mark.parametrize("family", EMPHASES)
def test_the_engine_answers_as_the_naive_interpreter_does(family: str) -> None:
    @many(300)
    @given(scenarios(EMPHASES[family]))
    def same(scenario: Scenario) -> None:
        by_engine, by_reference = simulate(scenario_of(scenario)).as_json(), reference_answer(scenario)
        assert not differences(by_engine, by_reference), report(scenario, by_engine, by_reference)

    same()


@many(40)
@given(clears())
def test_they_agree_about_what_a_clear_does(scenario: Scenario) -> None:
    by_engine, by_reference = simulate(scenario_of(scenario)).as_json(), reference_answer(scenario)
    assert not differences(by_engine, by_reference), report(scenario, by_engine, by_reference)


@pytest.mark.parametrize("rule", RARE)
def test_they_agree_where_random_scenarios_seldom_come(rule: str) -> None:
    by_engine, by_reference = simulate(scenario_of(RARE[rule])).as_json(), reference_answer(RARE[rule])
    assert not differences(by_engine, by_reference), report(RARE[rule], by_engine, by_reference)


def differences(by_engine: Answer, by_reference: Answer) -> list[str]:
    """The first entry of the timeline that differs; else every field of a pipeline that does."""
    timelines = zip_longest(by_engine["timeline"], by_reference["timeline"])
    for place, (engine, reference) in enumerate(timelines):
        if engine != reference:
            return [f"timeline[{place}]:\n    engine    {engine}\n    reference {reference}"]
    found = []
    for name in by_reference["pipelines"] | by_engine["pipelines"]:
        engine, reference = by_engine["pipelines"].get(name, {}), by_reference["pipelines"].get(name, {})
        for key in reference | engine:
            if not same_value(key, engine.get(key), reference.get(key)):
                found.append(f"{name}.{key}: engine {engine.get(key)}, reference {reference.get(key)}")
    return found


def same_value(key: str, engine: Any, reference: Any) -> bool:
    """Equal; a mean may differ in its last digits, because it is not said in which order it is added up."""
    if key != "staleness" or engine is None or None in (engine["mean"], reference["mean"]):
        return bool(engine == reference)
    near = math.isclose(engine["mean"], reference["mean"], rel_tol=1e-9, abs_tol=1e-9)
    return near and bool(engine["max"] == reference["max"])


def report(scenario: Scenario, by_engine: Answer, by_reference: Answer) -> str:
    found = "\n".join(differences(by_engine, by_reference))
    return f"the answers differ:\n{found}\nscenario file:\n{file_of(scenario)}"

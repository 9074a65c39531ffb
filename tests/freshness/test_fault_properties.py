"""What the engine promises about retries, clears, covered targets and several triggers, seen from the answer alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshness.graphs import EMPHASES, LIMITS, NAMES, PUSHED, Scenario, clears, file_of, many, pick, scenarios
from freshness.test_properties import above, answer_of, holds
from headwater.app.read_scenario import scenario_of
from headwater.freshness.state import SECOND
from headwater.freshness.virtual_time import World

Entry = dict[str, Any]

ALWAYS = 10**6
"""So many failures in a row never end."""


def without(scenario: Scenario, *deeds: str) -> Scenario:
    """The same scenario, in which these events do not happen."""
    return scenario | {"events": [event for event in scenario["events"] if event["do"] not in deeds]}


def of_pond(timeline: list[Entry], name: str) -> list[Entry]:
    return [entry for entry in timeline if entry["pipeline"] == name]


def names_below(scenario: Scenario, name: str) -> set[str]:
    """The pipeline and all whose pushes reach it."""
    return {other for other in scenario["pipelines"] if name in above(scenario, other, pushed=True)}


# Immediate retries belong to the pond


def budget_is_exceeded(scenario: Scenario) -> str | None:
    """Each failure of a run that has not failed uses one retry; the run fails at the first that finds none left."""
    cleared = without(scenario, "clear")
    timeline = answer_of(cleared)["timeline"]
    for name, told in cleared["pipelines"].items():
        budget, used, failed = told.get("retry", {}).get("immediately", 0), 0, set()
        mine = of_pond(timeline, name)
        for entry, after in pairwise([*mine, {"event": "end"}]):
            if entry["event"] in ("run_completed", "run_passed", "run_failed"):
                used = 0
            if entry["event"] == "run_failed":
                failed.add(entry["freshness"])
            if entry["event"] == "ripple_failed" and entry["freshness"] not in failed:
                used += 1
                if (used > budget) != (after["event"] == "run_failed"):
                    return f"{name} has failed {used} times, its budget is {budget}: {entry}, {after}"
    return None


@pytest.mark.parametrize("family", ["faults", "mending"])
def test_a_run_fails_at_the_first_failure_that_finds_no_immediate_retry_left(family: str) -> None:
    holds(family, budget_is_exceeded, 30)


def always_fails(scenario: Scenario) -> Scenario:
    events = without(scenario, "fail", "clear", "untrigger")["events"]
    failing = [
        {"at": 0, "do": "fail", "pipeline": name, "ripple": list(told["ripples"])[-1], "times": ALWAYS}
        for name, told in scenario["pipelines"].items()
    ]
    return scenario | {"events": failing + events, "until": 60}


def executed_too_often(scenario: Scenario) -> str | None:
    """The pond has failed after 1 + immediately executions, and each retry on change allows as many, whatever the demand
    and however many runs were in flight. One of these is tried in any case: it may succeed."""
    timeline = answer_of(always_fails(scenario))["timeline"]
    for name, pipeline in scenario["pipelines"].items():
        retry = {"immediately": 0, "on_change": 0} | pipeline.get("retry", {})
        last = list(pipeline["ripples"])[-1]
        events = [
            entry["event"]
            for entry in of_pond(timeline, name)
            if entry["event"] == "run_failed" or (entry["event"] == "ripple_started" and entry["ripple"] == last)
        ]
        tries = 1 + retry["immediately"]
        if "run_failed" in events and events.index("run_failed") != tries:
            return f"{name} failed after {events.index('run_failed')} executions with {retry}"
        if events.count("ripple_started") > tries * max(2, 1 + retry["on_change"]):
            return f"{name} was executed {events.count('ripple_started')} times with {retry}"
    return None


@pytest.mark.parametrize("family", ["small", "windows", "faults"])
def test_a_ripple_that_always_fails_is_executed_no_oftener_than_its_budgets_allow(family: str) -> None:
    holds(family, executed_too_often, 25)


@pytest.mark.parametrize("count", [1, 4, 8])
def test_runs_in_flight_when_a_ripple_fails_do_not_execute_it_oftener_than_its_budgets_allow(count: int) -> None:
    names = [f"r{number}" for number in range(count)]
    ripples = {
        name: {"seconds": 1, **({"after": [before]} if before else {})}
        for before, name in zip([None, *names], names, strict=False)
    }
    scenario = {
        "pipelines": {
            "A": {"ripples": {"a": {"seconds": 1}}},
            "B": {"sources": ["A"], "ripples": ripples, "retry": {"immediately": 1, "on_change": 1}},
        },
        "events": [
            {"at": 0, "do": "fail", "pipeline": "B", "ripple": names[-1], "times": ALWAYS},
            {"at": 0, "do": "wave", "pipeline": "B"},
        ],
        "until": 60,
    }
    assert answer_of(scenario)["pipelines"]["B"]["ripples"][names[-1]]["starts"] == 4


# A retry on change is used


@st.composite
def failing_readers(draw: st.DrawFn) -> Scenario:
    """A pipeline that fails no oftener than it may retry, reads a live source, and others that have a window now and one
    much later; some hold demand of their own."""
    later = {"windows": [{"start": 0, "end": 100}, {"start": 1000, "end": 1100}]}
    names = NAMES[: 2 + draw(st.integers(0, 2))]
    pipelines: dict[str, Any] = {name: {"ripples": {"r": {"seconds": 1}}, **later} for name in names}
    del pipelines["A"]["windows"]
    optional = [name for name in names[1:] if draw(st.booleans())]
    retries = 1 + draw(st.integers(0, 2))
    reader = {"sources": [name for name in names if name not in optional], "optional": optional}
    pipelines["X"] = {**reader, "ripples": {"r": {"seconds": 1}}, "retry": {"immediately": 0, "on_change": retries}}
    events = [{"at": 0, "do": pick(draw, ("wave", "tap")), "pipeline": name} for name in names if draw(st.booleans())]
    failing = {"at": 0, "do": "fail", "pipeline": "X", "times": 1 + draw(st.integers(0, retries - 1))}
    return {
        "pipelines": pipelines,
        "events": [*events, failing, {"at": 0, "do": "pulse", "pipeline": "X"}],
        "until": 50,
    }


@given(failing_readers())
@many(30)
def test_a_retry_on_change_is_used_if_a_source_can_move_on(scenario: Scenario) -> None:
    told = answer_of(scenario)["pipelines"]["X"]
    assert (told["runs"] > 0, told["failures"]) == (True, 0), file_of(scenario)


# One run, one cut


def mixed_cut(scenario: Scenario) -> str | None:
    """Of the ripples that executed at the freshness of a completed run, each has read the same cut the last time."""
    read: dict[tuple[str, float], dict[str, Any]] = {}
    for entry in answer_of(scenario)["timeline"]:
        if entry["event"] == "ripple_started" and "cut" in entry:
            read.setdefault((entry["pipeline"], entry["freshness"]), {})[entry["ripple"]] = entry["cut"]
        elif entry["event"] == "run_completed":
            cuts = read.get((entry["pipeline"], entry["freshness"]), {})
            if any(cut != other for cut in cuts.values() for other in cuts.values()):
                return f"{entry['pipeline']} completed with {cuts}: {entry}"
    return None


@given(clears())
@many(100)
def test_one_run_never_mixes_two_cuts_after_a_clear(scenario: Scenario) -> None:
    wrong = mixed_cut(scenario)
    assert wrong is None, f"{wrong}\nscenario file:\n{file_of(scenario)}"


def test_one_run_never_mixes_two_cuts() -> None:
    holds("mending", mixed_cut, 30)


# Pull is not left behind


@given(clears())
@many(60)
def test_no_pull_is_left_on_a_ripple_after_a_clear(scenario: Scenario) -> None:
    """A pull that is left would make a second run of the last push."""
    world = World(scenario_of(scenario))
    while (now := world.next_time()) is not None and now < PUSHED * SECOND:
        world.live(now)
    ponds = world.state.ponds.values()
    left = [ripple.spec.name for pond in ponds for ripple in pond.ripples if ripple.has_pull]
    assert left + [pond.name for pond in ponds if pond.has_pull or pond.targets or pond.is_running] == [], file_of(
        scenario
    )
    while (now := world.next_time()) is not None and now <= 2 * PUSHED * SECOND:
        world.live(now)
    for name in scenario["pipelines"]:
        begun = [entry["at"] for entry in of_pond(world.account.timeline, name) if entry["event"] == "run_started"]
        assert len([at for at in begun if at >= PUSHED]) == 1, f"{name}\n{file_of(scenario)}"


# A target that a run in flight covers


def needless_run(scenario: Scenario) -> str | None:
    """Under pushes alone, each run reaches a target that the run before it did not cover."""
    pushes = [
        event | {"do": "pulse"} for event in scenario["events"] if event["do"] in ("tap", "pulse", "wave", "tide")
    ]
    pushes = [{"at": event["at"], "do": "pulse", "pipeline": event["pipeline"]} for event in pushes for _ in range(2)]
    whole = scenario | {"events": pushes}
    for name in whole["pipelines"]:
        targets = {event["at"] for event in pushes if event["pipeline"] in names_below(whole, name)}
        before = float("-inf")
        for entry in of_pond(answer_of(whole)["timeline"], name):
            if entry["event"] == "run_started":
                if not any(before < target <= entry["freshness"] for target in targets):
                    return f"no target of {sorted(targets)} is above {before}: {entry}"
                before = entry["freshness"]
    return None


@pytest.mark.parametrize("family", ["windows", "passes"])
def test_under_push_every_run_reaches_a_target_that_the_run_before_did_not(family: str) -> None:
    holds(family, needless_run, 30)


# Several triggers


@st.composite
def both_orders(draw: st.DrawFn) -> Iterator[Scenario]:
    """A scenario with a wave and a tide that are set on one pipeline at one instant; in one order and in the other."""
    scenario = draw(scenarios(EMPHASES["windows"]))
    name = pick(draw, sorted(scenario["pipelines"], reverse=True))
    time = draw(st.integers(0, 8)) / 2
    pair = [
        {"at": time, "do": "wave", "pipeline": name, "id": "first"},
        {"at": time, "do": "tide", "pipeline": name, "id": "second", "max_staleness": pick(draw, LIMITS)},
    ]
    before = [event for event in scenario["events"] if event["at"] <= time and event["do"] not in ("wave", "tide")]
    after = [event for event in scenario["events"] if event["at"] > time]
    return iter([scenario | {"events": before + order + after, "until": 20} for order in (pair, pair[::-1])])


@given(both_orders())
@many(25)
def test_the_order_in_which_triggers_are_set_makes_no_difference(orders: Iterator[Scenario]) -> None:
    first, second = orders
    assert answer_of(first) == answer_of(second), file_of(first)


@given(both_orders())
@many(25)
def test_a_waiting_target_never_holds_back_a_wave(orders: Iterator[Scenario]) -> None:
    """A pipeline under a Wave that neither runs nor is blocked holds a pull."""
    for scenario in orders:
        whole = without(scenario, "untrigger")
        told = answer_of(whole)["pipelines"]
        for name in {event["pipeline"] for event in whole["events"] if event["do"] == "wave"}:
            assert told[name]["state"] not in ("idle", "queued") or told[name]["pull"], f"{name}\n{file_of(whole)}"

"""What the freshness engine promises of every scenario, seen from outside: from the answer and its timeline alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshness.graphs import DURATIONS, EMPHASES, NAMES, Scenario, file_of, many, scenarios
from freshness.reference import reference_answer

Answer = dict[str, Any]

QUIET = 1000
"""Seconds between two rounds of clearing: everything that can happen by itself has happened by then."""


def answer_of(scenario: Scenario) -> Answer:
    """The engine's answer; with HEADWATER_PROPERTIES_OF=reference the naive interpreter's."""
    if os.environ.get("HEADWATER_PROPERTIES_OF") == "reference":
        return reference_answer(scenario)
    from headwater.app.read_scenario import scenario_of
    from headwater.freshness.virtual_time import simulate

    return simulate(scenario_of(scenario)).as_json()


def holds(family: str, check: Callable[[Scenario], str | None], examples: int) -> None:
    """The check finds nothing wrong with any scenario of the family."""

    @many(examples)
    @given(scenarios(EMPHASES[family]))
    def of(scenario: Scenario) -> None:
        wrong = check(scenario)
        assert wrong is None, f"{wrong}\nscenario file:\n{file_of(scenario)}"

    of()


# Nothing runs without demand


def above(scenario: Scenario, pipeline: str, *, pushed: bool) -> set[str]:
    """The pipeline and all from which its demand asks something: push goes to required Sources if there are any."""
    found, waiting = set(), [pipeline]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            told = scenario["pipelines"][name]
            required, optional = told.get("sources", []), told.get("optional", [])
            waiting += (required or optional) if pushed else required + optional
    return found


def runs_without_demand(scenario: Scenario) -> str | None:
    asked: set[str] = set()
    for entry in answer_of(scenario)["timeline"]:
        if entry["event"] == "demand":
            asked |= above(scenario, entry["pipeline"], pushed="target" in entry)
        elif entry["event"] in ("run_started", "ripple_started") and entry["pipeline"] not in asked:
            return f"nobody asked for it: {entry}"
    return None


@pytest.mark.parametrize("family", ["passes", "large"])
def test_nothing_runs_without_demand(family: str) -> None:
    holds(family, runs_without_demand, 150)


# Freshness only grows


def freshness_goes_back(scenario: Scenario) -> str | None:
    told = answer_of(scenario)
    for name, pipeline in told["pipelines"].items():
        done = [
            entry
            for entry in told["timeline"]
            if entry["pipeline"] == name and entry["event"] in ("run_completed", "run_passed")
        ]
        reached = [entry["freshness"] for entry in done]
        if sorted(set(reached)) != reached:
            return f"{name} reached {reached}"
        if pipeline["end_freshness"] != (reached[-1] if reached else None):
            return f"{name} ends at {pipeline['end_freshness']}, reached {reached}"
        if pipeline["start_freshness"] is None and reached:
            return f"{name} completed what it never started"
        if reached and pipeline["start_freshness"] < reached[-1]:
            return f"{name} completed {reached[-1]} and started only {pipeline['start_freshness']}"
    return None


@pytest.mark.parametrize("family", ["faults", "windows"])
def test_a_pond_never_gets_older(family: str) -> None:
    holds(family, freshness_goes_back, 150)


# Blocked ponds take no demand


def demand_of_the_blocked(scenario: Scenario) -> str | None:
    blocked: set[str] = set()
    answered = 0
    for entry in answer_of(scenario)["timeline"]:
        name = entry["pipeline"]
        match entry["event"]:
            case "blocked":
                blocked.add(name)
            case "unblocked":
                blocked.remove(name)
            case "demand":
                answered += entry["kind"] in ("tap", "pulse")
                if name in blocked:
                    return f"accepted by a blocked pond: {entry}"
            case "demand_refused":
                answered += 1
                culprit = entry["because"]
                if name not in blocked or culprit not in blocked or culprit not in above(scenario, name, pushed=True):
                    return f"refused without reason: {entry}"
    until = scenario.get("until", float("inf"))
    listed = [event for event in scenario["events"] if event["do"] in ("tap", "pulse") and event["at"] <= until]
    return None if answered == len(listed) else f"{len(listed)} demands, {answered} answers"


@pytest.mark.parametrize("family", ["faults", "large"])
def test_a_blocked_pond_accepts_no_demand_and_says_so(family: str) -> None:
    holds(family, demand_of_the_blocked, 150)


# Every accepted target is reached in the end


def healed(scenario: Scenario, *, upwards: bool, standing: bool, apart: float, window: float) -> Scenario:
    """The scenario, and then: for each failure that may still come, and once more, a quiet time and a clear of every
    pond. Windows open again and again. `upwards`: Sources are cleared last; not `standing`: triggers are removed."""
    events = list(scenario["events"])
    start = max(event["at"] for event in events) + 0.5
    names = sorted(scenario["pipelines"], reverse=upwards)  # a Source's name is before its reader's
    if not standing:
        events += [{"at": start, "do": "untrigger", "pipeline": name} for name in names]
    rounds = 1 + sum(event.get("times", 1) for event in events if event["do"] == "fail")
    for place in range(rounds):
        events += [{"at": start + (place + 1) * apart, "do": "clear", "pipeline": name} for name in names]
    until = start + (rounds + 1) * apart
    pipelines = {}
    for name, told in scenario["pipelines"].items():
        pipelines[name] = dict(told)
        if "windows" in told:
            first = max(start, told["windows"][-1]["end"])
            opened = [first + place * window for place in range(int((until - first) / window))]
            pipelines[name]["windows"] = told["windows"] + [{"start": at, "end": at + window} for at in opened]
    return {"pipelines": pipelines, "events": events, "until": until}


def never_reached(scenario: Scenario, *, upwards: bool) -> str | None:
    whole = healed(scenario, upwards=upwards, standing=False, apart=QUIET, window=QUIET / 2)
    told = answer_of(whole)
    for name, pipeline in told["pipelines"].items():
        if pipeline["state"] in ("failed", "blocked", "running") or pipeline["targets"]:
            return f"{name} is left {pipeline['state']} with targets {pipeline['targets']}"
        windowed = any("windows" in whole["pipelines"][other] for other in above(whole, name, pushed=False))
        if pipeline["pull"] and not windowed:  # an Inlet's next window is always asked for in advance
            return f"{name} holds a pull that nothing answers"
    for entry in told["timeline"]:
        if "target" in entry and told["pipelines"][entry["pipeline"]]["end_freshness"] < entry["target"]:
            return f"accepted and never reached: {entry}"
    return None


@pytest.mark.parametrize("family", EMPHASES)
@pytest.mark.parametrize("upwards", [False, True], ids=["sources-cleared-first", "sources-cleared-last"])
def test_every_accepted_target_is_reached_once_failures_are_cleared(family: str, upwards: bool) -> None:
    holds(family, lambda scenario: never_reached(scenario, upwards=upwards), 60)


# Standing demand goes on after a clear

GOES_ON = 60
"""Seconds in which a pond under a standing trigger completes at least once more."""


def stuck_under_a_trigger(scenario: Scenario) -> str | None:
    whole = healed(scenario, upwards=False, standing=True, apart=GOES_ON, window=5)
    told = answer_of(whole)
    standing: dict[str, set[str]] = {name: set() for name in whole["pipelines"]}
    for event in whole["events"]:
        ids = standing[event["pipeline"]]
        if event["do"] in ("wave", "tide"):
            ids.add(event.get("id", event["do"]))
        elif event["do"] == "untrigger":
            ids.difference_update({event["id"]} if "id" in event else set(ids))
    for name, ids in standing.items():
        completions = told["pipelines"][name]["completions"]
        if ids and not any(time > whole["until"] - GOES_ON for time in completions):
            return f"{name} has {ids} and stopped after {completions}"
    return None


def test_a_pond_under_a_standing_trigger_goes_on_after_a_clear() -> None:
    holds("small", stuck_under_a_trigger, 200)


# A Wave wastes nothing


@st.composite
def trees(draw: st.DrawFn) -> Scenario:
    """Ponds of one ripple that each have one reader, with a Wave on the last, which all others lead to.

    Ponds of several ripples keep more in stock: a pull that finds one idle wakes each of its ripples.
    """
    names = NAMES[: draw(st.integers(2, 7))]
    pipelines: dict[str, Any] = {
        name: {"sources": [], "ripples": {"r": {"seconds": draw(st.sampled_from([d for d in DURATIONS if d]))}}}
        for name in names
    }
    for place, name in enumerate(names[:-1]):
        pipelines[draw(st.sampled_from(names[place + 1 :]))]["sources"].append(name)
    return {"pipelines": pipelines, "events": [{"at": 0, "do": "wave", "pipeline": names[-1]}], "until": 100}


@given(trees())
@many(150)
def test_in_steady_state_under_a_wave_a_source_runs_at_most_once_per_run_of_its_reader(scenario: Scenario) -> None:
    told = answer_of(scenario)
    settled = 40
    for name, pipeline in scenario["pipelines"].items():
        for source in pipeline["sources"]:
            since = 0
            for entry in told["timeline"]:
                if entry["event"] == "run_started" and entry["at"] >= settled:
                    since = 0 if entry["pipeline"] == name else since + (entry["pipeline"] == source)
                    assert since <= 1, f"{source} ran twice for one run of {name}: {entry}\n{file_of(scenario)}"

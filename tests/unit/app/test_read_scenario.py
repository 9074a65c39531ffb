"""Every mistake in a scenario is found in one go, at its path, in words that name it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.app.read_scenario import DEEDS, scenario_of
from headwater.base import limits
from headwater.base.errors import ErrorList, HeadwaterError, Position
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.scenario import Scenario, ScenarioEvent
from headwater.manifest.positions import Path
from headwater.manifest.scan_json import scan_json

RIPPLES = {"r": {"seconds": 1}}
TWO = {"r": {"seconds": 1}, "s": {"seconds": 2, "after": ["r"]}}


def problems(value: object) -> list[HeadwaterError]:
    """All that is wrong with a scenario."""
    try:
        scenario_of(value)
    except ErrorList as error:
        return list(error.errors)
    except HeadwaterError as error:
        return [error]
    return []


def at(value: object, path: Path) -> set[Position]:
    """Where the path's key and its value are written."""
    positions = scan_json(json.dumps(value))
    return {positions.of_key("scenario.json", path), positions.of_value("scenario.json", path)}


def pipelines(**more: Any) -> dict[str, Any]:
    return {"pipelines": {"orders": {"ripples": RIPPLES}, **more}}


def orders(**settings: Any) -> dict[str, Any]:
    return {"pipelines": {"orders": {"ripples": RIPPLES, **settings}}}


def reader(**settings: Any) -> dict[str, Any]:
    return pipelines(daily={"sources": ["orders"], "ripples": RIPPLES, **settings})


def event(**keys: Any) -> dict[str, Any]:
    """A scenario with one event on a pipeline of two ripples."""
    of = {"orders": {"ripples": TWO}}
    return {"pipelines": of, "events": [{"at": 0, "do": "tap", "pipeline": "orders", **keys}], "until": 9}


def without(key: str, **keys: Any) -> dict[str, Any]:
    scenario = event(**keys)
    del scenario["events"][0][key]
    return scenario


ORDERS: Path = ("pipelines", "orders")
DAILY: Path = ("pipelines", "daily")
EVENT: Path = ("events", 0)

WRONG: dict[str, tuple[object, Path, str, str]] = {
    # what                   the value, where, a part of the message, a part of the hint
    "a list": ([1], (), "a scenario is an object, not a list", '"pipelines"'),
    "no pipelines": ({}, (), "`pipelines` is missing in the scenario", "the key"),
    "empty pipelines": ({"pipelines": {}}, ("pipelines",), "`pipelines` is empty", "name a pipeline"),
    "pipelines in a list": ({"pipelines": []}, ("pipelines",), "must be an object, not a list", ""),
    "a pipeline that is text": (
        pipelines(x="y"),
        ("pipelines", "x"),
        "`pipelines.x` of the scenario must be an object, not text",
        "",
    ),
    "an unknown key": (pipelines() | {"evnts": []}, ("evnts",), "unknown key `evnts` in the scenario", "`events`?"),
    "a key nobody would guess": (
        pipelines() | {"xyz": 1},
        ("xyz",),
        "unknown key `xyz`",
        "known keys: pipelines, events, until",
    ),
    "an unknown key of a pipeline": (orders(source=[]), (*ORDERS, "source"), "unknown key `source`", "`sources`?"),
    "an unknown key of a ripple": (
        {"pipelines": {"orders": {"ripples": {"r": {"seconds": 1, "afterr": []}}}}},
        (*ORDERS, "ripples", "r", "afterr"),
        "unknown key `ripples.r.afterr` in pipeline `orders`",
        "`after`?",
    ),
    "a name with a line break": (pipelines(**{"a\nb": {"ripples": RIPPLES}}), ("pipelines", "a\nb"), "printed", ""),
    "half a surrogate pair": (pipelines(**{"\ud800": {"ripples": RIPPLES}}), ("pipelines",), "printed", ""),
    "an empty name": (pipelines(**{"": {"ripples": RIPPLES}}), ("pipelines", ""), "is empty", ""),
    "a name with a space": (pipelines(**{" a": {"ripples": RIPPLES}}), ("pipelines", " a"), "with a space", ""),
    "a long name": (
        pipelines(**{"x" * (limits.SCENARIO_NAME_CHARACTERS + 1): {"ripples": RIPPLES}}),
        ("pipelines", "x" * (limits.SCENARIO_NAME_CHARACTERS + 1)),
        "longer than 100 characters",
        "",
    ),
    # ripples
    "no ripples": ({"pipelines": {"orders": {}}}, ORDERS, "`ripples` is missing in pipeline `orders`", "the key"),
    "empty ripples": (orders(ripples={}), (*ORDERS, "ripples"), "`ripples` of pipeline `orders` is empty", "a ripple"),
    "a ripple without seconds": (
        orders(ripples={"r": {}}),
        (*ORDERS, "ripples", "r"),
        "`ripples.r.seconds` is missing in pipeline `orders`",
        "add the key",
    ),
    "a ripple that is a number": (
        orders(ripples={"r": 1}),
        (*ORDERS, "ripples", "r"),
        "must be an object, not a whole",
        "",
    ),
    "seconds in quotes": (
        orders(ripples={"r": {"seconds": "1"}}),
        (*ORDERS, "ripples", "r", "seconds"),
        "must be a number of seconds, not text",
        "without quotes",
    ),
    "seconds that are true": (
        orders(ripples={"r": {"seconds": True}}),
        (*ORDERS, "ripples", "r", "seconds"),
        "not true or false",
        "",
    ),
    "negative seconds": (
        orders(ripples={"r": {"seconds": -0.5}}),
        (*ORDERS, "ripples", "r", "seconds"),
        "must not be negative",
        "begins at 0",
    ),
    "a hundred years and a bit": (
        orders(ripples={"r": {"seconds": limits.SCENARIO_SECONDS + 1}}),
        (*ORDERS, "ripples", "r", "seconds"),
        "a hundred years",
        "",
    ),
    "a number with 400 digits": (
        orders(ripples={"r": {"seconds": 10**400}}),
        (*ORDERS, "ripples", "r", "seconds"),
        "a hundred years",
        "",
    ),
    "a ripple after nobody": (
        orders(ripples={"read": {"seconds": 1}, "s": {"seconds": 1, "after": ["raed"]}}),
        (*ORDERS, "ripples", "s", "after", 0),
        "ripple `s` of pipeline `orders` comes after `raed`, and there is no ripple of that name",
        "`read`?",
    ),
    "a ripple after itself": (
        orders(ripples={"r": {"seconds": 1, "after": ["r"]}}),
        (*ORDERS, "ripples", "r", "after", 0),
        "comes after itself",
        "remove it",
    ),
    "a ripple after another twice": (
        orders(ripples={"r": {"seconds": 1}, "s": {"seconds": 1, "after": ["r", "r"]}}),
        (*ORDERS, "ripples", "s", "after", 1),
        "names `r` twice",
        "keep one",
    ),
    "after without brackets": (
        orders(ripples={"r": {"seconds": 1}, "s": {"seconds": 1, "after": "r"}}),
        (*ORDERS, "ripples", "s", "after"),
        "must be a list, not text",
        "in brackets",
    ),
    "ripples in a circle": (
        orders(ripples={"a": {"seconds": 1, "after": ["b"]}, "b": {"seconds": 1, "after": ["a"]}}),
        (*ORDERS, "ripples", "a", "after"),
        "wait for each other in a circle: `a` -> `b` -> `a`",
        "remove one",
    ),
    # sources
    "a source that does not exist": (
        pipelines(daily={"sources": ["Orders"], "ripples": RIPPLES}),
        (*DAILY, "sources", 0),
        "pipeline `daily` reads `Orders`, and there is no pipeline of that name",
        "did you mean `orders`?",
    ),
    "an optional source that does not exist": (
        pipelines(daily={"optional": ["odrers"], "ripples": RIPPLES}),
        (*DAILY, "optional", 0),
        "reads `odrers`",
        "did you mean `orders`?",
    ),
    "a source that is a number": (reader(sources=[1]), (*DAILY, "sources", 0), "must be text, not a whole number", ""),
    "itself as a source": (reader(optional=["daily"]), (*DAILY, "optional", 0), "pipeline `daily` reads itself", ""),
    "a source twice": (reader(sources=["orders", "orders"]), (*DAILY, "sources", 1), "names `orders` twice", ""),
    "required and optional": (
        reader(optional=["orders"]),
        (*DAILY, "optional", 0),
        "reads `orders` both as a required and as an optional source",
        "has to wait",
    ),
    "windows behind a source": (
        reader(windows=[{"start": 0, "end": 1}]),
        (*DAILY, "windows"),
        "has sources, so it has no `windows`",
        "reads the outside",
    ),
    # windows, retry and the rest
    "a window without an end": (
        orders(windows=[{"start": 0}]),
        (*ORDERS, "windows", 0),
        "`windows[0].end` is missing in pipeline `orders`",
        "",
    ),
    "an unknown key of a window": (
        orders(windows=[{"start": 0, "end": 1, "every": 2}]),
        (*ORDERS, "windows", 0, "every"),
        "unknown key `windows[0].every` in pipeline `orders`",
        "known keys: start, end",
    ),
    "a window that ends at once": (
        orders(windows=[{"start": 5, "end": 5}]),
        (*ORDERS, "windows", 0, "end"),
        "ends before it has begun",
        "after `start`",
    ),
    "windows that overlap": (
        orders(windows=[{"start": 5, "end": 9}, {"start": 0, "end": 6}]),
        (*ORDERS, "windows", 0),
        "two windows of pipeline `orders` overlap",
        "where the one before it ends",
    ),
    "no interval at all": (orders(min_interval=0), (*ORDERS, "min_interval"), "must be more than 0", ""),
    "a retry that is a number": (orders(retry=1), (*ORDERS, "retry"), "must be an object, not a whole number", ""),
    "an unknown key of retry": (
        orders(retry={"onchange": 1}),
        (*ORDERS, "retry", "onchange"),
        "unknown",
        "`on_change`?",
    ),
    "half a retry": (
        orders(retry={"immediately": 0.5}),
        (*ORDERS, "retry", "immediately"),
        "must be a whole number",
        "",
    ),
    "a retry that is true": (orders(retry={"on_change": True}), (*ORDERS, "retry", "on_change"), "not true or", ""),
    "too many retries": (
        orders(retry={"on_change": limits.SCENARIO_COUNT + 1}),
        (*ORDERS, "retry", "on_change"),
        "must be at most",
        "",
    ),
    "always_run as a number": (orders(always_run=1), (*ORDERS, "always_run"), "must be true or false, not a whole", ""),
    # events
    "events in an object": (pipelines() | {"events": {}}, ("events",), "must be a list, not an object", ""),
    "an event that is text": (
        pipelines() | {"events": ["tap"]},
        EVENT,
        "`events[0]` of the scenario must be an object",
        "",
    ),
    "nothing to do": (without("do"), EVENT, "`do` is missing in `events[0]`", "add the key"),
    "a deed that does not exist": (event(do="pusle"), (*EVENT, "do"), "is `pusle`, it must be `tap`,", "`pulse`?"),
    "a deed that is a list": (event(do=["tap"]), (*EVENT, "do"), "not a list", ""),
    "no time": (without("at"), EVENT, "`at` is missing in `events[0]`", ""),
    "a time that is null": (event(at=None), (*EVENT, "at"), "not null", ""),
    "no pipeline": (without("pipeline"), EVENT, "`pipeline` is missing", "add the key"),
    "a pipeline that does not exist": (
        event(pipeline="oders"),
        (*EVENT, "pipeline"),
        "names the pipeline `oders`, which does not exist",
        "did you mean `orders`?",
    ),
    "a pipeline that is a number": (event(pipeline=1), (*EVENT, "pipeline"), "must be text", ""),
    "a tide without a limit": (event(do="tide"), EVENT, "`max_staleness` is missing", "add the key"),
    "a tide of nothing": (event(do="tide", max_staleness=0), (*EVENT, "max_staleness"), "must be more than 0", ""),
    "a tide of a nanosecond": (event(do="tide", max_staleness=1e-9), (*EVENT, "max_staleness"), "must be more", ""),
    "a tap with a limit": (
        event(max_staleness=1),
        (*EVENT, "max_staleness"),
        "unknown key `max_staleness` in `events[0]` (tap)",
        "known keys: at, do, pipeline",
    ),
    "a tap with an id": (event(id="a"), (*EVENT, "id"), "unknown key `id` in `events[0]` (tap)", "known keys"),
    "a clear of one ripple": (
        event(do="clear", ripple="r"),
        (*EVENT, "ripple"),
        "unknown key `ripple` in `events[0]` (clear)",
        "known keys",
    ),
    "an unknown key of an event": (event(pipe="x"), (*EVENT, "pipe"), "unknown key `pipe`", "`pipeline`?"),
    "a failure of any ripple": (event(do="fail"), EVENT, "does not say which ripple", "`r` and `s`"),
    "a failure of no ripple": (
        event(do="fail", ripple="R"),
        (*EVENT, "ripple"),
        "names the ripple `R`, which does not exist in pipeline `orders`",
        "did you mean `r`?",
    ),
    "no failure": (event(do="fail", ripple="r", times=0), (*EVENT, "times"), "must be at least 1", ""),
    "an id that is a number": (event(do="wave", id=1), (*EVENT, "id"), "must be text, not a whole number", ""),
    "an id that is empty": (event(do="wave", id=""), (*EVENT, "id"), "is empty", ""),
    "an id that was never set": (
        event(do="untrigger", id="mine"),
        (*EVENT, "id"),
        "no trigger `mine` was set on pipeline `orders`",
        "its kind",
    ),
    "a wave without an end": (
        pipelines() | {"events": [{"at": 0, "do": "wave", "pipeline": "orders"}]},
        EVENT,
        "trigger `wave` of pipeline `orders` is never removed, and there is no `until`",
        '"until": 60',
    ),
    "until in quotes": (pipelines() | {"until": "9"}, ("until",), "must be a number of seconds, not text", "quotes"),
    "until before the beginning": (pipelines() | {"until": -1}, ("until",), "must not be negative", ""),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_found_at_its_place(what: str) -> None:
    value, path, message, hint = WRONG[what]
    (problem,) = problems(value)
    assert problem.code == "HW-M13"
    assert problem.places[0] in (at(value, path) if isinstance(value, dict) else {Position("scenario.json")})
    assert message in problem.message
    assert hint in problem.hint
    assert problem.message.isprintable()


def test_all_mistakes_are_found_in_one_go() -> None:
    scenario = {
        "pipelines": {"a": {"ripples": {"r": {"seconds": -1}}}, "b": {"sources": ["c"], "ripples": {}}},
        "events": [{"at": "0", "do": "tapp", "pipeline": "x"}],
        "untill": 3,
    }
    found = [problem.detail.get("key") for problem in problems(scenario)]
    assert found == ["ripples.r.seconds", "sources[0]", "ripples", "at", "do", "pipeline", "untill"]


def test_a_circle_of_sources_is_named_with_all_its_places() -> None:
    scenario = {
        "pipelines": {
            "a": {"sources": ["b"], "ripples": RIPPLES},
            "b": {"sources": ["x"], "optional": ["c"], "ripples": RIPPLES},
            "c": {"sources": ["a"], "ripples": RIPPLES},
            "x": {"ripples": RIPPLES},
            "y": {"sources": ["a"], "ripples": RIPPLES},
        }
    }
    (problem,) = problems(scenario)
    assert "`a` -> `b` -> `c` -> `a`" in problem.message
    named: list[Path] = [("a", "sources", 0), ("b", "optional", 0), ("c", "sources", 0)]
    assert [{place} for place in problem.places] == [at(scenario, ("pipelines", *path)) for path in named]


def test_two_circles_are_two_problems() -> None:
    both = {name: {"sources": [other], "ripples": RIPPLES} for name, other in ("ab", "ba", "cd", "dc")}
    assert len(problems({"pipelines": both})) == 2


@pytest.mark.long
def test_a_circle_of_twenty_thousand_is_told_in_one_line() -> None:
    names = [f"p{number}" for number in range(20_000)]
    circle = {name: {"sources": [names[number - 1]], "ripples": RIPPLES} for number, name in enumerate(names)}
    (problem,) = problems({"pipelines": circle})
    assert len(problem.message) < 200


def test_mistakes_beyond_a_bound_are_counted() -> None:
    many = {f"p{number}": {"ripples": {}} for number in range(limits.SCENARIO_PROBLEMS + 50)}
    found = problems({"pipelines": many})
    assert len(found) == limits.SCENARIO_PROBLEMS + 1
    assert found[-1].message == "there are 50 more mistakes"


def test_a_trigger_that_is_taken_away_needs_no_end() -> None:
    events = [
        {"at": 9, "do": "untrigger", "pipeline": "orders", "id": "wave"},
        {"at": 1, "do": "wave", "pipeline": "orders"},
        {"at": 2, "do": "tide", "pipeline": "orders", "max_staleness": 1, "id": "mine"},
    ]
    (problem,) = problems(pipelines() | {"events": events})
    assert "`mine`" in problem.message
    assert {problem.places[0]} == at(pipelines() | {"events": events}, ("events", 2))
    assert problems(pipelines() | {"events": [*events, {"at": 9, "do": "untrigger", "pipeline": "orders"}]}) == []


def test_an_event_after_the_end_is_no_mistake() -> None:
    assert problems(event(at=9.5)) == []


@pytest.mark.parametrize("do", DEEDS)
def test_every_deed_has_a_form_that_is_right(do: str) -> None:
    own: dict[str, dict[str, Any]] = {"tide": {"max_staleness": 1}, "fail": {"ripple": "s"}}
    assert problems(event(do=do, **own.get(do, {}))) == []


def test_a_scenario_is_read_as_it_is_written() -> None:
    scenario = scenario_of(
        {
            "pipelines": {
                "A": {
                    "ripples": {"a": {"seconds": 1.25}},
                    "windows": [{"start": 86400, "end": 172800}, {"start": 0, "end": 86400}],
                    "min_interval": 0.5,
                },
                "L": {"ripples": {"l": {"seconds": 0}}},
                "B": {
                    "sources": ["A"],
                    "optional": ["L"],
                    "ripples": {"b": {"seconds": 3}, "b2": {"seconds": 1e-7, "after": ["b"]}},
                    "retry": {"immediately": 1, "on_change": 2},
                    "always_run": False,
                },
            },
            "events": [
                {"at": 5, "do": "tide", "pipeline": "B", "max_staleness": 4},
                {"at": 0, "do": "fail", "pipeline": "A", "times": 3},
                {"at": 6, "do": "wave", "pipeline": "B", "id": "mine"},
                {"at": 7, "do": "untrigger", "pipeline": "B"},
            ],
            "until": 40,
        }
    )
    assert scenario == Scenario(
        (
            PondSpec("A", (RippleNode("a"),), min_interval=500_000, always_run=True),
            PondSpec("L", (RippleNode("l"),), always_run=True),
            PondSpec(
                "B",
                (RippleNode("b"), RippleNode("b2", ("b",))),
                required=("A",),
                optional=("L",),
                retry_immediately=1,
                retry_on_change=2,
                always_run=False,
            ),
        ),
        {("A", "a"): 1_250_000, ("L", "l"): 0, ("B", "b"): 3_000_000, ("B", "b2"): 0},
        {"A": ((0, 86_400_000_000), (86_400_000_000, 172_800_000_000)), "L": (), "B": ()},
        (
            ScenarioEvent(5_000_000, "tide", "B", max_staleness=4_000_000, trigger_id="tide"),
            ScenarioEvent(0, "fail", "A", ripple="a", times=3),
            ScenarioEvent(6_000_000, "wave", "B", trigger_id="mine"),
            ScenarioEvent(7_000_000, "untrigger", "B"),
        ),
        40_000_000,
    )

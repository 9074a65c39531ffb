"""Random scenarios: graphs of pipelines with durations, and things that happen to them at coinciding times.

Times are whole or half seconds, so that completions, events, windows and wake-ups often fall on one instant, and a bound
on ripples times seconds keeps an example small enough for the naive interpreter. Every choice is one small integer and 0
is the plainest, so that a failing example shrinks to a scenario a person can follow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Scenario = dict[str, Any]
Choice = TypeVar("Choice")

NAMES = "ABCDEFGHIJKL"
DURATIONS = (1, 2, 1.5, 1, 0.5, 3, 1, 2, 4, 1, 2, 0)
WINDOW_LENGTHS = (2, 1, 3, 5)
WINDOW_GAPS = (0, 0, 1, 2.5)
INTERVALS = (1, 2, 0.5, 2.5)
LIMITS = (1, 2, 0.5, 3, 5)
ENDS = (10, 20, 6, 40)
RIPPLE_SECONDS = 400
"""At most so many ripples times seconds."""

EVENTS = 20
"""At most so many listed events, or one more."""

PUSHED = 500
"""When everything is pushed once, after all has settled."""

MORE = int(os.environ.get("HEADWATER_EXAMPLES", "0"))
"""So many times as many examples as usual; see `many`."""

NUMBERS = [st.integers(0, largest) for largest in range(64)]
"""Made once: making a strategy costs more than drawing from it."""


@dataclass(frozen=True)
class Emphasis:
    """What a family of scenarios has much of. Each tuple is drawn from evenly, the plainest first; after each event
    there is one chance in `likely` that it was the last."""

    pipelines: int
    ripples: tuple[int, ...]
    first: tuple[str, ...]
    deeds: tuple[str, ...]
    fewest: int = 2
    likely: int = 6
    always_run: tuple[bool, ...] = (True,)
    unchanged: tuple[bool, ...] = (False,)
    retries: tuple[int, ...] = (0,)
    kinds_of_source: tuple[str, ...] = ("sources",)
    windowed: tuple[bool, ...] = (False,)


SMALL = Emphasis(
    pipelines=3,
    fewest=1,
    ripples=(1, 1, 2, 3),
    first=("tap", "pulse", "wave", "tide"),
    deeds=("tap", "pulse", "fail", "wave", "clear", "tide", "untrigger", "unchanged", "deliver", "changed", "fail"),
    always_run=(True, False),
    unchanged=(False, False, True),
    retries=(0, 0, 1, 2),
    kinds_of_source=("sources", "sources", "optional"),
    windowed=(False, False, False, True),
)
FAULTS = Emphasis(
    pipelines=6,
    ripples=(1, 1, 2, 3),
    first=("wave", "tap", "pulse", "tide", "wave"),
    deeds=("tap", "fail", "clear", "pulse", "fail", "fail", "wave", "clear", "tide"),
    likely=10,
    always_run=(True, True, False),
    unchanged=(False, False, True),
    retries=(0, 0, 1, 2),
    kinds_of_source=("sources", "sources", "sources", "optional"),
    windowed=(False, False, False, False, True),
)
MENDING = Emphasis(
    pipelines=4,
    ripples=(1, 2, 2, 3, 4),
    first=("wave", "tap", "pulse", "wave"),
    deeds=("fail", "clear", "tap", "fail", "pulse", "clear"),
    likely=10,
    retries=(0, 0, 1, 2),
    kinds_of_source=("sources", "sources", "sources", "optional"),
)
WINDOWS = Emphasis(
    pipelines=5,
    ripples=(1, 1, 2),
    first=("wave", "tide", "pulse", "tap"),
    deeds=("tap", "deliver", "pulse", "tide", "wave", "deliver", "tide", "untrigger", "fail", "clear"),
    retries=(0, 0, 1),
    kinds_of_source=("sources", "sources", "optional"),
    windowed=(False, True, True),
)
PASSES = Emphasis(
    pipelines=6,
    ripples=(1, 1, 2, 2, 3, 4, 5),
    first=("wave", "wave", "tide", "tap"),
    deeds=("tap", "unchanged", "pulse", "wave", "changed", "tap", "fail", "clear"),
    always_run=(True, False, False, False, False),
    unchanged=(False, True, True),
    retries=(0, 0, 0, 1),
    kinds_of_source=("sources", "optional"),
    windowed=(False, False, False, False, True),
)
VERSIONS = Emphasis(
    pipelines=3,
    ripples=(1, 2, 2, 3, 4),
    first=("wave", "tide"),
    deeds=("unchanged", "changed", "pulse", "unchanged", "tap", "deliver", "tide"),
    likely=14,
    always_run=(False,),
    unchanged=(False, True, True),
    kinds_of_source=("sources", "sources", "optional"),
)
LARGE = Emphasis(
    pipelines=12,
    ripples=(1, 1, 1, 2),
    first=("wave", "tap", "pulse", "tide"),
    deeds=("tap", "pulse", "fail", "clear", "wave", "fail", "tide", "unchanged", "untrigger"),
    likely=10,
    always_run=(True, False),
    unchanged=(False, False, True),
    retries=(0, 0, 1, 2),
    kinds_of_source=("sources", "sources", "optional"),
    windowed=(False, False, False, True),
)
EMPHASES = {
    "small": SMALL,
    "faults": FAULTS,
    "mending": MENDING,
    "windows": WINDOWS,
    "passes": PASSES,
    "versions": VERSIONS,
    "large": LARGE,
}


def many(examples: int) -> settings:
    """Settings for about so many examples.

    The ordinary run draws the same examples every time: what turns it red is the change that it tests. With
    HEADWATER_EXAMPLES=n it draws n times as many, others on each run.
    """
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples * max(1, MORE), derandomize=not MORE, suppress_health_check=slow)


def file_of(scenario: Scenario) -> str:
    """The text of its scenario file, a line for each pipeline and event."""
    pipelines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(told)}" for name, told in scenario["pipelines"].items())
    events = ",\n  ".join(json.dumps(event) for event in scenario["events"])
    until = f',\n "until": {scenario["until"]}' if "until" in scenario else ""
    return f'{{"pipelines": {{\n  {pipelines}}},\n "events": [\n  {events}]{until}}}'


@st.composite
def scenarios(draw: st.DrawFn, emphasis: Emphasis) -> Scenario:
    """A valid scenario, as the JSON value of its file. Its first demand is near the start."""
    pipelines = graph(draw, emphasis)
    ripples = sum(len(pipeline["ripples"]) for pipeline in pipelines.values())
    until = pick(draw, [end for end in ENDS if end * ripples <= RIPPLE_SECONDS] or [5])
    events: list[dict[str, Any]] = [
        {"at": 0, "do": "unchanged", "pipeline": name} for name in pipelines if pick(draw, emphasis.unchanged)
    ]
    first = happenings(pipelines, deeds=emphasis.first, until=1, likely=1)
    later = happenings(pipelines, deeds=emphasis.deeds, until=until, likely=emphasis.likely)
    happened = draw(first)
    while happened and len(events) < EVENTS:
        events += happened
        happened = draw(later)
    events.sort(key=lambda event: float(event["at"]))
    only_known_ids(events)
    ends_by_itself = all(event["do"] not in ("wave", "tide") for event in events)
    if ends_by_itself and draw(NUMBERS[1]):
        return {"pipelines": pipelines, "events": events}
    return {"pipelines": pipelines, "events": events, "until": until}


@st.composite
def clears(draw: st.DrawFn) -> Scenario:
    """A pipeline of several ripples that reads two sources, live or with windows, and fails; sources go on; it is cleared,
    and all settles. At 500 s everything is pushed once."""
    windows = {"windows": [{"start": at, "end": at + 10} for at in range(0, 600, 10)]}
    pipelines: dict[str, Any] = {name: {"ripples": {"r": {"seconds": 1}}} for name in "AB"}
    for name in pick(draw, ("AB", "", "A")):
        pipelines[name] |= windows
    ripples: dict[str, Any] = {}
    for place in range(2 + draw(st.integers(0, 2))):
        after = pick(draw, (list(ripples)[-1:], [], list(ripples)))
        ripples[f"r{place}"] = {"seconds": pick(draw, (1, 2, 5)), **({"after": after} if after else {})}
    pipelines["X"] = {"sources": ["A", "B"], "ripples": ripples}
    failing = pick(draw, list(ripples)[1:])
    events = [
        {"at": 0, "do": pick(draw, ("tap", "pulse")), "pipeline": "X"},
        {"at": 0, "do": "fail", "pipeline": "X", "ripple": failing, "times": 1 + draw(st.integers(0, 1))},
    ]
    for _ in range(draw(st.integers(0, 3))):
        do, name = pick(draw, ("pulse", "unchanged")), pick(draw, "BA")
        events.append({"at": 1 + draw(st.integers(0, 20)) / 2, "do": do, "pipeline": name})
    times = [*(pick(draw, (3.5, 4.5, 7, 20)) * (1 + place) for place in range(3)), 200, 300]
    events += [{"at": at, "do": "clear", "pipeline": "X"} for at in times]
    events += [{"at": PUSHED, "do": "pulse", "pipeline": name} for name in pipelines]
    return {"pipelines": pipelines, "events": sorted(events, key=lambda event: float(event["at"])), "until": 600}


def graph(draw: st.DrawFn, emphasis: Emphasis) -> dict[str, Any]:
    """The pipelines of a scenario. Sources are declared before what reads them, or all after."""
    names = NAMES[: emphasis.fewest + draw(NUMBERS[emphasis.pipelines - emphasis.fewest])]
    pipelines: dict[str, Any] = {}
    for place, name in enumerate(names):
        pipeline: dict[str, Any] = {}
        # Sources are near by, so that chains are as common as fans.
        is_inlet = place == 0 or pick(draw, (False, False, False, True))
        for source in [] if is_inlet else some(draw, names[max(0, place - 3) : place], fewest=1):
            pipeline.setdefault(pick(draw, emphasis.kinds_of_source), []).append(source)
        pipeline["ripples"] = steps(draw, emphasis)
        pipeline |= inlet(draw, emphasis, pipeline["ripples"]) if is_inlet else {}
        retry = {"immediately": pick(draw, emphasis.retries), "on_change": pick(draw, emphasis.retries)}
        pipeline |= {"retry": retry} if any(retry.values()) else {}
        pipeline |= {} if pick(draw, emphasis.always_run) else {"always_run": False}
        pipelines[name] = pipeline
    return dict(reversed(pipelines.items())) if draw(NUMBERS[1]) else pipelines


def steps(draw: st.DrawFn, emphasis: Emphasis) -> dict[str, Any]:
    """The ripples of one pipeline: each comes after some of those before it."""
    ripples: dict[str, Any] = {}
    for place in range(pick(draw, emphasis.ripples)):
        ripple: dict[str, Any] = {"seconds": pick(draw, DURATIONS)}
        after = some(draw, list(ripples))
        ripples[f"r{place + 1}"] = ripple | ({"after": after} if after else {})
    return ripples


def inlet(draw: st.DrawFn, emphasis: Emphasis, ripples: dict[str, Any]) -> dict[str, Any]:
    """When an Inlet may look at its source."""
    if pick(draw, emphasis.windowed):
        return {"windows": windows(draw)}
    # A live Inlet whose root takes no time would run every microsecond under a Wave.
    timeless = any(ripple["seconds"] == 0 and "after" not in ripple for ripple in ripples.values())
    if timeless or pick(draw, (False, False, True)):
        return {"min_interval": pick(draw, INTERVALS)}
    return {}


def windows(draw: st.DrawFn) -> list[dict[str, float]]:
    """Windows in time order, with gaps or without."""
    chosen = []
    time: float = pick(draw, (0, 1, 2.5))
    for _ in range(1 + draw(NUMBERS[5])):
        end = time + pick(draw, WINDOW_LENGTHS)
        chosen.append({"start": time, "end": end})
        time = end + pick(draw, WINDOW_GAPS)
    return chosen


@st.composite
def happenings(
    draw: st.DrawFn, pipelines: dict[str, Any], *, deeds: tuple[str, ...], until: float, likely: int
) -> list[dict[str, Any]]:
    """One listed event, or with one chance in `likely` none. A fault may come with its clear; it comes early, while
    there is something to hit."""
    if likely > 1 and not draw(NUMBERS[likely - 1]):
        return []
    do = pick(draw, deeds)
    name = pick(draw, sorted(pipelines, reverse=True))
    event: dict[str, Any] = {"do": do, "pipeline": name}
    time = draw(NUMBERS[int(2 * min(until, 6 if do == "fail" else 20))]) / 2
    cleared = []
    if do == "fail":
        ripples = list(pipelines[name]["ripples"])
        if len(ripples) > 1 or draw(NUMBERS[1]):
            event["ripple"] = pick(draw, ripples)
        event["times"] = pick(draw, (1, 1, 2, 3))
        if draw(NUMBERS[1]):
            cleared = [{"at": time + draw(NUMBERS[12]) / 2, "do": "clear", "pipeline": name}]
    if do == "tide":
        event["max_staleness"] = pick(draw, LIMITS)
    if do in ("wave", "tide", "untrigger") and pick(draw, (False, False, True)):
        event["id"] = pick(draw, ("one", "two", "wave"))
    return [{"at": time, **event}, *cleared]


def only_known_ids(events: list[dict[str, Any]]) -> None:
    """A scenario file may name only a trigger that stands; any other `untrigger` removes all."""
    standing: set[tuple[str, str]] = set()
    for event in events:
        trigger = (event["pipeline"], event.get("id", event["do"]))
        if event["do"] in ("wave", "tide"):
            standing.add(trigger)
        elif event["do"] == "untrigger" and trigger in standing:
            standing.remove(trigger)
        elif event["do"] == "untrigger":
            event.pop("id", None)
            standing = {other for other in standing if other[0] != event["pipeline"]}


def pick(draw: st.DrawFn, choices: Sequence[Choice]) -> Choice:
    """One of them, most simply the first."""
    return choices[draw(NUMBERS[len(choices) - 1])] if len(choices) > 1 else choices[0]


def some(draw: st.DrawFn, choices: Sequence[Choice], *, fewest: Literal[0, 1] = 0) -> list[Choice]:
    """Any of them, most simply none, or with `fewest` the first."""
    mask = fewest + draw(NUMBERS[2 ** len(choices) - 1 - fewest]) if choices else 0
    return [choice for place, choice in enumerate(choices) if mask >> place & 1]

"""A timeline picture shows everything that happened, stays readable, and stays small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given

from freshness.graphs import EMPHASES, many, scenarios
from headwater.app.read_scenario import scenario_of
from headwater.app.simulate import Simulated
from headwater.base import limits
from headwater.freshness.state import SECOND
from headwater.freshness.virtual_time import simulate
from headwater.interfaces.timeline_svg import LEFT, PLOT, WIDTH, fitted, text_width, ticks, time_text, timeline_svg
from headwater.interfaces.timeline_tracks import TimeSpan, in_order, merged, tracks_of

SVG = "{http://www.w3.org/2000/svg}"
DAY = 86400

FAULT: dict[str, Any] = {
    "pipelines": {
        "orders": {"ripples": {"read": {"seconds": 1}}},
        "revenue": {
            "sources": ["orders"],
            "retry": {"immediately": 1, "on_change": 1},
            "ripples": {"daily": {"seconds": 2}, "top": {"seconds": 1, "after": ["daily"]}},
        },
        "report": {"sources": ["revenue"], "ripples": {"page": {"seconds": 1}}},
    },
    "events": [
        {"at": 0, "do": "pulse", "pipeline": "report"},
        {"at": 0, "do": "fail", "pipeline": "revenue", "ripple": "daily", "times": 4},
        {"at": 14, "do": "tap", "pipeline": "report"},
        {"at": 16, "do": "clear", "pipeline": "revenue"},
        {"at": 22, "do": "tide", "pipeline": "report", "max_staleness": 9},
        {"at": 30, "do": "wave", "pipeline": "revenue"},
    ],
    "until": 50,
}
WINDOW: dict[str, Any] = {
    "pipelines": {
        "bank": {
            "ripples": {"statement": {"seconds": 1800}},
            "windows": [{"start": day * DAY + 7200, "end": (day + 1) * DAY} for day in range(4)],
        },
        "shop": {"ripples": {"sales": {"seconds": 600}}, "min_interval": 3600},
        "books": {
            "sources": ["bank"],
            "optional": ["shop"],
            "always_run": False,
            "ripples": {"match": {"seconds": 7200}, "balance": {"seconds": 3600, "after": ["match"]}},
        },
    },
    "events": [
        {"at": 0, "do": "wave", "pipeline": "books"},
        {"at": DAY, "do": "unchanged", "pipeline": "bank"},
        {"at": DAY, "do": "unchanged", "pipeline": "shop"},
    ],
    "until": 3 * DAY,
}


def simulated(value: dict[str, Any]) -> Simulated:
    scenario = scenario_of(value)
    return Simulated(scenario, simulate(scenario))


def answer_of(value: dict[str, Any]) -> dict[str, Any]:
    return simulated(value).answer


def drawn(value: dict[str, Any], title: str = "") -> ET.Element:
    return ET.fromstring(timeline_svg(simulated(value), title=title))


def signs(root: ET.Element, kind: str) -> list[ET.Element]:
    """The signs of a kind, without the one of the legend."""
    found = [path for path in root.iter(f"{SVG}path") if kind in path.get("class", "").split()]
    return [path for path in found if path.get("class") != kind or "h22" not in path.get("d", "")]


def bars(root: ET.Element) -> list[ET.Element]:
    return [bar for bar in signs(root, "bar") if len(bar)]


@dataclass(frozen=True)
class Text:
    """A text and the box it takes at most."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    def overlaps(self, other: Text) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def texts(root: ET.Element) -> list[Text]:
    found = []
    for element in root.iter(f"{SVG}text"):
        titles = "".join(title.tail or "" for title in element)
        text = (element.text or "") + titles
        size, x, y = (float(element.get(name, "")) for name in ("font-size", "x", "y"))
        width = text_width(text, size) * (1.08 if element.get("class") == "bold" else 1)
        left = {"middle": x - width / 2, "end": x - width}.get(element.get("text-anchor", ""), x)
        found.append(Text(text, left, left + width, y - 0.76 * size, y + 0.24 * size))
    return found


def said(root: ET.Element) -> str:
    return "\n".join(text.text for text in texts(root))


def check_readable(root: ET.Element) -> None:
    """No two texts overlap, and everything is inside the picture."""
    found = texts(root)
    assert [(a.text, b.text) for a, b in combinations(found, 2) if a.overlaps(b)] == []
    height = float(root.get("height", ""))
    assert [text for text in found if text.left < 0 or text.right > WIDTH or text.bottom > height] == []
    for bar in bars(root):
        left, width = map(float, re.match(r"M(\S+) \S+h([\d.]+)v", bar.get("d", "")).groups())  # type: ignore[union-attr]
        assert left >= LEFT - 0.1 and left + width <= LEFT + PLOT + 0.2


# ---- every scenario


@pytest.mark.parametrize("family", EMPHASES)
def test_a_picture_of_any_scenario_is_whole_and_readable(family: str) -> None:
    @many(40)
    @given(scenarios(EMPHASES[family]))
    def holds(value: dict[str, Any]) -> None:
        found = simulated(value)
        root = ET.fromstring(timeline_svg(found))
        check_readable(root)
        started = sum(entry["event"] == "ripple_started" for entry in found.answer["timeline"])
        tracks, end = tracks_of(found.scenario, found.answer["timeline"])
        lanes = [spans for track in tracks for ripple, spans in track.spans.items() if ripple]
        shown = [merged(lane, end / PLOT) for lane in lanes]
        assert sum(bar.count for lane in shown for bar in lane) == started
        assert len(bars(root)) == sum(map(len, shown))

    holds()


@pytest.mark.parametrize("family", EMPHASES)
def test_the_staleness_that_is_drawn_is_the_staleness_of_the_answer(family: str) -> None:
    @many(60)
    @given(scenarios(EMPHASES[family]))
    def holds(value: dict[str, Any]) -> None:
        found = simulated(value)
        for name, account in found.account.pipelines.items():
            most = found.answer["pipelines"][name]["staleness"]["max"]
            completions = [round(time * SECOND) for time in found.answer["pipelines"][name]["completions"]]
            assert [at for at, _ in account.drops] == completions
            if "until" in value and completions:
                ends = [*completions[1:], found.scenario.until or 0]
                assert max(end - fresh_at for (_, fresh_at), end in zip(account.drops, ends)) == round(most * SECOND)

    holds()


def test_every_execution_has_a_bar() -> None:
    root = drawn(FAULT)
    answer = answer_of(FAULT)
    assert len(bars(root)) == sum(entry["event"] == "ripple_started" for entry in answer["timeline"])
    check_readable(root)


# ---- what it shows


def test_a_failure_is_marked_by_more_than_a_colour() -> None:
    failed = signs(drawn(FAULT), "failed")
    assert len(failed) == 4
    assert all("l6 6m0 -6l-6 6" in bar.get("d", "") for bar in failed), "a cross"
    assert [bar[0].text for bar in failed if "attempt 2" in (bar[0].text or "")] == [
        "daily: freshness 0s, attempt 2, 3s to 5s, failed",
        "daily: freshness 5s, attempt 2, 8s to 10s, failed",
    ]


def test_equal_freshness_has_an_equal_colour() -> None:
    colours: dict[str, set[str]] = {}
    for bar in bars(drawn(FAULT)):
        freshness = re.search(r"freshness (\S+),", bar[0].text or "")
        assert freshness is not None
        if "failed" not in bar.get("class", ""):
            colours.setdefault(freshness[1], set()).add(bar.get("class", "").removesuffix(" running"))
    assert all(len(found) == 1 for found in colours.values())
    assert len({colour for found in colours.values() for colour in found}) == min(len(colours), 5)


def test_the_legend_explains_what_is_there_and_nothing_else() -> None:
    fault, window = said(drawn(FAULT)), said(drawn(WINDOW))
    for words in (
        "an execution that failed",
        "pulse: ",
        "tide: ",
        "cleared by hand",
        "refused",
        "blocked: ",
        "the most a tide",
    ):
        assert words in fault
        assert words not in window
    for words in ("a window in which", "a pass: ", "its runs find nothing new", "good until the end"):
        assert words in window
        assert words not in fault
    assert "wave: " in fault and "wave: " in window


def test_windows_are_shaded_and_passes_are_thin_marks() -> None:
    root = drawn(WINDOW)
    assert len(signs(root, "window")) == 3, "the fourth window begins after the end"
    passes = sum(entry["event"] == "ripple_passed" for entry in answer_of(WINDOW)["timeline"])
    assert passes and len(signs(root, "pass")) == passes + 1, "and one in the legend"
    check_readable(root)


def test_sources_stand_above_their_readers() -> None:
    scenario = scenario_of(
        {
            "pipelines": {
                "last": {"sources": ["middle", "first"], "ripples": {"r": {"seconds": 1}}},
                "middle": {"optional": ["first"], "ripples": {"r": {"seconds": 1}}},
                "first": {"ripples": {"r": {"seconds": 1}}},
                "alone": {"ripples": {"r": {"seconds": 1}}},
            }
        }
    )
    assert [pipeline.name for pipeline in in_order(scenario.pipelines)] == ["first", "alone", "middle", "last"]


def test_names_are_escaped_and_cut() -> None:
    names = ("<&>\"'", "x" * 100, "数据" * 30)
    value = {
        "pipelines": {name: {"ripples": {f"{name[:9]}]]>": {"seconds": 1}}} for name in names},
        "events": [{"at": 0, "do": "pulse", "pipeline": name} for name in names],
    }
    root = drawn(value, title="<title> & co")
    assert root[0].text == "<title> & co"
    assert "<&>\"'" in said(root)
    assert {title.text for title in root.iter(f"{SVG}title")} >= {names[1], names[2]}, "whole names are under the mouse"
    check_readable(root)


def test_a_scenario_in_which_nothing_happens_is_a_picture_too() -> None:
    root = drawn({"pipelines": {"idle": {"ripples": {"r": {"seconds": 1}}}}})
    assert bars(root) == []
    assert "no result yet" in said(root) and "no demand" in said(root)
    check_readable(root)


def test_an_execution_at_the_last_moment_stays_inside() -> None:
    value = {
        "pipelines": {"a": {"ripples": {"r": {"seconds": 1}}}},
        "events": [{"at": 10, "do": "tap", "pipeline": "a"}],
        "until": 10,
    }
    root = drawn(value)
    assert len(bars(root)) == 1
    check_readable(root)


# ---- many


def test_forty_lanes_are_readable() -> None:
    value: dict[str, Any] = {"pipelines": {}, "events": [], "until": 600}
    for number in range(20):
        value["pipelines"][f"a_pipeline_with_number_{number}"] = {
            "sources": [f"a_pipeline_with_number_{number - 1}"] if number % 5 else [],
            "ripples": {"one": {"seconds": 7 + number}, "two": {"seconds": 3, "after": ["one"]}},
        }
    value["events"] = [{"at": 9 * n, "do": "wave", "pipeline": f"a_pipeline_with_number_{5 * n + 4}"} for n in range(4)]
    check_readable(drawn(value))


def test_a_long_simulation_is_merged_and_small() -> None:
    value: dict[str, Any] = {
        "pipelines": {
            "ticks": {"ripples": {"read": {"seconds": 2}}},
            "rates": {"sources": ["ticks"], "ripples": {"join": {"seconds": 10}}},
        },
        "events": [
            {"at": 0, "do": "wave", "pipeline": "rates"},
            {"at": 40_000, "do": "fail", "pipeline": "rates", "times": 1},
            {"at": 43_000, "do": "clear", "pipeline": "rates"},
        ],
        "until": DAY,
    }
    found = simulated(value)
    picture = timeline_svg(found)
    assert len(found.answer["timeline"]) > 30_000
    assert len(picture) < 200_000
    root = ET.fromstring(picture)
    assert "executions, too short to be drawn apart" in said(root)
    assert len(signs(root, "failed")) == 1, "a failure is never hidden"
    check_readable(root)


def test_very_many_bars_are_merged_until_they_fit() -> None:
    pipelines = {f"p{n}": {"ripples": {"r": {"seconds": 1}}, "min_interval": 2 + n % 3} for n in range(60)}
    events = [{"at": 0, "do": "wave", "pipeline": name} for name in pipelines]
    picture = timeline_svg(simulated({"pipelines": pipelines, "events": events, "until": 700}))
    assert len(bars(ET.fromstring(picture))) <= limits.TIMELINE_BARS
    assert len(picture) < 2_000_000


def test_pipelines_beyond_a_bound_are_counted() -> None:
    names = [f"p{number}" for number in range(limits.TIMELINE_TRACKS + 30)]
    value = {"pipelines": {name: {"ripples": {"r": {"seconds": 1}}} for name in names}}
    root = drawn(value)
    assert "30 more pipelines are not drawn" in said(root)
    check_readable(root)


def test_the_same_answer_gives_the_same_picture() -> None:
    assert timeline_svg(simulated(FAULT)) == timeline_svg(simulated(FAULT))


def test_merging_keeps_what_is_long_or_far_apart() -> None:
    def bar(start: int, end: int) -> TimeSpan:
        return TimeSpan("completed", start, end)

    assert merged([bar(0, 1), bar(2, 3), bar(4, 30), bar(31, 32), bar(50, 51)], 5) == [
        TimeSpan("completed", 0, 3, count=2),
        bar(4, 30),
        bar(31, 32),
        bar(50, 51),
    ]


# ---- scales

TIMES = {
    0: "0s",
    0.00025: "250µs",
    0.0125: "12.5ms",
    0.25: "0.25s",
    0.9999999: "1s",
    4.5: "4.5s",
    59.9: "59.9s",
    59.99: "1m",
    90: "1m 30s",
    3599.6: "1h",
    9000: "2h 30m",
    86399: "1d",
    108000: "1d 6h",
    -90: "-1m 30s",
}


@pytest.mark.parametrize("seconds", TIMES)
def test_a_time_has_at_most_two_units(seconds: float) -> None:
    assert time_text(seconds * SECOND) == TIMES[seconds]


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        (1, ["0s", "0.1s", "0.2s", "0.3s", "0.4s", "0.5s", "0.6s", "0.7s", "0.8s", "0.9s", "1s"]),
        (40, ["0s", "5s", "10s", "15s", "20s", "25s", "30s", "35s", "40s"]),
        (7200, ["0s", "15m", "30m", "45m", "1h", "1h 15m", "1h 30m", "1h 45m", "2h"]),
        (DAY, ["0s", "3h", "6h", "9h", "12h", "15h", "18h", "21h", "1d"]),
        (30 * DAY, ["0s", "5d", "10d", "15d", "20d", "25d", "30d"]),
    ],
)
def test_an_axis_has_round_ticks(end: int, labels: list[str]) -> None:
    assert [time_text(tick) for tick in ticks(end * SECOND, 11)] == labels


def test_the_top_of_a_scale_is_round_and_above() -> None:
    assert [ticks(value * SECOND, 5)[-1] // SECOND for value in (1, 7, 31, 90, 4000)] == [1, 8, 40, 90, 4500]
    assert ticks(1, 5)[-1] > 0


def test_a_text_is_cut_to_its_room() -> None:
    assert fitted("short", 10, 100) == "short"
    cut = fitted("a rather long text", 10, 60)
    assert cut.endswith("…") and text_width(cut, 10) <= 60
    assert fitted("anything", 10, 2) == ""

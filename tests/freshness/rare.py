"""Small scenarios that reach what random ones seldom reach, each named for the one rule that it shows.

Found by breaking that rule in the naive interpreter and searching for the smallest scenario whose answer changed.
"""

from __future__ import annotations

from typing import Any

Scenario = dict[str, Any]

RETRY = {"immediately": 0, "on_change": 1}


def one(seconds: float = 1, **more: Any) -> dict[str, Any]:
    """A pipeline of one ripple, `r`."""
    return {"ripples": {"r": {"seconds": seconds}}, **more}


def windows(*bounds: tuple[float, float]) -> list[dict[str, float]]:
    return [{"start": start, "end": end} for start, end in bounds]


def at(time: float, do: str, pipeline: str, **more: Any) -> dict[str, Any]:
    return {"at": time, "do": do, "pipeline": pipeline, **more}


def scenario(pipelines: dict[str, Any], *events: dict[str, Any], until: float = 10) -> Scenario:
    return {"pipelines": pipelines, "events": list(events), "until": until}


QUICK_AND_SLOW = {
    "A": one(0.5),
    "B": {"sources": ["A"], "ripples": {"quick": {"seconds": 1.5}, "slow": {"seconds": 4}}, "always_run": False},
    "C": one(0.5, sources=["B"], always_run=False),
}
"""`quick` skips runs that `slow` completes: the versions of such a run are those at least as fresh as it is."""

TWO_SOURCES = {
    "A": one(),
    "B": one(),
    "C": {"sources": ["A", "B"], "ripples": {"slow": {"seconds": 6}, "quick": {"seconds": 1}}, "always_run": False},
}
"""`quick` fails while `slow` executes."""

RARE: dict[str, Scenario] = {
    "an execution that reads the old cut fails without consequence": scenario(
        TWO_SOURCES,
        at(0, "pulse", "C"),
        at(0, "fail", "C", ripple="quick"),
        at(2, "pulse", "A"),
        at(4, "clear", "C"),
        at(6, "fail", "C", ripple="slow"),
        until=20,
    ),
    "an execution of an abandoned run that is older than the next one ends before that one executes": scenario(
        TWO_SOURCES,
        at(0, "pulse", "C"),
        at(0, "fail", "C", ripple="quick"),
        at(2, "pulse", "A"),
        at(2, "pulse", "B"),
        at(4, "clear", "C"),
        until=20,
    ),
    "an execution of an abandoned run fails without consequence, and the next run may begin": scenario(
        {"A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 3}}, "windows": windows((0, 10))}},
        at(0, "pulse", "A"),
        at(0, "fail", "A", ripple="r1"),
        at(0, "fail", "A", ripple="r2"),
        at(2, "clear", "A"),
    ),
    "an execution of an abandoned run counts for the next one in the same window": scenario(
        {"A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 3}}, "windows": windows((0, 10), (10, 20))}},
        at(0, "tap", "A"),
        at(0, "fail", "A", ripple="r1"),
        at(2, "clear", "A"),
        until=30,
    ),
    "a retry that runs goes on after a clear": scenario(
        {"A": one(retry=RETRY)}, at(0, "pulse", "A"), at(0, "fail", "A"), at(1, "clear", "A")
    ),
    "a retry that goes on after a clear can fail": scenario(
        {"A": one(retry=RETRY)}, at(0, "wave", "A"), at(0, "fail", "A", times=2), at(1, "clear", "A")
    ),
    "a failed run that a clear has dropped is not superseded": scenario(
        {
            "A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 3}}, "retry": RETRY},
            "B": one(sources=["A"]),
        },
        at(0, "pulse", "B"),
        at(0, "fail", "A", ripple="r1", times=3),
        at(3, "clear", "A"),
    ),
    "what a dropped run executed makes the next completion a run": scenario(
        {"A": one(2, retry=RETRY), "B": one(sources=["A"])},
        at(0, "pulse", "B"),
        at(0, "fail", "A"),
        at(2, "clear", "A"),
    ),
    "reaching the failed freshness is not yet a recovery": scenario(
        {"A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1}}, "retry": RETRY}},
        at(0, "pulse", "A"),
        at(0, "fail", "A", ripple="r1"),
    ),
    "two failed ripples of one run are one failure": scenario(
        {"A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1}}}},
        at(0, "pulse", "A"),
        at(0, "fail", "A", ripple="r1"),
        at(0, "fail", "A", ripple="r2"),
    ),
    "an older run that fails later does not lower what must be passed": scenario(
        {
            "A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 2, "after": ["r1"]}}},
            "B": {
                "sources": ["A"],
                "ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 2}, "r3": {"seconds": 2, "after": ["r1", "r2"]}},
                "retry": {"immediately": 2, "on_change": 2},
            },
        },
        at(0, "wave", "B"),
        at(0, "fail", "B", ripple="r1"),
        at(0, "fail", "B", ripple="r3", times=2),
        at(5.5, "fail", "B", ripple="r1", times=3),
        until=20,
    ),
    "a clear drops the targets of ripples": scenario(
        {"A": {"ripples": {"r1": {"seconds": 2}, "r2": {"seconds": 1, "after": ["r1"]}}}},
        at(0, "wave", "A"),
        at(0, "fail", "A", ripple="r2"),
        at(3, "clear", "A"),
    ),
    "a clear leaves a running ripple where it is": scenario(
        {"A": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1, "after": ["r1"]}}, "retry": RETRY}},
        at(0, "pulse", "A"),
        at(2.5, "tap", "A"),
        at(4, "fail", "A", ripple="r1"),
        at(6, "clear", "A"),
        at(6, "tap", "A"),
    ),
    "a clear takes a resting ripple back": scenario(
        {
            "A": {"ripples": {"r1": {"seconds": 0}, "r2": {"seconds": 1, "after": ["r1"]}}, "min_interval": 1},
            "B": one(sources=["A"]),
        },
        at(0, "wave", "B"),
        at(0, "fail", "A", ripple="r2"),
        at(1, "clear", "A"),
    ),
    "a clear takes the delay of the last completion back": scenario(
        {"A": one(windows=windows((0, 2), (3, 6), (20, 25)))},
        at(0, "tap", "A"),
        at(3, "tap", "A"),
        at(3.5, "fail", "A"),
        at(7, "clear", "A"),
        at(7, "tide", "A", max_staleness=8),
    ),
    "a cleared pond gets the targets of a reader that has only optional sources": scenario(
        {"A": one(0.5), "B": one(optional=["A"]), "C": one(optional=["B"])},
        at(0, "pulse", "C"),
        at(0, "fail", "B"),
        at(1.5, "pulse", "C"),
        at(1.5, "clear", "B"),
    ),
    "an unblocked pond gets no target over an optional edge beside required ones": scenario(
        {
            "A": one(),
            "B": one(2, sources=["A"]),
            "C": one(sources=["B"]),
            "D": one(sources=["B"], optional=["C"]),
        },
        at(0, "wave", "B"),
        at(0, "fail", "B"),
        at(0.5, "pulse", "D"),
        at(3, "clear", "B"),
    ),
    "a pond that is still blocked asks an unblocked source for nothing": scenario(
        {
            "A": one(),
            "B": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1, "after": ["r1"]}}},
            "C": one(sources=["A", "B"]),
        },
        at(0, "wave", "C"),
        at(0, "fail", "C"),
        at(0, "fail", "B", ripple="r2"),
        at(0, "fail", "A"),
        at(2, "clear", "B"),
    ),
    "a recovered pond pulls again": scenario(
        {
            "A": one(),
            "B": {
                "sources": ["A"],
                "ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1}, "r3": {"seconds": 1, "after": ["r1"]}},
                "retry": RETRY,
            },
        },
        at(0, "wave", "B"),
        at(0, "fail", "B", ripple="r1"),
    ),
    "a cleared pond sends its targets again": scenario(
        {"A": one(2), "B": one(3, sources=["A"]), "C": one(sources=["B"])},
        at(0, "fail", "C"),
        at(0, "pulse", "C"),
        at(0.5, "pulse", "C"),
        at(2.5, "pulse", "C"),
        at(6, "clear", "C"),
    ),
    "an execution for an overtaken run makes the completion a run": scenario(
        {
            "A": one(),
            "B": {
                "sources": ["A"],
                "ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 2, "after": ["r1"]}},
                "always_run": False,
            },
        },
        at(0, "wave", "A"),
        at(0, "unchanged", "B"),
        at(2, "pulse", "B"),
        at(2, "tap", "B"),
        at(3.5, "unchanged", "A"),
        until=20,
    ),
    "of two failed sources the first listed is named": scenario(
        {"A": one(), "C": one(sources=["A"]), "B": one(sources=["A"]), "D": one(sources=["B", "C"])},
        at(0, "wave", "D"),
        at(0, "fail", "B"),
        at(0, "fail", "C"),
        at(2, "tap", "D"),
    ),
    "the delay is the largest of the sources that bound the freshness": scenario(
        {
            "A": one(windows=windows((1, 3))),
            "B": one(windows=windows((0, 3))),
            "C": one(sources=["A", "B"]),
            "D": one(sources=["A"], optional=["B"]),
        },
        at(0, "pulse", "C"),
        at(0, "tap", "D"),
    ),
    "a run that a ripple skipped has that ripple's next version, not an older one": scenario(
        QUICK_AND_SLOW, at(0, "tide", "C", max_staleness=0.5), at(7, "unchanged", "B"), until=20
    ),
    "a run that a ripple skipped has that ripple's next version, not the newest": scenario(
        QUICK_AND_SLOW, at(0, "tide", "C", max_staleness=0.5), at(8.5, "unchanged", "B"), until=20
    ),
}

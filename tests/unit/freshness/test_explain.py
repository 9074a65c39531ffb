"""Why a pond is as it is, in one sentence and in values."""

from __future__ import annotations

from freshness.driving import pond, settle
from headwater.freshness.events import Completed, Demand, Failed, Trigger, TriggerSet
from headwater.freshness.explain import Origin, explain
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.state import State
from headwater.freshness.windows import Windows

S = 1_000_000


def said(state: State, name: str) -> tuple[str, str, str]:
    why = explain(state, name)
    return why.state, why.rule, why.sentence


def test_idle_ponds() -> None:
    state = new_state([pond("a")])
    assert said(state, "a") == ("idle", "never-demanded", "`a` has never been demanded")
    settle(state, [Demand("a", "pulse")])
    assert said(state, "a") == ("idle", "up-to-date", "`a` is as fresh as 1e-06 s, and nothing demands more")


def test_a_pond_that_waits_for_its_source_names_it_and_who_asked() -> None:
    state = new_state([pond("a"), pond("b", "a"), pond("c", "b")])
    step(state, [TriggerSet("c", Trigger("tide", "tide", limit=60 * S))], 5 * S)
    assert said(state, "b") == (
        "queued",
        "source-behind",
        "`b` is demanded by `tide` on `c` and waits for `a`, which has never completed a run",
    )
    why = explain(state, "b")
    assert why.values == {"need": 5 * S, "start_f": None, "source_f": None, "sources": ["a"]}
    assert why.origins == (Origin("c", ("tide",)),)
    assert said(state, "a") == ("running", "executing", "`a` runs to become as fresh as 5 s: `r0` is executing")


def test_a_pond_whose_ripple_waits() -> None:
    state = new_state([PondSpec("a", (RippleNode("x"), RippleNode("y"), RippleNode("z", ("x", "y"))), always_run=True)])
    step(state, [Demand("a", "pulse")], S)
    assert said(state, "a")[2] == "`a` runs to become as fresh as 1 s: `x` and `y` are executing"


def test_an_inlet_that_waits_for_its_window_tells_when() -> None:
    state = new_state([PondSpec("a", (RippleNode("r"),), windows=Windows([(10 * S, 20 * S)])), pond("b", "a")])
    step(state, [Demand("b", "tap")], S)
    assert said(state, "a") == (
        "queued",
        "window-closed",
        "`a` is demanded by `b` and waits: its next window opens at 10 s",
    )
    step(state, [Demand("a", "tap")], 30 * S)
    assert said(state, "a")[2].endswith("no window will open any more")


def test_a_live_inlet_that_was_looked_at_just_now_tells_when_it_looks_again() -> None:
    state = new_state([PondSpec("a", (RippleNode("r"),), min_interval=10 * S)])
    step(state, [Demand("a", "pulse")], S)
    step(state, [Completed("a", "r", S, 1)], 2 * S)
    step(state, [Demand("a", "pulse")], 3 * S)
    assert said(state, "a") == (
        "queued",
        "min-interval",
        "`a` is demanded by a single request and waits: it looks at its source again at 11 s",
    )


def test_failed_and_blocked_ponds_name_the_cause() -> None:
    retrying = PondSpec("b", (RippleNode("r0"),), ("a",), retry_on_change=1)
    state = new_state([pond("a"), retrying, pond("c", "b"), pond("d", "c")])
    step(state, [Demand("d", "pulse")], S)
    step(state, [Completed("a", "r0", S, 1)], 2 * S)
    step(state, [Failed("b", "r0", S)], 3 * S)
    assert said(state, "b") == (
        "failed",
        "retry-on-change",
        "`b` failed at freshness 1 s; it will try again (1 of 1) when its sources have moved on",
    )
    step(state, [Completed("a", "r0", 3 * S, 2)], 4 * S)
    assert said(state, "b")[1] == "executing"
    step(state, [Failed("b", "r0", 3 * S)], 5 * S)
    assert said(state, "b") == (
        "failed",
        "failed",
        "`b` failed at freshness 3 s and has no retry left; it waits for `headwater clear b`",
    )
    assert said(state, "d") == (
        "blocked",
        "source-blocked",
        "`d` is blocked because `b` failed; it takes no demand until `b` is cleared",
    )

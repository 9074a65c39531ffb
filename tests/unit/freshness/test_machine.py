"""The engine at its edges: late and repeated events, clocks, expiry, what a run reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshness.driving import pond, save, settle
from headwater.freshness.events import (
    Completed,
    Delivered,
    Demand,
    Demanded,
    Effect,
    Failed,
    PondRunStarted,
    RunCompleted,
    SourceCut,
    StartRipple,
    Tick,
    Trigger,
    TriggerCleared,
    TriggerSet,
    WakeAt,
)
from headwater.freshness.graph import GraphError, PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.saving import load
from headwater.freshness.windows import Windows


def started(effects: list[Effect]) -> list[int]:
    return [effect.freshness for effect in effects if isinstance(effect, PondRunStarted)]


def test_without_demand_nothing_runs() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    assert step(state, [Tick()], 10**12) == ([], [])


def test_an_event_that_comes_twice_or_too_late_is_ignored() -> None:
    state = new_state([pond("a")])
    step(state, [Demand("a", "pulse")], 5)
    done = Completed("a", "r0", 5, version=1)
    assert any(isinstance(effect, RunCompleted) for effect in step(state, [done], 6)[0])
    before = save(state)
    for event in (
        done,
        Failed("a", "r0", 5),
        Completed("a", "r0", 4, 1),
        Completed("x", "r0", 5, 1),
        Completed("a", "x", 5, 1),
        Demand("x", "tap"),
    ):
        assert step(state, [event], 7)[0] == []
    assert save(state) == {**before, "now": 7}


def test_what_is_delivered_to_an_inlet_is_looked_at_at_once_and_only_if_somebody_asks() -> None:
    slow = replace(pond("a"), min_interval=1_000_000)
    state = new_state([slow])
    settle(state, [Demand("a", "pulse")])
    began = state.ponds["a"].start_freshness
    assert started(step(state, [Delivered("a")], began + 10)[0]) == []
    assert started(step(state, [Demand("a", "tap")], began + 20)[0]) == [began + 20]
    step(state, [Completed("a", "r0", began + 20, version=2)], began + 25)
    assert started(step(state, [Demand("a", "tap")], began + 30)[0]) == []  # one delivery, one look
    effects, touched = step(state, [Delivered("a")], began + 40)
    assert (started(effects), touched) == ([began + 40], ["a"])
    loaded = load([slow], save(state))
    step(state, [Delivered("a")], began + 50)
    assert step(state, [Delivered("a")], began + 51)[1] == []  # known already: nothing to save
    assert save(state)["ponds"]["a"]["delivered"] and not save(loaded)["ponds"]["a"]["delivered"]


def test_a_clock_that_jumps_back_stands_still() -> None:
    state = new_state([pond("a")])
    settle(state, [Demand("a", "pulse")])
    at = state.now
    effects, _ = step(state, [Demand("a", "pulse")], at - 1000)
    assert [effect for effect in effects if isinstance(effect, Demanded)] == [Demanded("a", "pulse", at)]
    assert state.now == at


def test_a_live_inlet_asks_to_be_woken_instead_of_spinning() -> None:
    inlet = PondSpec("a", (RippleNode("r0"),), min_interval=100)
    state = new_state([inlet])
    step(state, [Demand("a", "pulse")], 0)
    step(state, [Completed("a", "r0", 0, 1)], 10)
    effects, _ = step(state, [Demand("a", "tap")], 20)
    assert effects == [Demanded("a", "tap", None), WakeAt(100)]
    effects, _ = step(state, [Tick()], 100)
    assert [type(effect) for effect in effects] == [PondRunStarted, StartRipple, WakeAt]
    assert effects[-1] == WakeAt(None)


def test_a_run_reads_one_cut_however_long_it_takes() -> None:
    state = new_state([pond("a"), pond("b", "a", ripples=2)])
    step(state, [Demand("b", "pulse")], 1)
    effects, _ = step(state, [Completed("a", "r0", 1, "a@1")], 2)
    first = next(effect for effect in effects if isinstance(effect, StartRipple))
    assert first.cut == (SourceCut("a", 1, (("r0", "a@1"),)),)
    step(state, [Demand("a", "pulse")], 3)
    step(state, [Completed("a", "r0", 3, "a@3")], 4)
    effects, _ = step(state, [Completed("b", "r0", 1, "b@1")], 5)
    second = next(effect for effect in effects if isinstance(effect, StartRipple))
    assert (second.ripple, second.cut, second.parents) == ("r1", first.cut, (("r0", "b@1"),))


def test_an_optional_source_that_never_ran_reads_as_nothing() -> None:
    state = new_state([pond("a"), pond("slow"), pond("b", "a", optional=("slow",))])
    step(state, [Demand("b", "pulse")], 1)
    effects, _ = step(state, [Completed("a", "r0", 1, 7)], 2)
    start = next(effect for effect in effects if isinstance(effect, StartRipple))
    assert start.cut == (SourceCut("a", 1, (("r0", 7),)), SourceCut("slow", None, None))


def test_a_trigger_ends_when_it_expires() -> None:
    state = new_state([pond("a")])
    effects, _ = step(state, [TriggerSet("a", Trigger("t", "tide", limit=50, owner="me", expires_at=120))], 0)
    assert effects[-1] == WakeAt(50)
    pushed = []
    for now in range(10, 400, 10):
        effects, _ = step(state, [Tick()], now)
        pushed += [now for effect in effects if isinstance(effect, Demanded)]
        for start in [effect for effect in effects if isinstance(effect, StartRipple)]:
            step(state, [Completed(start.pond, start.ripple, start.freshness, now)], now)
    step(state, [Completed("a", "r0", 0, 0)], 400)
    assert max(pushed) <= 120
    assert state.ponds["a"].triggers == {}


def test_a_cleared_trigger_leaves_its_demand() -> None:
    inlet = PondSpec("a", (RippleNode("r0"),), windows=Windows([(100, 200)]))
    state = new_state([inlet])
    step(state, [TriggerSet("a", Trigger("w", "wave"))], 0)
    effects, _ = step(state, [TriggerCleared("a", "w")], 1)
    assert state.ponds["a"].has_pull
    effects, _ = step(state, [Tick()], 100)
    assert PondRunStarted("a", 200, 100) in effects


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([pond("a", "b"), pond("b", "a")], "cycle"),
        ([pond("a", "x")], "does not exist"),
        ([PondSpec("a", ())], "no ripple"),
        ([pond("a"), PondSpec("b", (RippleNode("r"),), ("a",), ("a",))], "twice"),
        ([pond("a"), PondSpec("b", (RippleNode("r"),), ("a",), windows=Windows([]))], "windows are for Inlets"),
        ([PondSpec("a", (RippleNode("r", ("q",)), RippleNode("q", ("r",))))], "cycle"),
        ([PondSpec("a", (RippleNode("r", ("q",)),))], "does not exist"),
        ([PondSpec("a", (RippleNode("r"), RippleNode("r")))], "two ripples"),
        ([PondSpec("a", (RippleNode("r", reads=("z",)),))], "no source"),
        ([PondSpec("a", (RippleNode("r"),), min_interval=0)], "min_interval"),
    ],
)
def test_what_is_no_graph_is_refused(specs: list[PondSpec], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        new_state(specs)

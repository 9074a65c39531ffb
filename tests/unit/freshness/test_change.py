"""The graph changes while it runs: what is still valid stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshness.driving import pond, save, settle
from headwater.freshness.events import (
    Blocked,
    CancelRipple,
    Cleared,
    Completed,
    Demand,
    Failed,
    GraphChanged,
    PondRunStarted,
    RunCompleted,
    StartRipple,
    Trigger,
    TriggerSet,
    WakeAt,
)
from headwater.freshness.graph import GraphError, PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.saving import graph_change, load
from headwater.freshness.state import NEVER
from headwater.freshness.windows import Windows


def starts(effects: list[object]) -> list[tuple[str, str]]:
    return [(effect.pond, effect.ripple) for effect in effects if isinstance(effect, StartRipple)]


def test_a_pond_that_is_added_can_be_demanded_and_the_others_keep_their_freshness() -> None:
    state = new_state([pond("a")])
    settle(state, [Demand("a", "pulse")])
    fresh = state.ponds["a"].end_freshness
    step(state, [GraphChanged((pond("b", "a"),))], state.now)
    assert state.ponds["a"].end_freshness == fresh
    assert ("b", "r0") in starts(settle(state, [Demand("b", "tap")]))


def test_a_removed_pond_is_forgotten_and_its_late_completion_ignored() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    step(state, [Demand("b", "pulse")], 5)
    effects, _ = step(state, [GraphChanged((pond("b"),), removed=("a",))], 6)
    assert CancelRipple("a", "r0", 5) in effects
    assert list(state.ponds) == ["b"]
    assert step(state, [Completed("a", "r0", 5, 1)], 7)[0] == []
    # What was asked of b is still asked; it is an Inlet now and has run for it.
    assert state.ponds["b"].start_freshness == 6


def test_removing_a_pond_that_others_read_is_refused_and_changes_nothing() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    before = save(state)
    with pytest.raises(GraphError, match="does not exist"):
        step(state, [GraphChanged(removed=("a",))], 0)
    assert save(state) == before


def test_a_new_ripple_makes_the_pond_due_and_its_freshness_never_goes_back() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    settle(state, [Demand("b", "pulse")])
    fresh = state.ponds["b"].end_freshness
    step(state, [GraphChanged((pond("b", "a", ripples=2),))], state.now)
    assert state.ponds["b"].end_freshness == fresh
    assert starts(step(state, [], state.now + 1)[0]) == [], "due is not demand"
    effects = settle(state, [Demand("b", "tap")])
    assert starts(effects)[0] == ("b", "r1"), "only what is new is executed"
    assert RunCompleted("b", fresh, 0) in effects


def test_a_changed_ripple_and_what_reads_it_run_again_in_the_same_window() -> None:
    inlet = PondSpec("a", (RippleNode("r0"),), windows=Windows([(0, 1000)]))
    model = PondSpec("b", (RippleNode("x", fingerprint="1"), RippleNode("y", ("x",)), RippleNode("z")), ("a",))
    sink = PondSpec("c", (RippleNode("r0"),), ("b",))
    state = new_state([inlet, model, sink])
    settle(state, [Demand("c", "pulse")])
    assert state.ponds["c"].end_freshness == 1000
    changed = replace(model, ripples=(RippleNode("x", fingerprint="2"), *model.ripples[1:]))
    step(state, [GraphChanged((changed,))], 50)
    assert starts(settle(state, [Demand("b", "pulse")])) == [("b", "x"), ("b", "y")]
    assert starts(settle(state, [Demand("c", "pulse")])) == [("c", "r0")], "its reader is due, too"


def test_a_change_of_nothing_makes_nothing_due() -> None:
    specs = [pond("a"), pond("b", "a")]
    state = new_state(specs)
    settle(state, [Demand("b", "pulse")])
    before = save(state)
    step(state, [GraphChanged(tuple(specs))], state.now)
    assert save(state) == before


def test_a_new_source_is_asked_for_what_the_pond_waits_for() -> None:
    state = new_state([PondSpec("a", (RippleNode("r0"),), windows=Windows([(100, 200)])), pond("b", "a"), pond("n")])
    step(state, [Demand("b", "pulse")], 1)
    effects, _ = step(state, [GraphChanged((pond("b", "a", "n"),))], 2)
    assert starts(effects) == [("n", "r0")]


def test_a_new_ripple_joins_the_run_in_flight() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    step(state, [Demand("b", "pulse")], 1)
    step(state, [Completed("a", "r0", 1, 1)], 2)
    effects, _ = step(state, [GraphChanged((replace(pond("b", "a"), ripples=(RippleNode("r0"), RippleNode("s"))),))], 3)
    assert starts(effects) == [("b", "s")]
    assert not any(isinstance(e, RunCompleted) for e in step(state, [Completed("b", "r0", 1, 1)], 4)[0])
    assert RunCompleted("b", 1, 0) in step(state, [Completed("b", "s", 1, 1)], 5)[0]


def test_a_run_that_waited_for_a_removed_ripple_completes() -> None:
    state = new_state([pond("a"), pond("b", "a", ripples=2)])
    step(state, [Demand("b", "pulse")], 1)
    step(state, [Completed("a", "r0", 1, 1)], 2)
    step(state, [Completed("b", "r0", 1, 1)], 3)
    effects, _ = step(state, [GraphChanged((pond("b", "a"),))], 4)
    assert RunCompleted("b", 1, 0) in effects


def test_an_execution_of_an_old_definition_is_cancelled_and_done_anew() -> None:
    state = new_state([pond("a"), PondSpec("b", (RippleNode("x", fingerprint="1"),), ("a",))])
    step(state, [Demand("b", "pulse")], 1)
    step(state, [Completed("a", "r0", 1, 1)], 2)
    effects, _ = step(state, [GraphChanged((PondSpec("b", (RippleNode("x", fingerprint="2"),), ("a",)),))], 3)
    assert [type(effect) for effect in effects if not isinstance(effect, WakeAt)] == [CancelRipple, StartRipple]
    assert RunCompleted("b", 1, 0) in step(state, [Completed("b", "x", 1, 2)], 4)[0]


def test_a_source_that_is_blocked_blocks_its_new_reader() -> None:
    state = new_state([pond("a"), pond("b")])
    step(state, [Demand("a", "pulse")], 1)
    step(state, [Failed("a", "r0", 1)], 2)
    effects, _ = step(state, [GraphChanged((pond("b", "a"),))], 3)
    assert Blocked("b") in effects
    effects, _ = step(state, [GraphChanged((pond("b"),))], 4)
    assert not state.ponds["b"].blocked


def test_triggers_and_failures_stay() -> None:
    state = new_state([pond("a"), pond("b", "a")])
    step(state, [TriggerSet("b", Trigger("w", "wave"))], 1)
    step(state, [Failed("a", "r0", 1)], 2)
    assert state.ponds["a"].failed
    step(state, [GraphChanged((pond("a"), pond("b", "a"), pond("c", "b")))], 3)
    assert state.ponds["a"].failed and state.ponds["c"].blocked
    assert "w" in state.ponds["b"].triggers
    effects, _ = step(state, [Cleared("a")], 4)
    assert any(isinstance(effect, PondRunStarted) and effect.pond == "a" for effect in effects)


def test_a_loaded_state_learns_what_was_declared_meanwhile() -> None:
    inlet = PondSpec("a", (RippleNode("r0"),), windows=Windows([(0, 1000)]))
    model = PondSpec("b", (RippleNode("x", fingerprint="1"),), ("a",))
    state = new_state([inlet, model, pond("gone")])
    settle(state, [Demand("b", "pulse")])
    declared = [
        replace(inlet, windows=Windows([(0, 1000)])),
        PondSpec("b", (RippleNode("x", fingerprint="2"),), ("a",)),
    ]
    declared.append(pond("c", "b"))
    loaded = load(declared, save(state))
    assert save(loaded) == save(state)
    change = graph_change(loaded, declared)
    assert change == GraphChanged((declared[1], declared[2]), removed=("gone",))
    step(loaded, [change], 50)
    assert graph_change(loaded, declared) is None
    assert starts(settle(loaded, [Demand("b", "pulse")])) == [("b", "x")], "its definition changed while it was down"
    assert loaded.ponds["c"].end_freshness == NEVER


CHANGES = st.one_of(
    st.tuples(st.just("demand"), st.sampled_from("abc"), st.sampled_from(["tap", "pulse"])),
    st.tuples(st.just("end"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("clear"), st.sampled_from("abc")),
    st.tuples(st.just("change"), st.integers(1, 3), st.text("xyz", max_size=2), st.booleans(), st.booleans()),
)


@given(st.lists(CHANGES, max_size=25))
def test_however_the_graph_changes_demand_is_met_in_the_end(deeds: list[tuple[object, ...]]) -> None:
    def graph(ripples: int, fingerprint: str, chained: bool, both: bool) -> tuple[PondSpec, ...]:
        steps = tuple(
            RippleNode(f"r{i}", (f"r{i - 1}",) if chained and i else (), fingerprint=fingerprint[i : i + 1])
            for i in range(ripples)
        )
        third = PondSpec("c", (RippleNode("r0"),), ("a", "b") if both else ("b",))
        return pond("a"), PondSpec("b", steps, ("a",)), third

    state = new_state(graph(2, "", True, False))
    running: dict[tuple[str, str, int], StartRipple] = {}

    def tell(*events: object) -> None:
        effects, _ = step(state, events, state.now + 1)  # type: ignore[arg-type]
        for effect in effects:
            if isinstance(effect, StartRipple):
                running[effect[:3]] = effect
            elif isinstance(effect, CancelRipple):
                del running[effect[:3]]

    def end(start: StartRipple, *, well: bool) -> None:
        del running[start[:3]]
        tell(Completed(*start[:3], state.now) if well else Failed(*start[:3]))

    for do, *how in deeds:
        match do:
            case "demand":
                tell(Demand(*how))  # type: ignore[arg-type]
            case "clear":
                tell(Cleared(*how))  # type: ignore[arg-type]
            case "change":
                tell(GraphChanged(graph(*how)))  # type: ignore[arg-type]
            case "end" if running:
                end(list(running.values())[int(how[0]) % len(running)], well=bool(how[1]))  # type: ignore[call-overload]
    tell(*(Cleared(name) for name in "abc"))
    for _ in range(500):
        if running:
            end(next(iter(running.values())), well=True)
    assert not running
    assert {name: each.is_idle for name, each in state.ponds.items()} == {"a": True, "b": True, "c": True}
    assert all(
        ripple.end_freshness >= each.end_freshness
        for each in state.ponds.values()
        for ripple in each.ripples
        if not each.is_due
    )

"""The state is a plain value: saving and loading it at any point, or replaying the events, changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshness.driving import save
from freshness.graphs import EMPHASES, many, scenarios
from headwater.app.read_scenario import scenario_of
from headwater.freshness.events import Completed, Effect, Event, Failed, RippleFailed, RunCompleted, StartRipple
from headwater.freshness.explain import pond_states
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.saving import load, save_header, save_pond
from headwater.freshness.scenario import Scenario
from headwater.freshness.virtual_time import World, ponds_of, simulate


class RecordingWorld(World):
    """Takes down what the engine was told, when, and what it wanted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log: list[tuple[int, list[Event], list[Effect]]] = []

    def step(self, events: list[Event]) -> list[Effect]:
        effects = super().step(events)
        self.log.append((self.now, events, effects))
        return effects


class SavingWorld(World):
    """Saves after every step what a server would: the header, and the ponds that were touched."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.saved = save(self.state)

    def step(self, events: list[Event]) -> list[Effect]:
        effects = super().step(events)
        self.saved |= save_header(self.state)
        self.saved["ponds"] |= {name: save_pond(self.state, name) for name in self.touched}
        assert self.saved == save(self.state)
        return effects


def finished(world: World, scenario: Scenario) -> dict[str, Any]:
    """Lives to the end of the scenario."""
    while (now := world.next_time()) is not None and (scenario.until is None or now <= scenario.until):
        world.live(now)
    world.account.close(world.state, world.now if scenario.until is None else scenario.until)
    return world.account.as_json()


@pytest.mark.parametrize("emphasis", EMPHASES)
def test_saving_and_loading_at_any_instant_changes_nothing(emphasis: str) -> None:
    @many(60)
    @given(scenarios(EMPHASES[emphasis]), st.integers(0, 30))
    def check(value: dict[str, Any], instant: int) -> None:
        scenario = scenario_of(value)
        world = World(scenario)
        for _ in range(instant):
            now = world.next_time()
            if now is None or (scenario.until is not None and now > scenario.until):
                break
            world.live(now)
        as_text = json.dumps(save(world.state))
        world.state = load(ponds_of(scenario), json.loads(as_text))
        assert json.dumps(save(world.state)) == as_text
        assert pond_states(load((), json.loads(as_text))) == pond_states(world.state)
        assert finished(world, scenario) == simulate(scenario).as_json()

    check()


@pytest.mark.parametrize("emphasis", EMPHASES)
def test_replaying_the_event_log_gives_the_same_effects(emphasis: str) -> None:
    @many(60)
    @given(scenarios(EMPHASES[emphasis]))
    def check(value: dict[str, Any]) -> None:
        scenario = scenario_of(value)
        world = RecordingWorld(scenario)
        finished(world, scenario)
        state = new_state(ponds_of(scenario))
        for now, events, effects in world.log:
            assert step(state, events, now)[0] == effects
        assert save(state) == save(world.state)

    check()


@pytest.mark.parametrize("emphasis", EMPHASES)
def test_only_touched_ponds_need_saving(emphasis: str) -> None:
    @many(30)
    @given(scenarios(EMPHASES[emphasis]))
    def check(value: dict[str, Any]) -> None:
        scenario = scenario_of(value)
        finished(SavingWorld(scenario), scenario)

    check()


def test_a_state_that_an_older_version_saved_goes_on() -> None:
    """Saved when budgets were those of runs and abandoned runs were kept: `B` failed, was cleared, and executes `b1` in
    the run that began again."""
    saved = json.loads((Path(__file__).parent / "saved_before_pond_budgets.json").read_text())
    assert {"abandoned", "retries_left"} <= saved["ponds"]["B"]["runs"][0].keys()
    b = PondSpec("B", (RippleNode("b0"), RippleNode("b1", ("b0",))), ("A",), retry_immediately=1, always_run=True)
    state = load([PondSpec("A", (RippleNode("a"),)), b], saved)
    assert [run.freshness for run in state.ponds["B"].runs] == [0]
    effects, _ = step(state, [Failed("B", "b1", 0)], saved["now"] + 1)
    assert [type(effect) for effect in effects[:2]] == [RippleFailed, StartRipple]
    effects, _ = step(state, [Completed("B", "b1", 0, version=1)], saved["now"] + 2)
    assert RunCompleted("B", 0, 0) in effects and not state.ponds["B"].targets
    assert load([PondSpec("A", (RippleNode("a"),)), b], json.loads(json.dumps(save(state))))


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        load([], {"format": 99})

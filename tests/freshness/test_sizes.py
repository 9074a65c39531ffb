"""Deep and large graphs: no recursion, and work in proportion to what an event touches."""

from __future__ import annotations

from collections import Counter

from freshness.driving import chain, pond, save, settle
from headwater.freshness.events import Demand, Effect, RunCompleted, StartRipple, Trigger, TriggerSet
from headwater.freshness.machine import new_state, step
from headwater.freshness.saving import load, save_pond

DEEP = 100_000


def run_counts(effects: list[Effect]) -> Counter[str]:
    return Counter(effect.pond for effect in effects if isinstance(effect, RunCompleted))


def test_a_chain_of_100_000_ponds_takes_a_pulse_and_a_tap_to_completion() -> None:
    specs = chain(DEEP)
    last = specs[-1].name
    state = new_state(specs)
    runs = run_counts(settle(state, [Demand(last, "pulse")]))
    assert runs == dict.fromkeys(state.ponds, 1)
    assert state.ponds[last].end_freshness == state.ponds["p0"].end_freshness > 0

    # As pull leaves a chain: every pond one generation ahead of the one that reads it.
    saved = save(state)
    for generation, record in enumerate(reversed(saved["ponds"].values())):
        for each in (record, record["ripples"]["r0"]):
            each["start_f"] = each["end_f"] = generation
    runs = run_counts(settle(load(specs, saved), [Demand(last, "tap")]))
    assert runs == dict.fromkeys(state.ponds, 1)


def test_a_tap_from_cold_runs_each_pond_once_for_every_pond_it_is_away_from_the_end() -> None:
    state = new_state(chain(200))
    assert run_counts(settle(state, [Demand("p199", "tap")])) == {f"p{i}": 200 - i for i in range(200)}


def test_10_000_ponds_of_10_ripples_run() -> None:
    state = new_state(
        [pond("p0", ripples=10), *(pond(f"p{i}", f"p{(i - 1) // 10}", ripples=10) for i in range(1, 10_000))]
    )
    leaves = [name for name, each in state.ponds.items() if not each.sinks]
    effects = settle(state, [Demand(leaf, "pulse") for leaf in leaves])
    assert sum(isinstance(effect, StartRipple) for effect in effects) == 100_000
    assert all(each.is_idle for each in state.ponds.values())


def test_an_event_touches_only_what_it_concerns() -> None:
    state = new_state([pond("hub"), *(pond(f"p{i}", "hub") for i in range(5_000))])
    _, touched = step(state, [Demand("p7", "pulse")], 10)
    assert sorted(touched) == ["hub", "p7"]


def test_memory_does_not_grow_with_history() -> None:
    state = new_state([pond("a", ripples=3), pond("b", "a", ripples=3)])
    step(state, [TriggerSet("b", Trigger("wave", "wave"))], 1)
    sizes = []
    for _ in range(3):
        settle(state, [Demand("b", "tap")], most=3_000)
        sizes.append((len(str(save_pond(state, "a"))), len(state.timers), len(state.ready_ponds)))
    # Numbers grow by a digit or two; lists do not grow.
    assert sizes[2][0] < sizes[0][0] + 200
    assert sizes[2][1:] == sizes[1][1:]

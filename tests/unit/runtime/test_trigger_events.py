"""Standing demand at run time: triggers that are declared and asked for, triggers that sleep, and cron."""

from __future__ import annotations

from dataclasses import replace

from headwater.catalog.standing_triggers import Standing
from headwater.freshness.events import Demand, GraphChanged, Trigger, TriggerCleared, TriggerSet
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import step
from headwater.freshness.state import State
from headwater.runtime.compile import Compiled, CompiledPipeline, CronTrigger
from headwater.runtime.trigger_events import CronClock, sleeping, trigger_changes

MINUTE = 60_000_000
WAVE = Trigger("manifest:wave", "wave", owner="manifest")


def project(*names: str, triggers: tuple[Trigger, ...] = (), crons: tuple[CronTrigger, ...] = ()) -> Compiled:
    return Compiled(
        {name: CompiledPipeline(name, PondSpec(name, (RippleNode(name),)), triggers, crons) for name in names}
    )


def engine_of(compiled: Compiled) -> State:
    state = State()
    step(state, [GraphChanged(compiled.ponds)], 0)
    return state


def asked(pond: str, trigger_id: str = "wave-1", **more: int) -> Standing:
    return replace(Standing(pond=pond, trigger_id=trigger_id, kind="wave", actor="ada", set_us=0), **more)


def test_the_manifest_and_the_users_both_set_triggers() -> None:
    compiled = project("a", triggers=(WAVE,))
    changes = trigger_changes(engine_of(compiled), compiled, [asked("a")])
    assert changes == [TriggerSet("a", WAVE), TriggerSet("a", Trigger("wave-1", "wave", 0, "ada", None))]


def test_triggers_that_stand_already_are_left_alone() -> None:
    compiled = project("a", triggers=(WAVE,))
    state = engine_of(compiled)
    step(state, trigger_changes(state, compiled, [asked("a")]), 1)
    assert trigger_changes(state, compiled, [asked("a")]) == []


def test_what_nobody_asks_for_any_more_is_cleared() -> None:
    compiled = project("a", triggers=(WAVE,))
    state = engine_of(compiled)
    step(state, trigger_changes(state, compiled, [asked("a")]), 1)
    assert trigger_changes(state, project("a"), []) == [TriggerCleared("a", WAVE.id), TriggerCleared("a", "wave-1")]


def test_a_trigger_that_changed_is_set_again() -> None:
    compiled = project("a")
    state = engine_of(compiled)
    step(state, trigger_changes(state, compiled, [asked("a")]), 1)
    (changed,) = trigger_changes(state, compiled, [asked("a", expires_us=99)])
    assert changed == TriggerSet("a", Trigger("wave-1", "wave", 0, "ada", 99))


def test_a_trigger_on_a_pipeline_that_is_gone_does_nothing() -> None:
    compiled = project("a")
    assert trigger_changes(engine_of(compiled), compiled, [asked("gone")]) == []


def test_all_triggers_sleep_while_an_apply_passes() -> None:
    compiled = project("a", "b", triggers=(WAVE,))
    state = engine_of(compiled)
    step(state, trigger_changes(state, compiled, []), 1)
    step(state, sleeping(state), 2)
    assert not state.ponds["a"].triggers and not state.ponds["b"].triggers


class TestCron:
    AT = CronTrigger("manifest:cron * * * * * UTC", "a", "* * * * *", "UTC")

    def clock(self, *, after_us: int = 0) -> CronClock:
        clock = CronClock()
        clock.set(project("a", crons=(self.AT,)), after_us=after_us)
        return clock

    def test_a_tick_is_a_pulse_with_its_cause(self) -> None:
        clock = self.clock()
        assert clock.wake_us == MINUTE
        assert clock.due(MINUTE - 1) == ([], {})
        events, causes = clock.due(MINUTE)
        assert events == [Demand("a", "pulse")]
        assert causes == {"a": (self.AT.id, "manifest")}
        assert clock.wake_us == 2 * MINUTE

    def test_ticks_that_nobody_saw_are_one_pulse(self) -> None:
        clock = self.clock()
        events, _ = clock.due(10 * MINUTE + 1)
        assert events == [Demand("a", "pulse")]
        assert clock.wake_us == 11 * MINUTE

    def test_a_changed_manifest_does_not_repeat_the_tick_of_a_cron_that_stays(self) -> None:
        clock = self.clock()
        clock.due(MINUTE)
        clock.set(project("a", "b", crons=(self.AT,)), after_us=0)
        events, _ = clock.due(MINUTE)
        assert events == [Demand("a", "pulse")], "only that of the new pipeline, which names the same one here"
        assert clock.due(MINUTE) == ([], {})

    def test_a_cron_that_is_gone_ticks_no_more(self) -> None:
        clock = self.clock()
        clock.set(project("a"), after_us=0)
        assert clock.wake_us is None
        assert clock.due(10 * MINUTE) == ([], {})

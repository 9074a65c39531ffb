"""What the engine did, as its steps store it: runs with their causes, events with growing ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.base.holder import new_holder
from headwater.catalog.commit import Store, open_store
from headwater.catalog.history import PondRun, engine_events, forget_history, pond_runs, runs_like
from headwater.catalog.inbox import message, send
from headwater.catalog.standing_triggers import Standing, remove_standing, set_standing
from headwater.freshness.events import Cleared, Completed, Demand, Failed, Trigger
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.runtime.compile import Compiled, CompiledPipeline
from headwater.runtime.engine import Engine, open_engine
from headwater.runtime.run_history import Cause
from headwater.runtime.send_demand import is_under_way, send_demand

WAVE = Trigger("manifest:wave", "wave", owner="manifest")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store", project="shop")
    yield opened
    opened.close()


def chain(*triggers: Trigger, fingerprint: str = "1") -> Compiled:
    """An Inlet `a` and a model `b` that reads it."""
    a = PondSpec("a", (RippleNode("a_table", fingerprint=fingerprint),))
    b = PondSpec("b", (RippleNode("b_table", reads=("a",)),), required=("a",))
    return Compiled({"a": CompiledPipeline("a", a), "b": CompiledPipeline("b", b, triggers)})


def owned(store: Store, graph: Compiled, *, runs_triggers: bool = False) -> Engine:
    engine = open_engine(store, graph, holder=new_holder(), runs_triggers=runs_triggers)
    assert engine is not None
    return engine


def runs(store: Store) -> list[PondRun]:
    with store.catalog.snapshot() as connection:
        return list(reversed(pond_runs(connection)))


def complete(store: Store, engine: Engine, pond: str) -> None:
    ripple = engine.state.ponds[pond].ripples[0]
    event = Completed(pond, ripple.spec.name, ripple.start_freshness, 0)
    send(store.catalog, message(event, actor="worker"))
    engine.advance()


def test_a_run_knows_who_asked_for_it_however_far_down(store: Store) -> None:
    engine = owned(store, chain())
    send_demand(store.catalog, ["b"], "pulse", cause="run", actor="operator:ada")
    engine.advance()
    (run,) = runs(store)
    assert (run.pond, run.cause, run.actor, run.state) == ("a", "run", "operator:ada", "running")


def test_a_run_of_a_trigger_names_it(store: Store) -> None:
    owned(store, chain(WAVE), runs_triggers=True)
    (run,) = runs(store)
    assert (run.pond, run.cause, run.actor) == ("a", "manifest:wave", "manifest")


def test_under_a_wave_a_request_is_over_with_its_run(store: Store) -> None:
    engine = owned(store, chain(WAVE), runs_triggers=True)
    send_demand(store.catalog, ["b"], "tap", cause="tap", actor="ada")
    engine.advance()
    assert "b" in engine.run_history.asked
    complete(store, engine, "a")
    complete(store, engine, "b")
    assert not engine.run_history.asked


def test_a_run_that_ended_says_how_and_the_next_owner_goes_on_with_one_that_has_not(store: Store) -> None:
    engine = owned(store, chain())
    send_demand(store.catalog, ["b"], "pulse", cause="run", actor="ada")
    engine.advance()
    complete(store, engine, "a")
    assert [(run.pond, run.state) for run in runs(store)] == [("a", "success"), ("b", "running")]
    engine.release()
    engine = owned(store, chain())
    complete(store, engine, "b")
    assert [(run.pond, run.state) for run in runs(store)] == [("a", "success"), ("b", "success")]
    assert all(run.ended_us is not None and run.cause == "run" for run in runs(store))


def test_a_look_that_found_nothing_new_is_not_kept(store: Store) -> None:
    engine = owned(store, chain())
    for _ in range(2):
        engine.advance([Demand("a", "pulse")], causes={"a": Cause("pulse", "ada")})
        complete(store, engine, "a")
    assert [(run.pond, run.state) for run in runs(store)] == [("a", "success")]
    with store.catalog.snapshot() as connection:
        told = [event.kind for event in engine_events(connection)]
    assert told.count("run_completed") == 2, "those who listen hear of it all the same"


def test_the_look_after_a_failure_is_kept(store: Store) -> None:
    engine = owned(store, chain())
    engine.advance([Demand("a", "pulse")])
    complete(store, engine, "a")
    engine.advance([Demand("a", "pulse")])
    freshness = engine.state.ponds["a"].ripples[0].start_freshness
    engine.advance([Failed("a", "a_table", freshness)])
    engine.advance([Cleared("a")])
    complete(store, engine, "a")
    assert [run.state for run in runs(store)] == ["success", "failed", "success"]


def test_a_run_whose_pipeline_is_gone_is_cancelled(store: Store) -> None:
    engine = owned(store, chain())
    engine.advance([Demand("a", "pulse")])
    engine.change_graph(Compiled({}))
    assert [run.state for run in runs(store)] == ["cancelled"]


def test_a_sender_hears_the_target_or_who_is_to_blame(store: Store) -> None:
    engine = owned(store, chain())
    first = send_demand(store.catalog, ["b"], "pulse", cause="run", actor="ada")
    assert not first.listen(store.catalog)
    engine.advance()
    assert first.listen(store.catalog)
    target = first.target("b")
    assert target is not None and is_under_way(engine.state, "b", target)
    engine.advance([Failed("a", "a_table", engine.state.ponds["a"].ripples[0].start_freshness)])
    second = send_demand(store.catalog, ["b", "gone"], "pulse", cause="run", actor="ada")
    engine.advance()
    assert second.listen(store.catalog)
    assert second.refused("b") == "a" and second.answers["gone"] == {"unknown": True}
    assert not is_under_way(engine.state, "a", target) and not is_under_way(engine.state, "b", target)
    assert engine.state.ponds["a"].failed and engine.state.ponds["b"].blocked


def test_users_triggers_count_for_serve_and_sleep_for_an_apply(store: Store) -> None:
    trigger = Standing(pond="b", trigger_id="w", kind="wave", actor="ada", set_us=0)
    set_standing(store.catalog, trigger)
    engine = owned(store, chain())
    assert not engine.state.ponds["b"].triggers and not runs(store)
    engine.release()
    engine = owned(store, chain(), runs_triggers=True)
    assert list(engine.state.ponds["b"].triggers) == ["w"]
    assert remove_standing(store.catalog, "b", None, actor="ada") == 1
    engine.advance()
    assert not engine.state.ponds["b"].triggers


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    owned(store, chain()).advance([Demand("a", "pulse")])
    (run,) = runs(store)
    with store.catalog.snapshot() as connection:
        assert runs_like(connection, run.run_id[:20], limit=2) == [run] == runs_like(connection, run.run_id, limit=2)
        assert runs_like(connection, "nothing", limit=2) == []


def test_old_history_is_forgotten_and_what_is_under_way_is_not(store: Store) -> None:
    engine = owned(store, chain())
    engine.advance([Demand("a", "pulse")])
    complete(store, engine, "a")
    engine.advance([Demand("a", "pulse")])
    forget_history(store.catalog, retention_seconds=-1, events=1)
    assert [run.state for run in runs(store)] == ["running"]
    with store.catalog.snapshot() as connection:
        assert len(engine_events(connection)) == 1


def test_a_pulse_for_an_earlier_target_asks_no_more_of_what_it_reads(store: Store) -> None:
    engine = owned(store, chain())
    first = send_demand(store.catalog, ["a"], "pulse", cause="apply", actor="ada")
    engine.advance()
    complete(store, engine, "a")
    assert first.listen(store.catalog)
    send_demand(store.catalog, ["b"], "pulse", cause="apply", actor="ada", target_us=first.target("a"))
    engine.advance()
    assert [(run.pond, run.state) for run in runs(store)] == [("a", "success"), ("b", "running")]
    assert engine.state.ponds["a"].is_idle

"""The engine's home: one owner, an inbox, a state that moves step by step. On SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError

from catalog_rows import dump
from contract.engine_home import (
    CRASH_POINTS,
    HEADER,
    Paused,
    a_job,
    all_jobs,
    arrived,
    code_of,
    commit_with_event,
    dead_holder,
    later,
    own_and_step,
    owned,
    pulse,
    save_step,
    step_and_work,
    step_of,
    transient_rows,
)
from contract.stores import ACTOR, DAY_US, PROJECT, Place, begin_run, commit, create_table
from forked import exit_code
from freshness.driving import save
from headwater.base import limits
from headwater.base.holder import new_holder
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import InboxEvent, NewJob, Step
from headwater.catalog.engine_state import claim_engine, load_engine
from headwater.catalog.inbox import Sendable, forget_answers, message, put, read_answers, send, take, waiting
from headwater.catalog.lease import engine_owner, release, renew
from headwater.catalog.rebuild import replay_log
from headwater.freshness.events import (
    Cleared,
    Completed,
    Demand,
    Effect,
    Event,
    Failed,
    StartRipple,
    Trigger,
    TriggerCleared,
    TriggerSet,
)
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.saving import load, save_header, save_pond

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"a": 1})
SENDABLE: tuple[Sendable, ...] = (
    Demand("orders", "tap"),
    TriggerSet("orders", Trigger("t1", "tide", 5_000_000, "operator:ada", 99)),
    TriggerSet("orders", Trigger("t2", "wave")),
    TriggerCleared("orders", "t1"),
    TriggerCleared("orders"),
    Completed("orders", "read", 17, version=3),
    Completed("orders", "read", 18, version="sha256:1"),
    Failed("orders", "read", 19),
    Cleared("orders"),
)


# --- one owner


def test_there_is_one_owner_while_it_lives(store: Store) -> None:
    owner = owned(store)
    assert claim_engine(store.catalog, holder=new_holder()) is None
    assert renew(store.catalog, owner)
    with store.catalog.snapshot() as connection:
        seen = engine_owner(connection)
    assert seen is not None
    assert (seen.holder, seen.epoch) == (owner.holder, owner.epoch)


def test_a_store_that_was_never_owned_has_no_owner(store: Store) -> None:
    with store.catalog.snapshot() as connection:
        assert engine_owner(connection) is None


def test_of_sixteen_claims_at_once_one_succeeds(store: Store) -> None:
    for _ in range(4):
        start = threading.Barrier(16)

        def claim(_: int, start: threading.Barrier = start) -> Any:
            start.wait()
            return claim_engine(store.catalog, holder=new_holder())

        with ThreadPoolExecutor(16) as pool:
            owners = [owner for owner in pool.map(claim, range(16)) if owner is not None]
        assert len(owners) == 1
        release(store.catalog, owners[0])


def test_a_released_engine_is_free_at_once(store: Store) -> None:
    first = owned(store)
    release(store.catalog, first)
    assert owned(store).epoch > first.epoch


def test_the_epoch_grows_even_if_the_clock_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = owned(store)
    release(store.catalog, first)
    later(monkeypatch, -DAY_US / 1e6)
    assert owned(store).epoch == first.epoch + 1


def test_an_owner_whose_lease_has_run_out_is_replaced_and_everything_it_writes_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = owned(store)
    later(monkeypatch, limits.OWNER_LEASE_SECONDS - 1)
    assert claim_engine(store.catalog, holder=new_holder()) is None
    later(monkeypatch, limits.OWNER_LEASE_SECONDS + 1)
    new = owned(store)
    send(store.catalog, pulse())
    before = transient_rows(store), dump(store.catalog)
    refused = step_of(old, ponds={"orders": {"x": 1}}, consumed=(arrived(store)[0].id,), new_jobs=(a_job(),))
    assert code_of(lambda: save_step(store.catalog, refused)) == "HW-T03"
    assert code_of(lambda: commit(store, NOTE, requires=[old])) == "HW-T03"
    with_step = r.Commit(changes=(NOTE,), actor=ACTOR, step=refused)
    assert code_of(lambda: store.commit(with_step)) == "HW-T03"
    assert not renew(store.catalog, old)
    release(store.catalog, old)  # what is no longer ours stays with its new owner
    assert (transient_rows(store), dump(store.catalog)) == before
    assert save_step(store.catalog, replace(refused, owner=new)) == 1
    assert commit(store, NOTE, requires=[new]) == 1


def test_renewing_and_stepping_both_keep_the_engine(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owned(store)
    later(monkeypatch, limits.OWNER_LEASE_SECONDS - 1)
    assert renew(store.catalog, owner)
    later(monkeypatch, 2 * limits.OWNER_LEASE_SECONDS - 2)
    save_step(store.catalog, step_of(owner))
    later(monkeypatch, 3 * limits.OWNER_LEASE_SECONDS - 3)
    assert claim_engine(store.catalog, holder=new_holder()) is None


def test_an_owner_that_is_late_and_was_not_replaced_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owned(store)
    later(monkeypatch, DAY_US / 1e6)
    assert save_step(store.catalog, step_of(owner)) == 1
    assert claim_engine(store.catalog, holder=new_holder()) is None


def test_a_dead_owner_of_this_machine_is_replaced_at_once_and_one_of_another_is_not(store: Store) -> None:
    dead = claim_engine(store.catalog, holder=dead_holder())
    assert dead is not None
    with store.catalog.transaction() as connection:
        connection.execute(update(t.lease).values(node="elsewhere"))
    assert claim_engine(store.catalog, holder=new_holder()) is None
    with store.catalog.transaction() as connection:
        connection.execute(update(t.lease).values(node=dead.holder.split("/")[0]))
    assert owned(store).epoch > dead.epoch
    assert not renew(store.catalog, dead)


def test_a_claim_can_be_repeated_and_ends_what_the_first_one_gave(store: Store) -> None:
    """The answer to the first may have been lost with the connection."""
    holder = new_holder()
    first = claim_engine(store.catalog, holder=holder)
    second = claim_engine(store.catalog, holder=holder)
    assert first is not None and second is not None
    assert not renew(store.catalog, first)
    assert renew(store.catalog, second)


# --- the inbox


def test_events_come_out_as_they_went_in_and_in_order(store: Store) -> None:
    sent = [send(store.catalog, message(event, actor=ACTOR, ids={"run": "r1"})) for event in SENDABLE]
    found = arrived(store)
    assert [event.event for event in found] == list(SENDABLE)
    assert [type(event.event) for event in found] == [type(event) for event in SENDABLE]
    assert [event.id for event in found] == sent == sorted(sent)
    assert {(event.actor, event.ids["run"]) for event in found} == {(ACTOR, "r1")}


def test_an_event_of_a_kind_that_the_engine_does_not_know_is_kept_as_it_is(store: Store) -> None:
    odd = [
        InboxEvent(kind="manifest_changed", body={"file": "headwater.toml"}, actor=ACTOR),
        InboxEvent(kind="demand", body={"pond": "orders", "kind": "tap", "colour": "blue"}, actor=ACTOR),
        InboxEvent(kind="trigger_set", body={"pond": "orders"}, actor=ACTOR),
    ]
    with store.catalog.transaction() as connection:
        put(connection, odd)
    assert [(e.kind, e.body, e.event) for e in arrived(store)] == [(e.kind, e.body, None) for e in odd]


def test_taking_is_bounded_and_changes_nothing(store: Store) -> None:
    ids = [send(store.catalog, pulse(f"p{i}")) for i in range(5)]
    with store.catalog.snapshot() as connection:
        assert [e.id for e in take(connection, 2)] == [e.id for e in take(connection, 2)] == ids[:2]
        assert waiting(connection, ids) == set(ids)


def test_an_id_is_never_used_again(store: Store) -> None:
    owner, first = owned(store), send(store.catalog, pulse())
    save_step(store.catalog, step_of(owner, consumed=(first,)))
    assert arrived(store) == []
    assert send(store.catalog, pulse()) > first


def test_an_event_that_a_later_one_overtook_is_still_taken(tmp_path: Path, postgres_url: str) -> None:
    """On PostgreSQL two transactions may put events at once, and the one with the smaller id may end last."""
    store = Place(tmp_path / "store", postgres_url).open()
    owner = owned(store)
    with store.catalog.transaction() as slow:
        put(slow, [pulse("slow")])
        quick = send(store.catalog, pulse("quick"))
        save_step(store.catalog, step_of(owner, consumed=(quick,)))
    (left,) = arrived(store)
    assert left.body["pond"] == "slow"
    assert left.id < quick
    store.close()


def test_a_commit_and_its_events_are_there_together_or_not_at_all(store: Store) -> None:
    events = (message(Completed(PROJECT, "orders", 1, version=1), actor=ACTOR), pulse("report"))
    carrying = r.Commit(changes=(NOTE,), actor=ACTOR, events=events)
    wrong = replace_requires(carrying, r.SchemaIs(table="orders", schema_id=9))
    assert code_of(lambda: store.commit(wrong)) == "HW-T02"
    assert arrived(store) == []
    assert store.commit(carrying) == 1
    assert [event.body["pond"] for event in arrived(store)] == [PROJECT, "report"]


def replace_requires(commit: r.Commit, *requires: r.Requirement) -> r.Commit:
    return r.Commit(changes=commit.changes, actor=commit.actor, events=commit.events, requires=requires)


@pytest.mark.parametrize(("point", "there"), [("commit.before", 0), ("commit.inside", 0), ("commit.after", 1)])
def test_a_commit_that_was_killed_has_told_the_engine_if_and_only_if_it_happened(
    place: Place, point: str, there: int
) -> None:
    place.open().close()
    assert exit_code(commit_with_event, place, crash_at=point) == -9
    store = place.open()
    assert len(arrived(store)) == len(dump(store.catalog)["commit_record"]) == there
    store.close()


def test_the_log_knows_nothing_of_events_and_a_rebuild_empties_what_was_under_way(store: Store) -> None:
    create_table(store)
    begin_run(store)
    owner = owned(store)
    store.commit(r.Commit(changes=(NOTE,), actor=ACTOR, events=(pulse("secret_pond"),)))
    save_step(store.catalog, step_of(owner, ponds={"orders": {}}, new_jobs=(a_job(),)))
    assert not any("secret_pond" in path.read_text() for path in store.layout.log.iterdir())
    before = dump(store.catalog)
    replay_log(store.catalog, store.layout)
    assert dump(store.catalog) == before
    left = transient_rows(store)
    assert {(row["kind"], row["state"]) for row in left.pop("job")} == {("slice", "queued")}
    assert not any(left.values())
    assert code_of(lambda: save_step(store.catalog, step_of(owner))) == "HW-T03"
    assert owned(store).epoch > owner.epoch


def test_an_event_that_is_not_there_cannot_be_consumed_nor_any_twice(store: Store) -> None:
    owner, there = owned(store), send(store.catalog, pulse())
    before = transient_rows(store)
    for ids in [(there, there + 1), (there, there)]:
        assert code_of(partial(save_step, store.catalog, step_of(owner, consumed=ids))) == "HW-T02"
    assert transient_rows(store)["inbox"] == before["inbox"]
    save_step(store.catalog, step_of(owner, consumed=(there,)))
    assert code_of(lambda: save_step(store.catalog, step_of(owner, consumed=(there,)))) == "HW-T02"


def test_more_events_than_one_statement_takes_are_consumed_at_once(store: Store) -> None:
    owner, count = owned(store), 2 * limits.INBOX_BATCH + 1
    with store.catalog.transaction() as connection:
        put(connection, [pulse()] * count)
        ids = tuple(event.id for event in take(connection, count))
    save_step(store.catalog, step_of(owner, consumed=ids))
    assert arrived(store) == []


def test_a_sender_that_waits_gets_the_answer_once(store: Store) -> None:
    owner = owned(store)
    refused, taken = send(store.catalog, pulse()), send(store.catalog, pulse())
    assert read_answers(store.catalog, [refused]) == {}
    answer = {"refused": "orders", "because": "customers"}
    save_step(store.catalog, step_of(owner, consumed=(refused, taken), answers={refused: answer}))
    assert arrived(store) == []
    with store.catalog.snapshot() as connection:
        assert waiting(connection, [refused, taken]) == set()
    assert read_answers(store.catalog, [refused, taken]) == {refused: answer}
    assert read_answers(store.catalog, [refused, taken]) == {}


def test_answers_that_nobody_reads_are_forgotten_after_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, asked, left = owned(store), send(store.catalog, pulse()), send(store.catalog, pulse())
    save_step(store.catalog, step_of(owner, consumed=(asked,), answers={asked: {}}))
    later(monkeypatch, limits.ANSWER_TTL_SECONDS - 60)
    assert forget_answers(store.catalog) == 0
    later(monkeypatch, limits.ANSWER_TTL_SECONDS + 60)
    assert forget_answers(store.catalog) == 1
    assert [event.id for event in arrived(store)] == [left]


# --- the state


def test_a_new_store_has_no_state(store: Store) -> None:
    with store.catalog.snapshot() as connection:
        found = load_engine(connection)
    assert (found.header, found.ponds, found.step) == (None, {}, 0)


def test_a_step_changes_what_it_names_and_nothing_else(store: Store) -> None:
    owner = owned(store)
    first = {"a": {"n": 1}, "b": {"n": 1, "text": "ü"}, "c": {"n": 1}}
    assert save_step(store.catalog, step_of(owner, ponds=first)) == 1
    second = Step(owner=owner, header={**HEADER, "now": 9}, ponds={"a": {"n": 2}, "d": {}}, removed=("c",))
    assert save_step(store.catalog, second) == 2
    with store.catalog.snapshot() as connection:
        found, changed = load_engine(connection), load_engine(connection, since=1)
    assert found.header == {**HEADER, "now": 9}
    assert found.ponds == {"a": {"n": 2}, "b": first["b"], "d": {}}
    assert (changed.ponds, changed.step) == ({"a": {"n": 2}, "d": {}}, 2)


def test_an_error_in_the_middle_of_a_step_leaves_nothing(store: Store) -> None:
    owner, job, asked = owned(store), a_job(), send(store.catalog, pulse())
    save_step(store.catalog, step_of(owner, new_jobs=(job,)))
    before = transient_rows(store)
    with pytest.raises(IntegrityError):
        save_step(store.catalog, step_of(owner, ponds={"a": {}}, consumed=(asked,), new_jobs=(a_job(), job)))
    assert transient_rows(store) == before


def test_a_commit_and_its_step_are_stored_together_or_not_at_all(store: Store) -> None:
    owner, asked = owned(store), send(store.catalog, pulse())
    both = step_of(owner, ponds={"a": {}}, consumed=(asked,), new_jobs=(a_job(),))
    before = transient_rows(store)
    refusing = r.Commit(changes=(NOTE,), requires=(r.UnitsOpen(run_id="none"),), actor=ACTOR, step=both)
    assert code_of(lambda: store.commit(refusing)) == "HW-T02"
    assert transient_rows(store) == before
    assert store.commit(r.Commit(changes=(NOTE,), requires=(owner,), actor=ACTOR, step=both)) == 1
    with store.catalog.snapshot() as connection:
        assert load_engine(connection).ponds == {"a": {}}
    assert (arrived(store), len(all_jobs(store, "queued"))) == ([], 1)


STEP_KILLS = [("step.before", False), ("step.inside", False), ("step.after", True)]


@pytest.mark.parametrize(("point", "happened"), STEP_KILLS)
def test_a_step_that_was_killed_has_happened_wholly_or_not_at_all(place: Place, point: str, happened: bool) -> None:
    store = place.open()
    sent = [send(store.catalog, pulse()) for _ in range(3)]
    assert exit_code(own_and_step, place, crash_at=point) == -9
    with store.catalog.snapshot() as connection:
        found = load_engine(connection)
    assert found.ponds == ({"orders": {"events": 3}} if happened else {})
    assert [event.id for event in arrived(store)] == ([] if happened else sent)
    assert len(all_jobs(store)) == (1 if happened else 0)
    owned(store)  # at once: the process is gone, its lease is not
    store.close()


def test_an_owner_that_was_killed_before_it_did_anything_is_replaced_at_once(place: Place) -> None:
    store = place.open()
    assert exit_code(own_and_step, place, crash_at="owner.after_lease") == -9
    with store.catalog.snapshot() as connection:
        assert engine_owner(connection) is None
        killed = connection.execute(select(t.lease).where(t.lease.c.kind == "engine")).one()
    assert owned(store).epoch > killed.epoch
    store.close()


def test_an_owner_that_slept_past_its_lease_is_refused_and_its_events_count_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    sent = send(store.catalog, pulse())
    sleeper = Paused(place, own_and_step, "step.before")
    assert claim_engine(store.catalog, holder=new_holder()) is None
    later(monkeypatch, limits.OWNER_LEASE_SECONDS + 1)
    owner = owned(store)
    save_step(store.catalog, step_of(owner, ponds={"orders": {"by": "the new one"}}, consumed=(sent,)))
    assert sleeper.wake() == "HW-T03"
    with store.catalog.snapshot() as connection:
        assert load_engine(connection).ponds == {"orders": {"by": "the new one"}}
    assert all_jobs(store) == []
    store.close()


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_whoever_is_killed_is_followed_by_one_that_finishes_what_was_begun_and_does_nothing_twice(
    place: Place, point: str
) -> None:
    store = place.open()
    send(store.catalog, pulse())
    assert exit_code(step_and_work, place, crash_at=point) == -9
    for _ in range(2):
        assert exit_code(step_and_work, place) == 0
        with store.catalog.snapshot() as connection:
            assert load_engine(connection).ponds == {"orders": {"demands": 1}}
        assert [job.state for job in all_jobs(store)] == ["done"]
        assert [event.kind for event in arrived(store)] == ["completed"]
    store.close()


# --- the engine lives in it


GRAPH = (
    PondSpec("orders", (RippleNode("read"),)),
    PondSpec("rates", (RippleNode("read"),)),
    PondSpec("revenue", (RippleNode("by_day"), RippleNode("top", after=("by_day",))), ("orders",), ("rates",)),
)


def test_an_engine_that_is_loaded_anew_for_every_step_does_what_one_in_memory_does(store: Store) -> None:
    """Its events come through the inbox, its state through the catalog, its work through the queue."""
    owner, choice = owned(store), random.Random(4)
    memory = new_state(GRAPH)
    save_step(store.catalog, Step(owner=owner, header=save_header(memory), ponds=save(memory)["ponds"]))
    first: list[Sendable] = [
        Demand("revenue", "pulse"),
        TriggerSet("revenue", Trigger("w", "wave")),
        Demand("orders", "tap"),
    ]
    with store.catalog.transaction() as connection:
        put(connection, [message(event, actor=ACTOR) for event in first])
    for now in range(1, 40):
        events = arrived(store)[: choice.randint(1, 3)]
        effects = stepped(store, owner, [e.id for e in events], [e.event for e in events if e.event], now=now)
        expected, _ = step(memory, [e.event for e in events if e.event is not None], now)
        assert effects == expected
        with store.catalog.transaction() as connection:
            put(connection, [message(ended(effect, choice), actor=ACTOR) for effect in starts(effects)])
    with store.catalog.snapshot() as connection:
        found = load_engine(connection)
    assert {**(found.header or {}), "ponds": found.ponds} == save(memory)
    assert any(pond["end_f"] for pond in found.ponds.values())


def stepped(store: Store, owner: Any, ids: list[int], events: list[Event], *, now: int) -> list[Effect]:
    with store.catalog.snapshot() as connection:
        found = load_engine(connection)
    assert found.header is not None
    state = load(GRAPH, {**found.header, "ponds": found.ponds})
    effects, touched = step(state, events, now)
    ponds = {name: save_pond(state, name) for name in touched}
    new_jobs = tuple(
        NewJob(kind="ripple", pond=s.pond, ripple=s.ripple, freshness_us=s.freshness) for s in starts(effects)
    )
    header = save_header(state)
    save_step(store.catalog, Step(owner=owner, header=header, ponds=ponds, consumed=tuple(ids), new_jobs=new_jobs))
    return effects


def starts(effects: list[Effect]) -> list[StartRipple]:
    return [effect for effect in effects if isinstance(effect, StartRipple)]


def ended(start: StartRipple, choice: random.Random) -> Sendable:
    if choice.random() < 0.1:
        return Failed(start.pond, start.ripple, start.freshness)
    return Completed(start.pond, start.ripple, start.freshness, version=choice.randint(1, 9))


def test_rows_that_somebody_else_deleted_do_not_bring_a_state_back(store: Store) -> None:
    """The fence is the row: without it there is no owner."""
    owner = owned(store)
    with store.catalog.transaction() as connection:
        connection.execute(delete(t.lease))
    assert code_of(lambda: save_step(store.catalog, step_of(owner))) == "HW-T03"
    with store.catalog.snapshot() as connection:
        assert connection.execute(select(t.engine_state)).all() == []

"""Pushed rows land once: whoever pushes at the same time, whatever dies on the way. On both databases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from catalog_rows import dump
from contract.children import pool
from contract.engine_home import Paused, code_of, later, transient_rows
from contract.ingesting import (
    BODY,
    CRASH_POINTS,
    KILLS,
    accept_columns,
    accept_k,
    accept_many,
    accept_one,
    push,
    rows_of,
)
from contract.stores import ACTOR, PROJECT, Place
from forked import exit_code
from headwater.base import limits
from headwater.catalog.commit import Store
from headwater.catalog.gc import collect
from headwater.catalog.ledger import ledger_keys, taken_keys
from headwater.catalog.lookup import table_states
from headwater.catalog.rebuild import rebuild_catalog, replay_log
from headwater.catalog.verify import verify
from headwater.ingest.accept import Acceptor
from headwater.ingest.batch_queue import BatchQueue, Waiter
from headwater.ingest.ledger_rules import clear_keys, sweep
from headwater.ingest.push_records import Accepted, PushTable
from headwater.storage.store_files import data_files

ROWS = [{"label": "a", "user": "ada"}, {"label": "b", "n": "1"}]
WAIT_CHECKS, WAIT_SECONDS = 2_000, 0.005


def must_be_there(store: Store, *, times: int = 1) -> None:
    """The rows of so many pushes are there, and nothing else is, also not on disk once gc has been there."""
    assert rows_of(store) == ROWS * times
    collect(store, actor=ACTOR, retention_seconds=-1)
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection)
    assert sorted(data_files(store.layout)) == sorted(file.path for file in state.files)
    assert not verify(store).problems


def furnished(place: Place) -> Store:
    """A store whose table is there: else its making alone would tell two pushes apart."""
    store = place.open()
    Acceptor(store).accept(push())
    return store


@contextmanager
def led(queue: BatchQueue) -> Iterator[None]:
    """Somebody leads who lands nothing: all who come wait."""
    queue.join(Waiter(()))
    yield
    queue.hand_over()


def test_every_crash_point_of_a_push_is_one_to_be_killed_at() -> None:
    assert set(CRASH_POINTS) <= KILLS.keys()


@pytest.mark.parametrize("point", KILLS)
def test_a_push_that_was_killed_and_is_sent_again_lands_once(place: Place, point: str) -> None:
    place.open().close()
    assert exit_code(accept_one, place, "k", BODY, crash_at=point) == -9
    store = place.open()
    happened = KILLS[point]
    assert [row["seq"] for row in dump(store.catalog)["ledger_key"]] == ([1] if happened else [])
    found = Acceptor(store).accept(push(key="k"))
    assert (found.snapshot_id, found.rows_ingested, found.replayed) == ("1", 2, happened)
    assert Acceptor(store).accept(push(key="k")) == Accepted("1", 2, found.bytes_written, replayed=True)
    must_be_there(store)
    store.close()


def test_an_answer_that_is_found_again_is_in_the_log(place: Place) -> None:
    store = place.open()  # another server, which goes on while the first one is killed
    assert exit_code(accept_one, place, "k", BODY, crash_at="commit.after") == -9
    assert not store.layout.log_record(1).exists()
    assert Acceptor(store).accept(push(key="k")).replayed
    assert not verify(store).problems
    store.close()


def test_a_hundred_pushes_of_several_processes_with_one_key_land_once(place: Place) -> None:
    store = furnished(place)
    with pool(4) as processes:
        running = [processes.submit(accept_many, place, 25, "k", BODY) for _ in range(4)]
        answers = [answer for process in running for answer in process.result()]
    assert len(answers) == 100
    assert sum(not answer.replayed for answer in answers) == 1
    assert len({(a.snapshot_id, a.rows_ingested, a.bytes_written) for a in answers}) == 1
    must_be_there(store, times=2)
    store.close()


def test_columns_that_several_processes_bring_at_once_are_added_once(place: Place) -> None:
    place.open().close()
    with pool(3) as processes:
        names = [["a", "b", "c"], ["c", "b", "a"], ["b", "d", "c"]]
        assert list(processes.map(accept_columns, [place] * 3, names)) == [[1, 1, 1]] * 3
    store = place.open()
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection)
    assert sorted(state.schema.names()[4:]) == ["a", "b", "c", "d"]
    assert sorted(next(iter(row)) for row in rows_of(store)) == sorted(name for each in names for name in each)
    store.close()


def test_a_push_that_slept_while_another_took_its_key_writes_nothing(place: Place) -> None:
    """It had written its file: the commit finds the key taken."""
    store = furnished(place)
    sleeper = Paused(place, accept_k, "commit.before")
    assert Acceptor(store).accept(push(key="k")).snapshot_id == "2"
    assert sleeper.wake() == "replayed at 2"
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection)
    assert sorted(data_files(store.layout)) == sorted(file.path for file in state.files), "what was written is gone"
    must_be_there(store, times=2)
    store.close()


def test_a_push_that_slept_while_another_used_its_key_for_something_else_is_refused(place: Place) -> None:
    store = furnished(place)
    sleeper = Paused(place, accept_k, "commit.before")
    Acceptor(store).accept(push(b'{"label": "other"}\n', key="k"))
    assert sleeper.wake() == "HW-I01"
    assert rows_of(store) == [*ROWS, {"label": "other"}]
    store.close()


def test_a_writer_that_gc_took_for_dead_writes_its_rows_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = furnished(place)
    sleeper = Paused(place, accept_k, "commit.before")
    collected = collect(store, actor=ACTOR, retention_seconds=-1)
    assert (collected.orphan_files, collected.fenced_units) == (0, 0), "a living writer's files stay"
    later(monkeypatch, limits.LEASE_SECONDS + 1)
    collected = collect(store, actor=ACTOR, retention_seconds=-1)
    assert (collected.orphan_files, collected.fenced_units) == (1, 1)
    monkeypatch.undo()
    assert sleeper.wake() == "landed at 2"
    must_be_there(store, times=2)
    store.close()


def test_writers_that_died_are_forgotten_by_those_that_come(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only slept is refused, and goes on under another name."""
    store = place.open()
    sleeper = Acceptor(store)
    sleeper.accept(push())
    assert exit_code(accept_one, place, "k", BODY, crash_at="commit.before") == -9
    assert len(transient_rows(store)["lease"]) == 2
    later(monkeypatch, limits.LEASE_SECONDS + 1)
    Acceptor(store).accept(push())
    assert len(transient_rows(store)["lease"]) == 1
    assert sleeper.accept(push()).snapshot_id == "3"
    assert len(transient_rows(store)["lease"]) == 2
    must_be_there(store, times=3)
    store.close()


def test_pushes_that_wait_for_one_commit_share_the_next(place: Place) -> None:
    """Each with its own answer: a key that is lost meanwhile leaves no rows, bad rows leave no column."""
    store, other = place.open(), place.open()
    acceptor = Acceptor(store)
    acceptor.accept(push(b'{"label": "first"}\n'))
    queue = acceptor._queues["events"]
    bodies = {str(n): b'{"label": "%d", "c%d": 1}\n' % (n, n) for n in range(6)}
    with ThreadPoolExecutor(len(bodies)) as threads:
        with led(queue):
            running = {key: threads.submit(acceptor.accept, push(body, key=key)) for key, body in bodies.items()}
            _until(lambda: queue.waiting == len(bodies))
            taken = Acceptor(other).accept(push(bodies["4"], key="4"))
            Acceptor(other).accept(push(b'{"label": "stolen"}\n', key="5"))
        answers = {key: each.result() for key, each in running.items() if key != "5"}
        assert code_of(running["5"].result) == "HW-I01"
    assert answers.pop("4") == Accepted(taken.snapshot_id, 1, taken.bytes_written, replayed=True)
    assert {(answer.snapshot_id, answer.rows_ingested, answer.replayed) for answer in answers.values()} == {
        ("4", 1, False)
    }
    labels = [row["label"] for row in rows_of(store)]
    assert sorted(labels) == ["0", "1", "2", "3", "4", "first", "stolen"]
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection)
    assert len(state.files) == 4
    assert sorted(state.schema.names()[4:]) == ["c0", "c1", "c2", "c3", "c4"]
    store.close()
    other.close()


def test_two_of_one_key_that_wait_together_land_once(place: Place) -> None:
    store = place.open()
    acceptor = Acceptor(store)
    acceptor.accept(push(b'{"label": "first"}\n'))
    queue = acceptor._queues["events"]
    with ThreadPoolExecutor(4) as threads:
        with led(queue):
            running = [threads.submit(acceptor.accept, push(key="k")) for _ in range(4)]
            _until(lambda: queue.waiting == 4)
        answers = [each.result() for each in running]
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
    assert {answer.snapshot_id for answer in answers} == {"2"}
    assert len(rows_of(store)) == 3
    store.close()


def test_the_same_key_with_something_else_is_refused_and_nothing_is_written(store: Store) -> None:
    acceptor = Acceptor(store)
    acceptor.accept(push(key="k"))
    before, files = dump(store.catalog), list(data_files(store.layout))
    assert code_of(lambda: acceptor.accept(push(BODY + b'{"new": 1}\n', key="k"))) == "HW-I01"
    assert code_of(lambda: acceptor.accept(push(key="k", evolve=False))) == "HW-I01"
    assert (dump(store.catalog), list(data_files(store.layout))) == (before, files)
    elsewhere = PushTable("other", "other")
    assert not acceptor.accept(push(key="k", target=elsewhere)).replayed, "a key is its table's"


def test_a_batch_with_bad_rows_changes_nothing(store: Store) -> None:
    acceptor = Acceptor(store)
    bad = push(b'{"new": 1}\n{"ts": "soon"}\n', key="k")
    assert code_of(lambda: acceptor.accept(bad)) == "HW-I02"
    assert not any(dump(store.catalog).values())
    acceptor.accept(push())
    before, files = dump(store.catalog), list(data_files(store.layout))
    assert code_of(lambda: acceptor.accept(bad)) == "HW-I02"
    assert (dump(store.catalog), list(data_files(store.layout))) == (before, files)
    assert acceptor.accept(push(key="k")).rows_ingested == 2, "the key is free"


def test_a_key_is_taken_over_at_the_moment_it_expires(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    acceptor = Acceptor(store)
    first = acceptor.accept(push(key="k"))
    with store.catalog.snapshot() as connection:
        (key,) = ledger_keys(connection, limit=10)
        assert key.expires_us is not None
        assert key.expires_us - key.at_us == pytest.approx(limits.LEDGER_TTL_SECONDS * 1e6, abs=60e6)
        assert taken_keys(connection, "events", ["k"], now_us=key.expires_us - 1).keys() == {"k"}
        assert taken_keys(connection, "events", ["k"], now_us=key.expires_us) == {}
    later(monkeypatch, limits.LEDGER_TTL_SECONDS - 60)
    assert acceptor.accept(push(key="k")).replayed
    later(monkeypatch, limits.LEDGER_TTL_SECONDS + 60)
    other = push(b'{"label": "other"}\n', key="k")
    second = acceptor.accept(other)
    assert (second.replayed, int(second.snapshot_id) > int(first.snapshot_id)) == (False, True)
    assert acceptor.accept(other) == Accepted(second.snapshot_id, 1, second.bytes_written, replayed=True)
    assert len(rows_of(store)) == 3
    assert len(dump(store.catalog)["ledger_key"]) == 1


def test_an_expired_key_is_taken_over_by_one_of_many(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    Acceptor(store, ttl_seconds=0).accept(push(key="k"))
    with pool(2) as processes:
        running = [processes.submit(accept_many, place, 8, "k", BODY) for _ in range(2)]
        answers = [answer for process in running for answer in process.result()]
    assert sum(not answer.replayed for answer in answers) == 1
    assert rows_of(store) == ROWS * 2
    store.close()


def test_keys_are_swept_an_hour_after_they_expired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    acceptor = Acceptor(store)
    acceptor.accept(push(key="k"))
    later(monkeypatch, limits.LEDGER_TTL_SECONDS + 60)
    assert not sweep(store, actor=ACTOR)
    acceptor.accept(push(key="later"))
    later(monkeypatch, limits.LEDGER_TTL_SECONDS + limits.LEDGER_SWEEP_SECONDS + 60)
    Acceptor(store).accept(push(b"", key="last"))
    assert {row["idempotency_key"] for row in dump(store.catalog)["ledger_key"]} == {"later", "last"}
    rebuilt = dump(store.catalog)
    replay_log(store.catalog, store.layout)
    assert dump(store.catalog) == rebuilt


def test_cleared_keys_are_free(store: Store) -> None:
    acceptor = Acceptor(store)
    for key in ("a", "b", "c"):
        acceptor.accept(push(key=key))
    assert clear_keys(store, "events", ["b", "unknown"], actor=ACTOR) == 1
    assert [acceptor.accept(push(key=key)).replayed for key in ("a", "b", "c")] == [True, False, True]
    assert clear_keys(store, "events", None, actor=ACTOR) == 3
    assert clear_keys(store, "events", None, actor=ACTOR) == 0
    before = dump(store.catalog)
    replay_log(store.catalog, store.layout)
    assert dump(store.catalog) == before


def test_a_rebuilt_catalog_knows_the_keys_and_writers_go_on(place: Place) -> None:
    store = place.open()
    acceptor = Acceptor(store)
    first = acceptor.accept(push(key="k"))
    before = dump(store.catalog)
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    assert dump(store.catalog) == before
    assert transient_rows(store)["lease"] == []
    assert acceptor.accept(push(key="k")) == Accepted(first.snapshot_id, 2, first.bytes_written, replayed=True)
    assert acceptor.accept(push()).snapshot_id == "2"
    assert rows_of(store) == ROWS * 2
    acceptor.close()
    assert transient_rows(store)["lease"] == []
    store.close()


def test_an_empty_batch_writes_a_key_and_nothing_else(store: Store) -> None:
    acceptor = Acceptor(store)
    assert acceptor.accept(push(b"\n \n")) == Accepted("0", 0, 0)
    assert acceptor.accept(push(b"", key="k")) == Accepted("1", 0, 0)
    assert acceptor.accept(push(b"", key="k")) == Accepted("1", 0, 0, replayed=True)
    assert dump(store.catalog)["table_entry"] == []


def test_a_table_that_runs_have_filled_takes_no_pushes(store: Store) -> None:
    from contract.stores import begin_run, create_table

    create_table(store, "events", pipeline="events")
    begin_run(store, 1, table="events", pipeline="events")
    acceptor = Acceptor(store)
    assert code_of(lambda: acceptor.accept(push())) == "HW-I03"
    create_table(store, "others", pipeline="theirs")
    declared = PushTable("others", "ours", in_manifest=True)
    assert code_of(lambda: acceptor.accept(push(target=declared))) == "HW-I03"
    absent = PushTable("absent", "absent", may_create=False)
    assert code_of(lambda: acceptor.accept(push(target=absent))) == "HW-T07"


def _until(holds: object) -> None:
    assert callable(holds)
    for _ in range(WAIT_CHECKS):
        if holds():
            return
        time.sleep(WAIT_SECONDS)
    raise AssertionError("it never came to that")

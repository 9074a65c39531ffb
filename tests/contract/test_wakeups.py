"""Whoever waits for the catalog learns of a change. On SQLite and on PostgreSQL.

A wait that must end has a time-out so long that only a failure reaches it; one that must not end has a short one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contract.engine_home import a_job, arrived, claimed, owned, pulse, queue, save_step, send_pulse, step_of
from contract.stores import ACTOR, PROJECT, Place
from forked import exit_code
from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog.commit import Store, open_store
from headwater.catalog.inbox import put, send
from headwater.catalog.queue import finish_job, release_job, take_over
from headwater.catalog.wakeups import Waker, changes
from postgres_server import PostgresServer

LONG, SHORT = 60.0, 0.1
NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"a": 1})


@pytest.fixture
def waker(store: Store) -> Iterator[Waker]:
    made = changes(store.catalog)
    yield made
    made.close()


def test_nothing_wakes_while_nothing_happens(store: Store, waker: Waker) -> None:
    arrived(store)  # looking is no change
    assert not waker.wait(SHORT)
    assert not waker.wait(0)


def test_an_event_of_another_process_wakes_once(place: Place, store: Store, waker: Waker) -> None:
    assert exit_code(send_pulse, place) == 0
    assert waker.wait(LONG)
    assert len(arrived(store)) == 1
    assert not waker.wait(SHORT)


def test_a_wait_that_is_under_way_ends(store: Store, waker: Waker) -> None:
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(waker.wait, LONG)
        send(store.catalog, pulse())
        assert waiting.result()


def test_a_poke_ends_the_wait_that_is_under_way_or_the_next_one(waker: Waker) -> None:
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(waker.wait, LONG)
        waker.poke()
        assert waiting.result()
    for _ in range(100_000):  # as often as one likes
        waker.poke()
    assert waker.wait(LONG)
    while waker.wait(0):
        pass
    assert not waker.wait(SHORT)


def test_everything_that_somebody_may_wait_for_wakes(store: Store, waker: Waker) -> None:
    owner = owned(store)
    queue(store, *(a_job() for _ in range(3)))
    committed, finished, released = claimed(store), claimed(store), claimed(store)
    acts: list[Callable[[], object]] = [
        lambda: send(store.catalog, pulse()),
        lambda: store.commit(r.Commit(changes=(NOTE,), actor=ACTOR, events=(pulse(),), ends=committed.done())),
        lambda: finish_job(store.catalog, finished.done(), events=[pulse()]),
        lambda: release_job(store.catalog, released),
        lambda: save_step(store.catalog, step_of(owner)),
    ]
    for act in acts:
        while waker.wait(0):
            pass
        act()
        assert waker.wait(LONG)


def test_a_job_that_is_taken_over_wakes_a_worker(store: Store, waker: Waker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue(store, a_job())
    claimed(store)
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(3600 * 1_000_000))
    while waker.wait(0):
        pass
    assert take_over(store.catalog)
    assert waker.wait(LONG)


def test_what_was_rolled_back_wakes_nobody(store: Store, waker: Waker) -> None:
    with pytest.raises(ZeroDivisionError), store.catalog.transaction() as connection:
        put(connection, [pulse()])
        raise ZeroDivisionError
    assert not waker.wait(SHORT)


def test_every_waker_is_woken(store: Store) -> None:
    wakers = [changes(store.catalog) for _ in range(4)]
    ready = threading.Barrier(5)

    def wait(waker: Waker) -> bool:
        ready.wait()
        return waker.wait(LONG)

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(wait, waker) for waker in wakers]
        ready.wait()
        send(store.catalog, pulse())
        assert all(answer.result() for answer in answers)
    for waker in wakers:
        waker.close()


def test_the_changes_of_another_project_wake_nobody(tmp_path: Path, postgres_url: str) -> None:
    """Several projects may share one PostgreSQL database."""
    mine, other = (open_store(tmp_path / name, project=name, catalog_url=postgres_url) for name in ("mine", "other"))
    waker = changes(mine.catalog)
    send(other.catalog, pulse())
    assert not waker.wait(SHORT)
    send(mine.catalog, pulse())
    assert waker.wait(LONG)
    waker.close()
    mine.close()
    other.close()


def test_a_waker_outlives_a_restart_of_postgres(
    tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    store = Place(tmp_path / "store", postgres_url).open()
    waker = changes(store.catalog)
    postgres_server.stop()
    try:
        assert waker.wait(LONG)  # something has changed: the one who looks will see what
        with pytest.raises(HeadwaterError) as away:
            arrived(store)
        assert (away.value.code, away.value.retryable) == ("HW-T06", True)
        assert waker.wait(SHORT)  # still away: look again
    finally:
        postgres_server.start()
    assert waker.wait(LONG)
    assert not waker.wait(SHORT)
    send(store.catalog, pulse())
    assert waker.wait(LONG)
    waker.close()
    store.close()

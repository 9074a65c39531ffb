"""The moment at which a key expires, to the microsecond: before it the answer, from it on a free key. Two servers, both
databases, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from contract.engine_home import Paused, code_of
from contract.ingesting import accept_k, push, rows_of
from contract.stores import ACTOR, Place
from headwater.base import limits
from headwater.base.clock import now_us
from headwater.catalog.commit import Store
from headwater.catalog.ledger import ledger_keys
from headwater.ingest.accept import Acceptor
from headwater.ingest.ledger_rules import sweep

OTHER = b'{"label": "other"}\n'


@pytest.fixture
def servers(place: Place) -> Iterator[tuple[Store, Store]]:
    """Two processes' views of one store; its table is there."""
    one, two = place.open(), place.open()
    Acceptor(one).accept(push())
    yield one, two
    one.close()
    two.close()


def expiry_of(store: Store, key: str) -> int:
    with store.catalog.snapshot() as connection:
        (found,) = [each.expires_us for each in ledger_keys(connection, limit=10) if each.key == key]
    assert found is not None
    return found


def stop_clock(monkeypatch: pytest.MonkeyPatch, at_us: int) -> None:
    monkeypatch.setattr("time.time_ns", lambda: at_us * 1000)


def test_a_key_protects_up_to_the_last_microsecond_and_is_free_from_the_next(
    servers: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = map(Acceptor, servers)
    first = one.accept(push(key="k"))
    expires_us = expiry_of(servers[0], "k")
    stop_clock(monkeypatch, expires_us - 1)
    for acceptor in (one, two):
        again = acceptor.accept(push(key="k"))
        assert (again.replayed, again.snapshot_id) == (True, first.snapshot_id)
        assert code_of(partial(acceptor.accept, push(OTHER, key="k"))) == "HW-I01"
    stop_clock(monkeypatch, expires_us)
    taken = two.accept(push(OTHER, key="k"))
    assert (taken.replayed, int(taken.snapshot_id)) == (False, int(first.snapshot_id) + 1)
    for acceptor in (one, two):
        assert acceptor.accept(push(OTHER, key="k")).snapshot_id == taken.snapshot_id
        assert code_of(partial(acceptor.accept, push(key="k"))) == "HW-I01", "the key is the new batch's now"
    assert expiry_of(servers[0], "k") == expires_us + limits.LEDGER_TTL_SECONDS * 1_000_000
    assert rows_of(servers[0])[4:] == [{"label": "other"}]


@pytest.mark.parametrize(("body", "told"), [(None, "replayed at 3"), (OTHER, "HW-I01")])
def test_who_takes_over_an_expired_key_finds_that_another_has(
    servers: tuple[Store, Store], place: Place, body: bytes | None, told: str
) -> None:
    """Both saw that it had expired; one of them slept, with its file written, until the other had committed."""
    Acceptor(servers[0], ttl_seconds=0).accept(push(b'{"label": "old"}\n', key="k"))
    sleeper = Paused(place, accept_k, "commit.before")
    taken = Acceptor(servers[1]).accept(push(key="k") if body is None else push(body, key="k"))
    assert (taken.snapshot_id, taken.replayed) == ("3", False)
    assert sleeper.wake() == told
    assert len(rows_of(servers[0])) == 3 + (2 if body is None else 1)


YEARS_US = 170 * 365 * 86_400 * 1_000_000
DAY_US = 86_400 * 1_000_000


@pytest.mark.parametrize("ahead_us", [2 * DAY_US, YEARS_US])
def test_a_clock_that_jumps_ahead_and_back_frees_no_key(
    servers: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, ahead_us: int
) -> None:
    one = Acceptor(servers[0])
    first = one.accept(push(key="k"))
    before = now_us()
    for number in range(3):  # pushes go on while the clock is wrong, and each process sweeps with its first one
        stop_clock(monkeypatch, before + ahead_us + number * 1_000_000)
        Acceptor(servers[1]).accept(push(key=f"ahead {number}"))
        again = Acceptor(servers[1]).accept(push(key="k"))
        assert (again.replayed, again.snapshot_id) == (True, first.snapshot_id)
        assert code_of(partial(one.accept, push(OTHER, key="k"))) == "HW-I01"
        assert not sweep(servers[1], actor=ACTOR)
    stop_clock(monkeypatch, before + 1)
    assert Acceptor(servers[1]).accept(push(key="k")).snapshot_id == first.snapshot_id


def test_a_clock_that_stays_ahead_is_believed_after_a_while(
    servers: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was idle for a year looks the same at first."""
    acceptor = Acceptor(servers[0])
    first = acceptor.accept(push(key="k"))
    later = now_us() + 365 * DAY_US
    stop_clock(monkeypatch, later)
    acceptor.accept(push(key="new"))
    assert acceptor.accept(push(key="k")).replayed
    stop_clock(monkeypatch, later + limits.CLOCK_CONFIRMED_SECONDS * 1_000_000)
    assert int(acceptor.accept(push(OTHER, key="k")).snapshot_id) > int(first.snapshot_id)
    expiry = expiry_of(servers[0], "new")
    stop_clock(monkeypatch, expiry + limits.LEDGER_SWEEP_SECONDS * 1_000_000)
    assert sweep(servers[0], actor=ACTOR)


def test_a_server_whose_clock_is_behind_does_not_undo_a_takeover(
    servers: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = map(Acceptor, servers)
    one.accept(push(key="k"))
    expires_us = expiry_of(servers[0], "k")
    stop_clock(monkeypatch, expires_us)
    taken = two.accept(push(OTHER, key="k"))
    stop_clock(monkeypatch, expires_us - 5_000_000)
    assert one.accept(push(OTHER, key="k")).snapshot_id == taken.snapshot_id
    assert code_of(lambda: one.accept(push(key="k"))) == "HW-I01"
    assert len(rows_of(servers[0])) == 5

"""Who works on what: claims, take-over, fencing. On SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select

from contract.stores import DAY_US, PROJECT, begin_run, claim, commit, create_table, landed, queue_run
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.base.ids import RunId
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.lease import Lease, renew
from headwater.catalog.queue import job_lease, release_job, take_over
from headwater.catalog.slice_jobs import SliceLease


@pytest.fixture(autouse=True)
def table(store: Store) -> None:
    create_table(store)


def take(store: Store, run_id: RunId, holder: str = "worker", *, takes_over: bool = True) -> SliceLease:
    lease = claim(store.catalog, run_id, holder=holder, takes_over=takes_over)
    assert lease is not None
    return lease


def release(store: Store, lease: SliceLease) -> None:
    with store.catalog.snapshot() as connection:
        row = connection.execute(select(t.job).where(t.job.c.job_id == lease.unit_id)).mappings().one()
    release_job(store.catalog, job_lease(row, lease.fence))


def statuses(store: Store, run_id: RunId) -> list[tuple[int, str, str, int]]:
    """Of each slice: its place, its state as work and as a job, and the attempts at it."""
    jobs = t.unit.outerjoin(t.job, t.job.c.job_id == t.unit.c.unit_id)
    asked = select(t.unit.c.ordinal, t.unit.c.state, t.job.c.state, t.job.c.attempt).select_from(jobs)
    with store.catalog.snapshot() as connection:
        rows = connection.execute(asked.where(t.unit.c.run_id == run_id).order_by(t.unit.c.ordinal))
        return [(ordinal, state, job, attempt) for ordinal, state, job, attempt in rows]


def later(monkeypatch: pytest.MonkeyPatch, microseconds: int) -> None:
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(microseconds))


def test_units_are_claimed_in_order_until_none_is_left(store: Store) -> None:
    run_id = begin_run(store)
    assert [take(store, run_id).ordinal for _ in range(3)] == [0, 1, 2]
    assert claim(store.catalog, run_id, holder="worker") is None
    assert claim(store.catalog, RunId("no such run"), holder="worker") is None


def test_a_lease_carries_what_its_worker_needs(store: Store) -> None:
    run_id = begin_run(store)
    lease = take(store, run_id)
    assert (lease.run_id, lease.pipeline, lease.table, lease.attempt) == (run_id, PROJECT, "orders", 1)
    assert lease.payload["slice"]["end"] == 10
    assert lease.fence == Lease(kind="job", id=lease.unit_id, attempt=1, epoch=lease.epoch)


def test_each_unit_goes_to_one_of_sixteen_claimers(store: Store) -> None:
    for _ in range(4):
        run_id, start = begin_run(store, 12), threading.Barrier(16)

        def work(name: int, run_id: RunId = run_id, start: threading.Barrier = start) -> list[SliceLease]:
            start.wait()
            leases = [claim(store.catalog, run_id, holder=f"worker-{name}") for _ in range(2)]
            return [lease for lease in leases if lease is not None]

        with ThreadPoolExecutor(16) as pool:
            leases = [lease for found in pool.map(work, range(16)) for lease in found]
        assert Counter(lease.attempt for lease in leases) == {1: 12}
        assert len({lease.unit_id for lease in leases}) == 12


def test_a_serial_unit_waits_until_the_units_before_it_are_done(store: Store) -> None:
    run_id = begin_run(store, 2, serial=True)
    first = take(store, run_id)
    assert claim(store.catalog, run_id, holder="other") is None
    store.commit(landed(first))
    assert take(store, run_id).ordinal == 1


def test_a_serial_unit_does_not_wait_for_another_table(store: Store) -> None:
    units = tuple(
        r.UnitSpec(unit_id=f"u-{table}", table=table, ordinal=0, serial=True, payload={"slice": {"end": i}})
        for i, table in enumerate(["orders", "returns"])
    )
    started = r.RunStarted(
        run_id="two-tables", pipeline=PROJECT, freshness_us=1, trigger="apply", connector="files@1", definition="d"
    )
    commit(store, started, r.UnitsPlanned(run_id="two-tables", pipeline=PROJECT, units=units))
    queue_run(store, "two-tables")
    assert {take(store, RunId("two-tables")).table for _ in range(2)} == {"orders", "returns"}


def test_an_expired_lease_is_taken_over_and_its_old_holder_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begin_run(store, 1)
    old = take(store, run_id, "old")
    assert claim(store.catalog, run_id, holder="new") is None
    later(monkeypatch, limits.LEASE_SECONDS * 1_000_000 + 1)
    new = take(store, run_id, "new")
    assert (new.unit_id, new.attempt) == (old.unit_id, 2)
    assert new.epoch > old.epoch
    assert not renew(store.catalog, old.fence)
    release(store, old)  # what is no longer ours stays with its new holder
    assert claim(store.catalog, run_id, holder="third") is None
    with pytest.raises(HeadwaterError) as refused:
        store.commit(landed(old))
    assert refused.value.code == "HW-T03"
    store.commit(landed(new))


def test_epochs_grow_even_if_the_clock_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = begin_run(store, 1)
    first = take(store, run_id)
    release(store, first)
    later(monkeypatch, -DAY_US)
    assert take(store, run_id).epoch == first.epoch + 1


def test_a_renewed_lease_is_held_for_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = begin_run(store, 1)
    lease = take(store, run_id)
    later(monkeypatch, limits.LEASE_SECONDS * 1_000_000 - 1_000_000)
    assert renew(store.catalog, lease.fence)
    later(monkeypatch, limits.LEASE_SECONDS * 1_000_000 + 1_000_000)
    assert claim(store.catalog, run_id, holder="other") is None
    store.commit(landed(lease))


def test_a_released_unit_is_free_at_once(store: Store) -> None:
    run_id = begin_run(store, 1)
    first = take(store, run_id)
    release(store, first)
    assert take(store, run_id).attempt == 2


def test_abandoned_units_are_neither_claimed_nor_landed(store: Store) -> None:
    run_id = begin_run(store)
    lease = take(store, run_id)
    commit(store, r.UnitsAbandoned(run_id=run_id), r.RunSettled(run_id=run_id))
    assert claim(store.catalog, run_id, holder="worker") is None
    with pytest.raises(HeadwaterError) as refused:
        store.commit(landed(lease))
    assert refused.value.code == "HW-T03"


def test_the_status_of_a_unit_says_whether_it_is_held(store: Store) -> None:
    run_id = begin_run(store)
    lease = take(store, run_id, "me")
    store.commit(landed(take(store, run_id, "you")))
    found = statuses(store, run_id)
    assert found == [(0, "pending", "running", 1), (1, "done", "done", 1), (2, "pending", "queued", 0)]
    release(store, lease)
    assert statuses(store, run_id)[0] == (0, "pending", "queued", 1)


def test_claims_renewals_and_commits_at_once_never_deadlock(store: Store) -> None:
    """A deadlock would come out as HW-T06: every other answer is a promise kept."""
    run_id = begin_run(store, 24)
    table_run = begin_run(store, 8, pipeline="other")

    def work(seed: int) -> None:
        choice = random.Random(seed)
        while (lease := claim(store.catalog, run_id, holder=new_holder())) is not None:
            renew(store.catalog, lease.fence)
            if choice.random() < 0.3:
                release(store, lease)
                continue
            claim(store.catalog, table_run, holder=new_holder())
            try:
                store.commit(landed(lease))
                commit(store, r.UnitsAbandoned(run_id=table_run), requires=[r.UnitsOpen(run_id=run_id)])
            except HeadwaterError as error:
                assert error.code in ("HW-T02", "HW-T03"), error.render()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert {state for _, state, _, _ in statuses(store, run_id)} == {"done"}


def test_a_lease_of_another_unit_is_no_lease(store: Store) -> None:
    run_id = begin_run(store)
    mine, other = take(store, run_id), take(store, run_id)
    with pytest.raises(HeadwaterError) as refused:
        store.commit(landed(replace(mine, unit_id=other.unit_id, epoch=mine.epoch - 1)))
    assert refused.value.code == "HW-T03"


def test_what_a_dead_process_held_is_free_at_once_and_what_a_living_one_holds_is_not(store: Store) -> None:
    run_id = begin_run(store, 3)
    node, pid, began, name = new_holder().split("/")
    mine = take(store, run_id, "/".join((node, pid, began, name)))
    dead = take(store, run_id, f"{node}/999999999/{began}/{name}", takes_over=False)
    reused = take(store, run_id, f"{node}/{pid}/1/{name}", takes_over=False)
    assert len(take_over(store.catalog)) == 2
    assert take_over(store.catalog) == []
    taken = [take(store, run_id) for _ in range(2)]
    assert {(lease.unit_id, lease.attempt) for lease in taken} == {(dead.unit_id, 2), (reused.unit_id, 2)}
    store.commit(landed(mine))
    with pytest.raises(HeadwaterError) as refused:
        store.commit(landed(dead))
    assert refused.value.code == "HW-T03"

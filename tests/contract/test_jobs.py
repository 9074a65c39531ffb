"""The work queue: claims, slots, leases, ends. On SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import update

from catalog_rows import dump
from contract.children import pool
from contract.engine_home import (
    Paused,
    a_job,
    all_jobs,
    arrived,
    before_the_lock,
    claimed,
    code_of,
    completed,
    dead_holder,
    do_jobs,
    do_one_job,
    later,
    owned,
    queue,
    save_step,
    step_of,
    transient_rows,
)
from contract.stores import ACTOR, PROJECT, Place, commit
from forked import exit_code
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import NewJob
from headwater.catalog.lease import renew
from headwater.catalog.queue import (
    JobLease,
    Slots,
    cancel_jobs,
    claim_job,
    finish_job,
    forget_ended,
    give_back_strays,
    lost_jobs,
    queue_depth,
    release_job,
    take_over,
)

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"a": 1})
LEASE = limits.LEASE_SECONDS
NOBODY = "nobody's"


def none_left(store: Store, slots: Slots | None = None) -> bool:
    return claim_job(store.catalog, holder=new_holder(), slots=slots or Slots()) is None


def cancel(store: Store, *job_ids: str) -> list[str]:
    with store.catalog.transaction() as connection:
        return cancel_jobs(connection, job_ids)


def lost(store: Store, *leases: JobLease) -> set[str]:
    with store.catalog.snapshot() as connection:
        return lost_jobs(connection, leases)


# --- claiming


def test_jobs_are_claimed_oldest_first_until_none_is_left(store: Store) -> None:
    new = [a_job(f"p{i}") for i in range(3)]
    queue(store, *new)
    assert [claimed(store).job_id for _ in range(3)] == [job.job_id for job in new]
    assert none_left(store)


def test_a_lease_carries_what_its_worker_needs(store: Store) -> None:
    body = {"cut": [["orders", 7, [["read", 3]]]], "text": "ü"}
    queue(store, NewJob(kind="ripple", pond="p", ripple="r", freshness_us=7, body=body, weight="big", run_id="x"))
    lease = claimed(store)
    assert (lease.kind, lease.pond, lease.ripple, lease.freshness_us) == ("ripple", "p", "r", 7)
    assert (lease.body, lease.weight, lease.run_id, lease.attempt) == (body, "big", "x", 1)
    (job,) = all_jobs(store)
    assert (job.state, job.attempt, job.holder.split("/")[1]) == ("running", 1, new_holder().split("/")[1])


def test_each_job_goes_to_one_of_sixteen_claimers(store: Store) -> None:
    for _ in range(3):
        queue(store, *(a_job() for _ in range(12)))
        start = threading.Barrier(16)

        def work(_: int, start: threading.Barrier = start) -> list[JobLease]:
            start.wait()
            leases = [claim_job(store.catalog, holder=new_holder()) for _ in range(2)]
            return [lease for lease in leases if lease is not None]

        with ThreadPoolExecutor(16) as threads:
            leases = [lease for found in threads.map(work, range(16)) for lease in found]
        assert len({lease.job_id for lease in leases}) == len(leases) == 12


# --- slots


def test_a_small_job_passes_the_big_ones_that_wait_for_a_slot(store: Store) -> None:
    bigs, small = [a_job(weight="big") for _ in range(3)], a_job()
    queue(store, *bigs, small)
    slots = Slots(total=3, big=2)
    assert [claimed(store, slots=slots).job_id for _ in range(3)] == [bigs[0].job_id, bigs[1].job_id, small.job_id]
    assert none_left(store, slots)


def test_a_big_job_is_not_passed_over_once_there_is_a_slot_for_it(store: Store) -> None:
    bigs, smalls = [a_job(weight="big") for _ in range(2)], [a_job() for _ in range(3)]
    queue(store, *bigs, *smalls)
    slots = Slots(total=2, big=1)
    first = claimed(store, slots=slots)
    finish_job(store.catalog, claimed(store, slots=slots).done())
    finish_job(store.catalog, first.done())
    assert [first.job_id, claimed(store, slots=slots).job_id] == [job.job_id for job in bigs]
    assert claimed(store, slots=slots).job_id == smalls[1].job_id


def test_a_thread_for_small_jobs_takes_no_big_one(store: Store) -> None:
    big, small = a_job(weight="big"), a_job()
    queue(store, big, small)
    assert claimed(store, weights=["small"]).job_id == small.job_id
    assert claim_job(store.catalog, holder=new_holder(), weights=["small"]) is None
    assert claimed(store).job_id == big.job_id


def test_no_more_jobs_of_one_pond_run_than_it_may(store: Store) -> None:
    closed, busy = a_job("closed"), [a_job("busy") for _ in range(3)]
    queue(store, closed, *busy, a_job("other"), *(a_job("wide") for _ in range(3)))
    slots = Slots(per_pond=1, ponds={"wide": 2, "closed": 0})
    found = [claimed(store, slots=slots) for _ in range(4)]
    assert [lease.pond for lease in found] == ["busy", "other", "wide", "wide"]
    assert none_left(store, slots)
    finish_job(store.catalog, found[0].done())
    assert claimed(store, slots=slots).job_id == busy[1].job_id
    assert claimed(store).job_id == closed.job_id


def test_no_more_jobs_run_than_may_in_total(store: Store) -> None:
    queue(store, *(a_job(f"p{i}") for i in range(3)))
    slots = Slots(total=2)
    first, _ = claimed(store, slots=slots), claimed(store, slots=slots)
    assert none_left(store, slots)
    release_job(store.catalog, first)
    assert claimed(store, slots=slots).job_id == first.job_id


def test_bounds_hold_exactly_if_sixteen_claim_at_once(store: Store) -> None:
    for slots, most in [(Slots(total=5), 5), (Slots(per_pond=2), 8), (Slots(big=3), 13)]:
        queue(store, *(a_job(f"p{i % 4}", weight="big" if i % 2 else "small") for i in range(20)))
        start = threading.Barrier(16)

        def work(_: int, slots: Slots = slots, start: threading.Barrier = start) -> list[JobLease]:
            start.wait()
            leases = [claim_job(store.catalog, holder=new_holder(), slots=slots) for _ in range(2)]
            return [lease for lease in leases if lease is not None]

        with ThreadPoolExecutor(16) as threads:
            leases = [lease for found in threads.map(work, range(16)) for lease in found]
        assert len(leases) == most
        if slots.per_pond:
            assert set(Counter(lease.pond for lease in leases).values()) == {2}
        if slots.big:
            assert sum(lease.weight == "big" for lease in leases) == 3
        cancel(store, *(job.job_id for job in all_jobs(store, "queued", "running")))


# --- ending


def test_a_job_that_was_done_or_failed_says_so_and_the_engine_is_told(store: Store) -> None:
    queue(store, a_job(), a_job())
    done, failed = claimed(store), claimed(store)
    finish_job(store.catalog, done.done(rows=5, bytes=50), events=[completed(done)])
    error = HeadwaterError("HW-R01", "it broke", hint="mend it").as_json()
    finish_job(store.catalog, failed.failed(error))
    first, second = all_jobs(store)
    assert (first.state, first.rows, first.bytes, first.error, first.holder) == ("done", 5, 50, None, "")
    assert (second.state, second.error) == ("failed", error)
    assert first.ended_us is not None and first.started_us is not None
    assert first.created_us <= first.started_us <= first.ended_us
    assert [told.ids for told in arrived(store)] == [{"job": done.job_id}]
    assert transient_rows(store)["lease"] == []


def test_a_job_ends_once_and_only_under_its_own_lease(store: Store) -> None:
    queue(store, a_job())
    lease = claimed(store)
    wrong = [replace(lease, attempt=2), replace(lease, epoch=lease.epoch + 1), replace(lease, job_id=NOBODY)]
    for other in wrong:
        assert code_of(partial(finish_job, store.catalog, other.done())) == "HW-T03"
    finish_job(store.catalog, lease.done())
    before = transient_rows(store)
    assert code_of(lambda: finish_job(store.catalog, lease.failed({}), events=[completed(lease)])) == "HW-T03"
    assert transient_rows(store) == before


def test_a_job_that_is_given_back_is_free_at_once_for_the_next_attempt(store: Store) -> None:
    queue(store, a_job())
    first = claimed(store)
    release_job(store.catalog, first)
    assert [(job.state, job.started_us) for job in all_jobs(store)] == [("queued", None)]
    second = claimed(store)
    assert (second.job_id, second.attempt) == (first.job_id, 2)
    release_job(store.catalog, first)  # no longer its own
    assert not renew(store.catalog, first.fence)
    assert renew(store.catalog, second.fence)


def test_a_commit_ends_its_job_and_tells_the_engine_or_does_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, a_job())
    old = claimed(store)
    later(monkeypatch, LEASE + 1)
    assert take_over(store.catalog) == [old.job_id]
    new = claimed(store)

    def landing(lease: JobLease) -> r.Commit:
        return r.Commit(changes=(NOTE,), actor=ACTOR, events=(completed(lease),), ends=lease.done(rows=2))

    before = transient_rows(store), dump(store.catalog)
    assert code_of(lambda: store.commit(landing(old))) == "HW-T03"
    assert (transient_rows(store), dump(store.catalog)) == before
    assert store.commit(landing(new)) == 1
    assert [(job.state, job.rows, job.attempt) for job in all_jobs(store)] == [("done", 2, 2)]
    assert [told.ids["job"] for told in arrived(store)] == [new.job_id]
    assert code_of(lambda: store.commit(landing(new))) == "HW-T03"


def test_a_commit_on_the_way_requires_the_job_and_does_not_end_it(store: Store) -> None:
    queue(store, a_job())
    lease = claimed(store)
    assert commit(store, NOTE, requires=[lease.fence]) == 1
    assert [job.state for job in all_jobs(store)] == ["running"]
    cancel(store, lease.job_id)
    assert code_of(lambda: commit(store, NOTE, requires=[lease.fence])) == "HW-T03"


# --- cancelling


def test_a_cancelled_job_is_neither_claimed_nor_ended(store: Store) -> None:
    queue(store, a_job(), a_job(), a_job())
    running, ended = claimed(store), claimed(store)
    finish_job(store.catalog, ended.done())
    (queued,) = all_jobs(store, "queued")
    assert lost(store, running) == set()
    assert cancel(store, running.job_id, ended.job_id, queued.job_id, NOBODY) == [running.job_id, queued.job_id]
    assert [job.state for job in all_jobs(store)] == ["cancelled", "done", "cancelled"]
    assert none_left(store)
    assert lost(store, running) == {running.job_id}
    assert not renew(store.catalog, running.fence)
    assert code_of(lambda: finish_job(store.catalog, running.done(), events=[completed(running)])) == "HW-T03"
    assert arrived(store) == []


def test_a_step_may_cancel_jobs(store: Store) -> None:
    owner, job = owned(store), a_job()
    save_step(store.catalog, step_of(owner, new_jobs=(job,)))
    save_step(store.catalog, step_of(owner, cancelled=(job.job_id,), new_jobs=(a_job(),)))
    assert [job.state for job in all_jobs(store)] == ["cancelled", "queued"]


# --- taking over


def test_a_job_whose_lease_has_run_out_is_taken_over_and_its_old_worker_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, a_job(), a_job())
    old, renewed = claimed(store), claimed(store)
    assert take_over(store.catalog) == []
    later(monkeypatch, LEASE - 1)
    assert renew(store.catalog, renewed.fence)
    later(monkeypatch, LEASE + 1)
    assert none_left(store)
    assert take_over(store.catalog) == [old.job_id]
    assert take_over(store.catalog) == []
    assert lost(store, old, renewed) == {old.job_id}
    assert code_of(lambda: finish_job(store.catalog, old.done())) == "HW-T03"
    new = claimed(store)
    assert (new.job_id, new.attempt) == (old.job_id, 2)
    assert code_of(lambda: finish_job(store.catalog, old.done())) == "HW-T03"
    finish_job(store.catalog, new.done())
    finish_job(store.catalog, renewed.done())


def test_a_lease_that_is_renewed_at_the_last_moment_is_not_taken_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the one who takes over has read the leases, before it has the lock."""
    store, worker = place.open(), place.open()
    queue(store, a_job())
    lease = claimed(store)
    later(monkeypatch, LEASE + 1)
    renewed = before_the_lock(store, lambda: renew(worker.catalog, lease.fence))
    assert take_over(store.catalog) == []
    assert renewed == [True]
    assert lost(store, lease) == set()
    store.close()
    worker.close()


def test_a_worker_that_is_late_and_was_not_replaced_may_end_its_job(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, a_job())
    lease = claimed(store)
    later(monkeypatch, LEASE + 1)
    finish_job(store.catalog, lease.done())
    assert take_over(store.catalog) == []


def test_the_jobs_of_a_dead_process_of_this_machine_are_taken_over_at_once(store: Store) -> None:
    queue(store, a_job(), a_job(), a_job())
    mine = claimed(store)
    dead = claim_job(store.catalog, holder=dead_holder())
    away = claim_job(store.catalog, holder=dead_holder())
    assert dead is not None and away is not None
    with store.catalog.transaction() as connection:
        elsewhere = update(t.lease).where(t.lease.c.id == away.job_id)
        connection.execute(elsewhere.values(node="elsewhere"))
    assert take_over(store.catalog) == [dead.job_id]
    assert lost(store, mine, dead, away) == {dead.job_id}


def test_a_worker_that_was_killed_is_followed_by_the_next_attempt(place: Place) -> None:
    store = place.open()
    queue(store, a_job())
    assert exit_code(do_one_job, place, crash_at="job.after_lease") == -9
    assert [(job.state, job.attempt) for job in all_jobs(store)] == [("running", 1)]
    assert exit_code(do_one_job, place) == 1  # it is still leased
    assert len(take_over(store.catalog)) == 1
    assert exit_code(do_one_job, place, crash_at="job.inside_end") == -9
    assert ([(job.state, job.attempt) for job in all_jobs(store)], arrived(store)) == ([("running", 2)], [])
    assert len(take_over(store.catalog)) == 1
    assert exit_code(do_one_job, place) == 0
    assert [(job.state, job.attempt) for job in all_jobs(store)] == [("done", 3)]
    assert len(arrived(store)) == 1
    store.close()


def test_a_worker_that_slept_past_its_lease_is_refused_and_its_job_has_ended_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    queue(store, a_job())
    sleeper = Paused(place, do_one_job, "job.after_lease")
    assert take_over(store.catalog) == []
    later(monkeypatch, LEASE + 1)
    assert len(take_over(store.catalog)) == 1
    lease = claimed(store)
    assert sleeper.wake() == "HW-T03"
    finish_job(store.catalog, lease.done(), events=[completed(lease)])
    assert [(job.state, job.attempt) for job in all_jobs(store)] == [("done", 2)]
    assert len(arrived(store)) == 1
    store.close()


# --- all at once


@pytest.mark.parametrize("slots", [Slots(), Slots(total=3, per_pond=1, big=2)], ids=["unbound", "bound"])
def test_four_processes_do_two_hundred_jobs_once_each(place: Place, slots: Slots) -> None:
    store = place.open()
    new = [a_job(f"p{i % 7}", weight="big" if i % 5 == 0 else "small") for i in range(200)]
    queue(store, *new)
    with pool(4) as workers:
        ended = [job for work in [workers.submit(do_jobs, place, 4, slots) for _ in range(4)] for job in work.result()]
    assert sorted(ended) == sorted(job.job_id for job in new)
    assert {(job.state, job.attempt) for job in all_jobs(store)} == {("done", 1)}
    told = [sent.ids["job"] for sent in arrived(store) if sent.kind == "completed"]
    assert sorted(told) == sorted(ended)
    store.close()


def test_everything_at_once_never_deadlocks(store: Store) -> None:
    """A deadlock would come out as HW-T06: every other answer is a promise kept."""
    owner = owned(store)
    save_step(store.catalog, step_of(owner, new_jobs=tuple(a_job(f"p{i % 3}") for i in range(60))))

    def work(seed: int) -> None:
        choice, slots = random.Random(seed), Slots(total=6) if seed % 2 else Slots()
        while all_jobs(store, "queued"):
            lease = claim_job(store.catalog, holder=new_holder() if seed % 3 else dead_holder(), slots=slots)
            try:
                if lease is not None and choice.random() < 0.8:
                    renew(store.catalog, lease.fence)
                    if choice.random() < 0.5:
                        finish_job(store.catalog, lease.done(), events=[completed(lease)])
                    else:
                        store.commit(
                            r.Commit(changes=(NOTE,), actor=ACTOR, ends=lease.done(), events=(completed(lease),))
                        )
                elif choice.random() < 0.5:
                    some = choice.sample(all_jobs(store), 5)
                    save_step(store.catalog, step_of(owner, cancelled=tuple(job.job_id for job in some)))
                take_over(store.catalog)
            except HeadwaterError as error:
                assert error.code == "HW-T03", error.render()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    told = Counter(sent.ids["job"] for sent in arrived(store))
    assert set(told) == {job.job_id for job in all_jobs(store, "done")}
    assert set(told.values()) <= {1}


# --- watching and sweeping


def test_the_depth_of_the_queue_counts_what_waits_and_for_how_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def depth() -> tuple[dict[str, int], dict[str, int], int]:
        with store.catalog.snapshot() as connection:
            found = queue_depth(connection)
        return dict(found.queued), dict(found.running), found.oldest_wait_us // 1_000_000 // 60

    assert depth() == ({}, {}, 0)
    queue(store, a_job(), a_job(weight="big"))
    later(monkeypatch, 3600)
    queue(store, a_job(), a_job())
    later(monkeypatch, 7200)
    assert depth() == ({"small": 3, "big": 1}, {}, 120)
    leases = [claimed(store), claimed(store)]
    assert depth() == ({"small": 2}, {"small": 1, "big": 1}, 60)
    for lease in leases:
        finish_job(store.catalog, lease.done())
    assert depth() == ({"small": 2}, {}, 60)


def test_ended_jobs_are_forgotten_after_a_while_and_open_ones_never(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, *(a_job() for _ in range(5)))
    for _ in range(3):
        finish_job(store.catalog, claimed(store).done())
    claimed(store)
    later(monkeypatch, limits.JOB_RETENTION_SECONDS - 60)
    assert forget_ended(store.catalog) == 0
    later(monkeypatch, limits.JOB_RETENTION_SECONDS + 60)
    assert forget_ended(store.catalog, limit=2) == 2
    assert [job.state for job in all_jobs(store)] == ["done", "running", "queued"]
    assert forget_ended(store.catalog) == 1
    assert [job.state for job in all_jobs(store)] == ["running", "queued"]


def test_a_claim_whose_answer_was_lost_is_given_back_by_its_own_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, a_job(), a_job())
    holder = new_holder()
    known, lost = claim_job(store.catalog, holder=holder), claim_job(store.catalog, holder=holder)
    assert known is not None and lost is not None
    assert give_back_strays(store.catalog, holder, {known.job_id}) == [], "it may just be on its way"
    later(monkeypatch, limits.STRAY_SECONDS + 1)
    assert give_back_strays(store.catalog, new_holder(), {known.job_id}) == [], "another's claim is not ours to judge"
    assert give_back_strays(store.catalog, holder, {known.job_id}) == [lost.job_id]
    again = claim_job(store.catalog, holder=new_holder())
    assert again is not None and (again.job_id, again.attempt) == (lost.job_id, 2)
    finish_job(store.catalog, known.done())

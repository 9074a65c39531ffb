"""Short words for tests of the engine's home: events, steps and jobs, and what other processes do with them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, select

from contract.children import Lander
from contract.stores import ACTOR, Place
from forked import context
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import InboxEvent, JobState, NewJob, Step
from headwater.catalog.engine_state import claim_engine, load_engine, store_step
from headwater.catalog.inbox import Arrived, message, send, take
from headwater.catalog.lease import Lease
from headwater.catalog.queue import Job, JobLease, Slots, claim_job, finish_job, jobs, queue_jobs, take_over
from headwater.freshness.events import Completed, Demand

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

CRASH_POINTS = (
    "owner.after_lease",
    "step.before",
    "step.inside",
    "step.after",
    "job.after_lease",
    "job.inside_end",
)
"""Those at which the tests of this directory kill a process; the others are killed at by whole applies."""

HEADER = {"format": 1, "now": 0, "announced": None}
START_CHECKS = 3_000
START_CHECK_SECONDS = 0.01


def save_step(catalog: Catalog, step: Step) -> int:
    """Store a step; its number."""
    return store_step(catalog, step).number


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(int(seconds * 1_000_000)))


def dead_holder() -> str:
    """A holder of this machine whose process is gone."""
    node, _, began, name = new_holder().split("/")
    return f"{node}/999999999/{began}/{name}"


def pulse(pond: str = "orders") -> InboxEvent:
    return message(Demand(pond, "pulse"), actor=ACTOR)


def completed(lease: JobLease) -> InboxEvent:
    event = Completed(lease.pond, lease.ripple, lease.freshness_us, version=1)
    return message(event, actor=ACTOR, ids={"job": lease.job_id})


def owned(store: Store) -> Lease:
    owner = claim_engine(store.catalog, holder=new_holder())
    assert owner is not None
    return owner


def step_of(owner: Lease, **more: Any) -> Step:
    return Step(owner=owner, header=HEADER, **more)


def arrived(store: Store) -> list[Arrived]:
    with store.catalog.snapshot() as connection:
        return take(connection)


def queue(store: Store, *new: NewJob) -> None:
    with store.catalog.transaction() as connection:
        queue_jobs(connection, new)


def a_job(pond: str = "orders", **more: Any) -> NewJob:
    return NewJob(kind="ripple", pond=pond, ripple="r", freshness_us=7, **more)


def claimed(store: Store, **more: Any) -> JobLease:
    lease = claim_job(store.catalog, holder=new_holder(), **more)
    assert lease is not None
    return lease


def all_jobs(store: Store, *states: JobState) -> list[Job]:
    """Oldest first."""
    with store.catalog.snapshot() as connection:
        return jobs(connection, states=states or None, limit=10_000)[::-1]


def transient_rows(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Everything that goes on in the store."""
    with store.catalog.snapshot() as connection:
        return {
            table.name: [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in t.TRANSIENT
        }


def code_of(call: Callable[[], object]) -> str:
    """The code of the error that a call raises."""
    with pytest.raises(HeadwaterError) as refused:
        call()
    return refused.value.code


def before_the_lock(store: Store, act: Callable[[], object]) -> list[object]:
    """Has something done just before the store's first lock; what came of it."""
    done: list[object] = []

    @event.listens_for(store.catalog.engine, "before_cursor_execute")
    def do_it(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if not done and ("BEGIN IMMEDIATE" in statement or "FOR UPDATE" in statement):
            done.append(act())

    return done


# --- what other processes do; they say nothing if they are killed on the way


def own_and_step(place: Place) -> str:
    """Become the owner, take all events, and store that; `done`, or the code of the error."""
    store = place.open()
    owner = claim_engine(store.catalog, holder=new_holder())
    assert owner is not None
    events = arrived(store)
    record = {"events": len(events)}
    step = step_of(owner, ponds={"orders": record}, consumed=tuple(e.id for e in events), new_jobs=(a_job(),))
    return _outcome(lambda: save_step(store.catalog, step))


def step_and_work(place: Place) -> None:
    """All that there is to do: count the demand that has come, make a job if there was some, do what is queued."""
    store = place.open()
    owner = claim_engine(store.catalog, holder=new_holder())
    assert owner is not None
    take_over(store.catalog)
    demands = tuple(event.id for event in arrived(store) if event.kind == "demand")
    if demands:
        with store.catalog.snapshot() as connection:
            known = load_engine(connection).ponds.get("orders", {"demands": 0})
        record = {"demands": known["demands"] + len(demands)}
        save_step(store.catalog, step_of(owner, ponds={"orders": record}, consumed=demands, new_jobs=(a_job(),)))
    while (lease := claim_job(store.catalog, holder=new_holder())) is not None:
        finish_job(store.catalog, lease.done(), events=[completed(lease)])
    store.close()


def commit_with_event(place: Place) -> None:
    note = r.ItemsLanded(pipeline="orders", table="orders", items={"a": 1})
    place.open().commit(r.Commit(changes=(note,), actor=ACTOR, events=(pulse(),)))


def do_one_job(place: Place) -> str:
    """Claim a job, do nothing, and end it; `done`, or the code of the error."""
    store = place.open()
    lease = claimed(store)
    return _outcome(lambda: finish_job(store.catalog, lease.done(rows=1), events=[completed(lease)]))


def do_jobs(place: Place, workers: int, slots: Slots) -> list[str]:
    """With `workers` processes at once: claim and end jobs until none is left. The jobs that this one has ended."""
    store = place.open()
    send(store.catalog, InboxEvent(kind="worker_ready", body={}, actor=ACTOR))
    for _ in range(START_CHECKS):
        if sum(event.kind == "worker_ready" for event in arrived(store)) == workers:
            break
        time.sleep(START_CHECK_SECONDS)
    done, holder = [], new_holder()
    while all_jobs(store, "queued"):
        lease = claim_job(store.catalog, holder=holder, slots=slots)
        if lease is not None:
            finish_job(store.catalog, lease.done(), events=[completed(lease)])
            done.append(lease.job_id)
    store.close()
    return done


def send_pulse(place: Place) -> None:
    store = place.open()
    send(store.catalog, pulse())
    store.close()


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except HeadwaterError as error:
        return error.code
    return "done"


def _answer(crash_at: str, function: Callable[[Place], str], place: Place, answer: SimpleQueue[str]) -> None:
    os.environ["HEADWATER_CRASH_AT"] = crash_at
    answer.put(function(place))


class Paused(Lander):
    """One of these functions in a process of its own, stopped at a crash point until it is woken."""

    def __init__(self, place: Place, function: Callable[[Place], str], point: str):
        forking = context()
        self.answer = forking.SimpleQueue()
        self.process = forking.Process(
            target=_answer, args=(f"{point}:pause", function, place, self.answer), daemon=True
        )
        self.process.start()
        self.wait_until_stopped()

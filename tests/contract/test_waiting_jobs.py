"""A job of an Inlet that waits for a run: it is queued again when a run that was planned before it has ended."""

from __future__ import annotations

from contract.stores import PROJECT, begin_run, claim, create_table, landed
from headwater.base.holder import new_holder
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import INLET_JOB, JobEnd, NewJob
from headwater.catalog.queue import claim_job, jobs, queue_jobs
from headwater.catalog.slice_jobs import join_run


def test_a_job_that_joined_a_run_is_queued_again_and_counts_from_its_first_claim(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 1)
    slice_ = claim(store.catalog, run_id, holder="worker")
    assert slice_ is not None
    with store.catalog.transaction() as connection:
        queue_jobs(connection, [NewJob(kind=INLET_JOB, pond=PROJECT, ripple="", freshness_us=1, body={"ripples": []})])
    first = claim_job(store.catalog, holder=new_holder())
    assert first is not None
    join_run(store.catalog, JobEnd(held=first.fence, state="waiting", landed_run_id=run_id, joined=True))
    with store.catalog.snapshot() as connection:
        (waiting,) = jobs(connection)
    assert (waiting.state, waiting.holder) == ("waiting", "")
    store.commit(landed(slice_))
    again = claim_job(store.catalog, holder=new_holder())
    assert again is not None
    assert (again.job_id, again.attempt, again.rows) == (first.job_id, 2, 10)
    with store.catalog.snapshot() as connection:
        (running,) = jobs(connection)
    assert (running.state, running.started_us) == ("running", waiting.started_us)

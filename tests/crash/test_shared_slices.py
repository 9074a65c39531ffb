"""Three worker processes share the slices of one Inlet; two are killed on the way, one sleeps past its lease."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from sqlalchemy import select

from crash.harness import Fork, Project, Resident, must_be_whole, state_of, wait_until
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store, open_store
from headwater.catalog.engine_records import NewJob
from headwater.catalog.inbox import take
from headwater.catalog.lookup import table_states
from headwater.catalog.queue import jobs, queue_jobs, take_over

SLICES = 40
ROWS = 400
LEASE_SECONDS = 2.0
MANIFEST = f"""\
[project]
name = "shop"

[serve]
threads = 1

[[pipeline]]
id = "ticks"
source = {{ connector = "flaky", config = {{ rows = {ROWS}, slices = {SLICES} }} }}
[[pipeline.tables]]
name = "rows"
as = "ticks"
primary_key = ["id"]
"""


def committed(store: Store) -> Counter[str]:
    """How many slices the processes have landed, by the names of their machines."""
    with store.catalog.snapshot() as connection:
        records = [json.loads(body) for body in connection.execute(select(t.log_record.c.body)).scalars()]
    return Counter(record["node"] for record in records if any(c["do"] == "unit_done" for c in record["changes"]))


def held(store: Store, node: str) -> set[str]:
    """The jobs that a process holds."""
    mine = select(t.lease.c.id).where(t.lease.c.kind == "job", t.lease.c.node == node, t.lease.c.leased_until_us > 0)
    with store.catalog.snapshot() as connection:
        return set(connection.execute(mine).scalars())


def is_stopped(worker: Fork) -> bool:
    assert worker.poll() is None, worker.finished()
    return state_of(worker.pid) == "T"


def test_three_processes_land_the_slices_of_one_inlet_once(tmp_path: Path, resident: Resident) -> None:
    project = Project(tmp_path / "shared")
    project.root.mkdir()
    (project.root / "headwater.toml").write_text(MANIFEST)
    store = open_store(project.store_root, project="shop")
    inlet = NewJob(kind="inlet", pond="ticks", freshness_us=7, body={"ripples": ["ticks"]}, weight="big")
    with store.catalog.transaction() as connection:
        queue_jobs(connection, [inlet])
    # The first two commits of each that are not its last may be the plan and a slice.
    crashes = {"killed": "commit.inside@8", "late": "commit.before:pause@8", "asleep": "commit.before:pause@3"}
    workers = {
        name: resident.start(
            project,
            "worker",
            HEADWATER_NODE=name,
            HEADWATER_CRASH_AT=crash,
            HEADWATER_LEASE_SECONDS=str(LEASE_SECONDS),
        )
        for name, crash in crashes.items()
    }
    try:
        wait_until(lambda: is_stopped(workers["asleep"]), "one worker stops")
        lost = held(store, "asleep")
        assert len(lost) == 1
        wait_until(lambda: is_stopped(workers["late"]), "a second one stops")
        wait_until(lambda: workers["killed"].poll() is not None, "one worker is killed")
        assert workers["killed"].poll() == -signal.SIGKILL
        assert sum(committed(store).values()) < SLICES
        time.sleep(LEASE_SECONDS)
        take_over(store.catalog)
        os.kill(workers["late"].pid, signal.SIGCONT)
        wait_until(lambda: lost & held(store, "late") or lost <= done(store), "the slice of the sleeper is taken over")
        os.kill(workers["late"].pid, signal.SIGKILL)
        assert sum(committed(store).values()) < SLICES, "it was killed on the way"
        os.kill(workers["asleep"].pid, signal.SIGCONT)
        wait_until(lambda: len(done(store)) == SLICES, "all slices have landed")
    finally:
        for worker in workers.values():
            if worker.poll() is None:
                os.kill(worker.pid, signal.SIGKILL)
    by_process = committed(store)
    assert by_process.keys() == crashes.keys() and sum(by_process.values()) == SLICES, by_process
    with store.catalog.snapshot() as connection:
        (ticks,) = table_states(connection)
        states = connection.execute(select(t.run.c.state)).scalars().all()
        (planned,) = jobs(connection)
        told = [(event.kind, event.ids["job"]) for event in take(connection)]
    ids = [i for file in ticks.files for i in pq.read_table(store.root / file.path, columns=["id"])["id"].to_pylist()]
    assert sorted(ids) == list(range(ROWS))
    assert (states, planned.state, planned.rows) == (["success"], "done", ROWS)
    assert told == [("completed", inlet.job_id)]
    store.close()
    open_store(project.store_root, project="shop").close()  # writes what the killed ones left out of the log
    must_be_whole(project, resident)


def done(store: Store) -> set[str]:
    with store.catalog.snapshot() as connection:
        return set(connection.execute(select(t.unit.c.unit_id).where(t.unit.c.state == "done")).scalars())

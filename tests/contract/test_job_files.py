"""What gc does with the files that jobs write. On SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.engine_home import a_job, before_the_lock, claimed, code_of, later, queue
from contract.stores import ACTOR, PROJECT, Place, commit, create_table, written
from headwater.base import limits
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.gc import collect
from headwater.catalog.lease import renew
from headwater.catalog.queue import JobLease
from headwater.storage.layout import attempt_directory

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"a": 1})
LEASE = limits.LEASE_SECONDS


def file_of(store: Store, lease: JobLease) -> Path:
    """A file that the worker has written and nobody names."""
    where = attempt_directory("orders", run_id="r", node="n", unit_id=lease.job_id, attempt=lease.attempt)
    return store.root / written(store, f"{where}/part-00000-0.parquet").path


def test_gc_leaves_the_files_of_a_running_job_and_stops_a_worker_before_it_takes_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store)
    queue(store, a_job(), a_job())
    alive, slow = claimed(store), claimed(store)
    kept, gone = file_of(store, alive), file_of(store, slow)
    later(monkeypatch, LEASE - 1)
    assert renew(store.catalog, alive.fence)
    assert collect(store, actor=ACTOR, retention_seconds=0).orphan_files == 0
    later(monkeypatch, LEASE + 1)
    assert collect(store, actor=ACTOR, retention_seconds=0, dry_run=True).orphan_files == 1
    found = collect(store, actor=ACTOR, retention_seconds=0)
    assert (found.orphan_files, found.fenced_units) == (1, 1)
    assert (kept.exists(), gone.exists()) == (True, False)
    assert code_of(lambda: commit(store, NOTE, requires=[slow.fence])) == "HW-T03"
    commit(store, NOTE, requires=[alive.fence])
    assert claimed(store).attempt == 2


def test_gc_leaves_the_files_of_a_worker_that_comes_back_at_the_last_moment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, worker = place.open(), place.open()
    create_table(store)
    queue(store, a_job())
    lease = claimed(store)
    kept = file_of(store, lease)
    later(monkeypatch, LEASE + 1)
    renewed = before_the_lock(store, lambda: renew(worker.catalog, lease.fence))
    found = collect(store, actor=ACTOR, retention_seconds=0)
    assert (renewed, found.orphan_files, found.fenced_units, kept.exists()) == ([True], 0, 0, True)
    commit(store, NOTE, requires=[lease.fence])
    store.close()
    worker.close()

"""A slice costs the catalog the same however many slices are stored. `benchmarks/slices.py` has the times at 100,000
slices; here the work that SQLite does is counted, in instructions of its virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, event

from contract.stores import PROJECT, begin_run, create_table, landed
from headwater.base.holder import new_holder
from headwater.catalog.commit import Store, open_store
from headwater.catalog.lookup import open_runs
from headwater.catalog.queue import claim_job
from headwater.catalog.slice_jobs import slice_lease

EVERY = 10


def instructions(store: Store, act: Callable[[], object]) -> int:
    """How many instructions SQLite needs for an act, to the nearest ten."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += EVERY
        return 0

    def listen(connection: Connection) -> None:
        connection.connection.dbapi_connection.set_progress_handler(counted, EVERY)  # type: ignore[union-attr]

    event.listen(store.catalog.engine, "engine_connect", listen)
    try:
        act()
    finally:
        event.remove(store.catalog.engine, "engine_connect", listen)
    return count


def costs(root: Path, slices: int) -> dict[str, int]:
    """What the fourth slice of a run costs."""
    store = open_store(root, project=PROJECT, catalog_url="sqlite")
    create_table(store)
    begin_run(store, slices)
    holder = new_holder()

    def claim_and_land() -> None:
        job = claim_job(store.catalog, holder=holder)
        assert job is not None
        with store.catalog.snapshot() as connection:
            lease = slice_lease(connection, job)
        store.commit(landed(lease))

    def status() -> None:
        with store.catalog.snapshot() as connection:
            assert open_runs(connection)[PROJECT].pending == slices - 4

    for _ in range(3):
        claim_and_land()
    found = {"claim and commit": instructions(store, claim_and_land), "status": instructions(store, status)}
    store.close()
    return found


def test_a_slice_costs_the_same_beside_100_and_beside_5000_others(tmp_path: Path) -> None:
    few, many = costs(tmp_path / "few", 100), costs(tmp_path / "many", 5_000)
    assert all(few[act] > 0 for act in few)
    assert {act: many[act] <= 1.3 * few[act] for act in few} == dict.fromkeys(few, True), (few, many)

"""What a slice costs the catalog, by how many slices are stored: claim, commit and status at 10 and at 100,000 slices.

    python benchmarks/slices.py [--slices N] [--measured N]

A run of so many slices is planned; then slices are claimed and committed one after the other, as a worker does it, on
a SQLite and on a PostgreSQL catalog. Medians over the first `--measured` slices; with 10 slices, over as many runs as
that takes. The PostgreSQL server is on this machine and does not sync to disk.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Claim, arguments, machine, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from contract.stores import PROJECT, commit, create_table, landed, queue_run
from headwater.base import limits
from headwater.base.holder import new_holder
from headwater.base.ids import RunId, uuid7
from headwater.catalog import records as r
from headwater.catalog.commit import Store, open_store
from headwater.catalog.lookup import open_runs
from headwater.catalog.queue import claim_job
from headwater.catalog.slice_jobs import slice_lease

FEW = 10
FLAT = 1.5
ACTS = ("claim", "commit", "status")


def plan(store: Store, slices: int) -> None:
    """Store a run, in commits of a bounded size, as a plan is stored."""
    run_id, size = RunId(uuid7()), limits.PLAN_PART_SLICES
    units = [
        r.UnitSpec(
            unit_id=uuid7(), table="orders", ordinal=i, serial=False, payload={"slice": {"start": i, "end": i + 1}}
        )
        for i in range(slices)
    ]
    started = r.RunStarted(
        run_id=run_id, pipeline=PROJECT, freshness_us=1, trigger="apply", connector="bench@1", definition="sha256:1"
    )
    commit(store, started)
    for i in range(0, slices, size):
        part, more = tuple(units[i : i + size]), i + size < slices
        commit(store, r.UnitsPlanned(run_id=run_id, pipeline=PROJECT, units=part, more=more))
    queue_run(store, run_id)


def land_one(store: Store, holder: str, seconds: dict[str, list[float]]) -> None:
    began = time.perf_counter()
    job = claim_job(store.catalog, holder=holder)
    assert job is not None
    with store.catalog.snapshot() as connection:
        lease = slice_lease(connection, job)
    claimed = time.perf_counter()
    store.commit(landed(lease))
    committed = time.perf_counter()
    with store.catalog.snapshot() as connection:
        open_runs(connection)
    ended = time.perf_counter()
    for act, took in zip(ACTS, (claimed - began, committed - claimed, ended - committed), strict=True):
        seconds[act].append(took)


def measure(opened: Callable[[], Store], *, slices: int, measured: int) -> dict[str, float]:
    """Milliseconds of each act, the median."""
    store, holder = opened(), new_holder()
    create_table(store)
    seconds: dict[str, list[float]] = {act: [] for act in ACTS}
    while len(seconds["claim"]) < measured:
        plan(store, slices)
        for _ in range(min(slices, measured)):
            land_one(store, holder, seconds)
    store.close()
    return {act: statistics.median(values) * 1e3 for act, values in seconds.items()}


def main() -> int:
    from postgres_server import postgres_server

    asked = arguments(__doc__, slices=100_000, measured=200)
    here, found = machine(), {}
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch,
        postgres_server() as server,
    ):
        urls: dict[str, Callable[[], str]] = {"SQLite": lambda: "sqlite", "PostgreSQL": server.create_database}
        for catalog, url in urls.items():
            for slices in (FEW, asked.slices):

                def opened(url: Callable[[], str] = url) -> Store:
                    return open_store(Path(scratch) / uuid7(), project=PROJECT, catalog_url=url())

                found[catalog, slices] = measure(opened, slices=slices, measured=asked.measured)
    rows = [["milliseconds, median", *ACTS]]
    rows += [
        [f"{catalog}, {slices:,} slices", *(f"{took:.2f}" for took in by.values())]
        for (catalog, slices), by in found.items()
    ]
    claims = [
        Claim(
            f"{act} of a slice on {catalog}, {asked.slices:,} stored slices against {FEW}",
            found[catalog, asked.slices][act] / found[catalog, FEW][act],
            FLAT,
        )
        for catalog in ("SQLite", "PostgreSQL")
        for act in ACTS
    ]
    details = {"machine": here, "milliseconds": {f"{c}, {n}": by for (c, n), by in found.items()}}
    return report("slices", claims, details, rows)


if __name__ == "__main__":
    raise SystemExit(main())

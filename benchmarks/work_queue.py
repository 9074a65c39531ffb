"""The work queue: jobs claimed and finished a second by 1, 4 and 16 processes, on a SQLite and a PostgreSQL catalog.

    python benchmarks/work_queue.py [--jobs N] [--rounds N]

Every process claims a job under a lease and ends it, again and again, until the queue is empty: two transactions a job,
as workers do it. Beside it, in turns, a plain queue that knows no lease, no limit and no history: one table from which
each process takes and removes the oldest row in one transaction (`DELETE ... RETURNING` under `BEGIN IMMEDIATE` on
SQLite, `FOR UPDATE SKIP LOCKED` on PostgreSQL) through the driver alone. A job lost or done twice fails the benchmark.
The PostgreSQL server is on this machine and does not sync to disk.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from headwater.base.holder import new_holder
from headwater.base.ids import uuid7
from headwater.catalog.database import Catalog, open_catalog
from headwater.catalog.engine_records import NewJob
from headwater.catalog.queue import claim_job, finish_job, queue_jobs
from measure import Claim, arguments, machine, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

PROCESSES = (1, 4, 16)
PROJECT = "bench"
BODY = '{"reads": {"orders": 17}, "attempt": 1, "definition": "sha256:0"}'
TAKE = "DELETE FROM queue WHERE id = (SELECT id FROM queue ORDER BY id LIMIT 1{lock}) RETURNING id, body"

Place = tuple[str, str]
"""`sqlite` or the URL of a database, and the path of the SQLite file."""
Worker = Callable[[Place], int]


def opened(place: Place) -> Catalog:
    catalog = open_catalog(place[0], sqlite_path=Path(place[1]), project=PROJECT)
    assert catalog is not None
    return catalog


def fill(place: Place, jobs: int) -> None:
    catalog = opened(place)
    with catalog.transaction() as connection:
        body = {"reads": {"orders": 17}, "attempt": 1, "definition": "sha256:0"}
        queue_jobs(connection, [NewJob(kind="ripple", pond=f"p{i % 100}", ripple="r", body=body) for i in range(jobs)])
    catalog.close()


def work(place: Place) -> int:
    catalog, holder, done = opened(place), new_holder(), 0
    while (lease := claim_job(catalog, holder=holder)) is not None:
        finish_job(catalog, lease.done())
        done += 1
    catalog.close()
    return done


def fill_plain(place: Place, jobs: int) -> None:
    rows = [(uuid7(), BODY) for _ in range(jobs)]
    if place[0] == "sqlite":
        with sqlite3.connect(place[1]) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS queue (id TEXT PRIMARY KEY, body TEXT NOT NULL)")
            connection.executemany("INSERT INTO queue VALUES (?, ?)", rows)
        connection.close()
        return
    with psycopg.connect(place[0]) as server, server.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS queue (id TEXT PRIMARY KEY, body TEXT NOT NULL)")
        cursor.executemany("INSERT INTO queue VALUES (%s, %s)", rows)


def work_plain(place: Place) -> int:
    return work_plain_sqlite(place[1]) if place[0] == "sqlite" else work_plain_postgres(place[0])


def work_plain_sqlite(path: str) -> int:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    done = 0
    while True:
        connection.execute("BEGIN IMMEDIATE")
        taken = connection.execute(TAKE.format(lock="")).fetchall()
        connection.execute("COMMIT")
        if not taken:
            connection.close()
            return done
        done += 1


def work_plain_postgres(url: str) -> int:
    done = 0
    with psycopg.connect(url) as connection:
        connection.execute("SET synchronous_commit = on")
        while connection.execute(TAKE.format(lock=" FOR UPDATE SKIP LOCKED").encode()).fetchall():
            connection.commit()
            done += 1
    return done


def process(worker: Worker, place: Place, ready: Any, results: Any) -> None:
    """One process: ready once it has taken nothing from an empty queue, so that nothing is loaded in the measured time."""
    worker(place)
    ready.wait()  # all are
    ready.wait()  # the queue is full
    began = time.time()
    done = worker(place)
    results.put((began, time.time(), done))


def jobs_a_second(
    fill_: Callable[[Place, int], None], worker: Worker, place: Place, *, processes: int, jobs: int
) -> float:
    fill_(place, 0)
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes + 1), context.Queue()
    children = [context.Process(target=process, args=(worker, place, ready, results)) for _ in range(processes)]
    for child in children:
        child.start()
    ready.wait()
    fill_(place, jobs)
    ready.wait()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    assert sum(done for _, _, done in found) == jobs, "each job is done once"
    return float(jobs / (max(ended for _, ended, _ in found) - min(began for began, _, _ in found)))


def measure(place: Callable[[], Place], *, jobs: int, rounds: int) -> dict[str, dict[int, float]]:
    """Jobs a second by who and by processes: the best of the rounds."""
    kinds: dict[str, tuple[Callable[[Place, int], None], Worker]] = {
        "Headwater": (fill, work),
        "plain": (fill_plain, work_plain),
    }
    found: dict[str, dict[int, float]] = {name: dict.fromkeys(PROCESSES, 0.0) for name in kinds}
    for _ in range(rounds):
        for processes in PROCESSES:
            for name, (fill_, worker) in kinds.items():
                rate = jobs_a_second(fill_, worker, place(), processes=processes, jobs=jobs)
                found[name][processes] = max(found[name][processes], rate)
    return found


def main() -> int:
    from postgres_server import postgres_server

    asked = arguments(__doc__, jobs=2_000, rounds=3)
    here = machine()
    found: dict[str, dict[str, dict[int, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:

        def fresh() -> Place:
            return "sqlite", str(Path(scratch) / f"{uuid7()}.sqlite")

        found["SQLite"] = measure(fresh, jobs=asked.jobs, rounds=asked.rounds)
        with postgres_server() as server:
            found["PostgreSQL"] = measure(lambda: (server.create_database(), ""), jobs=asked.jobs, rounds=asked.rounds)
    claims = []
    rows = [["claimed and finished, jobs/s", *(f"{n} processes" if n > 1 else "1 process" for n in PROCESSES)]]
    for catalog, rates in found.items():
        for name, by_processes in rates.items():
            rows.append([f"{catalog}, {name}", *(f"{rate:,.0f}" for rate in by_processes.values())])
        ours, plain = rates["Headwater"], rates["plain"]
        for processes in PROCESSES:
            count = f"{processes} process{'es' if processes > 1 else ''}"
            text = f"queue on {catalog}, {count} ({ours[processes] / plain[processes]:.2f}x of a plain queue)"
            claims.append(Claim(text, ours[processes], ENOUGH, False, " jobs/s"))
    details = {
        "jobs": asked.jobs,
        "machine": here,
        "jobs_per_second": {
            catalog: {name: {str(n): round(rate) for n, rate in by.items()} for name, by in rates.items()}
            for catalog, rates in found.items()
        },
    }
    return report("work_queue", claims, details, rows)


ENOUGH = 280.0
"""Twenty times the jobs that Spark does in a second on two cores: the queue is not what anybody waits for."""


if __name__ == "__main__":
    raise SystemExit(main())

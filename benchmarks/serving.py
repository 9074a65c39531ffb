"""1,000 pipelines served by the real engine, its catalog and its worker threads; the jobs themselves do nothing.

    python benchmarks/serving.py [--groups N] [--rounds N] [--rate N] [--seconds N]

A group is ten pipelines: an Inlet, three that read it, two more behind each of those. Told for a SQLite catalog and for
a PostgreSQL one (on this machine, without syncing to disk):

- from a parent's commit to its child's start, while groups are pulsed one after the other at a steady `--rate` a second;
- the engine and its catalog alone, on one thread: demand in one transaction, each end of a job with its event in one of
  its own, then taken, stepped and stored; claiming the jobs is told with it and without it;
- the whole service as fast as it can: every group pulsed at once;
- the status of all pipelines, in process and as a command.

A plain peer of the second: the same events inserted, one transaction each, and deleted, through `sqlite3` and `psycopg`
alone. It knows nothing of freshness; it tells what the database itself costs here.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import select

from headwater.app.status import status
from headwater.app.workspace import Workspace, load
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog import sql_tables as t
from headwater.catalog.engine_state import load_engine
from headwater.catalog.inbox import message, send_all, take
from headwater.catalog.queue import OPEN, JobLease, claim_job, finish_job, jobs
from headwater.freshness.events import Completed, Demand
from headwater.freshness.state import NEVER
from headwater.runtime.compile import Compiled, compile_pipelines
from headwater.runtime.engine import Engine, open_engine
from headwater.runtime.inlet_jobs import InletJobs
from headwater.runtime.service import Service, ServiceErrors
from headwater.runtime.worker import Definitions, Worker
from measure import Claim, arguments, headwater, machine, report, run_process

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

MIDDLES, LEAVES = 3, 2
"""Pipelines that read an Inlet, and those behind each of them."""
ACTOR = "bench"
THREADS = 4
PATIENCE_SECONDS = 120


def write_project(root: Path, groups: int, catalog_url: str) -> None:
    parts = [f'[project]\nname = "bench"\n[context]\ncatalog = "{catalog_url}"\n']
    for group in range(groups):
        inlet = f"g{group}"
        parts.append(
            f'[[pipeline]]\nid = "{inlet}"\npoll = "1ms"\n'
            f'source = {{ connector = "files", config = {{ path = "data/{inlet}.ndjson" }} }}\n'
            f'[[pipeline.tables]]\nname = "{inlet}"\ncolumns = {{ id = "long" }}\n'
        )
        for middle in range(MIDDLES):
            parts.append(model(f"{inlet}_{middle}", inlet))
            parts += [model(f"{inlet}_{middle}_{leaf}", f"{inlet}_{middle}") for leaf in range(LEAVES)]
    (root / "headwater.toml").write_text("\n".join(parts))


def model(name: str, source: str) -> str:
    """A pipeline whose table has the name of the pipeline. It always runs: jobs that do nothing change no table."""
    return (
        f'[[pipeline]]\nid = "{name}"\nsources = ["{source}"]\nalways_run = true\n'
        f'[[pipeline.ripples]]\nname = "{name}"\nsql = "SELECT * FROM {source}"\n'
    )


def leaves_of(group: int) -> list[str]:
    return [f"g{group}_{middle}_{leaf}" for middle in range(MIDDLES) for leaf in range(LEAVES)]


class NoOps(Worker):
    """Workers whose jobs end as soon as they are claimed."""

    def _do(self, lease: JobLease, on_control: object, holder: str) -> None:
        end(self.store.catalog, lease)


def end(catalog: Any, lease: JobLease) -> int:
    """End a job and tell the engine; how many events."""
    ripples = [str(name) for name in lease.body.get("ripples", [lease.ripple])]
    events = [Completed(lease.pond, name, lease.freshness_us) for name in ripples]
    told = [message(event, actor=ACTOR, ids={"job": lease.job_id}) for event in events]
    finish_job(catalog, lease.done(), events=told)
    return len(told)


def pulse(catalog: Any, pipelines: Sequence[str]) -> None:
    send_all(catalog, [message(Demand(name, "pulse"), actor=ACTOR) for name in pipelines])


# --- the engine and its catalog, alone


def engine_alone(workspace: Workspace, compiled: Compiled, groups: int, rounds: int) -> tuple[float, float]:
    """Events a second: the end of a job told, taken, stepped and stored; and that with the claims of the jobs."""
    store = workspace.store()
    engine = open_engine(store, compiled, holder=new_holder(), runs_triggers=True)
    assert engine is not None
    try:
        found = [events_a_second(engine, groups) for _ in range(rounds)]
        return max(alone for alone, _ in found), max(with_claims for _, with_claims in found)
    finally:
        engine.release()


def events_a_second(engine: Engine, groups: int) -> tuple[float, float]:
    catalog, holder = engine.store.catalog, new_holder()
    outlets = [name for group in range(groups) for name in leaves_of(group)]
    began = time.perf_counter()
    pulse(catalog, outlets)
    events, claiming = len(outlets), 0.0
    while True:
        while engine.advance():
            pass
        claimed = time.perf_counter()
        leases = list(iter(lambda: claim_job(catalog, holder=holder), None))
        claiming += time.perf_counter() - claimed
        if not leases:
            break
        events += sum(end(catalog, lease) for lease in leases)
    seconds = time.perf_counter() - began
    return events / (seconds - claiming), events / seconds


def plain_sqlite(root: Path, events: int) -> float:
    connection = sqlite3.connect(root / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL)")
    began = time.perf_counter()
    for number in range(events):
        connection.execute("PRAGMA synchronous = NORMAL")  # as the end of a job without rows is written
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO inbox (body) VALUES (?)", (plain_body(number),))
        connection.execute("COMMIT")
    connection.execute("DELETE FROM inbox")
    rate = events / (time.perf_counter() - began)
    connection.close()
    return rate


def plain_postgres(url: str, events: int) -> float:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE plain (id BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)")
        connection.execute("SET synchronous_commit = on")
        connection.commit()
        began = time.perf_counter()
        for number in range(events):
            connection.execute("INSERT INTO plain (body) VALUES (%s)", (plain_body(number),))
            connection.commit()
        connection.execute("DELETE FROM plain")
        connection.commit()
        return events / (time.perf_counter() - began)


def plain_body(number: int) -> str:
    return json.dumps({"pond": f"g{number}", "ripple": f"g{number}", "freshness": number, "changed": True})


# --- the whole service


@contextmanager
def serving(workspace: Workspace, compiled: Compiled) -> Iterator[None]:
    """The service that `headwater serve` runs, in threads of this process."""
    store = workspace.store()
    problems: list[HeadwaterError] = []

    def no_spark() -> Any:
        raise AssertionError("no job here needs Spark")

    def no_look(_: str) -> Any:
        raise AssertionError("no job here looks at a source")

    inlets = InletJobs(store, no_spark, actor=ACTOR, trigger="serve")
    definitions = Definitions(compiled=compiled, root=workspace.project.root, scan=no_look, open=no_look, declared={})
    worker = NoOps(store, definitions, no_spark, inlets, ACTOR, "serve")
    began = threading.Event()
    service = Service(worker, THREADS, ServiceErrors(problems.append), on_ready=began.set)
    thread = threading.Thread(target=service.run, name="service")
    thread.start()
    try:
        if not began.wait(PATIENCE_SECONDS):
            raise TimeoutError(f"the service did not begin: {problems}")
        yield
    finally:
        service.stop()
        thread.join()
    if problems:
        raise problems[0]


def settle(workspace: Workspace, asked_us: Mapping[str, int]) -> None:
    """Waits until these pipelines are as fresh as they were asked for then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with workspace.store().catalog.snapshot() as connection:
            busy = take(connection, 1) or jobs(connection, states=OPEN, limit=1)
            records = {} if busy else load_engine(connection).ponds  # a thousand records: not while it is measured
        if records and all((records[name]["end_f"] or NEVER) >= asked for name, asked in asked_us.items()):
            return
        time.sleep(0.02)
    raise TimeoutError("the pipelines did not settle")


def rush(workspace: Workspace, groups: int) -> float:
    """Runs a second with every group pulsed at once."""
    outlets = [name for group in range(groups) for name in leaves_of(group)]
    began, clock = now_us(), time.perf_counter()
    pulse(workspace.store().catalog, outlets)
    settle(workspace, dict.fromkeys(outlets, began))
    return len(compiled_names(groups)) / (time.perf_counter() - clock)


def compiled_names(groups: int) -> list[str]:
    middles = [f"g{group}_{middle}" for group in range(groups) for middle in range(MIDDLES)]
    return [*(f"g{group}" for group in range(groups)), *middles, *(n for g in range(groups) for n in leaves_of(g))]


def paced(workspace: Workspace, groups: int, *, rate: int, seconds: int) -> list[float]:
    """Milliseconds from a parent's commit to its child's start, `rate` groups being pulsed a second."""
    catalog, began = workspace.store().catalog, now_us()
    start = time.perf_counter()
    asked: dict[str, int] = {}
    for number in range(rate * seconds):
        time.sleep(max(0.0, start + number / rate - time.perf_counter()))
        outlets = leaves_of(number % groups)
        asked.update(dict.fromkeys(outlets, now_us()))
        pulse(catalog, outlets)
    settle(workspace, asked)
    c = t.job.c
    with catalog.snapshot() as connection:
        rows = connection.execute(select(c.pond, c.created_us, c.started_us, c.ended_us).where(c.created_us >= began))
        ran: dict[str, list[Any]] = {}
        for row in rows.all():
            ran.setdefault(row.pond, []).append(row)
    found = []
    for name, children in ran.items():
        parent = name.rpartition("_")[0]
        for child in children if parent else ():
            ended = [job.ended_us for job in ran[parent] if job.ended_us <= child.created_us]
            found.append((child.started_us - max(ended)) / 1000)
    return found


def measure(root: Path, url: str, asked: Any) -> dict[str, Any]:
    write_project(root, asked.groups, url)
    project = load(root)
    compiled = compile_pipelines(project, now_us=now_us())
    workspace = Workspace(project)
    try:
        alone, with_claims = engine_alone(workspace, compiled, asked.groups, asked.rounds)
        with serving(workspace, compiled):
            rush(workspace, asked.groups)
            runs = max(rush(workspace, asked.groups) for _ in range(asked.rounds))
            starts = sorted(paced(workspace, asked.groups, rate=asked.rate, seconds=asked.seconds))
            looks = [timed_status(workspace) for _ in range(2 * asked.rounds + 1)]
    finally:
        workspace.close()
    command = [run_process([headwater(), "--project", str(root), "status"], cwd=root) for _ in range(asked.rounds)]
    return {
        "engine_events_per_second": round(alone),
        "engine_events_per_second_with_claims": round(with_claims),
        "service_runs_per_second": round(runs),
        "starts": len(starts),
        "start_p50_ms": round(statistics.median(starts), 1),
        "start_p99_ms": round(starts[int(len(starts) * 0.99)], 1),
        "start_max_ms": round(starts[-1], 1),
        "status_ms": round(statistics.median(looks), 1),
        "status_command_ms": round(statistics.median(ran.seconds for ran in command) * 1000),
    }


def timed_status(workspace: Workspace) -> float:
    began = time.perf_counter()
    found = status(workspace)
    milliseconds = (time.perf_counter() - began) * 1000
    assert {each.state for each in found} == {"idle"}, "all have run"
    return milliseconds


def main() -> int:
    from postgres_server import postgres_server

    asked = arguments(__doc__, groups=100, rounds=3, rate=10, seconds=20)
    here = machine()
    pipelines = len(compiled_names(asked.groups))
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        for name in ("sqlite", "postgres"):
            (root / name).mkdir()
        found["SQLite"] = measure(root / "sqlite", "sqlite", asked)
        found["SQLite"]["plain_events_per_second"] = round(plain_sqlite(root, 2 * pipelines))
        with postgres_server() as server:
            found["PostgreSQL"] = measure(root / "postgres", server.create_database(), asked)
            found["PostgreSQL"]["plain_events_per_second"] = round(
                plain_postgres(server.create_database(), 2 * pipelines)
            )
    sqlite, postgres = found["SQLite"], found["PostgreSQL"]
    many = f"{pipelines:,} pipelines"
    claims = [
        Claim(f"{many}, SQLite: parent's commit to child's start, p99", sqlite["start_p99_ms"], 100, unit=" ms"),
        Claim(f"{many}, PostgreSQL: parent's commit to child's start, p99", postgres["start_p99_ms"], 100, unit=" ms"),
        Claim(f"{many}, SQLite: engine and catalog", sqlite["engine_events_per_second"], 2000, False, " events/s"),
        Claim(f"{many}: status of all, in process", sqlite["status_ms"], 200, unit=" ms"),
    ]
    rows = [["1,000 pipelines with jobs that do nothing", *found]]
    rows += [[key.replace("_", " "), *(f"{each[key]:,}" for each in found.values())] for key in sqlite]
    details = {"pipelines": pipelines, "groups_per_second": asked.rate, "threads": THREADS, "machine": here, **found}
    return report("serving", claims, details, rows)


if __name__ == "__main__":
    raise SystemExit(main())

"""What else goes wrong under a server: workers that sleep, a catalog that restarts, a Spark that dies, clocks that jump."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from crash.harness import descendants, state_of
from headwater.app.workspace import workspace
from headwater.base.clock import now_us
from headwater.base.holder import new_holder
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import open_engine
from postgres_server import PostgresServer
from serve.conftest import MakeProject
from serve.serving import Project, Warm, wait_until

ORDERS = """\
[[pipeline]]
id = "orders"
poll = "50ms"
source = { connector = "files", config = { path = "data/orders*.ndjson" } }
[[pipeline.tables]]
name = "orders"
columns = { id = "long" }
"""
COUNT = """\
[[pipeline]]
id = "count"
sources = ["orders"]
[[pipeline.ripples]]
name = "seen"
mode = "append"
sql = "select count(*) as orders from orders"
"""
WAVE = """\
[[pipeline.triggers]]
kind = "wave"
"""
SLOW = """\
[[pipeline]]
id = "count"
sources = ["orders"]
[[pipeline.ripples]]
name = "seen"
python = "models/slow.py:seen"
"""
WAITING = """\
import time
from pathlib import Path

HERE = Path("{here}")

def wait():
    with open(HERE / "began", "a") as tries:
        tries.write(".")
    while not (HERE / "go").exists():
        time.sleep(0.02)
"""
IN_SPARK = """\

def waited(batches):
    wait()
    yield from batches

def seen(orders):
    return orders.coalesce(1).mapInArrow(waited, orders.schema).selectExpr("count(*) as orders")
"""
IN_PYTHON = """\

def seen(orders):
    wait()
    return orders.selectExpr("count(*) as orders")
"""
DAY_US = 86_400_000_000


def arrive(project: Project, number: int) -> None:
    project.write({f"data/orders{number}.ndjson": [{"id": number}]})


def seen(project: Project) -> list[int]:
    answer = project.command("query", "SELECT orders FROM seen ORDER BY 1", "--json")
    return [row["orders"] for row in answer.json()["rows"]] if answer.exit == 0 else []


def must_be_well(project: Project) -> None:
    assert "failed" not in {run.state for run in project.runs()}
    project.stop()
    project.verify()


def queue_what_is_due(project: Project) -> None:
    """Steps the engine without a worker."""
    with workspace(project.root) as opened:
        engine = open_engine(opened.store(), compile_pipelines(opened.project, now_us=now_us()), holder=new_holder())
        assert engine is not None
        engine.advance()
        engine.release()


def test_a_worker_that_slept_past_its_lease_is_refused_and_its_job_has_run_once(
    make_project: MakeProject, warm: Warm, postgres_url: str
) -> None:
    project = make_project(warm, catalog=postgres_url)
    project.environment["HEADWATER_LEASE_SECONDS"] = "2"
    project.manifest(ORDERS + COUNT)
    arrive(project, 1)
    project.serve()
    project.command("pulse", "orders").ended()
    project.until_settled()
    project.stop()
    project.command("tap", "count").ended()
    queue_what_is_due(project)
    worker = project.start("worker", HEADWATER_CRASH_AT="commit.before:pause")
    try:
        wait_until(lambda: state_of(worker.child.pid) in ("T", ""), "the worker stops before its commit")
        assert worker.alive, worker.said
        (held,) = [job for job in project.jobs("count") if job.state == "running"]
        project.serve()
        project.until_settled()
        assert seen(project) == [1]
        (job,) = [job for job in project.jobs("count") if job.job_id == held.job_id]
        assert (job.state, job.attempt) == ("done", held.attempt + 1)
        worker.signal(signal.SIGCONT)
        project.stop()
        # It goes on as a worker: the next job is its own.
        arrive(project, 2)
        project.command("pulse", "orders").ended()
        queue_what_is_due(project)
        wait_until(lambda: project.rows("SELECT count(*) FROM orders") == [[2]], f"it works again: {worker.said}")
        assert seen(project) == [1]
        assert project.run_counts()["count"] == {"success": 1}
    finally:
        worker.signal(signal.SIGCONT)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.said
    must_be_well(project)


def test_a_catalog_that_restarts_under_load_is_waited_for(
    make_project: MakeProject, warm: Warm, postgres_server: PostgresServer, postgres_url: str
) -> None:
    project = make_project(warm, catalog=postgres_url)
    project.manifest(ORDERS + COUNT + WAVE)
    arrive(project, 1)
    project.serve()
    project.until(lambda: seen(project) == [1], "the first rows are seen")
    for number, end in ((2, postgres_server.stop), (3, postgres_server.kill), (4, postgres_server.stop)):
        arrive(project, number)
        end()
        postgres_server.start()
        project.until(lambda number=number: seen(project)[-1:] == [number], f"{number} is seen")  # type: ignore[misc]
    found = seen(project)
    assert found == sorted(set(found)), "a run was doubled"
    must_be_well(project)


def test_a_spark_that_dies_is_started_again_and_its_jobs_are_done(cold_project: Project) -> None:
    """The JVM is killed twice: while a job is under way, and while nothing is. Where in a ripple it dies makes no
    difference: `spark/test_land_once.py`."""
    project = cold_project
    project.manifest(ORDERS + SLOW)
    project.write({"models/slow.py": WAITING.format(here=project.root / "models") + IN_SPARK})
    arrive(project, 1)
    server = project.serve()
    project.command("pulse", "count").ended()
    began, go = project.root / "models/began", project.root / "models/go"
    project.until(began.exists, "the ripple has begun")
    kill_spark(server.child.pid)
    go.touch()
    project.until_settled()
    assert seen(project) == [1], server.said
    kill_spark(server.child.pid)
    arrive(project, 2)
    project.command("pulse", "count").ended()
    project.until_settled()
    assert seen(project) == [2], server.said
    assert project.executions() == {"orders": 2, "count": 2}
    below = descendants(server.child.pid)
    must_be_well(project)
    wait_until(lambda: not any(state_of(pid) for pid in below), "its JVM and workers end with it")


def test_who_waits_for_a_run_gets_an_answer_when_its_code_changes_on_the_way(project: Project) -> None:
    project.manifest(ORDERS + SLOW)
    waiting = WAITING.format(here=project.root / "models")
    project.write({"models/slow.py": waiting + IN_PYTHON})
    arrive(project, 1)
    project.serve()
    asked = project.start("run", "count", spark=False)
    project.until((project.root / "models/began").exists, "the ripple has begun")
    project.write({"models/slow.py": "def seen(orders):\n    return orders.selectExpr('count(*) + 10 as orders')\n"})
    project.until(lambda: not asked.alive, "the one who asked is told")
    assert asked.ended() == 0, asked.said
    assert seen(project) == [11]
    (project.root / "models/go").touch()
    must_be_well(project)


def kill_spark(pid: int) -> None:
    (spark,) = [found for found in descendants(pid) if is_spark(found)]
    os.kill(spark, signal.SIGKILL)
    wait_until(lambda: not state_of(spark), "the JVM is gone")


def is_spark(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"java") and any(word.endswith(b"PythonGatewayServer") for word in words)


def test_a_clock_that_jumps_loses_nothing_and_doubles_nothing(project: Project) -> None:
    """A day ahead, a day back, and back once more: what arrives is seen all the same."""
    project.manifest(ORDERS + COUNT + WAVE)
    for number, offset_us in enumerate((0, DAY_US, 0, -DAY_US, 2 * DAY_US), 1):
        arrive(project, number)
        project.serve(HEADWATER_CLOCK_OFFSET_US=str(offset_us))
        project.until(lambda number=number: seen(project)[-1:] == [number], f"{number} is seen")  # type: ignore[misc]
        project.stop()
    assert seen(project) == [1, 2, 3, 4, 5]
    fresh = [run.freshness_us for run in project.runs("count")]
    assert fresh == sorted(fresh), "freshness went back"
    must_be_well(project)

"""A project that lands on a cluster, and loses a worker in the middle."""

from __future__ import annotations

import json
from pathlib import Path

from spark.children import finished, python, running, wait_until
from spark.cluster import LocalCluster
from spark.scenario import HEADWATER, Project

ROWS, SLICES = 6_000, 6

MANIFEST = """
[spark]
master = "{url}"
conf = {{ "spark.executor.memory" = "512m", "spark.executor.cores" = "1" }}

[[pipeline]]
id = "f"
source = {{ connector = "flaky", config = {{ rows = {rows}, slices = {slices}, state_dir = "tries", fail = [
  {{ slice = 0, times = 1, kind = "hang" }}, {{ slice = 1, times = 1, kind = "hang" }} ] }} }}
tables = ["rows"]
"""


def test_a_table_is_complete_and_not_doubled_when_a_worker_is_lost_while_it_lands(tmp_path: Path) -> None:
    """Each of the two workers has one core, and each holds a task that waits; one of the workers is lost with its
    task half done, then the other may go on."""
    project = Project(tmp_path)
    tries = [tmp_path / "tries" / f"slice-{number}.tries" for number in (0, 1)]
    with LocalCluster(workers=2) as cluster:
        project.write_manifest(MANIFEST.format(url=cluster.url, rows=ROWS, slices=SLICES))
        child = python(HEADWATER, "--project", str(tmp_path), "apply", "--json")
        wait_until(
            lambda: all(path.exists() for path in tries) or child.poll() is not None, "a task waits on each worker"
        )
        lost = cluster.executors(0)
        assert lost, "the worker to be lost runs an executor"
        cluster.kill_worker(0)
        assert not any(map(running, lost))
        (tmp_path / "tries" / "release").touch()
        answer = json.loads(finished(child)[0])
    (result,) = answer["pipelines"]
    assert (result["state"], result["rows"], result["slices"]) == ("success", ROWS, SLICES)
    assert sum(path.stat().st_size for path in tries) == 3, "the task that was lost was tried again, the other was not"
    assert project.query("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows") == [
        [ROWS, ROWS, 0, ROWS - 1]
    ]
    assert project.query("SELECT rows, stored_rows FROM headwater.tables") == [[ROWS, ROWS]]
    assert project.command("context", "verify").exit == 0

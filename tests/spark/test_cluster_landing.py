"""A real cluster: a project lands on it, and loses a worker in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from spark.children import finished, python, running, wait_until
from spark.cluster import LocalCluster
from spark.scenario import HEADWATER, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, SLICES = 6_000, 6

FIRST_ROWS = """
[[pipeline]]
id = "f"
source = {{ connector = "flaky", config = {{ rows = {rows} }} }}
tables = ["rows"]
"""

MORE_ROWS = """
[spark]
master = "{url}"
conf = {{ "spark.executor.memory" = "512m", "spark.executor.cores" = "1" }}

[[pipeline]]
id = "f"
source = {{ connector = "flaky", config = {{ rows = {rows}, slices = {slices}, state_dir = "tries", fail = [
  {{ slice = 1, times = 1, kind = "hang" }}, {{ slice = 2, times = 1, kind = "hang" }} ] }} }}
tables = ["rows"]
"""


def test_a_table_is_complete_and_not_doubled_when_a_worker_is_lost_while_it_lands(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Each of the two workers has one core, and each holds a task that waits; one of the workers is lost with its
    task half done, then the other may go on. The first slice landed before, so that the table's schema is known
    and no slice has another reason to be written twice."""
    project = Project(tmp_path)
    project.write_manifest(FIRST_ROWS.format(rows=ROWS // SLICES))
    assert project.command("apply").exit == 0
    tries = [tmp_path / "tries" / f"slice-{number}.tries" for number in (1, 2)]
    with LocalCluster(workers=2) as cluster:
        project.write_manifest(MORE_ROWS.format(url=cluster.url, rows=ROWS, slices=SLICES))
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
    landed = (SLICES - 1) * ROWS // SLICES
    assert (result["state"], result["rows"], result["slices"]) == ("success", landed, SLICES - 1)
    assert sum(path.stat().st_size for path in tries) == 3, "the task that was lost was tried again, the other was not"
    totals = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows"
    assert project.query(totals) == [[ROWS, ROWS, 0, ROWS - 1]]
    assert project.query("SELECT rows, stored_rows FROM headwater.tables") == [[ROWS, ROWS]]
    assert project.command("context", "verify").exit == 0

"""A real cluster: jobs run on it, and survive the loss of a worker."""

from __future__ import annotations

import json
from pathlib import Path

from spark.children import finished, python, wait_until
from spark.cluster import LocalCluster

PARTITIONS = 8

JOB = """
import json, sys
from pathlib import Path
from headwater.spark.session import SparkSettings, spark_session, stop_session

url, partitions, scratch = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def work(batches):
    import os, time, uuid
    import pyarrow as pa
    from pathlib import Path
    from pyspark import TaskContext
    context = TaskContext.get()
    ids = [value for batch in batches for value in batch.column("id").to_pylist()]
    name = f"part-{context.partitionId()}-{context.taskAttemptId()}-{uuid.uuid4().hex}"
    (Path(scratch) / "started" / name).write_text(str(os.getppid()))
    while not (Path(scratch) / "go").exists():
        time.sleep(0.02)
    (Path(scratch) / "written" / name).write_text(" ".join(map(str, ids)))
    yield pa.RecordBatch.from_pydict({"partition": [context.partitionId()], "file": [name], "rows": [len(ids)]})

settings = SparkSettings(master=url, conf={"spark.executor.memory": "512m", "spark.executor.cores": "1"})
spark = spark_session(settings)
frame = spark.range(0, partitions * 10, 1, partitions)
rows = frame.mapInArrow(work, "partition long, file string, rows long").collect()
stop_session()
print(json.dumps([row.asDict() for row in rows]))
"""


def test_a_job_is_complete_and_not_doubled_when_a_worker_is_lost_in_the_middle(tmp_path: Path) -> None:
    started, written = tmp_path / "started", tmp_path / "written"
    started.mkdir()
    written.mkdir()
    with LocalCluster(workers=2) as cluster:
        child = python(JOB, cluster.url, str(PARTITIONS), str(tmp_path))
        wait_until(
            lambda: len(list(started.iterdir())) >= 2 or child.poll() is not None,
            "a task runs on each worker",
        )
        before = {path.name for path in started.iterdir()}
        assert cluster.executors(0), "the worker to be lost runs an executor"
        cluster.kill_worker(0)
        (tmp_path / "go").touch()
        records = json.loads(finished(child)[0])
    assert sorted(record["partition"] for record in records) == list(range(PARTITIONS))
    assert [record["rows"] for record in records] == [10] * PARTITIONS
    landed = [int(value) for record in records for value in (written / record["file"]).read_text().split()]
    assert sorted(landed) == list(range(PARTITIONS * 10))
    named = {record["file"] for record in records}
    assert before - named, "the lost worker had a task whose work was done again"

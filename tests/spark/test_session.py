"""The session of a process: shared, quiet, configured, restartable, and gone when the process is."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.base.errors import HeadwaterError
from headwater.spark.gateway import MODULE_OPTIONS, spark_home
from headwater.spark.java import find_java
from headwater.spark.machine_size import cores, heap_bytes, local_cores, memory_bytes
from headwater.spark.session import SparkSettings, cancel_jobs, fast_start_fits, session_conf, spark_session
from spark.children import finished, python, running, wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SETTINGS = SparkSettings(app_name="headwater tests")

COUNT = """
def count(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

def counted(spark):
    return sum(row.rows for row in spark.range(0, 100, 1, 2).mapInArrow(count, "rows long").collect())
"""


def test_a_python_function_over_arrow_batches_runs_and_reports(spark: SparkSession) -> None:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    rows = spark.range(0, 1000, 1, 4).mapInArrow(count, "rows long").collect()
    assert sum(row["rows"] for row in rows) == 1000


def test_all_threads_get_the_one_session(spark: SparkSession) -> None:
    found: list[SparkSession] = []
    threads = [threading.Thread(target=lambda: found.append(spark_session(SETTINGS))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(session is spark for session in found)


def test_other_settings_are_refused_while_a_session_runs(spark: SparkSession) -> None:
    with pytest.raises(HeadwaterError) as caught:
        spark_session(SparkSettings(master="local[1]"))
    assert caught.value.code == "HW-J02"
    assert "other settings" in caught.value.message


def test_the_session_is_configured_as_the_house_says(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.legacy.parquet.nanosAsLong") == "true"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "50000"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(max(2, cores()))
    assert conf.get("spark.scheduler.mode") == "FAIR"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_cancelled_jobs_fail_and_the_session_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    started, failed = tmp_path / "started", threading.Event()

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import time

        started.touch()
        while True:
            time.sleep(0.05)
        yield from batches

    def run() -> None:
        try:
            spark.range(1).mapInArrow(wait, "id long").collect()
        except Exception:
            failed.set()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(started.exists, "the task runs")
    cancel_jobs()
    thread.join()
    assert failed.is_set()
    assert spark.range(3).count() == 3


def test_settings_win_over_what_headwater_sets() -> None:
    settings = SparkSettings(
        conf={"spark.sql.shuffle.partitions": "7", "spark.driver.memory": "1g"}, driver_memory="3g", app_name="mine"
    )
    conf = session_conf(settings)
    assert conf["spark.sql.shuffle.partitions"] == "7"
    assert conf["spark.driver.memory"] == "3g"
    assert conf["spark.app.name"] == "mine"


def test_a_cluster_keeps_its_own_sizes_and_network() -> None:
    conf = session_conf(SparkSettings(master="spark://cluster.example:7077", packages=("a:b:1", "c:d:2")))
    assert conf["spark.jars.packages"] == "a:b:1,c:d:2"
    assert not {"spark.driver.host", "spark.driver.memory", "spark.sql.shuffle.partitions"} & conf.keys()


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[*]", cores()),
        ("local[*, 2]", cores()),
        ("spark://h:7077", None),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
    ],
)
def test_task_slots_are_read_from_the_master(master: str, slots: int | None) -> None:
    assert local_cores(master) == slots


def test_the_heap_is_a_part_of_the_memory_that_this_process_may_use() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    assert 0 < heap_bytes() <= max(memory_bytes(), 512 * 1024 * 1024)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        (SparkSettings(), True),
        (SparkSettings(conf={"spark.sql.shuffle.partitions": "7"}), True),
        (SparkSettings(packages=("a:b:1",)), False),
        (SparkSettings(conf={"spark.jars": "/x.jar"}), False),
        (SparkSettings(conf={"spark.driver.extraJavaOptions": "-Da=b"}), False),
        (SparkSettings(master="spark://h:7077"), False),
    ],
)
def test_the_fast_start_is_only_taken_where_it_can_do_all_that_was_asked(settings: SparkSettings, fits: bool) -> None:
    assert fast_start_fits(settings) is fits


def test_the_fast_start_opens_the_modules_that_sparks_launcher_opens() -> None:
    home = spark_home()
    launcher = subprocess.run(
        [find_java().executable, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
        + ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {
        part
        for part in launcher.stdout.split("\0")
        if part.startswith(("--add-opens", "-XX:+Ignore", "-Dio.", "-Djdk."))
    }
    assert wanted
    assert wanted <= set(MODULE_OPTIONS)


def test_a_session_says_nothing_and_leaves_sigint_to_the_program(tmp_path: Path) -> None:
    code = (
        COUNT
        + """
import signal
from headwater.spark.session import spark_session, stop_session
mine = lambda *_: None
signal.signal(signal.SIGINT, mine)
assert counted(spark_session()) == 100
assert signal.getsignal(signal.SIGINT) is mine
stop_session()
assert counted(spark_session()) == 100, "a session can be started again"
"""
    )
    out, err = finished(python(code))
    assert (out, err) == ("", "")


ENDS = (
    COUNT
    + """
import json, os, sys
from pyspark import TaskContext
from headwater.spark import session

def pids(batches):
    import os
    import pyarrow as pa
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "parent": [os.getppid()]})

spark = session.spark_session()
(row,) = spark.range(0, 1, 1, 1).mapInArrow(pids, "pid long, parent long").collect()
print(json.dumps([session._live.gateway.pid, row.pid, row.parent]), flush=True)
"""
)


@pytest.mark.parametrize("ending", ["", "os._exit(3)"])
def test_no_process_of_spark_outlives_its_program(ending: str) -> None:
    """Nor one that a signal ends: `crash/test_faults.py`."""
    child = python(ENDS + ending)
    assert child.stdout is not None
    assert child.stderr is not None
    pids = json.loads(child.stdout.readline() or child.stderr.read())
    child.communicate(timeout=120)
    wait_until(lambda: not any(map(running, pids)), "the JVM and its Python workers end")


def test_environment_and_crash_points_reach_the_python_workers() -> None:
    code = """
import os
from headwater.spark.session import spark_session

def look(batches):
    import os
    import pyarrow as pa
    from headwater.base.crash import crash_point
    rows = sum(batch.num_rows for batch in batches)
    if rows > 10:
        crash_point("part.mid")
    yield pa.RecordBatch.from_pydict({"probe": [os.environ.get("HEADWATER_PROBE")]})

spark = spark_session()
(row,) = spark.range(0, 1, 1, 1).mapInArrow(look, "probe string").collect()
assert row.probe == "seen"
try:
    spark.range(0, 100, 1, 1).mapInArrow(look, "probe string").collect()
except Exception as error:
    assert "worker" in str(error)
else:
    raise SystemExit("the armed crash point was passed")
(row,) = spark.range(0, 1, 1, 1).mapInArrow(look, "probe string").collect()
assert row.probe == "seen", "a dead worker is replaced"
"""
    finished(python(code, environment={"HEADWATER_PROBE": "seen", "HEADWATER_CRASH_AT": "part.mid"}))


def test_a_java_that_refuses_the_fast_start_is_started_the_ordinary_way(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'case "$*" in *"-version"*) ;; *PythonGatewayServer*) echo fast >>"$REFUSALS"; exit 1 ;; esac\n'
        f'exec {find_java().executable} "$@"\n'
    )
    java.chmod(0o755)
    code = (
        COUNT
        + """
from headwater.spark.session import spark_session, stop_session
assert counted(spark_session()) == 100
stop_session()
"""
    )
    refusals = tmp_path / "refusals"
    environment = {"JAVA_HOME": str(tmp_path / "home"), "REFUSALS": str(refusals), "HEADWATER_SPARK_ARCHIVE": "off"}
    out, err = finished(python(code, environment=environment))
    assert (out, err) == ("", "")
    assert refusals.read_text() == "fast\n"


def test_a_start_that_fails_shows_the_last_lines_of_the_jvm() -> None:
    code = """
import json
from headwater.base.errors import HeadwaterError
from headwater.spark.session import SparkSettings, spark_session
try:
    spark_session(SparkSettings(driver_memory="much"))
except HeadwaterError as error:
    print(json.dumps(error.as_json()))
"""
    out, _ = finished(python(code))
    error = json.loads(out)
    assert error["code"] == "HW-J02"
    assert any("much" in line for line in error["detail"]["output"])


def test_a_master_that_does_not_exist_is_named() -> None:
    code = """
import json
from headwater.base.errors import HeadwaterError
from headwater.spark.session import SparkSettings, spark_session
try:
    spark_session(SparkSettings(master="nowhere"))
except HeadwaterError as error:
    print(json.dumps(error.as_json()))
"""
    out, _ = finished(python(code))
    error = json.loads(out)
    assert error["code"] == "HW-J02"
    assert "nowhere" in error["message"]

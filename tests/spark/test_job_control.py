"""One ripple is stopped, by its timeout or by somebody, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from headwater.base.errors import HeadwaterError
from headwater.runtime.land_ripple import LandedRipple, land_ripple
from headwater.spark.job_control import Control, controlled
from headwater.spark.user_code import PythonCode, SqlCode
from spark.children import wait_until
from spark.models import Models, orders_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Python may call Java from a query: the task sleeps for an hour, unless it is interrupted.
ASLEEP = """
def out(orders):
    asleep = orders.selectExpr("id", "java_method('java.lang.Thread', 'sleep', 3600000L) as x")
    return {result}
"""
PYTHON_ASLEEP = """
from pathlib import Path
import time

def out(orders):
    def wait(batches):
        Path("{started}").touch()
        time.sleep(3600)
        yield from batches
    return orders.mapInArrow(wait, orders.schema)
"""


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    with orders_landed(tmp_path, spark) as opened:
        yield opened


def asleep(models: Models, result: str = "asleep") -> PythonCode:
    return models.code("asleep.py", ASLEEP.format(result=result))


@pytest.mark.parametrize("seconds, words", [(0.2, "0.2 seconds"), (1, "1 second")])
def test_a_ripple_that_takes_too_long_is_stopped_and_lands_nothing(models: Models, seconds: float, words: str) -> None:
    before = models.seq()
    with pytest.raises(HeadwaterError, match=rf"`out` was stopped after {words}") as caught:
        land_ripple(replace(models.work(asleep(models), "orders"), timeout_seconds=seconds))
    assert (caught.value.code, models.seq()) == ("HW-R03", before)


def test_its_tasks_stop_too_and_give_their_cores_back(models: Models) -> None:
    # what code before it may have set for this thread: tasks of cancelled jobs are not interrupted
    models.spark.sparkContext.setInterruptOnCancel(False)
    with pytest.raises(HeadwaterError, match="was stopped"):
        land_ripple(replace(models.work(asleep(models), "orders"), timeout_seconds=2))
    cores = models.spark.sparkContext.defaultParallelism
    # one task for each core there is: none of them could run beside a task that sleeps for an hour
    assert models.spark.sparkContext.range(cores, numSlices=cores).count() == cores
    wait_until(lambda: active_tasks(models.spark) == 0, "all tasks have ended")


def test_a_ripple_beside_one_that_is_stopped_ends_well(models: Models, tmp_path: Path) -> None:
    """Both are in the middle of a Spark job when the time of one of them is up."""
    started, go_on = tmp_path / "started", tmp_path / "go_on"
    beside = models.code("beside.py", WAITING.format(started=started, go_on=go_on))
    ended = in_thread(lambda: land_ripple(models.work(beside, "orders")))
    wait_until(started.exists, "the other one runs")
    slow = models.work(asleep(models), "orders")
    slow = replace(slow, ripple=replace(slow.ripple, table="asleep"), timeout_seconds=0.2)
    with pytest.raises(HeadwaterError, match="`asleep` was stopped after"):
        land_ripple(slow)
    go_on.touch()
    assert ended().rows == 2


WAITING = """
from pathlib import Path
import time

def out(orders):
    def wait(batches):
        Path("{started}").touch()
        while not Path("{go_on}").exists():
            time.sleep(0.02)
        yield from batches
    return orders.mapInArrow(wait, orders.schema)
"""


def test_a_ripple_can_be_stopped_from_another_thread_for_a_reason_that_it_then_raises(
    models: Models, tmp_path: Path
) -> None:
    started, controls = tmp_path / "started", list[Control]()
    work = models.work(models.code("out.py", PYTHON_ASLEEP.format(started=started)), "orders")
    ended = in_thread(lambda: land_ripple(replace(work, on_control=controls.append)))
    wait_until(started.exists, "its task runs")
    controls[0].cancel(HeadwaterError("HW-T03", "the lease was lost"))
    controls[0].cancel(HeadwaterError("HW-X01", "too late: the first reason counts"))
    with pytest.raises(HeadwaterError) as caught:
        ended()
    assert (caught.value.code, caught.value.message) == ("HW-T03", "the lease was lost")
    assert models.sql("select 1 as a").rows == 1


def test_code_that_is_busy_in_python_is_stopped_by_its_next_job(models: Models) -> None:
    text = """
    import time
    def out(orders):
        for _ in range(3000):
            time.sleep(0.02)
            orders.count()
        return orders
    """
    work = models.work(models.code("out.py", dedent(text)), "orders")
    with pytest.raises(HeadwaterError, match=r"`out` was stopped after 0\.1 seconds"):
        land_ripple(replace(work, timeout_seconds=0.1))


def test_code_that_swallows_its_end_is_refused_at_its_commit(models: Models) -> None:
    text = """
    import time
    def out(orders):
        try:
            orders.selectExpr("java_method('java.lang.Thread', 'sleep', 3600000L)").collect()
        except Exception:
            pass
        import pyarrow as pa
        return pa.table({"a": [1]})
    """
    before = models.seq()
    work = models.work(models.code("out.py", dedent(text)), "orders")
    with pytest.raises(HeadwaterError, match=r"`out` was stopped after 0\.2 seconds"):
        land_ripple(replace(work, timeout_seconds=0.2))
    assert models.seq() == before


def test_a_shuffle_and_a_broadcast_are_stopped_as_well(models: Models) -> None:
    """Spark asks for those jobs from threads of its own."""
    for result in ('asleep.groupBy("x").count()', 'orders.join(asleep.hint("broadcast"), "id").select("id", "x")'):
        with pytest.raises(HeadwaterError, match="was stopped after"):
            land_ripple(replace(models.work(asleep(models, result), "orders"), timeout_seconds=0.2))
    wait_until(lambda: active_tasks(models.spark) == 0, "all tasks have ended")


def test_an_error_before_the_time_is_up_is_itself(models: Models) -> None:
    with pytest.raises(HeadwaterError) as caught:
        land_ripple(replace(models.work(SqlCode("select no from orders"), "orders"), timeout_seconds=3600))
    assert caught.value.code == "HW-R01"


def test_jobs_of_a_block_have_a_pool_and_a_tag_and_those_after_it_have_not(spark: SparkSession) -> None:
    context = spark.sparkContext
    before = context.getLocalProperty("spark.scheduler.pool"), job_tags(spark)
    with controlled(spark, "revenue") as control:
        assert context.getLocalProperty("spark.scheduler.pool") == "revenue"
        assert job_tags(spark) == {control.tag}
        with controlled(spark, "inner") as inner:
            assert job_tags(spark) == {control.tag, inner.tag}
        assert context.getLocalProperty("spark.scheduler.pool") == "revenue"
        assert in_thread(lambda: job_tags(spark))() == set()
    assert (context.getLocalProperty("spark.scheduler.pool"), job_tags(spark)) == before


def test_a_block_that_has_ended_cannot_be_stopped(spark: SparkSession) -> None:
    with controlled(spark, "revenue", timeout_seconds=3600) as control:
        assert spark.range(3).count() == 3
    control.cancel()
    control.check()
    assert not [thread for thread in threading.enumerate() if thread.name == "job-control"]


def job_tags(spark: SparkSession) -> set[str]:
    return set(spark.sparkContext.getJobTags())


def active_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(stage.numActiveTasks for stage in stages if stage) + sum(e.numRunningTasks() for e in executors)


def in_thread(work: Callable[[], object]) -> Callable[[], LandedRipple]:
    """Begins the work; calling the answer waits for it, and gives or raises what it did."""
    found: list[object] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> LandedRipple:
        thread.join()
        if raised:
            raise raised[0]
        return found[0]  # type: ignore[return-value]

    return result

"""A ripple's result lands once: leases, jobs, a table that moves, crashes, and a Spark that dies."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.base.crash import arm_driver
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.base.ids import RunId, uuid7
from headwater.catalog import records as r
from headwater.catalog.engine_records import InboxEvent, JobEnd, NewJob
from headwater.catalog.lookup import run_record
from headwater.catalog.queue import claim_job, jobs, queue_jobs
from headwater.catalog.slice_jobs import SliceLease, queue_slices, slice_lease
from headwater.catalog.verify import verify
from headwater.runtime.land_ripple import Closing, RippleOutcome, RippleWork, land_ripple
from headwater.spark.session import spark_session
from headwater.spark.user_code import SqlCode
from spark.children import finished, python, wait_until
from spark.models import Models, orders_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serve.serving import Warm


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    with orders_landed(tmp_path, spark) as opened:
        yield opened


def planned(models: Models) -> SliceLease:
    """A claimed slice of a planned run."""
    run_id, unit_id = RunId(uuid7()), uuid7()
    models.commit(
        r.RunStarted(run_id=run_id, pipeline="models", freshness_us=1, trigger="wave", connector="", definition=""),
        r.UnitsPlanned(
            run_id=run_id, pipeline="models", units=(r.UnitSpec(unit_id=unit_id, table="out", ordinal=0, payload={}),)
        ),
    )
    with models.store.catalog.transaction() as connection:
        queue_slices(connection, run_id)
    job = claim_job(models.store.catalog, holder=new_holder())
    assert job is not None
    with models.store.catalog.snapshot() as connection:
        return slice_lease(connection, job)


def unit_work(models: Models, lease: SliceLease) -> RippleWork:
    """A ripple's execution as that slice."""

    def closing(outcome: RippleOutcome) -> Closing:
        done = r.UnitDone(unit_id=lease.unit_id, rows=outcome.rows, bytes=outcome.bytes)
        end = JobEnd(held=lease.fence, state="done", landed_run_id=lease.run_id)
        return Closing(changes=(done, r.RunSettled(run_id=lease.run_id)), ends=end)

    sql = SqlCode("select id from orders")
    work = models.work(sql, "orders", mode="append", requires=(lease.fence,), closing=closing, as_run=False)
    return replace(work, run_id=lease.run_id, job_id=lease.unit_id)


def test_an_execution_lands_once_under_one_lease(models: Models) -> None:
    work = unit_work(models, planned(models))
    landed = land_ripple(work)
    with models.store.catalog.snapshot() as connection:
        assert run_record(connection, work.run_id)["state"] == "success"
    with pytest.raises(HeadwaterError) as caught:
        land_ripple(replace(work, attempt=2))
    assert caught.value.code == "HW-T03"
    assert models.seq() == landed.seq
    assert models.shown("id") == [(1,), (2,)]


def test_a_worker_that_lost_its_lease_lands_nothing(models: Models) -> None:
    lease = planned(models)
    before = models.seq()
    with pytest.raises(HeadwaterError) as caught:
        land_ripple(unit_work(models, replace(lease, epoch=lease.epoch - 1)))
    assert caught.value.code == "HW-T03"
    assert models.seq() == before
    assert land_ripple(unit_work(models, lease)).rows == 2


def test_a_job_ends_and_the_engine_hears_of_it_in_the_commit_that_lands_its_rows(models: Models) -> None:
    with models.store.catalog.transaction() as connection:
        queue_jobs(connection, [NewJob(kind="ripple", pond="models", ripple="out", freshness_us=1)])
    lease = claim_job(models.store.catalog, holder=new_holder())
    assert lease is not None

    def closing(outcome: RippleOutcome) -> Closing:
        end = JobEnd(held=lease.fence, state="done", rows=outcome.rows, bytes=outcome.bytes)
        event = InboxEvent(kind="completed", body={"ripple": "out", "changed": outcome.changed}, actor="test")
        return Closing(events=(event,), ends=end)

    sql = SqlCode("select id from orders")
    work = models.work(sql, "orders", mode="append", closing=closing, as_run=False, job_id=lease.job_id)
    land_ripple(work)
    for _ in range(2):
        with models.store.catalog.snapshot() as connection:
            assert [(job.state, job.rows) for job in jobs(connection)] == [("done", 2)]
            told = connection.exec_driver_sql("SELECT kind, body FROM inbox").all()
        assert [(kind, '"changed":true' in body) for kind, body in told] == [("completed", True)]
        assert models.shown("id") == [(1,), (2,)]
        with pytest.raises(HeadwaterError) as caught:
            land_ripple(replace(work, attempt=2))
        assert caught.value.code == "HW-T03"


def test_what_the_caller_requires_is_not_tried_again_in_vain(models: Models) -> None:
    tries = []

    def closing(_outcome: RippleOutcome) -> Closing:
        tries.append(1)
        return Closing()

    gone = r.CursorIs(pipeline="models", table="out", version=7)
    error = models.refused("select 1 as a", requires=(gone,), closing=closing)
    assert (error.code, len(tries)) == ("HW-T02", 1)


def test_a_result_is_written_again_if_its_table_moved_meanwhile(models: Models) -> None:
    models.sql("select id, amount from orders", "orders")
    moved: list[int] = []

    def closing(_outcome: RippleOutcome) -> Closing:
        if not moved:
            moved.append(models.sql("select id, amount, 'new' as more from orders", "orders").seq)
        return Closing()

    work = models.work(SqlCode("select id, amount + 1 as amount from orders"), "orders", closing=closing)
    landed = land_ripple(work)
    assert [event.kind for event in landed.schema_events] == ["drop_column"]
    assert models.shown("id, amount, more") == [(1, 11.0, None), (2, 21.0, None)]
    assert landed.seq == moved[0] + 1


def land_and_die(arguments: list[str]) -> int:
    """What a process of its own does."""
    root, lease = arguments
    arm_driver()
    models = Models(Path(root), spark_session())
    land_ripple(unit_work(models, SliceLease(**json.loads(lease))))
    return 0


@pytest.mark.parametrize("point", ["part.after_fsync", "commit.inside", "commit.after"])
def test_a_crash_at_any_point_leaves_nothing_or_all_of_it(models: Models, warm: Warm, point: str) -> None:
    lease = planned(models)
    before = models.seq()
    out, err = models.root / "out", models.root / "err"
    child = warm.start(
        [str(models.root), json.dumps(asdict(lease))],
        out=out,
        err=err,
        environment={"HEADWATER_CRASH_AT": point},
        call="spark.test_land_once:land_and_die",
    )
    wait_until(lambda: child.poll() is not None, "the process ends")
    assert child.poll() == -signal.SIGKILL, err.read_text()
    models.close()
    again = Models(models.root, models.spark)
    landed = point == "commit.after"
    assert again.seq() == before + landed
    if landed:
        with pytest.raises(HeadwaterError) as caught:
            land_ripple(replace(unit_work(again, lease), attempt=2))
        assert caught.value.code == "HW-T03"
    else:
        assert land_ripple(replace(unit_work(again, lease), attempt=2)).seq == before + 1
    assert again.shown("id") == [(1,), (2,)]
    assert verify(again.store).problems == ()
    again.close()


DYING = """
import os, signal, sys
from pathlib import Path
from headwater.connectors.protocol import TransientError
from headwater.spark import session
from headwater.spark.session import SparkSettings, spark_session, stop_session
from spark.models import Models, orders_landed

KILL = "os.kill(PID, signal.SIGKILL)"
IN_DRIVER = f"import os, signal\\ndef out(orders):\\n    {KILL}\\n    return orders.where(f'id < {{orders.count()}}')\\n"
IN_WORKER = (
    "import os, signal\\nfrom pyspark.sql.functions import udf\\n"
    f"def out(orders):\\n    return orders.select(udf(lambda i: {KILL}, 'long')('id').alias('id'))\\n"
)
settings = SparkSettings(master="local[1]")
models = Models(Path(sys.argv[1]), spark_session(settings))
for text in (IN_DRIVER, IN_WORKER):
    gateway = session._live.gateway
    try:
        models.python("models/m.py", text.replace("PID", str(gateway.pid)), "orders", mode="append")
    except TransientError as error:
        print(error)
    gateway._process.wait()
    try:
        models.sql("select id from orders", "orders", mode="append")
    except TransientError as error:
        print(error)
    models.spark = spark_session(settings)
print(models.sql("select id from orders", "orders", mode="append").rows)
stop_session()
"""


def test_a_jvm_that_dies_under_a_ripple_is_worth_another_try(models: Models) -> None:
    child = python(DYING, str(models.root), environment={"PYTHONPATH": str(Path(__file__).parents[1])})
    out, _ = finished(child)
    assert out.splitlines() == ["Spark's process ended during a job"] * 4 + ["2"]
    assert models.shown("id") == [(1,), (2,)]

"""The wait for Spark is measured apart from the work."""

from __future__ import annotations

from contextvars import copy_context
from threading import Thread

from headwater.runtime.execution import LEAST_US, SparkStart, measuring

SECOND = 1_000_000


def test_waits_of_several_threads_for_one_start_count_once() -> None:
    start = SparkStart()
    start.waited(0, 3 * SECOND)
    start.waited(SECOND, 3 * SECOND + 10)
    start.waited(10 * SECOND, 11 * SECOND)
    assert start.us == 4 * SECOND + 10


def test_a_session_that_is_there_is_no_wait() -> None:
    start = SparkStart()
    start.waited(0, LEAST_US - 1)
    assert start.us == 0


def test_a_wait_counts_for_the_job_of_its_thread_and_of_its_copies() -> None:
    import time

    def slow() -> str:
        time.sleep(LEAST_US / 1e6)
        return "session"

    spark, first, second = measuring(slow), SparkStart(), SparkStart()
    assert spark() == "session"
    with first.measured():
        worker = Thread(target=copy_context().run, args=(spark,))
        worker.start()
        worker.join()
    with second.measured():
        pass
    assert first.us >= LEAST_US and second.us == 0

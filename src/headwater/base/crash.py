"""Crash points: named places where a test kills the process, to show that the next start converges.

`HEADWATER_CRASH_AT=<name>` arms one: the process ends there with SIGKILL, as in a power cut. `<name>:pause` stops it
instead (SIGSTOP), so that a test can change the state before it resumes. A point that is reached in a Spark worker also
kills the driver (`HEADWATER_CRASH_PID`); `<name>:worker` kills only the worker. `@n` at the end means the n-th time
that a process passes the point, not the first. Unarmed, a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
import threading

POINTS: dict[str, str] = {
    "plan.before_commit": "the slices of a run are decided, nothing is stored",
    "plan.after_commit": "the slices are stored as work units, none is claimed",
    "unit.after_lease": "a unit is claimed, nothing is read",
    "part.mid": "a Parquet file is half written",
    "part.before_fsync": "a Parquet file is written, not yet durable",
    "part.after_fsync": "a Parquet file is durable, no commit names it",
    "commit.before": "all files of a slice are durable, the transaction has not begun",
    "commit.inside": "the transaction has written its rows, it has not committed",
    "commit.after": "the transaction has committed, the log has no record of it",
    "stats.torn": "the cell values of a log record are half written",
    "stats.after": "the cell values of a log record are written, the record is not",
    "log.torn": "a log record is half written",
    "log.after": "the log record is durable, the commit is not acknowledged",
    "ingest.after_key": "a pushed batch is read and its key is free, nothing is coerced",
    "ingest.before_write": "a pushed batch is coerced, nothing is written",
    "ingest.before_answer": "a pushed batch has landed, no caller has its answer",
    "tail.before_commit": "small files of a pushed table are merged into one, no commit names it",
    "tail.after_commit": "the merged file has replaced the small ones, no process was notified",
    "view.before": "the data is committed, the views are old",
    "view.torn": "a view file is half written",
    "gc.before_delete": "gc has fenced the dead writers, no file is deleted",
    "gc.mid_delete": "gc has deleted some files",
    "checkpoint.torn": "a checkpoint of the catalog is half written",
    "checkpoint.after": "a checkpoint is durable, no log record is deleted",
    "checkpoint.mid_delete": "some of the log records before a checkpoint are deleted",
    "schema.before_accept": "a schema decision is made, not stored",
    "owner.after_lease": "the engine has an owner, its state is not loaded",
    "step.before": "the engine has decided on events, nothing of it is stored",
    "step.inside": "a step has consumed its events and written ponds and jobs, it has not committed",
    "step.after": "a step is stored, no process was notified",
    "job.after_lease": "a job is claimed, nothing is done",
    "job.inside_end": "the end of a job and its event are written, they are not committed",
}


def arm_driver() -> None:
    """Called once by a process that starts workers, so that a crash in a worker also kills this process."""
    if "HEADWATER_CRASH_AT" in os.environ:
        os.environ["HEADWATER_CRASH_PID"] = str(os.getpid())


def crash_point(name: str) -> None:
    """Kill or pause the process here if a test armed this point."""
    armed = os.environ.get("HEADWATER_CRASH_AT")
    if armed is None:
        return
    assert name in POINTS, name
    where, _, which = armed.partition("@")
    point, _, how = where.partition(":")
    if point != name or _times_passed(name) != int(which or 1):
        return
    match how:
        case "":
            driver = os.environ.get("HEADWATER_CRASH_PID")
            if driver is not None and int(driver) != os.getpid():
                os.kill(int(driver), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "pause":
            # The signal goes to this thread. Another thread could take a signal to the process while this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case _:
            raise AssertionError(armed)


_counting = threading.Lock()
_passed: dict[str, int] = {}


def _times_passed(name: str) -> int:
    """How often this process has passed the point, this time included. Only armed points are counted."""
    with _counting:
        _passed[name] = _passed.get(name, 0) + 1
        return _passed[name]

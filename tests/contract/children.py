"""What other processes do to a store."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from contract.stores import ACTOR, Place, attempt_path, claim, commit, landed, written
from forked import context
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RunId
from headwater.catalog import gc
from headwater.catalog import records as r

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess
    from multiprocessing.queues import SimpleQueue

PAUSE_CHECKS = 2_000
PAUSE_CHECK_SECONDS = 0.01


def pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=context())


def commit_items(place: Place, name: str, count: int) -> list[int]:
    """Open the store and commit one item after the other; the sequences."""
    store = place.open()
    try:
        return [commit(store, r.ItemsLanded(pipeline="p", table="t", items={f"{name}/{i}": i})) for i in range(count)]
    finally:
        store.close()


def land_one(place: Place, run_id: RunId, crash_at: str, answer: SimpleQueue[str]) -> None:
    """Claim a unit, write its file, commit it; the sequence, or the code of the error."""
    os.environ["HEADWATER_CRASH_AT"] = crash_at
    store = place.open()
    lease = claim(store.catalog, run_id, holder="child")
    assert lease is not None
    try:
        answer.put(str(store.commit(landed(lease, written(store, attempt_path(lease))))))
    except HeadwaterError as error:
        answer.put(error.code)


class Lander:
    """`land_one` in a process of its own, which dies or stops at a crash point."""

    def __init__(self, place: Place, run_id: RunId, crash_at: str):
        forking = context()
        self.answer = forking.SimpleQueue()
        self.process: ForkServerProcess = forking.Process(
            target=land_one, args=(place, run_id, crash_at, self.answer), daemon=True
        )
        self.process.start()

    def wait_until_stopped(self) -> None:
        assert self.process.pid is not None
        for _ in range(PAUSE_CHECKS):
            with open(f"/proc/{self.process.pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "T":
                    return
            time.sleep(PAUSE_CHECK_SECONDS)
        raise AssertionError("the process did not stop")

    def wake(self) -> str:
        """Let it go on, and say what came of it."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.join()
        return str(self.answer.get())


def collect_garbage(place: Place) -> None:
    """gc without any retention."""
    store = place.open()
    try:
        gc.collect(store, actor=ACTOR, retention_seconds=0)
    finally:
        store.close()

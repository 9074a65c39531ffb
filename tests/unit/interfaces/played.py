"""The real engine of a project, stepped by hand, with played workers: for what commands say of runs. No JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update

from headwater.app.workspace import Workspace, workspace
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog import sql_tables as t
from headwater.catalog.engine_records import JobEnd
from headwater.catalog.inbox import message
from headwater.catalog.queue import JobLease, claim_job, finish_job
from headwater.freshness.events import Completed, Demand, Failed
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import Engine, open_engine

MOMENT_US = 100_000


@dataclass
class Played:
    workspace: Workspace
    engine: Engine

    def pulse(self, *pipelines: str) -> None:
        self.engine.advance([Demand(name, "pulse") for name in pipelines])

    def work(
        self,
        *,
        seconds: Mapping[str, float] | None = None,
        fails: Collection[str] | Mapping[str, HeadwaterError] = (),
        ends: Callable[[JobEnd], JobEnd] = lambda end: end,
    ) -> list[str]:
        """Do the jobs that wait, and those that come of them: the ripples, in that order. `seconds` is how long an
        execution is said to have taken; `fails` are the pipelines that fail, and with which error;
        `ends` says more of how a job ended."""
        catalog = self.workspace.store().catalog
        done = []
        while True:
            self.engine.advance()
            lease = claim_job(catalog, holder=new_holder())
            if lease is None:
                if not self._waits_a_moment():
                    return done
                continue
            self._end(lease, fails, ends)
            done += lease.body.get("ripples", [lease.ripple])
            if seconds is not None:
                with catalog.transaction() as connection:
                    took = int(seconds[lease.pond] * 1e6)
                    began = t.job.c.ended_us - took
                    connection.execute(update(t.job).where(t.job.c.job_id == lease.job_id).values(started_us=began))

    def _waits_a_moment(self) -> bool:
        """A source that was looked at just now is looked at again a moment later."""
        wake = self.engine.wake_us
        if wake is None or wake > now_us() + MOMENT_US:
            return False
        time.sleep(max(0.0, (wake - now_us()) / 1e6))
        return True

    def _end(
        self,
        lease: JobLease,
        fails: Collection[str] | Mapping[str, HeadwaterError],
        ends: Callable[[JobEnd], JobEnd],
    ) -> None:
        pond, at = lease.pond, lease.freshness_us
        ripples = lease.body.get("ripples", [lease.ripple])
        if pond in fails:
            error = fails[pond] if isinstance(fails, Mapping) else HeadwaterError("HW-C02", "the source is gone")
            end = lease.failed(error.as_json())
            events = [message(Failed(pond, ripple, at), actor="worker") for ripple in ripples]
        else:
            end = lease.done(rows=2, bytes=10)
            events = [message(Completed(pond, ripple, at, version=1), actor="worker") for ripple in ripples]
        finish_job(self.workspace.store().catalog, ends(end), events=events)


@contextmanager
def played(root: Path, *, runs_triggers: bool = False) -> Iterator[Played]:
    """This process owns the project's engine, until the end."""
    with workspace(root) as opened:
        compiled = compile_pipelines(opened.project, now_us=now_us())
        engine = open_engine(opened.store(), compiled, holder=new_holder(), runs_triggers=runs_triggers)
        assert engine is not None
        try:
            yield Played(opened, engine)
        finally:
            engine.release()


def keep_a_run(root: Path) -> None:
    """`orders` has one run that succeeded."""
    with played(root) as engine:
        engine.pulse("orders")
        engine.work()

"""How long executions take, by what the catalog remembers of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
from sqlalchemy import Connection, select

from headwater.store import tables as t

EXECUTIONS = 20
"""The median of so many of the newest executions is taken."""
JOBS_READ = 1_000
"""So many of the newest jobs of a pond are looked at."""


def measured_us(connection: Connection, ponds: Sequence[str]) -> dict[tuple[str, str], int]:
    """By pond and ripple, in microseconds: executions that landed something if there are any, for a look at a source
    that finds nothing new says little of one that does. Ripples that were never executed are left out, and those
    whose jobs are forgotten: see `run_us`."""
    found: dict[tuple[str, str], int] = {}
    for pond in ponds:
        done = (t.job.c.pond == pond, t.job.c.state == "done", t.job.c.started_us.is_not(None))
        for landed in (t.job.c.landed_run_id.is_not(None), t.job.c.landed_run_id.is_(None)):
            query = select(t.job.c.ripple, t.job.c.body, t.job.c.started_us, t.job.c.ended_us).where(*done, landed)
            by_ripple: dict[str, list[int]] = {}
            for row in connection.execute(query.order_by(t.job.c.job_id.desc()).limit(JOBS_READ)):
                ripples = [row.ripple] if row.ripple else msgspec.json.decode(row.body).get("ripples", [])
                for ripple in ripples:
                    times = by_ripple.setdefault(ripple, [])
                    if len(times) < EXECUTIONS:
                        times.append(row.ended_us - row.started_us)
            for ripple, times in by_ripple.items():
                found.setdefault((pond, ripple), max(0, int(median(times))))
    return found


def run_us(connection: Connection, pond: str) -> int | None:
    """The median of the newest runs of a pond, from begin to end; they are kept longer than their jobs."""
    done = (t.pond_run.c.pond == pond, t.pond_run.c.state == "success")
    query = select(t.pond_run).where(*done).order_by(t.pond_run.c.run_id.desc()).limit(EXECUTIONS)
    times = [row.ended_us - row.started_us for row in connection.execute(query)]
    return max(0, int(median(times))) if times else None

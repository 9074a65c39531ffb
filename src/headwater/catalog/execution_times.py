"""How long executions take, by what the catalog remembers of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
from sqlalchemy import Connection, select

from headwater.base import limits
from headwater.catalog import sql_tables as t


def measured_us(connection: Connection, ponds: Sequence[str]) -> dict[tuple[str, str], int]:
    """By pond and ripple, in microseconds, without the start of Spark: executions that found Spark running if there are
    any, for the first one in a new Spark is slow; and of those, the ones that landed something, for a scan of a source
    that finds nothing new says little of one that does. Ripples that were never executed are left out, and those whose
    jobs are forgotten: see `run_us`."""
    found: dict[tuple[str, str], int] = {}
    for pond in ponds:
        done = (t.job.c.pond == pond, t.job.c.state == "done", t.job.c.started_us.is_not(None))
        took = (t.job.c.ended_us - t.job.c.started_us - t.job.c.spark_start_us).label("took_us")
        warm, landed = t.job.c.spark_start_us == 0, t.job.c.landed_run_id.is_not(None)
        for kind in ((warm, landed), (~warm, landed), (warm, ~landed), (~warm, ~landed)):
            query = select(t.job.c.ripple, t.job.c.body, took).where(*done, *kind)
            by_ripple: dict[str, list[int]] = {}
            for row in connection.execute(query.order_by(t.job.c.job_id.desc()).limit(limits.MEASURED_JOBS)):
                ripples = [row.ripple] if row.ripple else msgspec.json.decode(row.body).get("ripples", [])
                for ripple in ripples:
                    times = by_ripple.setdefault(ripple, [])
                    if len(times) < limits.EXECUTIONS_MEASURED:
                        times.append(row.took_us)
            for ripple, times in by_ripple.items():
                found.setdefault((pond, ripple), max(0, int(median(times))))
    return found


def run_us(connection: Connection, pond: str) -> int | None:
    """The median of the newest runs of a pond, from begin to end without the start of Spark, of those that found Spark
    running if there are any; they are kept longer than their jobs."""
    done = (t.pond_run.c.pond == pond, t.pond_run.c.state == "success")
    took = t.pond_run.c.ended_us - t.pond_run.c.started_us - t.pond_run.c.spark_start_us
    warm = t.pond_run.c.spark_start_us == 0
    for kind in (warm, ~warm):
        query = select(took).where(*done, kind).order_by(t.pond_run.c.run_id.desc()).limit(limits.EXECUTIONS_MEASURED)
        times = [us for (us,) in connection.execute(query)]
        if times:
            return max(0, int(median(times)))
    return None

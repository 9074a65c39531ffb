"""why, runs, logs: what the engine decided, what it ran, and the outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.app.status import RunStatus, run_status
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.catalog.dead_letters import dead_letters_by_engine_run
from headwater.catalog.engine_state import load_engine
from headwater.catalog.history import (
    ID_LENGTH,
    PondRun,
    engine_events,
    outputs_of,
    pond_runs,
    runs_like,
    short_ids,
)
from headwater.catalog.inbox import take
from headwater.catalog.lease import engine_owner
from headwater.catalog.lookup import run_record
from headwater.catalog.queue import Job, jobs, last_error
from headwater.freshness.events import Demand
from headwater.freshness.explain import explain
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import restored

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ID_MARKS = "0123456789abcdefABCDEF-"


@dataclass(frozen=True)
class Why:
    """Why a pipeline runs, waits, is blocked or is idle: the rule that decides, what it compared, and a sentence.
    `origins` are the pipelines whose demand reaches it, with their triggers."""

    pipeline: str
    state: str
    rule: str
    sentence: str
    values: Mapping[str, Any] = field(default_factory=dict)
    origins: tuple[Mapping[str, Any], ...] = ()
    served: bool = False
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Work:
    """One job of a run: an execution of a ripple, or a scan of a source. `landed_run_id` names what it landed."""

    job_id: str
    ripple: str
    kind: str
    state: str
    attempt: int
    holder: str
    queued_at: str
    started_at: str | None
    seconds: float | None
    rows: int
    bytes: int
    landed_run_id: str | None
    error: Mapping[str, Any] | None
    cut: Mapping[str, Any] = field(default_factory=dict)
    spark_start_seconds: float = 0.0
    """How long it waited for Spark to start; not counted in `seconds`."""


@dataclass(frozen=True)
class RippleOutput:
    """The output of a model in an execution: its stdout and stderr, the message of its exception, and the lines of the
    user's files that were running then, the innermost last. Secrets are masked; values of rows may be in it."""

    ripple: str
    output: str
    exception: str
    traceback: str


@dataclass(frozen=True)
class LogLine:
    at: str
    event: str
    what: Mapping[str, Any]


@dataclass(frozen=True)
class RunLog:
    """A run, its jobs in the order in which they were queued, its events, and the output of its models."""

    run: RunStatus
    jobs: tuple[Work, ...]
    lines: tuple[LogLine, ...]
    output: tuple[RippleOutput, ...] = ()


def why(workspace: Workspace, pipeline: str) -> Why:
    """Explains the engine's last decision about a pipeline. Reads only the catalog."""
    workspace.project.pipeline(pipeline)
    never = Why(pipeline, "new", "never-demanded", f"`{pipeline}` has never been demanded")
    store = workspace.existing_store()
    if store is None:
        return never
    with store.catalog.snapshot() as connection:
        saved, owner = load_engine(connection), engine_owner(connection)
        error = last_error(connection, pipeline)
        asked = any(isinstance(each.event, Demand) and each.event.pond == pipeline for each in take(connection))
    served = owner is not None
    if asked and not served:
        sentence = (
            f"`{pipeline}` is demanded, and no server is running: start `headwater serve`, or run `headwater apply`"
        )
        return Why(pipeline, "queued", "not-taken", sentence)
    if pipeline not in saved.ponds:
        return never
    state = restored(compile_pipelines(workspace.project, now_us=now_us()).ponds, saved)
    found = explain(state, pipeline, clock=to_text)
    sentence = found.sentence
    if found.state in ("running", "queued") and not served:
        sentence += "; no server is running: `headwater serve` or `headwater apply` goes on"
    return Why(
        pipeline=pipeline,
        state=found.state,
        rule=found.rule,
        sentence=sentence,
        values=found.values,
        origins=tuple({"pipeline": each.pond, "triggers": list(each.triggers)} for each in found.origins),
        served=served,
        error=error if found.state == "failed" else None,
    )


def runs(
    workspace: Workspace, *, pipeline: str | None = None, limit: int = 50, before: str | None = None
) -> list[RunStatus]:
    """The newest runs of all pipelines, or of one; with `before`, those older than that run."""
    if pipeline is not None:
        workspace.project.pipeline(pipeline)
    store = workspace.existing_store()
    if store is None:
        return []
    with store.catalog.snapshot() as connection:
        if before is not None and 0 < len(before) < ID_LENGTH and before.strip(_ID_MARKS) == "":
            before = _one_run(connection, before).run_id
        found = pond_runs(connection, pond=pipeline, before=before, limit=limit)
        ids = [run.run_id for run in found]
        bad, short = dead_letters_by_engine_run(connection, ids), short_ids(connection, ids)
    return [run_status(run, short[run.run_id], bad.get(run.run_id)) for run in found]


def newest_log(workspace: Workspace, name: str) -> RunLog:
    """The log of a run, or of the newest run of a pipeline: `name` is the id of either. If it could be both, the
    pipeline is meant, even if it is no longer in the manifest."""
    with workspace.landed_store().catalog.snapshot() as connection:
        newest = pond_runs(connection, pond=name, limit=1)
    if newest:
        return run_log(workspace, newest[0].run_id)
    if any(loaded.spec.id == name for loaded in workspace.project.pipelines):
        hint = f"`headwater why {name}` says what it waits for; a scan that found nothing new is not kept"
        raise HeadwaterError("HW-U02", f"no run of `{name}` is kept", hint=hint)
    return run_log(workspace, name)


def run_log(workspace: Workspace, run_id: str) -> RunLog:
    """All that is known of one run. The beginning or the end of its id is enough; if several runs match, raises HW-U02
    with those runs."""
    with workspace.landed_store().catalog.snapshot() as connection:
        run = _one_run(connection, run_id)
        work = sorted(jobs(connection, run_id=run.run_id, limit=None), key=lambda job: job.job_id)
        told = engine_events(connection, run_id=run.run_id)
        bad = dead_letters_by_engine_run(connection, [run.run_id])
        cuts = {job.job_id: _cut(run_record(connection, job.landed_run_id)) for job in work if job.landed_run_id}
        short, said = short_ids(connection, [run.run_id]), outputs_of(connection, run.run_id)
    return RunLog(
        run=run_status(run, short[run.run_id], bad.get(run.run_id)),
        jobs=tuple(_work(job, cuts.get(job.job_id, {})) for job in work),
        lines=tuple(LogLine(to_text(event.at_us), event.kind, event.body) for event in told),
        output=tuple(RippleOutput(ripple, each.output, each.exception, each.traceback) for ripple, each in said),
    )


def _one_run(connection: Connection, run_id: str) -> PondRun:
    """The run with this id, or with an id that begins or ends like this."""
    found = runs_like(connection, run_id, limit=limits.ERRORS_SHOWN + 1)
    if len(found) == 1:
        return found[0]
    if not found:
        raise HeadwaterError(
            "HW-U02",
            f"no run has the id `{run_id[:ID_LENGTH]}`",
            hint="`headwater runs` lists the newest ones; a scan that found nothing new is not kept",
        )
    short = short_ids(connection, [run.run_id for run in found])
    shown = [run_status(run, short[run.run_id]) for run in found[: limits.ERRORS_SHOWN]]
    lines = [f"{run.short_id}  {run.pipeline}  {run.started_at}  {run.state}" for run in shown]
    keys = ("run_id", "short_id", "pipeline", "started_at", "state")
    more = ["and more"] if len(found) > len(shown) else []
    many = f"{len(shown)}" if not more else f"more than {len(shown)}"
    raise HeadwaterError(
        "HW-U02",
        f"{many} runs have an id that begins or ends with `{run_id}`",
        hint="\n".join(["name one of them:", *lines, *more]),
        detail={"runs": [{key: getattr(run, key) for key in keys} for run in shown]},
    )


def _cut(record: Mapping[str, Any]) -> Mapping[str, Any]:
    cut = record.get("cut")
    return json.loads(cut) if isinstance(cut, str) else {}


def _work(job: Job, cut: Mapping[str, Any]) -> Work:
    begun, ended = job.started_us, job.ended_us
    took = max(0, ended - begun - job.spark_start_us) if begun is not None and ended is not None else None
    return Work(
        job_id=job.job_id,
        ripple=job.ripple or ", ".join(str(name) for name in job.body.get("ripples", [])),
        kind=job.kind,
        state=job.state,
        attempt=job.attempt,
        holder=job.holder,
        queued_at=to_text(job.created_us),
        started_at=to_text(begun) if begun is not None else None,
        seconds=took / 1e6 if took is not None else None,
        rows=job.rows,
        bytes=job.bytes,
        landed_run_id=job.landed_run_id,
        error=job.error,
        cut=cut,
        spark_start_seconds=job.spark_start_us / 1e6,
    )

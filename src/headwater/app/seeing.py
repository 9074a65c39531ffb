"""why, runs, logs: what the engine decided, what it did, and how that went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.app.status import RunStatus, run_status
from headwater.app.workspace import Workspace
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.freshness.events import Demand
from headwater.freshness.explain import explain
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import restored
from headwater.store.engine_state import load_engine
from headwater.store.history import ToldEvent, engine_events, pond_run, pond_runs
from headwater.store.inbox import take
from headwater.store.jobs import Job, jobs, last_error
from headwater.store.kept_letters import letters_by_engine_run
from headwater.store.ownership import engine_owner
from headwater.store.reading import run_record


@dataclass(frozen=True)
class Why:
    """Why a pipeline runs, waits, is blocked or is idle: the rule that decides, what it compared, and a sentence.
    `origins` are the pipelines whose demand reaches it, with the triggers that stand on them."""

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
    """One job of a run: an execution of a ripple, or a look at a source. `landed_run_id` names what it landed."""

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


@dataclass(frozen=True)
class LogLine:
    at: str
    event: str
    what: Mapping[str, Any]


@dataclass(frozen=True)
class RunLog:
    """A run, its jobs in the order in which they were queued, and its events."""

    run: RunStatus
    jobs: tuple[Work, ...]
    lines: tuple[LogLine, ...]


def why(workspace: Workspace, pipeline: str) -> Why:
    """Explains the engine's last decision about a pipeline. Reads only the catalog."""
    workspace.project.pipeline(pipeline)
    store = workspace.existing_store()
    if store is None:
        return _never(pipeline)
    with store.catalog.snapshot() as connection:
        saved, owner = load_engine(connection), engine_owner(connection)
        error = last_error(connection, pipeline)
        asked = any(isinstance(each.event, Demand) and each.event.pond == pipeline for each in take(connection))
    served = owner is not None and owner.held
    if asked and not served:
        sentence = f"`{pipeline}` is demanded, and nobody runs the engine: `headwater serve` or `headwater apply` does"
        return Why(pipeline, "queued", "not-taken", sentence)
    if pipeline not in saved.ponds:
        return _never(pipeline)
    state = restored(compile_pipelines(workspace.project, now_us=now_us()), saved)
    found = explain(state, pipeline, clock=to_text)
    sentence = found.sentence
    if found.state in ("running", "queued") and not served:
        sentence += "; nobody runs the engine now: `headwater serve` or `headwater apply` goes on"
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
        found = pond_runs(connection, pond=pipeline, before=before, limit=limit)
        bad = letters_by_engine_run(connection, [run.run_id for run in found])
    return [run_status(run, bad.get(run.run_id)) for run in found]


def run_log(workspace: Workspace, run_id: str) -> RunLog:
    """All that is known of one run; a beginning of its id is enough."""
    store = workspace.landed_store()
    with store.catalog.snapshot() as connection:
        run = pond_run(connection, run_id)
        if run is None:
            raise HeadwaterError(
                "HW-U02",
                f"there is no run `{run_id}`, or several begin so",
                hint="`headwater runs` lists the newest ones; a look that found nothing new is not kept",
            )
        work = sorted(jobs(connection, run_id=run.run_id, limit=None), key=lambda job: job.job_id)
        told = engine_events(connection, run_id=run.run_id)
        bad = letters_by_engine_run(connection, [run.run_id])
        cuts = {job.job_id: _cut(run_record(connection, job.landed_run_id)) for job in work if job.landed_run_id}
    return RunLog(
        run=run_status(run, bad.get(run.run_id)),
        jobs=tuple(_work(job, cuts.get(job.job_id, {})) for job in work),
        lines=tuple(LogLine(to_text(event.at_us), event.kind, event.body) for event in told),
    )


def events(workspace: Workspace, *, after: int, limit: int) -> list[ToldEvent]:
    """What the engine told after that event, oldest first."""
    store = workspace.existing_store()
    if store is None:
        return []
    with store.catalog.snapshot() as connection:
        return engine_events(connection, after=after, limit=limit)


def _never(pipeline: str) -> Why:
    return Why(pipeline, "new", "never-demanded", f"`{pipeline}` has never been demanded")


def _cut(record: Mapping[str, Any]) -> Mapping[str, Any]:
    cut = record.get("cut")
    return json.loads(cut) if isinstance(cut, str) else {}


def _work(job: Job, cut: Mapping[str, Any]) -> Work:
    begun, ended = job.started_us, job.ended_us
    return Work(
        job_id=job.job_id,
        ripple=job.ripple or ", ".join(str(name) for name in job.body.get("ripples", [])),
        kind=job.kind,
        state=job.state,
        attempt=job.attempt,
        holder=job.holder,
        queued_at=to_text(job.created_us),
        started_at=to_text(begun) if begun is not None else None,
        seconds=(ended - begun) / 1e6 if begun is not None and ended is not None else None,
        rows=job.rows,
        bytes=job.bytes,
        landed_run_id=job.landed_run_id,
        error=job.error,
        cut=cut,
    )

"""plan, apply, run: see what is to be done, and do it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.app.refreshing import is_current, refresh
from headwater.app.workspace import Workspace, actor
from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import Source, TransientError
from headwater.manifest.load import LoadedPipeline
from headwater.runtime.apply import Applier, ApplyResult, PipelineJob, PipelineResult
from headwater.runtime.events import Event
from headwater.runtime.inlet import inlet_of
from headwater.runtime.plan import Plan, Planned, failed_plan, plan_inlet, plan_of
from headwater.store.commit import Store
from headwater.store.decisions import refuse_change
from headwater.store.evolution import refusal
from headwater.store.reading import CatalogView, catalog_view


def plan(workspace: Workspace, pipelines: Sequence[str] = ()) -> Plan:
    """What apply would do. Writes nothing, starts no Spark."""
    chosen = workspace.chosen(pipelines)
    store = workspace.existing_store()
    view = CatalogView(seq=0)
    if store is not None:
        with store.catalog.snapshot() as connection:
            view = catalog_view(connection)
    plans = []
    for loaded in chosen:
        job = _plan_job(workspace, loaded, view)
        if isinstance(job, PipelineJob):
            job.source.close()
            plans.append(job.planned.plan)
        else:
            plans.append(failed_plan(loaded.spec.id, job, is_new=loaded.spec.id not in view.last_runs))
    return plan_of(plans)


def apply(
    workspace: Workspace,
    pipelines: Sequence[str] = (),
    *,
    plan_file: Path | None = None,
    trigger: str = "apply",
    on_event: Callable[[Event], None] = lambda _event: None,
    on_plan: Callable[[Plan], None] = lambda _plan: None,
) -> ApplyResult:
    """Bring the store up to the sources of the named pipelines (all, if none is named). With nothing to do nothing
    is written and no Spark starts. `plan_file` is a plan that must still be the plan, else HW-T02."""
    chosen = workspace.chosen(pipelines)
    if not chosen:
        return ApplyResult(())
    store = workspace.store()
    with store.catalog.snapshot() as connection:
        view = catalog_view(connection)
    planned = {loaded.spec.id: _plan_job(workspace, loaded, view) for loaded in chosen}
    jobs = [job for job in planned.values() if isinstance(job, PipelineJob)]
    try:
        whole = plan_of(
            [
                job.planned.plan
                if isinstance(job, PipelineJob)
                else failed_plan(name, job, is_new=name not in view.last_runs)
                for name, job in planned.items()
            ]
        )
        _check_plan(whole, plan_file)
        on_plan(whole)
        results = {
            name: PipelineResult(name, "failed", error=job) if isinstance(job, HeadwaterError) else _refused(store, job)
            for name, job in planned.items()
        }
        due = [job for job in jobs if results[job.pipeline] is None]
        applier = Applier(
            store,
            workspace.spark,
            actor=actor(),
            trigger=trigger,
            cancel=_cancel_spark,
            on_event=on_event,
            threads=_threads(),
        )
        done = {result.pipeline: result for result in applier.apply(due)}
    finally:
        for job in jobs:
            job.source.close()
    if any(result.run_id is not None for result in done.values()) or not is_current(store, view):
        refresh(store)
    return ApplyResult(tuple(results[name] or done[name] for name in planned))


def _plan_job(workspace: Workspace, loaded: LoadedPipeline, view: CatalogView) -> PipelineJob | HeadwaterError:
    """Look at one pipeline's source. What is wrong with it must not keep the others from being looked at."""

    def look(now: CatalogView) -> tuple[Planned, Source]:
        source = workspace.source(loaded)
        try:
            return plan_inlet(inlet_of(loaded.spec, source), source, now), source
        except BaseException:
            source.close()
            raise

    def again() -> tuple[Planned, Source]:
        with workspace.store().catalog.snapshot() as connection:
            return look(catalog_view(connection))

    try:
        planned, source = look(view)
    except TransientError as error:
        return HeadwaterError(
            "HW-C03",
            f"the source of `{loaded.spec.id}` did not answer: {error}",
            hint="run the same command again when it is back",
            retryable=True,
        )
    except HeadwaterError as error:
        return error
    return PipelineJob(loaded.spec.id, again, planned, source)


def _refused(store: Store, job: PipelineJob) -> PipelineResult | None:
    """A pipeline whose schema change is known to need a decision does not start; the change is noted for
    `schema accept`."""
    for table in job.planned.tables:
        if table.evolution is not None and table.evolution.refused:
            ask = table.table.ask
            refuse_change(store, ask.name, table.evolution, mode=ask.mode, actor=actor())
            return PipelineResult(job.pipeline, "failed", error=refusal(ask.name, table.evolution.refused))
    return None


def _check_plan(current: Plan, plan_file: Path | None) -> None:
    if plan_file is None:
        return
    try:
        saved = json.loads(plan_file.read_text())["hash"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadwaterError(
            "HW-U01", f"`{plan_file}` is not a plan", hint="write one with `headwater plan --json > plan.json`"
        ) from error
    if saved != current.hash:
        raise HeadwaterError(
            "HW-T02",
            "the state has moved since the plan was made",
            hint="look at a new plan: `headwater plan`",
            detail={"planned": saved, "now": current.hash},
        )


def _threads() -> int:
    """Landing threads: they mostly wait for Spark, so a few more than cores keep it busy between small slices."""
    return max(2, min(8, len(os.sched_getaffinity(0)) * 2)) if hasattr(os, "sched_getaffinity") else 4


def _cancel_spark() -> None:
    from headwater.spark.session import cancel_jobs

    cancel_jobs()

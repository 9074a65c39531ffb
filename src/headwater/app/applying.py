"""plan, apply, run: see what is to be done, and do it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headwater.app.refreshing import is_current, refresh
from headwater.app.workspace import Workspace, actor
from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import Source, TransientError
from headwater.manifest.load import LoadedPipeline
from headwater.runtime.apply import Applier, ApplyResult, PipelineJob, PipelineResult, no_answer
from headwater.runtime.events import Event
from headwater.runtime.inlet import inlet_of
from headwater.runtime.plan import Plan, Planned, failed_plan, plan_inlet, plan_of
from headwater.store.commit import Store
from headwater.store.reading import CatalogView, catalog_view


def plan(workspace: Workspace, pipelines: Sequence[str] = ()) -> Plan:
    """What apply would do. Writes nothing, starts no Spark."""
    chosen = workspace.chosen(pipelines)
    planned, plan_ = _look(workspace, chosen, _view(workspace.existing_store()))
    _close(planned)
    return plan_


def apply(
    workspace: Workspace,
    pipelines: Sequence[str] = (),
    *,
    plan_file: Path | None = None,
    trigger: str = "apply",
    on_event: Callable[[Event], None] = lambda _event: None,
) -> ApplyResult:
    """Bring the store up to the sources of the named pipelines (all, if none is named). With nothing to do nothing
    is written and no Spark starts. `plan_file` is a plan that must still be the plan, else HW-T02."""
    chosen = workspace.chosen(pipelines)
    view = _view(workspace.existing_store())
    planned, plan_ = _look(workspace, chosen, view)
    try:
        _check_plan(plan_, plan_file)
        failed = {
            name: PipelineResult(name, "failed", error=job)
            for name, job in planned.items()
            if isinstance(job, HeadwaterError)
        }
        jobs = [job for job in planned.values() if isinstance(job, PipelineJob)]
        if not jobs:
            return ApplyResult(tuple(failed.values()))  # no store is made for sources that cannot be read
        store = workspace.store()
        failed |= {job.pipeline: refused for job in jobs if (refused := _refused(store, job)) is not None}
        applier = Applier(
            store,
            workspace.spark,
            actor=actor(),
            trigger=trigger,
            cancel=_cancel_spark,
            on_event=on_event,
            threads=_threads(),
        )
        done = {r.pipeline: r for r in applier.apply([job for job in jobs if job.pipeline not in failed])}
    finally:
        _close(planned)
    if any(result.changed for result in done.values()) or not is_current(store, view.tables):
        refresh(store)
    return ApplyResult(tuple(failed.get(name) or done[name] for name in planned))


def _view(store: Store | None) -> CatalogView:
    if store is None:
        return CatalogView(seq=0)
    with store.catalog.snapshot() as connection:
        return catalog_view(connection)


def _look(
    workspace: Workspace, chosen: Sequence[LoadedPipeline], view: CatalogView
) -> tuple[dict[str, PipelineJob | HeadwaterError], Plan]:
    """Look at every source; what cannot be looked at is an error in its place."""
    planned = {loaded.spec.id: _plan_job(workspace, loaded, view) for loaded in chosen}
    plans = [
        job.planned.plan if isinstance(job, PipelineJob) else failed_plan(name, job, is_new=name not in view.last_runs)
        for name, job in planned.items()
    ]
    return planned, plan_of(plans)


def _close(planned: Mapping[str, PipelineJob | HeadwaterError]) -> None:
    for job in planned.values():
        if isinstance(job, PipelineJob):
            job.source.close()


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
        return no_answer(loaded.spec.id, error, hint="run the same command again when it is back")
    except HeadwaterError as error:
        return error
    return PipelineJob(loaded.spec.id, again, planned, source)


def _refused(store: Store, job: PipelineJob) -> PipelineResult | None:
    """A pipeline whose schema change is known to need a decision does not start; the change is noted for
    `schema accept`."""
    from headwater.store.decisions import refuse_change
    from headwater.store.evolution import refusal

    for table in job.planned.tables:
        if table.evolution is not None and table.evolution.refused:
            ask = table.table.ask
            refuse_change(store, ask.name, table.evolution, mode=ask.mode, actor=actor())
            error = refusal(ask.name, table.evolution.refused, table.table.declared)
            return PipelineResult(job.pipeline, "failed", error=error)
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

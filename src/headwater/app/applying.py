"""plan, apply, run: see what is to be done, and do it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headwater.app.modelling import Models, apply_models, look_at_models, with_sources
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
    view = _view(workspace.existing_store())
    planned, plan_, _ = _look(workspace, chosen, view)
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
    planned, plan_, models = _look(workspace, chosen, view)
    try:
        _check_plan(plan_, plan_file)
        if models is not None:
            return _apply_models(workspace, models, plan_, planned, view, trigger=trigger, on_event=on_event)
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
        applier = _applier(workspace, store, trigger=trigger, on_event=on_event)
        done = {r.pipeline: r for r in applier.apply([job for job in jobs if job.pipeline not in failed])}
    finally:
        _close(planned)
    if any(result.changed for result in done.values()) or not is_current(store, view.tables):
        refresh(store)
    return ApplyResult(tuple(failed.get(name) or done[name] for name in planned))


def _view(store: Store | None) -> CatalogView:
    return CatalogView(seq=0) if store is None else view_now(store)


def _look(
    workspace: Workspace, chosen: Sequence[LoadedPipeline], view: CatalogView
) -> tuple[dict[str, PipelineJob | HeadwaterError], Plan, Models | None]:
    """Look at every source; what cannot be looked at is an error in its place. In a project whose pipelines read
    pipelines, what the chosen ones read is looked at too."""
    reads = any(loaded.spec.sources for loaded in workspace.project.pipelines)
    if reads:
        chosen = with_sources(workspace, chosen)
    inlets = [loaded for loaded in chosen if loaded.spec.is_inlet]
    planned = {loaded.spec.id: _plan_job(workspace, loaded, view) for loaded in inlets}
    plans = [
        job.planned.plan if isinstance(job, PipelineJob) else failed_plan(name, job, is_new=name not in view.last_runs)
        for name, job in planned.items()
    ]
    if not reads:
        return planned, plan_of(plans), None
    try:
        models = look_at_models(workspace, chosen, plans)
    except BaseException:
        _close(planned)
        raise
    return planned, plan_of([*plans, *models.plans(view)]), models


def _apply_models(
    workspace: Workspace,
    models: Models,
    plan_: Plan,
    planned: Mapping[str, PipelineJob | HeadwaterError],
    view: CatalogView,
    *,
    trigger: str,
    on_event: Callable[[Event], None],
) -> ApplyResult:
    """An apply with pipelines that read pipelines. With nothing to do nothing is written and no Spark starts."""
    if not plan_.has_changes and not models.failed:
        return ApplyResult(tuple(PipelineResult(name, "unchanged") for name in models.asked))
    store = workspace.store()
    done = apply_models(
        workspace,
        models,
        applier=_applier(workspace, store, trigger=trigger, on_event=on_event),
        looked={name: _unless_refused(store, job) for name, job in planned.items()},
        look=lambda name: _unless_refused(
            store, _plan_job(workspace, workspace.project.pipeline(name), view_now(store))
        ),
        trigger=trigger,
        threads=_threads(),
        on_event=on_event,
    )
    if any(result.changed for result in done.values()) or not is_current(store, view.tables):
        refresh(store)
    return ApplyResult(tuple(done.values()))


def view_now(store: Store) -> CatalogView:
    """The catalog as it is at this moment."""
    with store.catalog.snapshot() as connection:
        return catalog_view(connection)


def _unless_refused(store: Store, job: PipelineJob | HeadwaterError) -> PipelineJob | HeadwaterError:
    if isinstance(job, PipelineJob):
        refused = _refused(store, job)
        if refused is not None and refused.error is not None:
            job.source.close()
            return refused.error
    return job


def _applier(workspace: Workspace, store: Store, *, trigger: str, on_event: Callable[[Event], None]) -> Applier:
    return Applier(
        store,
        workspace.spark,
        actor=actor(),
        trigger=trigger,
        cancel=_cancel_spark,
        on_event=on_event,
        threads=_threads(),
    )


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

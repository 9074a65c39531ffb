"""plan, apply, run: one list of steps, shown or executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.app.inspect_sources import look_at, unless_refused
from headwater.app.refresh_views import is_current, refresh, refresh_landed
from headwater.app.workspace import Workspace
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.catalog.engine_state import SavedEngine, load_engine
from headwater.catalog.inbox import take
from headwater.catalog.lookup import CatalogView, catalog_view, table_versions
from headwater.manifest.checks import LoadedPipeline
from headwater.runtime.compile import Compiled, compile_pipelines
from headwater.runtime.engine import resolved
from headwater.runtime.open_sources import PipelineJob
from headwater.runtime.plan import Plan, failed_plan
from headwater.runtime.results import (
    ApplyResult,
    Event,
    PipelineResult,
    RunBegan,
    RunFinished,
    SliceBegan,
    SliceEnded,
    SliceRetried,
    Waiting,
)
from headwater.runtime.steps import EngineFacts, inlets_reached, plan_steps

if TYPE_CHECKING:
    from headwater.app.drop_folder import News

__all__ = [
    "ApplyResult",
    "Event",
    "Plan",
    "RunBegan",
    "RunFinished",
    "SliceBegan",
    "SliceEnded",
    "SliceRetried",
    "Waiting",
]

Jobs = Mapping[str, PipelineJob | HeadwaterError]


def plan(workspace: Workspace, pipelines: Sequence[str] = ()) -> Plan:
    """The steps that apply would execute. Writes nothing, starts no Spark."""
    chosen = workspace.chosen(pipelines)
    view = workspace.read(catalog_view) or CatalogView()
    jobs, plan_, _, _ = _look(workspace, chosen, view)
    _close(jobs)
    return plan_


def apply(
    workspace: Workspace,
    pipelines: Sequence[str] = (),
    *,
    plan_file: Path | None = None,
    trigger: str = "apply",
    wait: bool = False,
    on_event: Callable[[Event], None] = lambda _event: None,
    on_dropped: Callable[[News], object] = lambda _news: None,
) -> ApplyResult:
    """Bring the store up to the sources of the named pipelines (all, if none is named). If there is nothing to do,
    nothing is written and no Spark starts. With `plan_file`, raises HW-T02 if the plan in it is no longer the current
    one. Without it, files of the drop folder land first, and `on_dropped` is called for each of them."""
    chosen = workspace.chosen(pipelines)
    if plan_file is None and (workspace.project.root / workspace.project.spec.project.drop).is_dir():
        from headwater.app.drop_folder import take_dropped

        take_dropped(workspace, on_dropped)
    view = workspace.read(catalog_view) or CatalogView()
    jobs, plan_, asked, compiled = _look(workspace, chosen, view)
    try:
        _check_plan(plan_, plan_file)
        # no store is made for sources that cannot be read
        is_unreadable = bool(jobs) and all(isinstance(job, HeadwaterError) for job in jobs.values())
        if not plan_.demand or (is_unreadable and workspace.existing_store() is None):
            before = workspace.existing_store()
            if before is not None and not is_current(before, workspace.project, view.tables):
                refresh(workspace.store(), workspace.project)  # a crash after a commit left them old
            return ApplyResult(tuple(_unchanged(name, jobs) for name in asked))
        from headwater.app.wait import Settling

        store = workspace.store()
        settling = Settling(workspace, compiled, asked, plan_.demand, trigger=trigger, wait=wait, on_event=on_event)
        done = settling.settle({name: unless_refused(store, job) for name, job in jobs.items()})
    finally:
        _close(jobs)
    project = workspace.project
    is_old = any(result.changed for result in done.values()) or not is_current(store, project, view.tables)
    return ApplyResult(tuple(done.values()), refresh_landed(store, project) if is_old else None)


def _unchanged(name: str, jobs: Jobs) -> PipelineResult:
    """The result of a pipeline without work; failed if its source could not be read."""
    job = jobs.get(name)
    if isinstance(job, HeadwaterError):
        return PipelineResult(name, "failed", error=job)
    return PipelineResult(name, "unchanged")


def _look(
    workspace: Workspace, chosen: Sequence[LoadedPipeline], view: CatalogView
) -> tuple[Jobs, Plan, tuple[str, ...], Compiled]:
    """Scan every source, also of the pipelines that the chosen ones read, and make the list of steps. A source that
    cannot be scanned is an error in place of its job. Also returns all pipelines that are asked for."""
    asked = _with_sources(workspace, chosen)
    facts = _facts(workspace)
    reached = {*asked, *inlets_reached(facts, asked)}
    inlets = [each for each in workspace.project.pipelines if each.spec.is_inlet and each.spec.id in reached]
    jobs = {loaded.spec.id: look_at(workspace, loaded, view) for loaded in inlets}
    plans = {
        name: job.planned.plan
        if isinstance(job, PipelineJob)
        else failed_plan(name, job, is_new=name not in view.have_run)
        for name, job in jobs.items()
    }
    return jobs, plan_steps(facts, asked, plans, view), asked, facts.compiled


def _facts(workspace: Workspace) -> EngineFacts:
    now = now_us()
    compiled = compile_pipelines(workspace.project, now_us=now)
    store = workspace.existing_store()
    if store is None:
        return EngineFacts(compiled, SavedEngine(None, {}, 0), now)
    with store.catalog.snapshot() as connection:
        versions = table_versions(connection)
        return EngineFacts(compiled, load_engine(connection), now, resolved(take(connection), versions), versions)


def _with_sources(workspace: Workspace, chosen: Sequence[LoadedPipeline]) -> tuple[str, ...]:
    """The chosen pipelines and everything upstream of them, in the manifest's order."""
    by_id = {loaded.spec.id: loaded.spec for loaded in workspace.project.pipelines}
    queue = [loaded.spec.id for loaded in chosen]
    reached = set(queue)
    for name in queue:
        new = [source.pipeline for source in by_id[name].sources if source.pipeline not in reached]
        reached.update(new)
        queue += new
    workspace.project.refuse_unsupported(queue)
    return tuple(loaded.spec.id for loaded in workspace.project.pipelines if loaded.spec.id in reached)


def _close(jobs: Jobs) -> None:
    for job in jobs.values():
        if isinstance(job, PipelineJob):
            job.source.close()


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
            hint="make a new plan with `headwater plan`",
            detail={"planned": saved, "now": current.hash},
        )

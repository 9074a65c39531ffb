"""plan, apply, run: see what is to be done, and do it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.app.inspect_sources import look_at, unless_refused, view_now
from headwater.app.model_plan import Models, look_at_models, with_sources
from headwater.app.refresh_views import is_current, refresh, refresh_landed
from headwater.app.workspace import Workspace
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.lookup import CatalogView
from headwater.manifest.load import LoadedPipeline
from headwater.runtime.apply_events import Event, RunBegan, RunFinished, SliceBegan, SliceEnded, SliceRetried, Waiting
from headwater.runtime.open_sources import PipelineJob
from headwater.runtime.plan import Plan, failed_plan, plan_of
from headwater.runtime.results import ApplyResult, PipelineResult

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

Planned = Mapping[str, PipelineJob | HeadwaterError]


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
    wait: bool = False,
    on_event: Callable[[Event], None] = lambda _event: None,
    on_dropped: Callable[[News], None] = lambda _news: None,
) -> ApplyResult:
    """Bring the store up to the sources of the named pipelines (all, if none is named). With nothing to do nothing
    is written and no Spark starts. `plan_file` is a plan that must still be the plan, else HW-T02. Without one, what
    is in the drop folder lands first, and `on_dropped` hears of it."""
    chosen = workspace.chosen(pipelines)
    if plan_file is None and (workspace.project.root / workspace.project.spec.project.drop).is_dir():
        from headwater.app.drop_folder import take_dropped

        take_dropped(workspace, on_dropped)
    view = _view(workspace.existing_store())
    planned, plan_, models = _look(workspace, chosen, view)
    try:
        _check_plan(plan_, plan_file)
        if not plan_.has_changes and not models.unfinished:
            _mend_views(workspace, view)
            return ApplyResult(tuple(_unchanged(name, planned) for name in models.asked))
        if (
            workspace.existing_store() is None
            and planned
            and all(isinstance(job, HeadwaterError) for job in planned.values())
        ):  # no store is made for sources that cannot be read
            return ApplyResult(tuple(_unchanged(name, planned) for name in models.asked))
        from headwater.app.wait import Settling

        store = workspace.store()
        settling = Settling(
            workspace, models.compiled(), models.asked, held=models.held, trigger=trigger, wait=wait, on_event=on_event
        )
        done = settling.settle({name: unless_refused(store, job) for name, job in planned.items()})
    finally:
        _close(planned)
    project = workspace.project
    is_old = any(result.changed for result in done.values()) or not is_current(store, project, view.tables)
    return ApplyResult(tuple(done.values()), refresh_landed(store, project) if is_old else None)


def _mend_views(workspace: Workspace, view: CatalogView) -> None:
    """A crash between a commit and its views leaves them old: also an apply with nothing to land makes up for it."""
    store = workspace.existing_store()
    if store is not None and not is_current(store, workspace.project, view.tables):
        refresh(workspace.store(), workspace.project)


def _unchanged(name: str, planned: Planned) -> PipelineResult:
    """What there is to say of a pipeline where nothing can be done: a source may be out of reach."""
    job = planned.get(name)
    if isinstance(job, HeadwaterError):
        return PipelineResult(name, "failed", error=job)
    return PipelineResult(name, "unchanged")


def _view(store: Store | None) -> CatalogView:
    return CatalogView(seq=0) if store is None else view_now(store)


def _look(workspace: Workspace, chosen: Sequence[LoadedPipeline], view: CatalogView) -> tuple[Planned, Plan, Models]:
    """Look at every source, also of what the chosen pipelines read; what cannot be looked at is an error in its
    place."""
    chosen = with_sources(workspace, chosen)
    inlets = [loaded for loaded in chosen if loaded.spec.is_inlet]
    planned = {loaded.spec.id: look_at(workspace, loaded, view) for loaded in inlets}
    plans = [
        job.planned.plan if isinstance(job, PipelineJob) else failed_plan(name, job, is_new=name not in view.last_runs)
        for name, job in planned.items()
    ]
    try:
        models = look_at_models(workspace, chosen, plans)
    except BaseException:
        _close(planned)
        raise
    return planned, plan_of([*plans, *models.plans(view)]), models


def _close(planned: Planned) -> None:
    for job in planned.values():
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
            hint="look at a new plan: `headwater plan`",
            detail={"planned": saved, "now": current.hash},
        )

"""What the engine would do: which ripples of the asked models a pulse would execute, and what it has not finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.app.workspace import Workspace, load
from headwater.base.clock import now_us
from headwater.catalog.engine_state import SavedEngine, load_engine
from headwater.catalog.lookup import CatalogView, table_versions
from headwater.manifest.load import LoadedPipeline, Project
from headwater.runtime.plan import PipelinePlan, TablePlan, model_plan

if TYPE_CHECKING:
    from headwater.runtime.compile import Compiled


@dataclass
class Models:
    """The asked pipelines and what they read, what a pulse would execute of the models among them, and what of them
    the engine holds for failed or has not finished: an apply goes on with that, whatever the sources say."""

    workspace: Workspace
    asked: tuple[str, ...]
    due: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """The models among them that have failed, or are blocked by one that has."""
    _compiled: Compiled | None = None

    def compiled(self) -> Compiled:
        """The project as the engine sees it; made when it is needed, for a command with nothing to do needs none."""
        if self._compiled is None:
            from headwater.runtime.compile import compile_pipelines

            self._compiled = compile_pipelines(self.workspace.project, now_us=now_us())
        return self._compiled

    def plans(self, view: CatalogView) -> list[PipelinePlan]:
        """One plan for each model, in the manifest's order."""
        found = []
        for loaded in self.workspace.project.pipelines:
            name = loaded.spec.id
            if loaded.spec.ripples and name in self.asked:
                due = self.due.get(name, ())
                tables = tuple(
                    TablePlan(
                        table=ripple.name,
                        mode="view" if ripple.kind == "view" else ripple.mode,
                        is_new=ripple.name not in view.tables and ripple.name not in view.views,
                        slices=0,
                        estimated_rows=None,
                        estimated_bytes=None,
                        runs=ripple.name in due,
                    )
                    for ripple in self.compiled().pipelines[name].ripples
                )
                found.append(model_plan(name, tables, is_new=name not in view.last_runs))
        return found


def check_project(start: Path) -> Project:
    """The manifest of the project that `start` is in, and the SQL and Python that its ripples name. Raises all that is
    wrong with them."""
    project = load(start)
    if any(loaded.spec.ripples for loaded in project.pipelines):
        from headwater.runtime.compile import compile_pipelines

        compile_pipelines(project, now_us=now_us())
    return project


def with_sources(workspace: Workspace, chosen: Sequence[LoadedPipeline]) -> list[LoadedPipeline]:
    """The chosen pipelines and everything they read, however far up, in the manifest's order."""
    by_id = {loaded.spec.id: loaded for loaded in workspace.project.pipelines}
    reached = dict.fromkeys(loaded.spec.id for loaded in chosen)
    queue = list(reached)
    for name in queue:
        for source in by_id[name].spec.sources:
            if source.pipeline not in reached:
                reached[source.pipeline] = None
                queue.append(source.pipeline)
    workspace.project.refuse_unsupported(queue)
    return [loaded for loaded in workspace.project.pipelines if loaded.spec.id in reached]


def look_at_models(workspace: Workspace, chosen: Sequence[LoadedPipeline], plans: Sequence[PipelinePlan]) -> Models:
    """What would run, given what was seen of the Inlets. Writes nothing."""
    store = workspace.existing_store()
    saved, versions = SavedEngine(None, {}, 0), dict[str, int]()
    if store is not None:
        with store.catalog.snapshot() as connection:
            saved, versions = load_engine(connection), table_versions(connection)
    models = Models(workspace, tuple(loaded.spec.id for loaded in chosen))
    models.held = tuple(
        loaded.spec.id for loaded in chosen if not loaded.spec.is_inlet and _is_held(saved.ponds.get(loaded.spec.id))
    )
    models.unfinished = tuple(name for name in models.asked if _is_unfinished(saved.ponds.get(name)))
    if any(loaded.spec.ripples for loaded in chosen):
        from headwater.runtime.predict import foresee

        moving = {plan.pipeline for plan in plans if plan.action not in ("nothing", "fail", "refuse")}
        models.due = foresee(models.compiled(), saved, models.asked, moving=moving, versions=versions, now_us=now_us())
    return models


def _is_held(record: Mapping[str, Any] | None) -> bool:
    return record is not None and bool(record["failed"] or record["blocked"])


def _is_unfinished(record: Mapping[str, Any] | None) -> bool:
    """Whether the engine holds a pipeline for failed, or was interrupted at a run of it."""
    if record is None:
        return False
    return bool(record["failed"]) or any(ripple["running"] for ripple in record["ripples"].values())

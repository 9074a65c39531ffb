"""plan and apply where pipelines read pipelines: the engine decides, workers of this process do.

Projects of Inlets alone do not come here: without readers there is nothing for the engine to decide.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.app.workspace import Workspace, actor
from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.types import Type
from headwater.freshness.events import Cleared, Demand
from headwater.freshness.events import Event as Told
from headwater.freshness.explain import explain
from headwater.manifest.load import LoadedPipeline
from headwater.runtime.apply import Applier, PipelineJob, PipelineResult
from headwater.runtime.compile import Compiled, compile_pipelines
from headwater.runtime.definition import declared_columns
from headwater.runtime.drive import Drive
from headwater.runtime.engine import Engine, open_engine
from headwater.runtime.events import Event, Waiting
from headwater.runtime.foresee import foresee
from headwater.runtime.model import project_tables
from headwater.runtime.plan import PipelinePlan, TablePlan, model_plan
from headwater.runtime.worker import Workshop
from headwater.store.commit import Store
from headwater.store.engine_state import SavedEngine, load_engine
from headwater.store.reading import CatalogView, table_versions
from headwater.store.units import new_holder


@dataclass(frozen=True)
class Models:
    """The models among the asked pipelines and what they read, and what a pulse would execute of them."""

    compiled: Compiled
    asked: tuple[str, ...]
    due: Mapping[str, Sequence[str]]
    failed: tuple[str, ...] = ()
    """Those of them that the engine holds for failed: an apply clears them, also if nothing has to run for that."""

    def plans(self, view: CatalogView) -> list[PipelinePlan]:
        """One plan for each model, in the manifest's order."""
        found = []
        for name, pipeline in self.compiled.pipelines.items():
            if pipeline.ripples and name in self.asked:
                due = self.due.get(name, ())
                tables = tuple(
                    TablePlan(
                        table=ripple.name,
                        mode=ripple.mode,
                        is_new=ripple.name not in view.tables,
                        slices=0,
                        estimated_rows=None,
                        estimated_bytes=None,
                        runs=ripple.name in due,
                    )
                    for ripple in pipeline.ripples
                )
                found.append(model_plan(name, tables, is_new=name not in view.last_runs))
        return found


def with_sources(workspace: Workspace, chosen: Sequence[LoadedPipeline]) -> list[LoadedPipeline]:
    """The chosen pipelines and everything they read, however far up, in the manifest's order."""
    by_id = {loaded.spec.id: loaded for loaded in workspace.project.pipelines}
    reached = [loaded.spec.id for loaded in chosen]
    for name in reached:
        reached += [source.pipeline for source in by_id[name].spec.sources if source.pipeline not in reached]
    workspace.project.refuse_unsupported(reached)
    return [loaded for loaded in workspace.project.pipelines if loaded.spec.id in reached]


def look_at_models(workspace: Workspace, chosen: Sequence[LoadedPipeline], plans: Sequence[PipelinePlan]) -> Models:
    """What would run, given what was seen of the Inlets. Writes nothing."""
    compiled = compile_pipelines(workspace.project, now_us=now_us())
    store = workspace.existing_store()
    saved, versions = SavedEngine(None, {}, 0), dict[str, int]()
    if store is not None:
        with store.catalog.snapshot() as connection:
            saved, versions = load_engine(connection), table_versions(connection)
    asked = tuple(loaded.spec.id for loaded in chosen)
    moving = {plan.pipeline for plan in plans if plan.action not in ("nothing", "fail", "refuse")}
    due = foresee(compiled, saved, asked, moving=moving, versions=versions, now_us=now_us())
    failed = tuple(name for name in asked if saved.ponds.get(name, {}).get("failed"))
    return Models(compiled, asked, due, failed)


def apply_models(
    workspace: Workspace,
    models: Models,
    *,
    applier: Applier,
    looked: Mapping[str, PipelineJob | HeadwaterError],
    look: Callable[[str], PipelineJob | HeadwaterError],
    trigger: str,
    threads: int,
    on_event: Callable[[Event], None],
) -> dict[str, PipelineResult]:
    """Clear, pulse, and work until all has settled; the outcome of each asked pipeline."""
    store = workspace.store()
    engine = _own_engine(store, models.compiled, on_event)
    first = dict(looked)
    lock = threading.Lock()

    def look_once(name: str) -> PipelineJob:
        """What was seen before the engine began counts for the first run of an Inlet."""
        with lock:
            seen = first.pop(name, None)
        found = seen if seen is not None else look(name)
        if isinstance(found, HeadwaterError):
            raise found
        return found

    workshop = Workshop(
        store=store,
        compiled=models.compiled,
        root=workspace.project.root,
        spark=workspace.spark,
        look=look_once,
        applier=applier,
        declared=_declared(workspace),
        actor=actor(),
        trigger=trigger,
        on_event=on_event,
    )
    told: list[Told] = [Cleared(name) for name in models.asked]
    told += [Demand(name, "pulse") for name in models.asked]
    try:
        Drive(engine, workshop, threads).until_settled(told)
        return {name: _outcome(engine, name, workshop.results) for name in models.asked}
    finally:
        engine.release()


def _own_engine(store: Store, compiled: Compiled, on_event: Callable[[Event], None]) -> Engine:
    """The engine, once nobody else has it: two applies at once do the work once."""
    holder, told, pause = new_holder(), False, threading.Event()
    while True:
        engine = open_engine(store, compiled, holder=holder)
        if engine is not None:
            return engine
        if not told:
            on_event(Waiting())
            told = True
        pause.wait(limits.POLL_SECONDS)


def _outcome(engine: Engine, name: str, results: Mapping[str, PipelineResult]) -> PipelineResult:
    """What became of a pipeline: what its own jobs say, or why they never began."""
    why = explain(engine.state, name)
    found = results.get(name)
    if found is not None and (found.error is not None or why.state not in ("failed", "blocked")):
        return found
    if why.state in ("failed", "blocked"):
        hint = f"mend `{why.values['because']}`, then run the same command again" if why.state == "blocked" else ""
        return PipelineResult(name, "failed", error=HeadwaterError("HW-R01", why.sentence, hint=hint))
    return PipelineResult(name, "unchanged")


def _declared(workspace: Workspace) -> dict[str, dict[str, Type]]:
    return {
        table: {name: column.type for name, column in declared_columns(made.settings).items()}
        for table, made in project_tables(workspace.project.pipelines).items()
    }

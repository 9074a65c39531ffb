"""What does the work in a process of this project: a look at sources, an applier, a workshop for jobs."""

from __future__ import annotations

import os
from collections.abc import Callable

from headwater.app.workspace import Workspace, actor
from headwater.base.errors import HeadwaterError
from headwater.base.types import Type
from headwater.connectors.protocol import Source, TransientError
from headwater.manifest.load import LoadedPipeline
from headwater.runtime.apply import Applier, PipelineJob, PipelineResult, no_answer
from headwater.runtime.compile import Compiled
from headwater.runtime.definition import declared_columns
from headwater.runtime.events import Event
from headwater.runtime.inlet import inlet_of
from headwater.runtime.model import project_tables
from headwater.runtime.plan import Planned, plan_inlet
from headwater.runtime.worker import Definitions, Look, Workshop
from headwater.store.commit import Store
from headwater.store.jobs import Slots
from headwater.store.reading import CatalogView, catalog_view

OnEvent = Callable[[Event], None]


def view_now(store: Store, loaded: LoadedPipeline | None = None) -> CatalogView:
    """The catalog as it is at this moment: all of it, or what planning needs of one pipeline."""
    tables = None if loaded is None else [table.table for table in loaded.spec.tables]
    with store.catalog.snapshot() as connection:
        return catalog_view(connection, tables=tables)


def look_at(workspace: Workspace, loaded: LoadedPipeline, view: CatalogView) -> PipelineJob | HeadwaterError:
    """Look at one pipeline's source. What is wrong with it must not keep the others from being looked at."""

    def look(now: CatalogView) -> tuple[Planned, Source]:
        source = workspace.source(loaded)
        try:
            return plan_inlet(inlet_of(loaded.spec, source), source, now), source
        except BaseException:
            source.close()
            raise

    def again() -> tuple[Planned, Source]:
        return look(view_now(workspace.store(), loaded))

    try:
        planned, source = look(view)
    except TransientError as error:
        return no_answer(loaded.spec.id, error, hint="run the same command again when it is back")
    except HeadwaterError as error:
        return error
    return PipelineJob(loaded.spec.id, again, planned, source)


def unless_refused(store: Store, job: PipelineJob | HeadwaterError) -> PipelineJob | HeadwaterError:
    """A pipeline whose schema change is known to need a decision does not start; the change is noted for
    `schema accept`."""
    if isinstance(job, PipelineJob):
        refused = _refused(store, job)
        if refused is not None and refused.error is not None:
            job.source.close()
            return refused.error
    return job


def _refused(store: Store, job: PipelineJob) -> PipelineResult | None:
    from headwater.store.decisions import refuse_change
    from headwater.store.evolution import refusal

    for table in job.planned.tables:
        if table.evolution is not None and table.evolution.refused:
            ask = table.table.ask
            refuse_change(store, ask.name, table.evolution, mode=ask.mode, actor=actor())
            error = refusal(ask.name, table.evolution.refused, table.table.declared)
            return PipelineResult(job.pipeline, "failed", error=error)
    return None


def look_patiently(workspace: Workspace) -> Look:
    """Looks at the source of an Inlet as it is now. Raises what keeps it from being looked at."""

    def look(name: str) -> PipelineJob:
        store = workspace.store()
        loaded = workspace.project.pipeline(name)
        found = unless_refused(store, look_at(workspace, loaded, view_now(store, loaded)))
        if isinstance(found, HeadwaterError):
            raise found
        return found

    return look


def definitions_of(workspace: Workspace, compiled: Compiled, look: Look) -> Definitions:
    return Definitions(compiled=compiled, root=workspace.project.root, look=look, declared=_declared(workspace))


def make_workshop(
    workspace: Workspace,
    definitions: Definitions,
    *,
    trigger: str,
    on_event: OnEvent = lambda _event: None,
    slots: Slots | None = None,
) -> Workshop:
    store = workspace.store()
    applier = Applier(
        store,
        workspace.spark,
        actor=actor(),
        trigger=trigger,
        cancel=_cancel_spark,
        on_event=on_event,
        threads=worker_threads(),
    )
    return Workshop(
        store=store,
        definitions=definitions,
        spark=workspace.spark,
        applier=applier,
        actor=actor(),
        trigger=trigger,
        on_event=on_event,
        slots=slots or Slots(),
    )


def worker_threads() -> int:
    """They mostly wait for Spark, so a few more than cores keep it busy between small jobs."""
    return max(2, min(8, len(os.sched_getaffinity(0)) * 2)) if hasattr(os, "sched_getaffinity") else 4


def _cancel_spark() -> None:
    from headwater.spark.session import cancel_jobs

    cancel_jobs()


def _declared(workspace: Workspace) -> dict[str, dict[str, Type]]:
    return {
        table: {name: column.type for name, column in declared_columns(made.settings).items()}
        for table, made in project_tables(workspace.project.pipelines).items()
    }

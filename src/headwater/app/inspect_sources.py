"""Scans the sources of Inlets: what is new in them, and what keeps it from landing."""

from __future__ import annotations

from collections.abc import Callable

from headwater.app.workspace import Workspace, actor
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.lookup import CatalogView, catalog_view
from headwater.connectors.protocol import Source, TransientError
from headwater.manifest.checks import LoadedPipeline
from headwater.runtime.inlet import Inlet, inlet_of
from headwater.runtime.open_sources import PipelineJob
from headwater.runtime.plan import Planned, plan_inlet
from headwater.runtime.results import no_answer


def view_now(store: Store, loaded: LoadedPipeline | None = None) -> CatalogView:
    """The catalog at this moment: all of it, or the part that planning one pipeline needs."""
    tables = None if loaded is None else [table.table for table in loaded.spec.tables]
    with store.catalog.snapshot() as connection:
        return catalog_view(connection, tables=tables)


def look_at(workspace: Workspace, loaded: LoadedPipeline, view: CatalogView) -> PipelineJob | HeadwaterError:
    """Scan one pipeline's source. Returns its error instead of raising it, so that the others are scanned too."""

    def look(now: CatalogView) -> tuple[Planned, Source]:
        source = workspace.source(loaded)
        try:
            return plan_inlet(inlet_of(loaded.spec, source), source, now), source
        except BaseException:
            source.close()
            raise

    def replan() -> tuple[Planned, Source]:
        return look(view_now(workspace.store(), loaded))

    try:
        planned, source = look(view)
    except TransientError as error:
        return no_answer(loaded.spec.id, error, hint="run the same command again when it is back")
    except HeadwaterError as error:
        return error
    return PipelineJob(loaded.spec.id, replan, planned, source)


def unless_refused(store: Store, job: PipelineJob | HeadwaterError) -> PipelineJob | HeadwaterError:
    """The error instead of the job if its schema change needs a decision, which is recorded for `schema accept`."""
    from headwater.catalog.schema_decisions import refuse_change

    if isinstance(job, HeadwaterError):
        return job
    for table in job.planned.tables:
        if table.evolution is not None and table.evolution.refused:
            job.source.close()
            ask, declared = table.table.ask, table.table.declared
            return refuse_change(store, ask.name, table.evolution, mode=ask.mode, actor=actor(), declared=declared)
    return job


def look_patiently(workspace: Workspace) -> Callable[[str], PipelineJob]:
    """A function that scans the source of an Inlet as it is now. It raises the error if the scan fails."""

    def look(name: str) -> PipelineJob:
        store = workspace.store()
        loaded = workspace.project.pipeline(name)
        found = unless_refused(store, look_at(workspace, loaded, view_now(store, loaded)))
        if isinstance(found, HeadwaterError):
            raise found
        return found

    return look


def open_inlet(workspace: Workspace) -> Callable[[str], tuple[Inlet, Source]]:
    """A function that opens the source of an Inlet for its slices, without scanning for new data."""

    def open_(name: str) -> tuple[Inlet, Source]:
        loaded = workspace.project.pipeline(name)
        source = workspace.source(loaded)
        try:
            return inlet_of(loaded.spec, source), source
        except BaseException:
            source.close()
            raise

    return open_

"""Scans the sources of Inlets: what is new in them, and what keeps it from landing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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

T = TypeVar("T")


def view_now(store: Store, loaded: LoadedPipeline) -> CatalogView:
    """The part of the catalog that planning one pipeline needs, at this moment."""
    with store.catalog.snapshot() as connection:
        return catalog_view(connection, pipeline=loaded.spec.id, tables=[table.table for table in loaded.spec.tables])


def look_at(workspace: Workspace, loaded: LoadedPipeline, view: CatalogView) -> PipelineJob | HeadwaterError:
    """Scan one pipeline's source. Returns its error instead of raising it, so that the others are scanned too."""

    def look(now: CatalogView) -> tuple[Planned, Source]:
        return _with_source(workspace, loaded, lambda inlet, source: plan_inlet(inlet, source, now))

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


def scan_now(workspace: Workspace, name: str) -> PipelineJob:
    """Scan the source of an Inlet as it is now. Raises the error if the scan fails."""
    store = workspace.store()
    loaded = workspace.project.pipeline(name)
    found = unless_refused(store, look_at(workspace, loaded, view_now(store, loaded)))
    if isinstance(found, HeadwaterError):
        raise found
    return found


def open_inlet(workspace: Workspace, name: str) -> tuple[Inlet, Source]:
    """Open the source of an Inlet for its slices, without scanning for new data."""
    return _with_source(workspace, workspace.project.pipeline(name), lambda inlet, _source: inlet)


def _with_source(workspace: Workspace, loaded: LoadedPipeline, find: Callable[[Inlet, Source], T]) -> tuple[T, Source]:
    """What is found of an Inlet, and its open source. If that fails, the source is closed."""
    source = workspace.source(loaded)
    try:
        return find(inlet_of(loaded.spec, source), source), source
    except BaseException:
        source.close()
        raise

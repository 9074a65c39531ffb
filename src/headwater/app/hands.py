"""What does the work in a process of this project: an applier for slices, a workshop for jobs."""

from __future__ import annotations

import os
from collections.abc import Callable

from headwater.app.workspace import Workspace, actor
from headwater.base.types import Type
from headwater.ingest.first_columns import first_columns
from headwater.runtime.apply import Applier
from headwater.runtime.compile import Compiled
from headwater.runtime.definition import declared_columns
from headwater.runtime.events import Event
from headwater.runtime.model import MadeTable, project_tables
from headwater.runtime.worker import Definitions, Look, Workshop
from headwater.store.jobs import Slots

OnEvent = Callable[[Event], None]


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
    return {table: _columns(table, made) for table, made in project_tables(workspace.project.pipelines).items()}


def _columns(table: str, made: MadeTable) -> dict[str, Type]:
    """The columns that the manifest declares, and those that a pushed table has from its first row on."""
    declared = {name: column.type for name, column in declared_columns(made.settings).items()}
    if not made.pipeline.spec.is_pushed:
        return declared
    return first_columns(table, declared, made.settings.primary_key)

"""Makes the worker for the jobs of a project, and its definitions."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from headwater.app.declared_tables import columns_by_table
from headwater.app.inspect_sources import open_inlet
from headwater.app.workspace import Workspace, actor
from headwater.catalog.queue import Slots
from headwater.manifest.references import mask_of, secret_values
from headwater.runtime.compile import Compiled
from headwater.runtime.execution import measuring
from headwater.runtime.inlet_jobs import InletJobs, ScanSource
from headwater.runtime.results import Event
from headwater.runtime.user_output import Mask
from headwater.runtime.worker import Definitions, Worker

OnEvent = Callable[[Event], None]


def definitions_of(workspace: Workspace, compiled: Compiled, scan: ScanSource) -> Definitions:
    project = workspace.project

    def mask() -> Mask:
        return mask_of(secret_values([loaded.spec for loaded in project.pipelines], os.environ, project.root))

    open_, declared = partial(open_inlet, workspace), columns_by_table(workspace)
    return Definitions(compiled=compiled, root=project.root, scan=scan, open=open_, declared=declared, mask=mask)


def make_worker(
    workspace: Workspace,
    definitions: Definitions,
    *,
    trigger: str,
    on_event: OnEvent = lambda _event: None,
    slots: Slots | None = None,
) -> Worker:
    store, spark = workspace.store(), measuring(workspace.spark)
    return Worker(
        store=store,
        definitions=definitions,
        spark=spark,
        inlets=InletJobs(store, spark, actor=actor(), trigger=trigger, on_event=on_event),
        actor=actor(),
        trigger=trigger,
        cancel=_cancel_spark,
        on_event=on_event,
        slots=slots or Slots(),
    )


def worker_threads() -> int:
    """A few more threads than cores: they mostly wait for Spark, and keep it busy between small jobs."""
    return max(2, min(8, len(os.sched_getaffinity(0)) * 2)) if hasattr(os, "sched_getaffinity") else 4


def _cancel_spark() -> None:
    from headwater.spark.session import cancel_jobs

    cancel_jobs()

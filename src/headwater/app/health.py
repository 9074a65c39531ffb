"""health and metrics: whether the server works, and its current figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.app.status import status
from headwater.app.workspace import Workspace
from headwater.base.errors import HeadwaterError
from headwater.catalog.lease import engine_owner
from headwater.catalog.queue import QueueDepth, queue_depth

NO_QUEUE = QueueDepth({}, {}, 0)


@dataclass(frozen=True)
class Health:
    """`healthy` if the catalog answers and a process runs the engine; otherwise `problem` says what is wrong."""

    healthy: bool
    project: str
    catalog: Literal["answers", "away", "missing"]
    engine: Literal["owned", "idle", "unknown"]
    problem: str | None = None


@dataclass(frozen=True)
class Gauges:
    """What can be measured now. A pipeline that never ran has no staleness."""

    staleness_seconds: Mapping[str, float]
    pipelines: Mapping[str, int]
    """The number of pipelines in each state."""
    queue: QueueDepth
    engine_owned: bool


def health(workspace: Workspace) -> Health:
    """Never raises if the catalog is unreachable: that is an answer too."""
    name = workspace.project.name
    try:
        owned = workspace.read(lambda connection: engine_owner(connection) is not None)
    except HeadwaterError as error:
        return Health(False, name, "away", "unknown", error.message)
    if owned is None:
        return Health(False, name, "missing", "unknown", "there is no store yet")
    if not owned:
        return Health(False, name, "answers", "idle", "no process runs the engine")
    return Health(True, name, "answers", "owned")


def gauges(workspace: Workspace) -> Gauges:
    """Reads only the catalog."""
    pipelines = status(workspace)
    found = workspace.read(lambda connection: (queue_depth(connection), engine_owner(connection)))
    queue, owner = found or (NO_QUEUE, None)
    return Gauges(
        staleness_seconds={p.pipeline: p.staleness_seconds for p in pipelines if p.staleness_seconds is not None},
        pipelines=dict(sorted(Counter(p.state for p in pipelines).items())),
        queue=queue,
        engine_owned=owner is not None,
    )

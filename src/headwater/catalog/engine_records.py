"""What the engine's home in the catalog holds, as values: events, jobs, ownership, and one step of the engine.

None of it is in the log. A commit may carry some of it (see `records.Commit`), and the transaction writes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.base.ids import uuid7
from headwater.catalog.lease import Lease

Weight = Literal["small", "big"]
"""How long a job is likely to hold its worker; see `jobs.Slots`."""

JobState = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""`waiting`: the job has planned a run, whose slices are jobs; the last of them ends it."""

INLET_JOB = "inlet"
RIPPLE_JOB = "ripple"
SLICE_JOB = "slice"


@dataclass(frozen=True, kw_only=True)
class InboxEvent:
    """Something the engine is to know. `kind` and `body` are what `inbox.event_of` makes an event of the engine from;
    `ids` (a run, a job, a request) go along for the process that takes it."""

    kind: str
    body: Mapping[str, Any]
    actor: str
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a job is to do. `body` is a JSON object that only the worker understands; `freshness_us` and `ripple` are
    0 and empty for work that no run asked for."""

    kind: str
    pond: str
    ripple: str = ""
    freshness_us: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    weight: Weight = "small"
    run_id: str | None = None
    trace_id: str | None = None
    job_id: str = field(default_factory=uuid7)


@dataclass(frozen=True, kw_only=True)
class NewJob(JobSpec):
    """Work for the queue."""

    holder: str | None = None
    """The worker that has it from the start; None: it waits in the queue."""


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """What user code said in a job: what it wrote to stdout and stderr, what its exception said, and which lines of
    the user's files were at work then. It may hold values of rows, so it is kept in the catalog and not in the log."""

    output: str = ""
    exception: str = ""
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a job ended, and the lease under which it did: if that was lost it has not ended. `changed`: a table is no
    longer what it was. `spark_start_us` is how long the job waited for Spark to start."""

    held: Lease
    state: Literal["done", "failed", "waiting"]
    rows: int = 0
    bytes: int = 0
    error: Mapping[str, Any] | None = None
    landed_run_id: str | None = None
    """The run whose record says what has landed."""
    changed: bool = True
    spark_start_us: int = 0
    output: JobOutput | None = None
    trace_id: str | None = None
    """Of a job that waits: what the spans of its slices are children of."""
    joined: bool = False
    """It waits for a run that was planned before the job began: then the source has to be looked at once more."""


RunState = Literal["running", "success", "failed", "superseded", "cancelled"]
"""Of a pond run. One that passed, or that looked at a source and found nothing new, is not kept."""


@dataclass(frozen=True, kw_only=True)
class RunBegins:
    """A pond run. `cause` is what asked for it (`apply`, `pulse`, the id of a trigger), `actor` the user or program."""

    run_id: str
    pond: str
    freshness_us: int
    cause: str
    actor: str
    trace_id: str | None = None


@dataclass(frozen=True)
class RunEnds:
    """How a pond run ended. None: nothing was new, and it is forgotten. `requested`: a single request asked for it."""

    run_id: str
    state: RunState | None
    pond: str = ""
    requested: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineEvent:
    """Something that people and programs may want to hear of, as it happens."""

    kind: str
    pond: str = ""
    run_id: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step of the engine changes: all of it is stored, or nothing."""

    owner: Lease
    """One without an epoch: the step claims the engine. It is refused (HW-T02) if the state is not that of `follows`."""
    header: Mapping[str, Any]
    ponds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The new records of the ponds that the step touched."""
    removed: tuple[str, ...] = ()
    """Ponds that are no longer there."""
    consumed: tuple[int, ...] = ()
    """The ids of the events that the step took from the inbox."""
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """For events whose sender waits to hear more than that they were taken, by id."""
    new_jobs: tuple[NewJob, ...] = ()
    cancelled: tuple[str, ...] = ()
    """The ids of jobs that are not needed any more."""
    begun: tuple[RunBegins, ...] = ()
    ended: tuple[RunEnds, ...] = ()
    told: tuple[EngineEvent, ...] = ()
    follows: int = 0
    """The number of the step that this one was decided on; only for a step that claims the engine."""
    leaves: bool = False
    """Release the engine with this step, if no job is open after it and no event waits."""
    logged: int | None = None
    """Up to where the log is whole: noted when the engine is released."""

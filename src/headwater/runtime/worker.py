"""Workers: take jobs from the queue, do them, and report to the engine in the commit that lands the result.

A job whose worker dies is taken over and done again; what had landed is found, what had not has left no trace. A job
that fails reports to the engine, which decides about retries; only failures outside of the work (Spark went away, the
lease was lost) are left to the queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from headwater.base import limits
from headwater.base.errors import CatalogUnreachable, HeadwaterError, LeaseLost, as_headwater
from headwater.base.ids import uuid7
from headwater.base.types import Type
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import SLICE_JOB, JobEnd, Weight
from headwater.catalog.lookup import last_success
from headwater.catalog.queue import JobLease, Slots, claim_job, finish_job, release_job
from headwater.connectors.protocol import Source, TransientError
from headwater.freshness.events import Completed, Failed
from headwater.runtime.compile import Compiled
from headwater.runtime.cut_inputs import CutInput
from headwater.runtime.execution import Execution
from headwater.runtime.inlet import Inlet
from headwater.runtime.inlet_jobs import InletJobs, OpenInlet, ScanSource, job_events
from headwater.runtime.land_ripple import (
    Closing,
    LandedRipple,
    RippleOutcome,
    RippleTable,
    RippleWork,
    land_ripple,
    one_ripple_run,
)
from headwater.runtime.land_view import land_view
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.model import ModelRipple
from headwater.runtime.reserved_jobs import ReservedJobs
from headwater.runtime.results import Event, PipelineResult, RunBegan, RunFinished
from headwater.runtime.user_output import Mask

if TYPE_CHECKING:
    from headwater.spark.job_control import Control
    from headwater.spark.user_code import Code
    from headwater.spark.write_frame import SparkSession


ALL: tuple[Weight, ...] = ("small", "big")


@dataclass(frozen=True)
class Definitions:
    """What workers need of the manifest. `root` is the project's directory, to which Python files are relative;
    `declared` are the declared columns of every table of the project."""

    compiled: Compiled
    root: Path
    scan: ScanSource
    open: OpenInlet
    declared: Mapping[str, Mapping[str, Type]]
    mask: Callable[[], Mask] = lambda: str
    """Makes the function that hides the project's current secrets in a text."""


@dataclass
class Worker:
    """What jobs need: the store, Spark, the definitions. Results are kept for the caller that waits for them."""

    store: Store
    definitions: Definitions
    """Replaced as a whole when the manifest changes."""
    spark: Callable[[], SparkSession]
    inlets: InletJobs
    actor: str
    trigger: str
    cancel: Callable[[], None] = lambda: None
    """Cancels the current work of Spark."""
    on_event: Callable[[Event], None] = lambda _event: None
    slots: Slots = field(default_factory=Slots)
    results: dict[str, dict[str, PipelineResult]] = field(default_factory=dict)
    """By pipeline and ripple; an Inlet has one for all its tables."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    reload: Callable[[], None] = lambda: None
    """Reads the manifest again, for a job of a newer one."""

    def work(
        self, holder: str, keeper: LeaseKeeper, weights: Collection[Weight] = ALL, reserved: ReservedJobs | None = None
    ) -> bool:
        """Do one job, if there is one. An unforeseen error fails the job: it would come again."""
        lease = reserved.take(weights) if reserved is not None else None
        if lease is None:
            lease = claim_job(self.store.catalog, holder=holder, slots=self.slots, weights=weights)
        found = lease is not None
        while lease is not None:
            lease = self._work_on(lease, holder, keeper)
        return found

    def _work_on(self, lease: JobLease, holder: str, keeper: LeaseKeeper) -> JobLease | None:
        """Do one claimed job to its end. Returns the job that its commit claimed for this worker, if any."""
        controls: list[Control] = []

        def lose() -> None:
            for control in controls:
                control.lose()

        with keeper.keep(lease, lose):
            try:
                if self.inlets.stopping.is_set():
                    self._give_back(lease)
                    return None
                return self._do(lease, controls.append, holder)
            except LeaseLost:
                return None  # another worker has it, or it was cancelled
            except HeadwaterError:
                self._give_back(lease)
                if self.inlets.stopping.is_set():
                    return None
                raise
            except BaseException as error:
                if not isinstance(error, Exception) or self.inlets.stopping.is_set():
                    self._give_back(lease)
                    raise
                self._fail(lease, as_headwater(error))
                return None

    def _give_back(self, lease: JobLease) -> None:
        """Return the job to the queue at once. If the catalog is unreachable, wait for it: other workers would not know
        before the lease expires."""
        while True:
            try:
                release_job(self.store.catalog, lease)
            except CatalogUnreachable:
                if self.inlets.stopping.wait(limits.WAKE_RETRY_SECONDS):
                    raise
            else:
                return

    def _do(self, lease: JobLease, on_control: Callable[[Control], None], holder: str) -> JobLease | None:
        match lease.kind:
            case "inlet":
                # A worker continues with a job that its commit queues, unless slots limit the running jobs.
                claims = None if self.slots.bound else holder
                result, claimed = self.inlets.plan(lease, self.definitions.scan, holder=claims)
                self._keep(result)
                return claimed
            case "slice":
                self._keep(self.inlets.land(lease, self._open))
            case "ripple":
                self._run_ripple(lease, on_control)
            case kind:
                raise AssertionError(f"there is no job of the kind {kind}")
        return None

    def _open(self, pipeline: str) -> tuple[Inlet, Source]:
        if pipeline not in self.definitions.compiled.pipelines:
            self.reload()
        return self.definitions.open(pipeline)

    def _run_ripple(self, lease: JobLease, on_control: Callable[[Control], None]) -> None:
        """Run one ripple of a model. Its one commit lands the rows, ends the job and notifies the engine."""
        ripple = self._ripple(lease)
        if ripple is None:
            self._give_back(lease)
            self.inlets.stopping.wait(limits.WAKE_RETRY_SECONDS)
            return
        execution = Execution(self.definitions.mask())
        work = replace(self._work(lease, ripple, execution), on_control=on_control)
        self.on_event(RunBegan(lease.pond, 1))
        try:
            with execution.noted():
                landed = self._land_patiently(work, ripple)
        except (LeaseLost, CatalogUnreachable):
            raise
        except HeadwaterError as error:
            if self.inlets.stopping.is_set():
                self._give_back(lease)  # a cancelled job has not failed
                return
            self._fail_ripple(lease, error, execution, work.ripple.code)
            self.on_event(RunFinished(lease.pond))
            return
        self._keep(_result(lease, work, landed, execution), lease.ripple)
        self.on_event(RunFinished(lease.pond))

    def _ripple(self, lease: JobLease) -> ModelRipple | None:
        """The definition that the job is for. None if neither these definitions nor the current manifest have it: then
        the engine will see the change and cancel the job, or a worker with that definition takes it."""
        for is_reloaded in (False, True):
            if is_reloaded:
                self.reload()
            pipeline = self.definitions.compiled.pipelines.get(lease.pond)
            for ripple in pipeline.ripples if pipeline is not None else ():
                if ripple.name == lease.ripple and lease.body.get("definition") in (None, ripple.fingerprint):
                    return ripple
        return None

    def _fail(self, lease: JobLease, error: HeadwaterError, end: JobEnd | None = None) -> None:
        """End a job as failed, and report it to the engine."""
        if lease.kind == SLICE_JOB:
            self._keep(self.inlets.fail(lease, error))
            return
        self._keep(PipelineResult(lease.pond, "failed", error=error), lease.ripple)
        events = job_events(lease, Failed, self.actor)
        finish_job(self.store.catalog, end or lease.failed(error.as_json()), events=events)

    def _fail_ripple(self, lease: JobLease, error: HeadwaterError, execution: Execution, code: Code) -> None:
        """The same for user code: the message of its exception is kept, and the error says where it is."""
        end = execution.failed(lease.failed({}), error, code)
        if end.output is not None and end.output.exception and not error.hint:
            error.hint = f"`headwater logs {lease.pond}` shows what it said"
        self._fail(lease, error, replace(end, error=error.as_json()))

    def _land_patiently(self, work: RippleWork, ripple: ModelRipple) -> LandedRipple:
        """Retry if Spark went away: a new one will have been started."""
        recorded = one_ripple_run(work, trigger=self.trigger, definition=ripple.fingerprint)
        for tries in range(limits.SOURCE_RETRIES + 1):
            try:
                return land_view(recorded) if ripple.kind == "view" else land_ripple(recorded)
            except TransientError as error:
                if tries == limits.SOURCE_RETRIES:
                    raise HeadwaterError(
                        "HW-J03", f"`{ripple.name}` could not be run: {error}", retryable=True
                    ) from error
        raise AssertionError("the last try returns or raises")

    def _work(self, lease: JobLease, ripple: ModelRipple, execution: Execution) -> RippleWork:
        reads: Mapping[str, int | None] = lease.body["reads"]
        with self.store.catalog.snapshot() as connection:
            before = last_success(connection, lease.pond, ripple.name)
        since: Mapping[str, int | None] = before.cut if before is not None else {}
        inputs = tuple(
            CutInput(
                table=each.table,
                as_of_seq=reads.get(each.table) or None,
                since_seq=since.get(each.table),
                declared=self.definitions.declared.get(each.table, {}),
            )
            for each in ripple.inputs
        )

        run_id = uuid7()

        def closing(outcome: RippleOutcome) -> Closing:
            end = lease.done(rows=outcome.rows, bytes=outcome.bytes, landed_run_id=run_id)
            end = replace(execution.ended(end), changed=outcome.changed)
            return Closing(events=tuple(job_events(lease, Completed, self.actor)), ends=end)

        return RippleWork(
            store=self.store,
            spark=self.spark,
            ripple=RippleTable(
                pipeline=lease.pond,
                table=ripple.name,
                code=self._code(ripple),
                mode=ripple.mode,
                primary_key=ripple.primary_key,
                declared=ripple.columns,
            ),
            inputs=inputs,
            run_id=run_id,
            job_id=lease.job_id,
            attempt=lease.attempt,
            freshness_us=lease.freshness_us,
            previous_freshness_us=before.freshness_us if before is not None else None,
            timeout_seconds=ripple.timeout_seconds,
            actor=self.actor,
            requires=(lease.fence,),
            closing=closing,
            trace=lease.trace_id,
        )

    def _code(self, ripple: ModelRipple) -> Code:
        from headwater.spark.user_code import PythonCode, SqlCode

        match ripple.kind:
            case "sql" | "view":
                return SqlCode(ripple.text, ripple.position)
            case "python":
                assert ripple.function is not None
                return PythonCode(self.definitions.root / ripple.file, ripple.function, ripple.file)
            case _:
                assert_never(ripple.kind)

    def result_of(self, pipeline: str) -> PipelineResult | None:
        """All results of a pipeline as one; None if there are none."""
        with self.lock:
            found = list(self.results.get(pipeline, {}).values())
        return _together(found) if found else None

    def _keep(self, result: PipelineResult | None, ripple: str = "") -> None:
        if result is None:
            return
        with self.lock:
            of_pipeline = self.results.setdefault(result.pipeline, {})
            of_pipeline[ripple] = _merged(of_pipeline.get(ripple), result)


def _result(lease: JobLease, work: RippleWork, landed: LandedRipple, execution: Execution) -> PipelineResult:
    """A result equal to what the table held already is no change, although it was computed."""
    result = PipelineResult(lease.pond, "unchanged", seconds=execution.seconds)
    if not landed.changed:
        return result
    return replace(result, state="success", run_id=work.run_id, rows=landed.rows, bytes=landed.bytes, slices=1)


def _merged(earlier: PipelineResult | None, later: PipelineResult) -> PipelineResult:
    """Several runs of a ripple as one result; a successful retry replaces a failure."""
    if earlier is None or earlier.state == "failed":
        return later
    if later.state == "unchanged" and earlier.state != "unchanged":
        earlier, later = later, earlier
    return later.following(earlier)


def _together(results: Sequence[PipelineResult]) -> PipelineResult:
    """Several ripples as one result: failed if one of them is, and unchanged if all are."""
    leading = max(results, key=lambda each: (each.error is not None, each.state != "unchanged"))
    others = (each for each in results if each is not leading)
    return reduce(PipelineResult.following, others, leading)

"""Workers: take jobs from the queue, do them, and tell the engine in the commit that lands the result.

A job whose worker dies is taken over and done again; what had landed is found, what had not has left no trace. A job
that fails tells the engine, which decides about retries; only trouble that is not the work's own (Spark went away, the
lease was lost) is left to the queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.types import Type
from headwater.connectors.protocol import TransientError
from headwater.freshness.events import Completed, Failed
from headwater.runtime.apply import Applier, PipelineJob, PipelineResult, no_answer
from headwater.runtime.compile import Compiled
from headwater.runtime.engine import INLET_JOB, RIPPLE_JOB
from headwater.runtime.events import Event, RunBegan, RunEnded
from headwater.runtime.land_ripple import (
    Closing,
    LandedRipple,
    Ripple,
    RippleInput,
    RippleOutcome,
    RippleWork,
    land_ripple,
    one_ripple_run,
)
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.model import ModelRipple
from headwater.store.commit import Store
from headwater.store.engine_records import InboxEvent
from headwater.store.inbox import message
from headwater.store.jobs import JobLease, Slots, claim_job, finish_job, release_job
from headwater.store.reading import last_success

if TYPE_CHECKING:
    from headwater.spark.user_code import Code
    from headwater.spark.write_frame import SparkSession

Look = Callable[[str], PipelineJob]
"""Looks at the source of an Inlet. Raises HeadwaterError if it cannot be looked at."""


@dataclass
class Workshop:
    """What jobs need: the store, Spark, the definitions, a way to look at sources. Results are kept by pipeline."""

    store: Store
    compiled: Compiled
    root: Path
    """Of the project: Python files are relative to it."""
    spark: Callable[[], SparkSession]
    look: Look
    applier: Applier
    declared: Mapping[str, Mapping[str, Type]]
    """The declared columns of every table of the project."""
    actor: str
    trigger: str
    on_event: Callable[[Event], None] = lambda _event: None
    slots: Slots = field(default_factory=Slots)
    results: dict[str, PipelineResult] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, holder: str, keeper: LeaseKeeper) -> bool:
        """Does one job, if there is one to do."""
        lease = claim_job(self.store.catalog, holder=holder, slots=self.slots)
        if lease is None:
            return False
        with keeper.keep(lease):
            try:
                self._do(lease)
            except HeadwaterError as error:
                if error.code != "HW-T03":  # else another worker has it, or nobody wants it any more
                    raise
            except BaseException:
                release_job(self.store.catalog, lease)
                raise
        return True

    def _do(self, lease: JobLease) -> None:
        match lease.kind:
            case "inlet":
                self._land_inlet(lease)
            case "ripple":
                self._run_ripple(lease)
            case kind:
                raise AssertionError(f"{kind} is neither {INLET_JOB} nor {RIPPLE_JOB}")

    def _land_inlet(self, lease: JobLease) -> None:
        """All tables of an Inlet, by slices. Whatever a lost worker had landed of them is not landed again."""
        try:
            job = self.look(lease.pond)
            try:
                (result,) = self.applier.apply([job])
            finally:
                job.source.close()
        except TransientError as error:
            result = PipelineResult(lease.pond, "failed", error=no_answer(lease.pond, error))
        except HeadwaterError as error:
            result = PipelineResult(lease.pond, "failed", error=error)
        self._keep(result)
        ripples = [str(name) for name in lease.body["ripples"]]
        events: list[Completed | Failed]
        if result.error is None:
            events = [Completed(lease.pond, name, lease.freshness_us, True, 0) for name in ripples]
            end = lease.done(rows=result.rows, bytes=result.bytes)
        else:
            events = [Failed(lease.pond, name, lease.freshness_us) for name in ripples]
            end = lease.failed(result.error.as_json())
        finish_job(self.store.catalog, end, events=[self._message(event, lease) for event in events])

    def _run_ripple(self, lease: JobLease) -> None:
        """One ripple of a model. Its commit lands the rows, ends the job and tells the engine, or does nothing."""
        ripple = next(each for each in self.compiled.pipelines[lease.pond].ripples if each.name == lease.ripple)
        work = self._work(lease, ripple)
        self.on_event(RunBegan(lease.pond, work.run_id, 1))
        try:
            landed = self._land_patiently(work, ripple)
        except HeadwaterError as error:
            if error.code == "HW-T03":
                raise
            self._keep(PipelineResult(lease.pond, "failed", run_id=work.run_id, error=error))
            failed = self._message(Failed(lease.pond, lease.ripple, lease.freshness_us), lease)
            finish_job(self.store.catalog, lease.failed(error.as_json()), events=[failed])
            self.on_event(RunEnded(lease.pond, work.run_id, "failed"))
            return
        self._keep(_result(lease, work, landed))
        self.on_event(RunEnded(lease.pond, work.run_id, "success"))

    def _land_patiently(self, work: RippleWork, ripple: ModelRipple) -> LandedRipple:
        """A Spark that went away is asked again: a new one will have been started."""
        recorded = one_ripple_run(work, trigger=self.trigger, definition=ripple.fingerprint)
        for tries in range(limits.SOURCE_RETRIES + 1):
            try:
                return land_ripple(recorded)
            except TransientError as error:
                if tries == limits.SOURCE_RETRIES:
                    raise HeadwaterError(
                        "HW-J03", f"`{ripple.name}` could not be run: {error}", retryable=True
                    ) from error
        raise AssertionError("the last try returns or raises")

    def _work(self, lease: JobLease, ripple: ModelRipple) -> RippleWork:
        reads: Mapping[str, int | None] = lease.body["reads"]
        with self.store.catalog.snapshot() as connection:
            before = last_success(connection, lease.pond, ripple.name)
        since: Mapping[str, int | None] = before.cut if before is not None else {}
        inputs = tuple(
            RippleInput(
                table=each.table,
                as_of_seq=reads.get(each.table) or None,
                since_seq=since.get(each.table),
                declared=self.declared.get(each.table, {}),
            )
            for each in ripple.inputs
        )

        def closing(outcome: RippleOutcome) -> Closing:
            done = Completed(lease.pond, ripple.name, lease.freshness_us, outcome.changed, 0)
            end = lease.done(rows=outcome.rows, bytes=outcome.bytes)
            return Closing(events=(self._message(done, lease),), ends=end)

        return RippleWork(
            store=self.store,
            spark=self.spark,
            ripple=Ripple(
                pipeline=lease.pond,
                table=ripple.name,
                code=self._code(ripple),
                mode=ripple.mode,
                primary_key=ripple.primary_key,
                declared=ripple.columns,
            ),
            inputs=inputs,
            run_id=uuid7(),
            job_id=lease.job_id,
            attempt=lease.attempt,
            freshness_us=lease.freshness_us,
            previous_freshness_us=before.freshness_us if before is not None else None,
            actor=self.actor,
            requires=(lease.fence,),
            closing=closing,
        )

    def _code(self, ripple: ModelRipple) -> Code:
        from headwater.spark.user_code import PythonCode, SqlCode

        match ripple.kind:
            case "sql":
                return SqlCode(ripple.text, ripple.place)
            case "python":
                assert ripple.function is not None
                return PythonCode(self.root / ripple.file, ripple.function, ripple.file)
            case "view":
                raise AssertionError("a view is no job")
            case _:
                assert_never(ripple.kind)

    def _message(self, event: Completed | Failed, lease: JobLease) -> InboxEvent:
        return message(event, actor=self.actor, ids={"job": lease.job_id})

    def _keep(self, result: PipelineResult) -> None:
        with self.lock:
            self.results[result.pipeline] = _merged(self.results.get(result.pipeline), result)


def _result(lease: JobLease, work: RippleWork, landed: LandedRipple) -> PipelineResult:
    """A result that is what the table held already is no change, although it was computed."""
    if not landed.changed:
        return PipelineResult(lease.pond, "unchanged")
    return PipelineResult(lease.pond, "success", run_id=work.run_id, rows=landed.rows, bytes=landed.bytes, slices=1)


def _merged(earlier: PipelineResult | None, later: PipelineResult) -> PipelineResult:
    """Several ripples, or several runs, of a pipeline as one answer; a retry that went well makes up for a failure."""
    if earlier is None or earlier.state in ("failed", "unchanged"):
        return later
    if later.state == "unchanged":
        return earlier
    return later.following(earlier)

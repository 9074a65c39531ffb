"""The jobs of an Inlet: one scans the source and stores its slices; each slice is a job of its own.

The process that claims a slice lands it. If the source changes under a slice, it is planned again; a transient failure
is retried after growing pauses; a slice that fails for good ends the rest of its table, and the other tables go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.crash import crash_point
from headwater.base.errors import CatalogUnreachable, Conflict, HeadwaterError, LeaseLost
from headwater.base.ids import RunId
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import dead_letters_by_run
from headwater.catalog.engine_records import INLET_JOB, InboxEvent, JobEnd, JobOutput
from headwater.catalog.history import keep_output
from headwater.catalog.inbox import message
from headwater.catalog.lookup import run_record, table_states
from headwater.catalog.queue import JobLease, finish_job
from headwater.catalog.slice_jobs import SliceLease, TableOfRun, join_run, slice_lease, tables_of_run
from headwater.connectors.protocol import BadRows, SliceGone, Source, TransientError
from headwater.duck.unique_keys import stored_keys
from headwater.freshness.events import Completed, Failed
from headwater.runtime.execution import SparkStart
from headwater.runtime.inlet import Inlet
from headwater.runtime.open_sources import OpenSource, OpenSources, PipelineJob
from headwater.runtime.results import (
    Event,
    PipelineResult,
    RunBegan,
    RunFinished,
    SliceBegan,
    SliceEnded,
    SliceRetried,
    no_answer,
)
from headwater.runtime.stored_slices import (
    begin_run,
    evolve_tables,
    fail_table,
    note_touched,
    stored_slice,
    supersede_run,
)
from headwater.runtime.traced import traced_inlet

if TYPE_CHECKING:
    from headwater.runtime.land_slice import LandedSlice
    from headwater.spark.write_frame import SparkSession

ScanSource = Callable[[str], PipelineJob]
"""Scans the source of an Inlet. Raises HeadwaterError if it cannot be scanned."""
OpenInlet = Callable[[str], tuple[Inlet, Source]]
"""Opens the source of an Inlet without scanning for new data."""


def job_events(lease: JobLease, kind: type[Completed | Failed], actor: str) -> list[InboxEvent]:
    """The events that report the end of a job to the engine: one for each ripple that it was for."""
    ripples = [str(name) for name in lease.body.get("ripples", [lease.ripple])]
    ids = {"job": lease.job_id}
    return [message(kind(lease.pond, name, lease.freshness_us), actor=actor, ids=ids) for name in ripples]


class InletJobs:
    """Does the jobs of Inlets, for the worker threads of one process."""

    def __init__(
        self,
        store: Store,
        spark: Callable[[], SparkSession],
        *,
        actor: str,
        trigger: str,
        on_event: Callable[[Event], None] = lambda _event: None,
    ):
        self.store, self.spark, self.actor, self.trigger, self.on_event = store, spark, actor, trigger, on_event
        self.stopping = threading.Event()
        self.sources = OpenSources()
        self._begun: dict[str, tuple[str, ...]] = {}
        """The runs that this process has worked on, with the tables whose schemas their plan changed."""
        self._errors: dict[str, HeadwaterError] = {}
        self._lock = threading.Lock()

    # --- the scan of the source

    def plan(
        self, lease: JobLease, scan: ScanSource, *, holder: str | None
    ) -> tuple[PipelineResult | None, JobLease | None]:
        """Scan the source and store new data as jobs; the job of the Inlet waits for them. Also returns a job that was
        claimed for `holder`. If nothing is new, or the source cannot be scanned, the job ends, with a result."""
        with traced_inlet(lease) as span:
            end = JobEnd(
                held=lease.fence, state="waiting", rows=lease.rows, bytes=lease.bytes, trace_id=span.traceparent
            )
            error: HeadwaterError | None = None
            evolved: tuple[str, ...] = ()
            try:
                job, begins = scan(lease.pond), False
                try:
                    begins, claimed = self._begin(end, job, holder)
                finally:
                    if not begins:
                        job.source.close()
                if begins:
                    return None, claimed
                evolved = job.evolved
            except TransientError as found:
                error = no_answer(lease.pond, found)
            except (LeaseLost, CatalogUnreachable):
                raise
            except HeadwaterError as found:
                error = found
            if error is not None:
                span.fail(error)
        end = replace(
            end,
            state="done" if error is None else "failed",
            error=None if error is None else error.as_json(),
            landed_run_id=lease.landed_run_id,
            changed=bool(evolved) or lease.landed_run_id is not None,
        )
        events = job_events(lease, Completed if error is None else Failed, self.actor)
        finish_job(self.store.catalog, end, events=events)
        state = "failed" if error is not None else "success" if evolved else "unchanged"
        return PipelineResult(lease.pond, state, evolved=evolved, error=error), None

    def _begin(self, end: JobEnd, job: PipelineJob, holder: str | None) -> tuple[bool, JobLease | None]:
        """Store the slices of a run, or join the run that is open; False if there is nothing to land."""
        for _ in range(limits.REPLANS + 1):
            plan = job.planned.plan
            try:
                if plan.resumes_run is not None:
                    run_id = RunId(plan.resumes_run)
                    joined = replace(end, landed_run_id=run_id, joined=True)
                    claimed = join_run(self.store.catalog, joined, holder=holder)
                else:
                    if plan.supersedes_run is not None:
                        supersede_run(self.store, RunId(plan.supersedes_run), actor=self.actor)
                    job.evolved += evolve_tables(self.store, job.planned, actor=self.actor)
                    if not any(table.slices for table in job.planned.tables):
                        note_touched(self.store, job.planned, actor=self.actor)
                        return False, None
                    run_id, claimed = begin_run(
                        self.store, job.planned, trigger=self.trigger, actor=self.actor, ends=end, holder=holder
                    )
            except Conflict:
                job.replan()  # another process was faster: see what is left
                continue
            self._note_begun(job.pipeline, run_id, job.evolved)
            self.sources.put(run_id, job.planned.inlet, job.source)
            return True, claimed
        raise HeadwaterError("HW-T02", f"other processes keep changing `{job.pipeline}`", retryable=True)

    def _note_begun(self, pipeline: str, run_id: str, evolved: tuple[str, ...] = ()) -> None:
        """Reports each run that this process works on, once, before any other report about it."""
        with self._lock:
            known = run_id in self._begun
            self._begun[run_id] = evolved or self._begun.get(run_id, ())
        if not known:
            with self.store.catalog.snapshot() as connection:
                slices = sum(table.slices for table in tables_of_run(connection, run_id))
            self.on_event(RunBegan(pipeline, slices))

    # --- a slice

    def land(self, lease: JobLease, open_inlet: OpenInlet) -> PipelineResult | None:
        """Do one claimed slice to its end: landed, failed, or gone. Returns the result of its run, if that has ended.
        Raises HW-T03 if another worker has the slice."""
        crash_point("unit.after_lease")
        with self.store.catalog.snapshot() as connection:
            slice_ = slice_lease(connection, lease)
        self._note_begun(slice_.pipeline, slice_.run_id)
        self.on_event(SliceBegan(slice_.pipeline, stored_slice(slice_.payload).slice.describe))
        try:
            landed = self._land_patiently(lease, slice_, open_inlet)
        except SliceGone:
            seq = supersede_run(self.store, slice_.run_id, actor=self.actor)
        except (LeaseLost, CatalogUnreachable):
            raise
        except HeadwaterError as error:
            if self.stopping.is_set():
                raise  # a cancelled slice has not failed
            return self.fail(lease, error)
        else:
            seq = landed.seq
            self.on_event(SliceEnded(slice_.pipeline, landed.rows, landed.bytes))
        return self._result(slice_, seq)

    def fail(self, lease: JobLease, error: HeadwaterError) -> PipelineResult | None:
        """End a slice that failed for good."""
        with self.store.catalog.snapshot() as connection:
            slice_ = slice_lease(connection, lease)
        self._errors.setdefault(slice_.run_id, error)
        end = replace(lease.failed(error.as_json()), landed_run_id=slice_.run_id)
        seq = fail_table(self.store, slice_.run_id, slice_.table, error=error, actor=self.actor, ends=end)
        return self._result(slice_, seq)

    def _land_patiently(self, lease: JobLease, slice_: SliceLease, open_inlet: OpenInlet) -> LandedSlice:
        """Land a slice; a transient failure of the source is retried after growing pauses."""
        start, delay = SparkStart(), limits.RETRY_FIRST_SECONDS
        for tries in range(limits.SOURCE_RETRIES + 1):
            try:
                with self.sources.use(slice_.run_id, lambda: open_inlet(slice_.pipeline)) as opened, start.measured():
                    return self._land_once(lease, slice_, opened, start)
            except TransientError as error:
                if tries == limits.SOURCE_RETRIES:
                    hint = f"it was asked {tries + 1} times; run the same command again when it is back"
                    raise no_answer(slice_.table, error, hint=hint) from error
                self.on_event(SliceRetried(slice_.pipeline, str(error)))
            if self.stopping.wait(delay):
                raise KeyboardInterrupt
            delay = min(delay * 2, limits.RETRY_MAX_SECONDS)
        raise AssertionError("the last try returns or raises")

    def _land_once(self, lease: JobLease, slice_: SliceLease, opened: OpenSource, start: SparkStart) -> LandedSlice:
        from headwater.runtime.land_slice import SliceWork, bad_rows_error, land_slice

        table = next((each for each in opened.inlet.tables if each.ask.name == slice_.table), None)
        if table is None or opened.inlet.definition != slice_.definition:
            raise SliceGone("the pipeline was changed after its run was planned")
        with opened.lock:
            read = opened.source.read(table.ask, stored_slice(slice_.payload).slice)
        try:
            return land_slice(SliceWork(self.store, slice_, table, read, self.spark, self.actor, lease, start))
        except BadRows as error:
            raise bad_rows_error(table.ask, error) from error

    # --- the end of a run

    def _result(self, slice_: SliceLease, seq: int | None) -> PipelineResult | None:
        """The result of a run that a commit of this process has ended; None if it continues, or is planned again."""
        run_id = slice_.run_id
        with self.store.catalog.snapshot() as connection:
            record = run_record(connection, run_id)
            if seq is None or record["ended_seq"] != seq:
                return None
            tables, bad = tables_of_run(connection, run_id), dead_letters_by_run(connection, [run_id])
        self.sources.close(run_id)
        state, error = str(record["state"]), self._errors.pop(run_id, None)
        self.on_event(RunFinished(slice_.pipeline))
        if state == "superseded":
            return None
        if error is None and state in ("failed", "partial"):
            error = HeadwaterError("HW-R01", str(record["error_message"]), detail={"code": record["error_kind"]})
        result = PipelineResult(
            pipeline=slice_.pipeline,
            state=state,
            run_id=run_id,
            rows=int(record["rows"]),
            bytes=int(record["bytes"]),
            slices=sum(table.done for table in tables),
            evolved=self._begun.get(run_id, ()),
            failed_tables=tuple(table.table for table in tables if table.done < table.slices),
            bad_rows=bad.get(run_id, {}),
            not_in_source=self._not_in_source(tables) if error is None else {},
            error=error,
        )
        if result.notes:  # stored for the user with the job that planned the run
            with self.store.catalog.transaction(durable=False) as connection:
                of = (t.job.c.landed_run_id == run_id) & (t.job.c.kind == INLET_JOB)
                keep_output(connection, JobOutput(output="\n".join(result.notes)), of)
        return result

    def _not_in_source(self, tables: Sequence[TableOfRun]) -> dict[str, int]:
        """Rows that the source no longer has. Known only for a table whose slices were all read from one moment of the
        source: then the table holds every key of the source, and any further keys are no longer in the source."""
        counts = {table.table: table.source_keys for table in tables if table.source_keys is not None}
        with self.store.catalog.snapshot() as connection:
            states = table_states(connection, counts) if counts else []
        found = {state.name: stored_keys(self.store.root, state) - counts[state.name] for state in states}
        return {table: rows for table, rows in found.items() if rows > 0}

"""Apply: bring the store up to its sources, once, whoever else is doing the same.

Each pipeline is planned and its slices stored as work; worker threads claim slices, land them, and go on until
every run they joined has ended. A second apply finds the stored work, helps with what is not held, and waits for
the rest: the work is done once and both end with the same answer. Ctrl-C gives the claimed units back; the next
apply goes on with them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.base import limits
from headwater.base.errors import CatalogUnreachable, Conflict, Exit, HeadwaterError, LeaseLost
from headwater.base.holder import new_holder
from headwater.base.ids import RunId
from headwater.catalog.commit import Store
from headwater.catalog.lookup import run_record, table_states
from headwater.catalog.stored_dead_letters import dead_letters_by_run
from headwater.catalog.units import (
    UnitLease,
    UnitStatus,
    claim,
    free_dead_leases,
    free_stray_leases,
    release,
    unit_statuses,
)
from headwater.connectors.protocol import ArrowRead, BadRows, SliceGone, Source, TransientError
from headwater.duck.unique_keys import stored_keys
from headwater.runtime.apply_events import Event, RunBegan, RunFinished, SliceBegan, SliceEnded, SliceRetried, Waiting
from headwater.runtime.inlet import Inlet
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.plan import Planned
from headwater.runtime.stored_slices import (
    begin_run,
    evolve_tables,
    fail_table,
    note_touched,
    stored_slice,
    supersede_run,
)

if TYPE_CHECKING:
    from headwater.runtime.land_slice import LandedSlice
    from headwater.spark.write_frame import SparkSession

REPLANS = 3
"""How often a pipeline is planned again because its source moved under a slice."""


@dataclass(frozen=True)
class PipelineResult:
    """`state`: success, unchanged, failed, partial, waiting (for a window of its source, which opens then)."""

    pipeline: str
    state: str
    run_id: str | None = None
    rows: int = 0
    bytes: int = 0
    slices: int = 0
    evolved: tuple[str, ...] = ()
    """Tables whose schema changed without a row."""
    failed_tables: tuple[str, ...] = ()
    """Those that the error kept from landing completely; none of them if it is not about tables."""
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """Those that were kept as dead letters, by table."""
    not_in_source: Mapping[str, int] = field(default_factory=dict)
    """Stored rows whose keys the source no longer has, by table; only of tables that were read whole."""
    waits_until: str | None = None
    seconds: float | None = None
    """How long ripples of a model took, without the start of Spark; None if none was executed."""
    error: HeadwaterError | None = None

    @property
    def changed(self) -> bool:
        return self.run_id is not None or bool(self.evolved)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of a run that went well."""
        return tuple(
            f"{rows:,} row{'s' if rows > 1 else ''} of `{table}` {'are' if rows > 1 else 'is'} no longer in the source; "
            f"{'they stay' if rows > 1 else 'it stays'} until deletes are supported"
            for table, rows in sorted(self.not_in_source.items())
        )

    def following(self, earlier: PipelineResult) -> PipelineResult:
        """This result, with what an earlier run of the same pipeline landed counted in."""
        return replace(
            self,
            rows=earlier.rows + self.rows,
            bytes=earlier.bytes + self.bytes,
            slices=earlier.slices + self.slices,
            bad_rows=dict(Counter(earlier.bad_rows) + Counter(self.bad_rows)),
            not_in_source={**earlier.not_in_source, **self.not_in_source},
            seconds=_sum(earlier.seconds, self.seconds),
        )

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {k: v for k, v in self.__dict__.items() if k != "error"}
        found["error"] = self.error.as_json() if self.error is not None else None
        return found


@dataclass(frozen=True)
class ApplyResult:
    pipelines: tuple[PipelineResult, ...]
    views_error: HeadwaterError | None = None
    """Why the views on disk are older than what has landed."""

    @property
    def exit_code(self) -> Exit:
        states = {p.state for p in self.pipelines}
        if states <= {"success", "unchanged", "waiting"}:
            return Exit.DONE if self.views_error is None else Exit.PARTLY
        if states & {"success", "partial"}:
            return Exit.PARTLY
        errors = [p.error for p in self.pipelines if p.error is not None]
        return errors[0].exit_code if len(errors) == 1 else Exit.FAILED

    @property
    def changed(self) -> bool:
        return any(p.changed for p in self.pipelines)


@dataclass
class PipelineJob:
    """A pipeline in an apply: how to plan it (again), and its open source."""

    pipeline: str
    plan: Callable[[], tuple[Planned, Source]]
    planned: Planned
    source: Source
    evolved: tuple[str, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Sources hold connections: one thread at a time asks them for a read."""

    @property
    def inlet(self) -> Inlet:
        return self.planned.inlet

    def replan(self) -> None:
        """Look at the source and the catalog anew, with a source of its own."""
        self.source.close()
        self.planned, self.source = self.plan()


@dataclass
class _AppliedRun:
    """A run that this apply works on or waits for."""

    job: PipelineJob
    run_id: RunId
    joined: bool
    """Planned by an earlier or another apply: its source may have more by now."""
    error: HeadwaterError | None = None
    moved: bool = False
    source_keys: dict[str, list[int | None]] = field(default_factory=dict)
    """By table, what each slice that landed here knew of the number of keys in the source."""


class Applier:
    """Does the stored work of some pipelines with a few threads."""

    def __init__(
        self,
        store: Store,
        spark: Callable[[], SparkSession],
        *,
        actor: str,
        trigger: str,
        cancel: Callable[[], None],
        on_event: Callable[[Event], None] = lambda _event: None,
        threads: int = 2,
    ):
        self.store, self.spark, self.actor, self.trigger = store, spark, actor, trigger
        self.cancel, self.on_event, self.threads = cancel, on_event, threads
        self.holder = new_holder()
        self.stopping = threading.Event()

    def apply(self, jobs: Sequence[PipelineJob]) -> list[PipelineResult]:
        """Work until every job has an answer. Raises KeyboardInterrupt after giving back what was claimed."""
        results: dict[str, PipelineResult] = {}
        left = list(jobs)
        for _ in range(REPLANS + 1):
            runs, done = self._begin(left)
            for result in done:
                results.setdefault(result.pipeline, result)
            self._work(runs)
            for run in runs:
                result = self._result(run)
                run.moved = run.moved or result.state == "superseded"  # by us, or by another apply
                if run.moved:
                    results.pop(run.job.pipeline, None)
                else:
                    results[run.job.pipeline] = _together(results.get(run.job.pipeline), result)
            again = [run.job for run in runs if run.moved or (run.joined and results[run.job.pipeline].error is None)]
            left = [job for job in again if self._look_again(job, results)]
            if not left:
                break
        for job in left:
            error = HeadwaterError(
                "HW-C03",
                f"the source of `{job.pipeline}` kept changing while it was read",
                hint="run the same command again when it has settled",
                retryable=True,
            )
            results.setdefault(job.pipeline, PipelineResult(job.pipeline, "failed", error=error))
        return [results[job.pipeline] for job in jobs]

    def _look_again(self, job: PipelineJob, results: dict[str, PipelineResult]) -> bool:
        """Plan a pipeline once more: its source moved under a slice, or the run that ended had been planned before
        this apply began. True if there is more to do; a source that can no longer be looked at is a result."""
        try:
            job.replan()
        except TransientError as error:
            results[job.pipeline] = PipelineResult(job.pipeline, "failed", error=no_answer(job.pipeline, error))
            return False
        except HeadwaterError as error:
            results[job.pipeline] = PipelineResult(job.pipeline, "failed", error=error)
            return False
        return job.pipeline not in results or job.planned.plan.action != "nothing"

    def _begin(self, jobs: Sequence[PipelineJob]) -> tuple[list[_AppliedRun], list[PipelineResult]]:
        """Store the work of each job, or join the run that is already open."""
        runs: list[_AppliedRun] = []
        done: list[PipelineResult] = []
        for job in jobs:
            run_id = self._begin_one(job)
            if run_id is None:
                state = "success" if job.evolved else "unchanged"
                done.append(PipelineResult(job.pipeline, state, evolved=job.evolved))
            else:
                runs.append(_AppliedRun(job, run_id, joined=job.planned.plan.action == "resume"))
                self.on_event(RunBegan(job.pipeline, run_id, self._units(run_id)))
        return runs, done

    def _begin_one(self, job: PipelineJob) -> RunId | None:
        for _ in range(REPLANS + 1):
            plan = job.planned.plan
            if plan.action == "resume":
                assert plan.resumes_run is not None
                return RunId(plan.resumes_run)
            if plan.supersedes_run is not None:
                supersede_run(self.store, RunId(plan.supersedes_run), actor=self.actor)
            try:
                job.evolved += evolve_tables(self.store, job.planned, actor=self.actor)
                if not any(table.slices for table in job.planned.tables):
                    note_touched(self.store, job.planned, actor=self.actor)
                    return None
                return begin_run(self.store, job.planned, trigger=self.trigger, actor=self.actor)
            except Conflict:
                job.replan()  # another apply was quicker: see what is left
        raise HeadwaterError("HW-T02", f"`{job.pipeline}` is being changed by others all the time", retryable=True)

    def _work(self, runs: list[_AppliedRun]) -> None:
        if not runs:
            return
        from concurrent.futures import ThreadPoolExecutor, wait

        threads = max(1, min(self.threads, sum(self._units(run.run_id) for run in runs)))
        over = threading.Event()
        with LeaseKeeper(self.store.catalog) as keeper, ThreadPoolExecutor(threads) as pool:
            # Each in a copy of this thread's context: its slices are part of the span that this thread is in.
            workers = [pool.submit(copy_context().run, self._worker, runs, keeper, over) for _ in range(threads)]
            try:
                for worker in workers:
                    worker.result()
            except Exception:
                over.set()  # the others end what they have in hand; who else works with this applier goes on
                raise
            except BaseException:
                self.stopping.set()
                self.cancel()  # what Spark is doing is for nothing now
                while wait(workers, timeout=limits.RETRY_FIRST_SECONDS).not_done:
                    self.cancel()  # a worker was just about to begin its job
                raise

    def _worker(self, runs: list[_AppliedRun], keeper: LeaseKeeper, over: threading.Event) -> None:
        waiting = False
        unended = list(runs)
        while not (self.stopping.is_set() or over.is_set()):
            claimed = self._claim(unended)
            if claimed is None:
                if any(self._free(run, keeper) for run in unended):
                    continue
                left = [unit for run in unended for unit in self._pending(run)]
                if not left:
                    return
                if not waiting and any(unit.held and unit.holder != self.holder for unit in left):
                    self.on_event(Waiting())
                    waiting = True
                time.sleep(limits.POLL_SECONDS)
                continue
            waiting = False
            self._land(*claimed, keeper)

    def _free(self, run: _AppliedRun, keeper: LeaseKeeper) -> int:
        """Units that nobody works on: their processes are gone, or never heard that their claims had come through."""
        catalog = self.store.catalog
        return free_dead_leases(catalog, run.run_id) + free_stray_leases(
            catalog, run.run_id, holder=self.holder, kept=keeper.kept()
        )

    def _claim(self, unended: list[_AppliedRun]) -> tuple[_AppliedRun, UnitLease] | None:
        """A unit of the first run that has one to give. Takes runs that have ended off the list: no unit is ever
        added to a run, and asking each of hundreds before every slice would cost more than landing it."""
        for run in list(unended):
            lease = None if run.moved else claim(self.store.catalog, run.run_id, holder=self.holder)
            if lease is not None:
                return run, lease
            if run.moved or not self._pending(run):
                unended.remove(run)
        return None

    def _land(self, run: _AppliedRun, lease: UnitLease, keeper: LeaseKeeper) -> None:
        """One claimed unit, to its end: landed, failed, lost to another worker, or given back."""
        slice_ = stored_slice(lease.payload).slice
        self.on_event(SliceBegan(run.job.pipeline, lease.table, lease.ordinal, slice_.describe, slice_.estimated_bytes))
        with keeper.keep(lease):
            try:
                landed = self._land_patiently(run, lease)
            except SliceGone:
                run.moved = True
                supersede_run(self.store, run.run_id, actor=self.actor)
                return
            except LeaseLost:
                return  # another worker has it; its result counts
            except CatalogUnreachable:
                raise  # that says nothing about the slice
            except HeadwaterError as error:
                if not self.stopping.is_set():
                    run.error = run.error or error
                    fail_table(self.store, run.run_id, lease.table, error=error, actor=self.actor)
                release(self.store.catalog, lease)
                return
            except BaseException:
                release(self.store.catalog, lease)
                raise
        self.on_event(SliceEnded(run.job.pipeline, lease.table, lease.ordinal, landed.rows, landed.bytes))

    def _land_patiently(self, run: _AppliedRun, lease: UnitLease) -> LandedSlice:
        """Land a unit; a source that fails for a moment is asked again, later and later."""
        from headwater.runtime.land_slice import UnitWork, bad_rows_error, land_unit

        table = next(t for t in run.job.inlet.tables if t.ask.name == lease.table)
        slice_ = stored_slice(lease.payload).slice
        delay = limits.RETRY_FIRST_SECONDS
        for tries in range(limits.SOURCE_RETRIES + 1):
            try:
                with run.job.lock:
                    read = run.job.source.read(table.ask, slice_)
                landed = land_unit(UnitWork(self.store, lease, table, read, self.spark, self.actor))
                known = read.source_keys if isinstance(read, ArrowRead) else None
                run.source_keys.setdefault(lease.table, []).append(known)
                return landed
            except BadRows as error:
                raise bad_rows_error(table.ask, error) from error
            except TransientError as error:
                if tries == limits.SOURCE_RETRIES:
                    hint = f"it was asked {tries + 1} times; run the same command again when it is back"
                    raise no_answer(table.ask.name, error, hint=hint) from error
                self.on_event(SliceRetried(run.job.pipeline, lease.table, lease.ordinal, str(error)))
            if self.stopping.wait(delay):
                raise KeyboardInterrupt
            delay = min(delay * 2, limits.RETRY_MAX_SECONDS)
        raise AssertionError("the last try returns or raises")

    def _pending(self, run: _AppliedRun) -> list[UnitStatus]:
        return [unit for unit in self._statuses(run.run_id) if unit.state == "pending"]

    def _units(self, run_id: RunId) -> int:
        return len(self._statuses(run_id))

    def _statuses(self, run_id: RunId) -> list[UnitStatus]:
        with self.store.catalog.snapshot() as connection:
            return unit_statuses(connection, run_id)

    def _result(self, run: _AppliedRun) -> PipelineResult:
        with self.store.catalog.snapshot() as connection:
            record, bad = run_record(connection, run.run_id), dead_letters_by_run(connection, [run.run_id])
        statuses = self._statuses(run.run_id)
        done = [unit for unit in statuses if unit.state == "done"]
        state = str(record["state"])
        error = run.error
        if error is None and state in ("failed", "partial"):
            error = HeadwaterError("HW-R01", str(record["error_message"]), detail={"code": record["error_kind"]})
        self.on_event(RunFinished(run.job.pipeline, run.run_id, state))
        return PipelineResult(
            pipeline=run.job.pipeline,
            state=state,
            run_id=run.run_id,
            rows=sum(unit.rows for unit in done),
            bytes=sum(unit.bytes for unit in done),
            slices=len(done),
            evolved=run.job.evolved,
            failed_tables=tuple(sorted({unit.table for unit in statuses if unit.state != "done"})),
            bad_rows=bad.get(run.run_id, {}),
            not_in_source=self._not_in_source(run, statuses) if error is None else {},
            error=error,
        )

    def _not_in_source(self, run: _AppliedRun, statuses: Sequence[UnitStatus]) -> dict[str, int]:
        """Rows that the source no longer has. Known only of a table whose slices all landed here, from one moment of
        the source: then every key of the source is in the table, and those beyond their number are not in the source."""
        units = Counter(unit.table for unit in statuses)
        counts = {
            table: known[0]
            for table, known in run.source_keys.items()
            if len(known) == units[table] and len(set(known)) == 1 and known[0] is not None
        }
        with self.store.catalog.snapshot() as connection:
            states = table_states(connection, counts) if counts else []
        found = {state.name: stored_keys(self.store.root, state) - (counts[state.name] or 0) for state in states}
        return {table: rows for table, rows in found.items() if rows > 0}


def no_answer(name: str, error: TransientError, *, hint: str = "") -> HeadwaterError:
    """A source that failed for a moment, and was not asked again."""
    return HeadwaterError("HW-C03", f"the source of `{name}` did not answer: {error}", hint=hint, retryable=True)


def _sum(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else first + second


def _together(earlier: PipelineResult | None, later: PipelineResult) -> PipelineResult:
    """Two runs of one apply as one answer."""
    if earlier is None or earlier.run_id is None:
        return later
    return later.following(earlier)

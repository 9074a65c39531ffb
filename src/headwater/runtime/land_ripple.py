"""Land one execution of a ripple: read its inputs at the cut, run its code on Spark, write, and commit all at once.

The cut is a commit sequence per input, so a retried execution reads the same rows. The schema is decided before the
rows are written and committed with them, as for slices. A result lands once because of what the caller makes the commit
require (the lease of the job) and contain (the end of the job).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.base.clock import now_us
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import InboxEvent, JobEnd
from headwater.catalog.evolution import DeclaredColumn, Evolution, Shown, evolve
from headwater.catalog.landing import Landing, try_directory, until_landed
from headwater.catalog.lookup import TableEntry, check_owner, table_entries, table_states
from headwater.catalog.schema_decisions import refuse_change
from headwater.catalog.table_state import TableState
from headwater.duck.unique_keys import current_hashes
from headwater.observe.tracing import trace_id_of
from headwater.runtime.cut_inputs import CutInput, cut_of, parent_runs, read_inputs
from headwater.runtime.traced import traced_commit, traced_ripple
from headwater.storage.part_writer import write_manifest

if TYPE_CHECKING:
    from headwater.spark.job_control import Control
    from headwater.spark.ripples import DataFrame, Input
    from headwater.spark.user_code import Code
    from headwater.spark.write_frame import SparkSession, Written

COMPARED_ROWS = 1_000_000
"""Up to this many rows of an upsert table, a result leaves out rows that the table already holds: 16 bytes of each go
to every task."""


@dataclass(frozen=True)
class RippleTable:
    """The table that a ripple makes, and how."""

    pipeline: str
    table: str
    code: Code
    mode: str
    primary_key: tuple[str, ...] = ()
    declared: Mapping[str, DeclaredColumn] = field(default_factory=dict)


@dataclass(frozen=True)
class RippleOutcome:
    """What an execution made. `changed`: its table has changed. `parent_runs` last wrote the inputs at the cut."""

    rows: int
    bytes: int
    changed: bool
    schema_events: tuple[r.SchemaEvent, ...]
    parent_runs: tuple[str, ...]


@dataclass(frozen=True)
class LandedRipple(RippleOutcome):
    seq: int


@dataclass(frozen=True)
class Closing:
    """What the commit contains beside the table: changes of the run, the event for the engine, the end of the job."""

    changes: tuple[r.Change, ...] = ()
    events: tuple[InboxEvent, ...] = ()
    ends: JobEnd | None = None


@dataclass(frozen=True)
class RippleWork:
    """One execution. `job_id` and `attempt` name the directory that it writes to; `requires` keeps a worker that lost
    its lease from landing; `closing` returns what else the commit contains, given the outcome. `on_control` is called
    with the object that can stop the execution, from any thread, as soon as it can be stopped."""

    store: Store
    spark: Callable[[], SparkSession]
    ripple: RippleTable
    inputs: tuple[CutInput, ...]
    run_id: str
    job_id: str
    attempt: int
    freshness_us: int
    actor: str
    previous_freshness_us: int | None = None
    requires: tuple[r.Requirement, ...] = ()
    closing: Callable[[RippleOutcome], Closing] = lambda _outcome: Closing()
    trace: str | None = None
    """The `traceparent` of the run that the execution belongs to."""
    timeout_seconds: float | None = None
    on_control: Callable[[Control], None] = lambda _control: None


@traced_ripple
def land_ripple(work: RippleWork) -> LandedRipple:
    """Run, write and commit. Raises HW-R01 with the user's file and line for errors of their code, HW-S01 and HW-S02
    for a schema change that needs a decision, HW-R03 if its time was up, HW-T03 if the lease was lost, `TransientError`
    if Spark went away. Nothing has changed then. The start of Spark does not count towards the timeout."""
    from headwater.spark.job_control import controlled

    inputs = read_inputs(work.store, work.ripple.table, work.inputs)
    spark = work.spark()
    with controlled(spark, work.ripple.table, timeout_seconds=work.timeout_seconds) as control:
        work.on_control(control)
        with running_code(work, inputs, spark) as frame:
            result = _Result(work, frame, inputs, control)
            # A retry does not help if the caller's requirement fails; a table that has changed is read again.
            return until_landed(work.ripple.table, result.land, moved=result.table_moved)


def running_code(
    work: RippleWork, inputs: Mapping[str, Input], spark: SparkSession
) -> AbstractContextManager[DataFrame]:
    """`spark.ripples.running` for this work."""
    from headwater.spark.ripples import running

    return running(
        spark,
        work.ripple.table,
        work.ripple.code,
        inputs=inputs,
        freshness_us=work.freshness_us,
        previous_freshness_us=work.previous_freshness_us,
    )


def commit_outcome(work: RippleWork, landing: Landing, outcome: RippleOutcome) -> LandedRipple:
    """One commit for all changes of the execution, with those of its run and its job."""
    closing = work.closing(outcome)
    seq = landing.commit(
        changes=closing.changes,
        requires=work.requires,
        events=closing.events,
        ends=closing.ends,
        send=traced_commit,
    )
    return LandedRipple(**vars(outcome), seq=seq)


def one_ripple_run(work: RippleWork, *, trigger: str, definition: str) -> RippleWork:
    """The same work as a run of its own, for running a ripple without an engine. Its one commit records the run from
    start to end, with the cut and the parents."""
    asked = work.closing

    def closing(outcome: RippleOutcome) -> Closing:
        rest = asked(outcome)
        run: list[r.Change] = [
            r.RunStarted(
                run_id=work.run_id,
                pipeline=work.ripple.pipeline,
                freshness_us=work.freshness_us,
                trigger=trigger,
                connector="",
                definition=definition,
                bounds=cut_of(work.inputs),
                trace_id=trace_id_of(work.trace),
            ),
            r.UnitsPlanned(
                run_id=work.run_id,
                pipeline=work.ripple.pipeline,
                units=(r.UnitSpec(unit_id=work.job_id, table=work.ripple.table, ordinal=0, payload={}),),
            ),
            r.UnitDone(unit_id=work.job_id, rows=outcome.rows, bytes=outcome.bytes),
            r.RunSettled(run_id=work.run_id),
        ]
        if outcome.parent_runs:
            run.append(r.LineageAdded(child_run_id=work.run_id, parent_run_ids=outcome.parent_runs))
        return replace(rest, changes=(*run, *rest.changes))

    return replace(work, closing=closing)


class _Result:
    """A result on its way into its table. It is computed once for each time that it is written."""

    def __init__(self, work: RippleWork, frame: DataFrame, inputs: Mapping[str, Input], control: Control):
        self.work, self.ripple, self.frame, self.inputs, self.control = work, work.ripple, frame, inputs, control
        self.base: tuple[TableEntry | None, TableState | None] = (None, None)

    def land(self, number: int) -> LandedRipple:
        """One try: write the result for the table as it is now, and commit."""
        entry, live = self.base = self._table()
        evolution = self._evolve(entry)
        with Landing(self.work.store, self.work.actor) as landing:
            written = self._write(evolution, live, number=number)
            landing.files += written.files
            return self._commit(landing, entry, live, evolution, written)

    def table_moved(self) -> bool:
        return self._table() != self.base

    def _table(self) -> tuple[TableEntry | None, TableState | None]:
        """The target table as it is now."""
        name = self.ripple.table
        with self.work.store.catalog.snapshot() as connection:
            entry = table_entries(connection, [name]).get(name)
            states = table_states(connection, [name]) if entry is not None else []
        check_owner(entry, self.ripple.pipeline, hint="give the ripple another name")
        # A table's own sequence moves with every commit of the store; that alone is no change of the table.
        return entry, replace(states[0], seq=0) if states else None

    def _evolve(self, entry: TableEntry | None) -> Evolution:
        from headwater.spark.frame_schema import frame_columns

        stored = {column.name: column.type for column in entry.schema.columns} if entry is not None else {}
        known = stored | {name: column.type for name, column in self.ripple.declared.items()}
        columns = frame_columns(self.frame.schema, subject=self.ripple.table, known=known)
        evolution = evolve(
            entry.schema if entry is not None else None,
            Shown(columns, complete=True),
            declared=self.ripple.declared,
            primary_key=self.ripple.primary_key,
            modes=(entry.mode, self.ripple.mode) if entry is not None else None,
        )
        if evolution.refused:
            store, actor, made = self.work.store, self.work.actor, self.ripple
            raise refuse_change(store, made.table, evolution, mode=made.mode, actor=actor, declared=made.declared)
        return evolution

    def _write(self, evolution: Evolution, live: TableState | None, *, number: int) -> Written:
        from headwater.spark.frame_schema import landing_frame
        from headwater.spark.ripples import tables_of
        from headwater.spark.small_runs import is_small
        from headwater.spark.write_frame import WriteTarget, write_frame

        work = self.work
        target = WriteTarget(
            root=work.store.root,
            directory=try_directory(self.ripple.table, work.run_id, work.job_id, work.attempt, number=number),
            schema=evolution.schema,
            run_id=work.run_id,
            ingested_at_us=now_us(),
            known_hashes=self._known_rows(evolution.schema, live),
        )
        types = {column.name: column.type for column in evolution.schema.columns}
        # Nothing decides which of two rows with one key would win, so an upsert with such rows is refused.
        unique_key = self.ripple.primary_key if self.ripple.mode == "upsert" else ()
        small = is_small(tables_of(self.inputs.values()))
        return write_frame(landing_frame(self._exact, types, unique_key=unique_key), target, is_small=small)

    @cached_property
    def _exact(self) -> DataFrame:
        """The result with the nanoseconds of times that it passes on; its names have been checked before."""
        from headwater.spark.carried_times import exact_frame

        return exact_frame(self.frame)

    def _known_rows(self, schema: TableSchema, live: TableState | None) -> bytes:
        """The hashes of rows that an upsert need not write again, because the table shows them already. Not if a column
        has a default: it is shown where a row holds nothing, and the hash is the same for both."""
        if live is None or not live.files or self.ripple.mode != "upsert":
            return b""
        has_defaults = any(column.default is not None for column in schema.columns)
        if has_defaults or sum(file.rows for file in live.files) > COMPARED_ROWS:
            return b""
        return current_hashes(self.work.store.root, live, self.ripple.primary_key[0], None)

    def _commit(
        self,
        landing: Landing,
        entry: TableEntry | None,
        live: TableState | None,
        evolution: Evolution,
        written: Written,
    ) -> LandedRipple:
        """One commit for all changes of the execution."""
        work, ripple, files = self.work, self.ripple, written.files
        schema_id = landing.evolve(
            ripple.table, entry, evolution, pipeline=ripple.pipeline, mode=ripple.mode, has_rows=bool(files)
        )
        if ripple.mode == "replace":
            before, groups = live.files if live is not None else (), [(schema_id, files)] if files else []
            lands = landing.replace_files(ripple.table, before, groups, run_id=work.run_id)
        else:
            lands = bool(files)
            landing.add_files(ripple.table, schema_id, work.run_id, files, unique_keys=ripple.mode == "upsert")
        if lands:
            write_manifest(work.store.root, files)
        outcome = RippleOutcome(
            rows=written.rows if lands else 0,
            bytes=written.bytes if lands else 0,
            changed=lands or bool(evolution.events),
            schema_events=evolution.events,
            parent_runs=parent_runs(self.inputs),
        )
        self.control.check()
        return commit_outcome(work, landing, outcome)

"""Land one slice: read it on Spark, write its files, and commit all its changes at once.

The schema is decided before the rows are written and committed with them. If the rows have unknown columns, or another
slice changed the schema meanwhile, the slice is written again with the newer schema; no commit names the files of the
first try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, Position
from headwater.base.node import this_node
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import add_dead_letters
from headwater.catalog.evolution import Evolution
from headwater.catalog.landing import Landing, until_landed
from headwater.catalog.lookup import TableEntry, staged_files, table_entries, table_states
from headwater.catalog.queue import JobLease
from headwater.catalog.schema_decisions import refuse_change
from headwater.catalog.slice_jobs import SliceLease
from headwater.catalog.table_state import TableState
from headwater.connectors.protocol import (
    ArrowRead,
    BadItem,
    BadRows,
    CursorKind,
    Observed,
    TableAsk,
)
from headwater.duck.unique_keys import current_hashes, keys_are_unique
from headwater.observe.counters import COUNTERS
from headwater.runtime.bad_items import check_bad_items, read_without
from headwater.runtime.inlet import InletTable
from headwater.runtime.observed_columns import merge_observed, shown_to
from headwater.runtime.plan import evolve_table
from headwater.runtime.slice_dead_letters import is_dead_letters, take_out_older, write_bad_rows
from headwater.runtime.spark_start import SparkStart
from headwater.runtime.stored_slices import stored_slice
from headwater.runtime.traced import traced_commit, traced_slice
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import rewrite_without, write_manifest

if TYPE_CHECKING:
    from headwater.spark.write_frame import SparkSession, Written

OPAQUE_TOKEN = CursorKind.OPAQUE_TOKEN


@dataclass(frozen=True)
class LandedSlice:
    rows: int
    bytes: int
    seq: int
    bad_rows: int = 0
    bad_files: int = 0
    """The files that were kept as dead letters."""


@dataclass(frozen=True)
class UnitWork:
    """All that is needed to land one claimed slice."""

    store: Store
    lease: SliceLease
    table: InletTable
    read: ArrowRead
    spark: Callable[[], SparkSession]
    actor: str
    job: JobLease
    start: SparkStart


@traced_slice
def land_unit(work: UnitWork) -> LandedSlice:
    """Read, write and commit one slice. Raises `TransientError` or `SliceGone`, which the caller handles, HW-T03 if the
    lease was lost, and any other error for good."""
    observed = work.read.observed
    unit = _Unit(work, observed)
    unit.leave_out(observed.bad_items if observed is not None else ())
    return until_landed(work.table.ask.name, unit.land)


def bad_rows_error(ask: TableAsk, error: BadRows) -> HeadwaterError:
    """The error that says what is wrong with which rows, never their values."""
    table, hint = ask.name, "fix the rows at the source, or declare the column with a type that takes them"
    if 0 < ask.max_bad_rows < error.total:
        hint = f"fix the rows at the source; up to {ask.max_bad_rows} of a slice are kept (`max_bad_rows`)"
    shown = error.errors[: limits.ERRORS_SHOWN]
    first = shown[0]
    if first.reason in ("bad_timestamp", "bad_date") and first.column not in ask.forms:
        hint += "; how a source writes times can be declared: `format`"
    column = f", column `{first.column}`" if first.column else ""
    more = f", and {error.total - 1} more" if error.total > 1 else ""
    return HeadwaterError(
        "HW-C04",
        f"a row cannot be landed in `{table}`{column}: {first.text}{more}",
        hint=hint,
        places=tuple(Position(e.place, e.line, e.fault.column if e.fault else 0) for e in shown),
        detail={"table": table, "total": error.total, "rows": [e.as_json() for e in shown]},
    )


def _declares_enough(table: InletTable) -> bool:
    """Whether a table can be made before its rows are read: it has declared columns, its key among them."""
    return bool(table.declared) and table.declared.keys() >= set(table.ask.primary_key)


class _Unit:
    """A claimed slice on its way into its table, with the columns and the unreadable items that its tries have
    found."""

    def __init__(self, work: UnitWork, observed: Observed | None):
        self.work, self.observed = work, observed
        self.store, self.ask, self.lease = work.store, work.table.ask, work.lease
        self.read = work.read
        self.stored = stored_slice(work.lease.payload)
        self.bad: dict[str, BadItem] = {}

    def land(self, number: int) -> LandedSlice | None:
        """One try: write the slice for the table as it is now, and commit. None if it has found something new."""
        entry = self._entry()
        if self.observed is None and number == 0 and entry is None and not _declares_enough(self.work.table):
            self._observe()
        evolution = evolve_table(entry, self.work.table, shown_to(entry, self.observed, self.ask))
        if evolution.refused:
            ask, actor, declared = self.ask, self.work.actor, self.work.table.declared
            raise refuse_change(self.store, ask.name, evolution, mode=ask.mode, actor=actor, declared=declared)
        with Landing(self.store, self.work.actor) as landing:
            written = self._write(landing, evolution.schema, entry, number=number)
            if written.bad_items or written.unknown:
                self.leave_out(written.bad_items)
                if written.unknown or self.observed is not None:
                    self._observe()
                return None
            return self._commit(landing, entry, evolution, written, number=number)

    def leave_out(self, found: Sequence[BadItem]) -> None:
        """Read without items that cannot be read. Raises HW-C02 if there are more of them than may be kept."""
        if found:
            self.bad.update({item.source_id: item for item in found})
            check_bad_items(self.ask, self.bad.values())
            self.read = read_without(self.read, self.bad)

    def _entry(self) -> TableEntry | None:
        with self.store.catalog.snapshot() as connection:
            return table_entries(connection, [self.ask.name]).get(self.ask.name)

    def _observe(self) -> None:
        """Ask every partition for its columns, and leave out the bad items that this finds."""
        from headwater.spark.write_frame import observe_read

        self.observed = None
        if self.read.observe is not None:
            found = observe_read(self.work.spark(), self.read) if self.read.partitions else []
            self.observed = merge_observed(found)
            self.leave_out(self.observed.bad_items)

    def _write(self, landing: Landing, schema: TableSchema, entry: TableEntry | None, *, number: int) -> Written:
        from headwater.spark.write_frame import WriteTarget, check_written, write_read

        known = b""
        if self.read.key_filter_column is not None and entry is not None:
            known = current_hashes(
                self.store.root, self._state(), self.read.key_filter_column, self.read.key_filter_from
            )
        target = WriteTarget(
            root=self.store.root,
            directory=self._directory(self.ask.name, number),
            schema=schema,
            run_id=self.lease.run_id,
            ingested_at_us=now_us(),
            known_hashes=known,
        )
        written = write_read(self.work.spark(), self.read, target)
        landing.files += written.files
        check_written(written, max_bad_rows=self.ask.max_bad_rows)
        if written.cursor is not None and not self.stored.is_last and self.stored.cursor_kind == OPAQUE_TOKEN:
            message = f"a slice of `{self.ask.name}` reported a cursor, and slices after it are planned from its end"
            raise HeadwaterError("HW-C02", message, hint="the connector may report one for the last slice of a plan")
        return written

    def _directory(self, table: str, number: int) -> str:
        """The directory for a table's files of this try."""
        lease = self.lease
        directory = attempt_directory(
            table, run_id=lease.run_id, node=this_node(), unit_id=lease.unit_id, attempt=lease.attempt
        )
        return directory + (f"/again-{number}" if number else "")

    def _state(self) -> TableState:
        with self.store.catalog.snapshot() as connection:
            (state,) = table_states(connection, [self.ask.name])
        return state

    def _commit(
        self, landing: Landing, entry: TableEntry | None, evolution: Evolution, written: Written, *, number: int
    ) -> LandedSlice:
        """One commit for all changes of the slice."""
        ask, lease, stored = self.ask, self.lease, self.stored
        files, run_id = written.files, lease.run_id
        schema_id = landing.evolve(
            ask.name, entry, evolution, pipeline=lease.pipeline, mode=ask.mode, has_rows=bool(files)
        )
        write_manifest(self.store.root, files)
        letters = self._write_letters(landing, written, number=number)
        staged: tuple[FileRecord, ...] = ()
        if ask.mode == "replace" and not stored.is_last:
            staged = (*files, *letters)
            landing.name_files(staged)
        else:
            if ask.mode == "replace":
                letters = (*self._replace(landing, schema_id, files), *letters)
            else:
                unique = (
                    ask.mode == "upsert" and bool(files) and keys_are_unique(self.store.root, files, evolution.schema)
                )
                landing.add_files(ask.name, schema_id, run_id, files, unique_keys=unique)
                if ask.mode == "append" and schema_id:
                    self._retire(landing, number=number)
            self._take_out_older(landing, number=number)
            add_dead_letters(landing, letters, run_id=run_id)
        versions = {**written.items, **{item.source_id: item.version for item in self.bad.values()}}
        items = {item.source_id: versions.get(item.source_id, item.version) for item in stored.slice.items}
        if items:
            landing.changes.append(r.ItemsLanded(pipeline=lease.pipeline, table=ask.name, items=items))
        landing.changes += [
            r.UnitDone(
                unit_id=lease.unit_id,
                rows=written.rows,
                bytes=written.bytes,
                staged=staged,
                staged_schema_id=schema_id if staged else 0,
                cursor=(written.cursor.value,) if written.cursor is not None else (),
                source_keys=self.read.source_keys,
            ),
            r.CursorAdvanced(
                run_id=run_id,
                pipeline=lease.pipeline,
                table=ask.name,
                kind=stored.cursor_kind,
                source_identity=stored.identity,
            ),
            r.RunSettled(run_id=run_id),
        ]
        end = self.work.job.done(rows=written.rows, bytes=written.bytes, landed_run_id=run_id)
        end = replace(end, spark_start_us=self.work.start.us)
        seq = landing.commit(requires=(lease.fence,), ends=end, send=traced_commit)
        if written.bad:
            COUNTERS.add("rows_dead_lettered", ask.name, times=len(written.bad))
        if self.bad:
            COUNTERS.add("files_dead_lettered", ask.name, times=len(self.bad))
        return LandedSlice(written.rows, written.bytes, seq, len(written.bad), len(self.bad))

    def _write_letters(self, landing: Landing, written: Written, *, number: int) -> tuple[FileRecord, ...]:
        if not written.bad and not self.bad:
            return ()
        letters = write_bad_rows(
            self.store,
            written.bad,
            tuple(self.bad.values()),
            table=self.ask.name,
            pipeline=self.lease.pipeline,
            format_=self.read.format,
            directory=self._directory(LETTERS, number),
            run_id=self.lease.run_id,
        )
        landing.files += letters
        return letters

    def _take_out_older(self, landing: Landing, *, number: int) -> None:
        """Replace the older dead letters of the slice's files, or of the whole table, by those of this slice. A file
        that cannot be read leaves the rows of its last readable version in the table, and so their dead letters."""
        bad, items = self.bad.keys(), self.stored.slice.items
        places = None if self.ask.mode == "replace" else {item.source_id for item in items} - bad
        take_out_older(landing, self.ask.name, places=places, items=bad, directory=self._directory(LETTERS, number))

    def _retire(self, landing: Landing, *, number: int) -> None:
        """Remove the rows of replaced items: files that hold nothing else leave the table, the others are rewritten."""
        gone = set(self.stored.slice.replaces) - self.bad.keys()
        state = self._state() if gone and self._entry() is not None else None
        files = state.files if state is not None else ()
        hit = []
        for place, file in enumerate(f for f in files if f.source_count or gone & f.sources.keys()):
            if state is None or (
                file.sources and file.sources.keys() <= gone and sum(file.sources.values()) == file.rows
            ):
                hit.append(file)
                continue
            kept = rewrite_without(
                self.store.root,
                file,
                schema=state.schemas[file.schema_id],
                drop_source_ids=gone,
                directory=f"{self._directory(self.ask.name, number)}/kept-{place}",
                partition=place,
                task_attempt=0,
            )
            landing.files += kept
            # A file that does not list its items must be read to know whether it has rows of them.
            if sum(record.rows for record in kept) < file.rows:
                hit.append(file)
                landing.add_files(self.ask.name, file.schema_id, self.lease.run_id, kept)
        if hit:
            landing.remove_files(self.ask.name, [file.path for file in hit])

    def _replace(self, landing: Landing, schema_id: int, files: Sequence[FileRecord]) -> tuple[FileRecord, ...]:
        """Make the run's files the table, all at once; if they hold exactly the rows that are there, nothing changes.
        Returns the dead letter files that waited with them."""
        name = self.ask.name
        with self.store.catalog.snapshot() as connection:
            earlier = staged_files(connection, self.lease.run_id, name)
            states = table_states(connection, [name])
        groups = [(staged.schema_id, [f for f in staged.files if not is_dead_letters(f)]) for staged in earlier]
        groups = [(id_, staged) for id_, staged in [*groups, (schema_id, list(files))] if staged]
        landing.replace_files(name, states[0].files if states else (), groups, run_id=self.lease.run_id)
        return tuple(file for staged in earlier for file in staged.files if is_dead_letters(file))

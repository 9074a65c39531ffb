"""Land one slice: read it on Spark, write its files, and commit all its changes at once.

The schema is decided before the rows are written and committed with them. If the rows have unknown columns, or another
slice changed the schema meanwhile, the slice is written again with the newer schema; no commit names the files of the
first try.

Dead letters belong to what is in the table: when a file is read again its older dead letters are removed, and when a
table is replaced those of the previous run are, in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, Position
from headwater.base.table_schema import TableSchema
from headwater.catalog import dead_letters as d
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import dead_letter_files, read_dead_letters, take_out, take_out_all
from headwater.catalog.evolution import Evolution
from headwater.catalog.landing import Landing, try_directory, until_landed
from headwater.catalog.lookup import TableEntry, staged_files, table_entries, table_states
from headwater.catalog.queue import JobLease
from headwater.catalog.schema_decisions import refuse_change
from headwater.catalog.slice_jobs import SliceLease
from headwater.catalog.table_state import TableState
from headwater.coerce.row_errors import BadRow
from headwater.connectors.protocol import (
    ArrowRead,
    BadItem,
    BadRows,
    CursorKind,
    TableAsk,
)
from headwater.duck.unique_keys import current_hashes, keys_are_unique
from headwater.observe.counters import COUNTERS
from headwater.runtime.bad_items import check_bad_items, read_without
from headwater.runtime.execution import SparkStart
from headwater.runtime.inlet import InletTable, merge_observed, shown_to
from headwater.runtime.plan import evolve_table
from headwater.runtime.stored_slices import stored_slice
from headwater.runtime.traced import traced_commit, traced_slice
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import parse_attempt
from headwater.storage.part_writer import rewrite, rows_without, write_manifest

if TYPE_CHECKING:
    from headwater.spark.write_frame import SparkSession, Written

OPAQUE_TOKEN = CursorKind.OPAQUE_TOKEN


@dataclass(frozen=True)
class LandedSlice:
    rows: int
    bytes: int
    seq: int


@dataclass(frozen=True)
class SliceWork:
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
def land_slice(work: SliceWork) -> LandedSlice:
    """Read, write and commit one slice. Raises `TransientError` or `SliceGone`, which the caller handles, HW-T03 if the
    lease was lost, and any other error for good."""
    attempt = _SliceAttempt(work)
    attempt.leave_out(attempt.observed.bad_items if attempt.observed is not None else ())
    return until_landed(work.table.ask.name, attempt.land)


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


class _SliceAttempt:
    """A claimed slice on its way into its table, with the columns and the unreadable items found so far."""

    def __init__(self, work: SliceWork):
        self.work, self.store, self.ask, self.lease = work, work.store, work.table.ask, work.lease
        self.read = work.read
        self.observed = self.read.observed
        self.stored = stored_slice(work.lease.payload)
        self.bad: dict[str, BadItem] = {}

    def land(self, number: int) -> LandedSlice | None:
        """One try: write the slice for the table as it is now, and commit. None if it has found something new."""
        with self.store.catalog.snapshot() as connection:
            entry = table_entries(connection, [self.ask.name]).get(self.ask.name)
        if self.observed is None and number == 0 and entry is None and not _declares_enough(self.work.table):
            self._observe()
        evolution = evolve_table(entry, self.work.table, shown_to(entry, self.observed, self.ask))
        if evolution.refused:
            ask, actor, declared = self.ask, self.work.actor, self.work.table.declared
            raise refuse_change(self.store, ask.name, evolution, mode=ask.mode, actor=actor, declared=declared)
        with Landing(self.store, self.work.actor) as landing:
            written = self._write(landing, evolution.schema, number=number)
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

    def _observe(self) -> None:
        """Ask every partition for its columns, and leave out the bad items that this finds."""
        from headwater.spark.write_frame import observe_read

        self.observed = None
        if self.read.observe is not None:
            found = observe_read(self.work.spark(), self.read) if self.read.partitions else []
            self.observed = merge_observed(found)
            self.leave_out(self.observed.bad_items)

    def _write(self, landing: Landing, schema: TableSchema, *, number: int) -> Written:
        from headwater.spark.write_frame import WriteTarget, check_written, write_read

        known, read = b"", self.read
        if read.key_filter_column is not None and (state := self._state()) is not None:
            known = current_hashes(self.store.root, state, read.key_filter_column, read.key_filter_from)
        target = WriteTarget(
            root=self.store.root,
            directory=self._directory(self.ask.name, number),
            schema=schema,
            run_id=self.lease.run_id,
            ingested_at_us=now_us(),
            known_hashes=known,
        )
        written = write_read(self.work.spark(), read, target)
        landing.files += written.files
        check_written(written, max_bad_rows=self.ask.max_bad_rows)
        if written.cursor is not None and not self.stored.is_last and self.stored.cursor_kind == OPAQUE_TOKEN:
            message = f"a slice of `{self.ask.name}` reported a cursor, and slices after it are planned from its end"
            raise HeadwaterError("HW-C02", message, hint="the connector may report one for the last slice of a plan")
        return written

    def _directory(self, table: str, number: int) -> str:
        """The directory for a table's files of this try."""
        lease = self.lease
        return try_directory(table, lease.run_id, lease.unit_id, lease.attempt, number=number)

    def _state(self) -> TableState | None:
        with self.store.catalog.snapshot() as connection:
            return next(iter(table_states(connection, [self.ask.name])), None)

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
            d.add_dead_letters(landing, letters, run_id=run_id)
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
        return LandedSlice(written.rows, written.bytes, seq)

    def _write_letters(self, landing: Landing, written: Written, *, number: int) -> tuple[FileRecord, ...]:
        """The files of the slice's bad rows and items."""
        if not written.bad and not self.bad:
            return ()
        rows = [(row, row.error.place, self.read.format) for row in written.bad]
        items = [(BadRow(item.error, b""), item.source_id, d.WHOLE_FILE) for item in self.bad.values()]
        letters = [
            d.dead_letter_of(row, table=self.ask.name, pipeline=self.lease.pipeline, place=place, format_=format_)
            for row, place, format_ in (*rows, *items)
        ]
        directory = self._directory(d.TABLE, number)
        files = d.write_dead_letters(self.store.root, directory, letters, run_id=self.lease.run_id, number=0)
        landing.files += files
        return files

    def _take_out_older(self, landing: Landing, *, number: int) -> None:
        """Remove the dead letters that those of this slice replace: all of the table if it is replaced, else those of
        the slice's files. A file that cannot be read leaves the rows of its last readable version in the table, and so
        their dead letters; only those for the whole file are removed."""
        with self.store.catalog.snapshot() as connection:
            letters = dead_letter_files(connection, self.ask.name)
        if letters is None:
            return
        if self.ask.mode == "replace":
            take_out_all(landing, letters)
            return
        places = {item.source_id for item in self.stored.slice.items} - self.bad.keys()
        gone = {
            (kept.path, kept.row)
            for kept in read_dead_letters(self.store.root, letters)
            if kept.letter.place in places or (kept.letter.format == d.WHOLE_FILE and kept.letter.place in self.bad)
        }
        take_out(landing, letters, gone, directory=self._directory(d.TABLE, number))

    def _retire(self, landing: Landing, *, number: int) -> None:
        """Remove the rows of replaced items: files that hold nothing else leave the table, the others are rewritten."""
        gone = set(self.stored.slice.replaces) - self.bad.keys()
        state = self._state() if gone else None
        if state is None:
            return
        hit = []
        for place, file in enumerate(f for f in state.files if f.source_count or gone & f.sources.keys()):
            if file.sources and file.sources.keys() <= gone and sum(file.sources.values()) == file.rows:
                hit.append(file)
                continue
            kept = rewrite(
                self.store.root,
                rows_without(self.store.root, file, gone),
                schema=state.schemas[file.schema_id],
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
        state = self._state()
        groups = [(staged.schema_id, [f for f in staged.files if not _is_dead_letters(f)]) for staged in earlier]
        groups = [(id_, staged) for id_, staged in [*groups, (schema_id, list(files))] if staged]
        landing.replace_files(name, state.files if state is not None else (), groups, run_id=self.lease.run_id)
        return tuple(file for staged in earlier for file in staged.files if _is_dead_letters(file))


def _is_dead_letters(file: FileRecord) -> bool:
    """Whether a file that waits for the end of its run holds dead letters, not rows of the table."""
    attempt = parse_attempt(file.path)
    return attempt is not None and attempt.table == d.TABLE

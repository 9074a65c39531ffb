"""Land one slice: read it on Spark, write its files, and commit everything it changes at once.

The schema is decided before the rows are written and committed with them. Where the rows show columns that nobody
knew, or another slice changed the schema meanwhile, the slice is written again with the newer schema; the files of
the first try are never named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import Conflict, HeadwaterError, Place
from headwater.base.node import this_node
from headwater.base.schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.evolution import Evolution
from headwater.catalog.lookup import TableEntry, staged_files, table_entries, table_states
from headwater.catalog.queue import JobLease
from headwater.catalog.slices import SliceLease
from headwater.catalog.table_state import TableState
from headwater.connectors.protocol import (
    ArrowRead,
    BadItem,
    BadRows,
    Observed,
    SliceGone,
    SparkScan,
    TableAsk,
    TransientError,
)
from headwater.duck.unique_keys import current_hashes, keys_are_unique
from headwater.observe.counters import COUNTERS
from headwater.runtime.bad_items import check_bad_items, read_without
from headwater.runtime.inlet import InletTable
from headwater.runtime.observed_columns import merge_observed, shown_to
from headwater.runtime.plan import evolve_table
from headwater.runtime.slice_dead_letters import added_letters, is_letters, take_out_older, write_bad_rows
from headwater.runtime.spark_start import SparkStart
from headwater.runtime.stored_slices import StoredSlice, stored_slice
from headwater.runtime.table_changes import TableChanges, refuse
from headwater.runtime.traced import traced_commit, traced_slice
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import discard_files, rewrite_without, write_manifest

if TYPE_CHECKING:
    from headwater.spark.write_frame import SparkSession, WriteTarget, Written

SCHEMA_TRIES = 8
"""How often a slice is written again because its schema moved under it."""


@dataclass(frozen=True)
class Landed:
    rows: int
    bytes: int
    seq: int
    bad_rows: int = 0
    bad_files: int = 0
    """Those that were kept as dead letters."""


@dataclass(frozen=True)
class UnitWork:
    """All that landing one claimed unit takes."""

    store: Store
    lease: SliceLease
    table: InletTable
    read: ArrowRead | SparkScan
    spark: Callable[[], SparkSession]
    actor: str
    job: JobLease
    start: SparkStart


@traced_slice
def land_unit(work: UnitWork) -> Landed:
    """Read, write and commit one slice. Raises `TransientError` or `SliceGone` for the caller to decide about,
    HW-T03 if the lease was lost, and any other error for good."""
    stored = stored_slice(work.lease.payload)
    observed = work.read.observed if isinstance(work.read, ArrowRead) else None
    bad: dict[str, BadItem] = {}
    work = _leave_out(work, bad, observed.bad_items if observed is not None else ())
    for attempt in range(SCHEMA_TRIES):
        entry = _entry(work)
        if observed is None and attempt == 0 and entry is None and not _declares_enough(work.table):
            observed, work = _observe(work, bad)
        evolution = evolve_table(entry, work.table, shown_to(entry, observed, work.table.ask.exclude))
        if evolution.refused:
            ask = work.table.ask
            refuse(work.store, ask.name, evolution, mode=ask.mode, declared=work.table.declared, actor=work.actor)
        written = _write(work, evolution.schema, entry, number=attempt)
        if written.bad_items or written.unknown:
            discard_files(work.store.root, written.files)
            work = _leave_out(work, bad, written.bad_items)
            if written.unknown or observed is not None:
                observed, work = _observe(work, bad)
            continue
        written.bad_items = list(bad.values())
        try:
            return _commit(work, stored, entry, evolution, written, number=attempt)
        except Conflict:
            discard_files(work.store.root, written.files)
    raise HeadwaterError(
        "HW-T02",
        f"the schema of `{work.table.ask.name}` kept changing while a slice was written",
        hint="run the same command again",
        retryable=True,
    )


def bad_rows_error(ask: TableAsk, error: BadRows) -> HeadwaterError:
    """What is wrong with which rows, never their values."""
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
        places=tuple(Place(e.place, e.line, e.fault.column if e.fault else 0) for e in shown),
        detail={"table": table, "total": error.total, "rows": [e.as_json() for e in shown]},
    )


def _entry(work: UnitWork) -> TableEntry | None:
    with work.store.catalog.snapshot() as connection:
        name = work.table.ask.name
        return table_entries(connection, [name]).get(name)


def _declares_enough(table: InletTable) -> bool:
    """Whether a table can be made before its rows are read: it has declared columns, its key among them."""
    return bool(table.declared) and table.declared.keys() >= set(table.ask.primary_key)


def _observe(work: UnitWork, bad: dict[str, BadItem]) -> tuple[Observed | None, UnitWork]:
    """The columns of the whole slice, asked of every partition, and the work without the items that this found to be
    bad."""
    from headwater.spark.write_frame import observe_read

    read = work.read
    if not isinstance(read, ArrowRead) or read.observe is None:
        return None, work
    observed = merge_observed(observe_read(work.spark(), read) if read.partitions else [])
    return observed, _leave_out(work, bad, observed.bad_items)


def _leave_out(work: UnitWork, bad: dict[str, BadItem], found: Sequence[BadItem]) -> UnitWork:
    """The same work without items that cannot be read. Raises HW-C02 if there are more of them than are kept."""
    if not found:
        return work
    assert isinstance(work.read, ArrowRead)
    bad.update({item.source_id: item for item in found})
    check_bad_items(work.table.ask, bad.values())
    return replace(work, read=read_without(work.read, bad))


def _write(work: UnitWork, schema: TableSchema, entry: TableEntry | None, *, number: int) -> Written:
    from headwater.spark.write_frame import raise_bad, write_read

    written = write_read(work.spark(), work.read, _target(work, schema, entry, number=number))
    if written.gone is not None:
        raise SliceGone(written.gone)
    if written.transient is not None:
        raise TransientError(written.transient)
    if written.bad_items:
        return written  # what is wrong with the rows of such a slice is known when it was read without them
    raise_bad(written, max_bad_rows=work.table.ask.max_bad_rows)
    return written


def _target(work: UnitWork, schema: TableSchema, entry: TableEntry | None, *, number: int) -> WriteTarget:
    from headwater.spark.write_frame import WriteTarget

    known = b""
    if isinstance(work.read, ArrowRead) and work.read.key_filter_column is not None and entry is not None:
        state = _state(work)
        known = current_hashes(work.store.root, state, work.read.key_filter_column, work.read.key_filter_from)
    return WriteTarget(
        root=work.store.root,
        directory=_directory(work, work.table.ask.name, number),
        schema=schema,
        run_id=work.lease.run_id,
        ingested_at_us=now_us(),
        known_hashes=known,
    )


def _directory(work: UnitWork, table: str, number: int) -> str:
    """Where this try writes files of a table."""
    lease = work.lease
    directory = attempt_directory(
        table, run_id=lease.run_id, node=this_node(), unit_id=lease.unit_id, attempt=lease.attempt
    )
    return directory + (f"/again-{number}" if number else "")


def _state(work: UnitWork) -> TableState:
    with work.store.catalog.snapshot() as connection:
        (state,) = table_states(connection, [work.table.ask.name])
    return state


def _commit(
    work: UnitWork,
    stored: StoredSlice,
    entry: TableEntry | None,
    evolution: Evolution,
    written: Written,
    *,
    number: int,
) -> Landed:
    """One commit for all that the slice changes."""
    made = TableChanges(work.table.ask.name, work.lease.pipeline, work.table.ask.mode, work.lease.run_id)
    schema_id = made.set_schema(entry, evolution, has_rows=bool(written.files))
    if written.files:
        directory = written.files[0].path.rsplit("/", 1)[0]
        write_manifest(work.store.root, directory, written.files)
    letters = _write_letters(work, written, number=number)
    staged: tuple[FileRecord, ...] = ()
    if made.mode != "replace":
        _file_changes(work, stored, evolution.schema, schema_id, written, made, number=number)
        _letter_changes(work, stored, letters, made, written.bad_items, number=number)
    elif stored.is_last:
        waited = _replace_changes(work, schema_id, written, made)
        _letter_changes(work, stored, (*waited, *letters), made, written.bad_items, number=number)
    else:
        staged = (*written.files, *letters)
    changes, pipeline, table = made.changes, made.pipeline, made.table
    versions = {**written.items, **{item.source_id: item.version for item in written.bad_items}}
    items = {item.source_id: versions.get(item.source_id, item.version) for item in stored.slice.items}
    if items:
        changes.append(r.ItemsLanded(pipeline=pipeline, table=table, items=items))
    changes += [
        r.UnitDone(
            unit_id=work.lease.unit_id,
            rows=written.rows,
            bytes=written.bytes,
            staged=staged,
            staged_schema_id=schema_id if staged else 0,
            source_keys=work.read.source_keys if isinstance(work.read, ArrowRead) else None,
        ),
        r.CursorAdvanced(
            run_id=work.lease.run_id,
            pipeline=pipeline,
            table=table,
            kind=stored.cursor_kind,
            source_identity=stored.identity,
        ),
        r.RunSettled(run_id=work.lease.run_id),
    ]
    end = work.job.done(rows=written.rows, bytes=written.bytes, landed_run_id=work.lease.run_id)
    end = replace(end, spark_start_us=work.start.us)
    requires = (work.lease.fence, *made.requires)
    seq = traced_commit(work.store, r.Commit(changes=tuple(changes), requires=requires, actor=work.actor, ends=end))
    if written.bad:
        COUNTERS.add("rows_dead_lettered", table, times=len(written.bad))
    if written.bad_items:
        COUNTERS.add("files_dead_lettered", table, times=len(written.bad_items))
    return Landed(written.rows, written.bytes, seq, len(written.bad), len(written.bad_items))


def _write_letters(work: UnitWork, written: Written, *, number: int) -> tuple[FileRecord, ...]:
    if not written.bad and not written.bad_items:
        return ()
    assert isinstance(work.read, ArrowRead)
    return write_bad_rows(
        work.store,
        written.bad,
        written.bad_items,
        table=work.table.ask.name,
        pipeline=work.lease.pipeline,
        format_=work.read.format,
        directory=_directory(work, LETTERS, number),
        run_id=work.lease.run_id,
    )


def _letter_changes(
    work: UnitWork,
    stored: StoredSlice,
    letters: tuple[FileRecord, ...],
    made: TableChanges,
    bad_items: Sequence[BadItem],
    *,
    number: int,
) -> None:
    """The slice's bad rows and items, in place of those that its files, or the whole table before it, left. A file that
    cannot be read leaves the rows of its last readable version in the table, and so their letters."""
    bad = {item.source_id for item in bad_items}
    places = None if made.mode == "replace" else {item.source_id for item in stored.slice.items} - bad
    older = take_out_older(
        work.store, made.table, places=places, items=bad, directory=_directory(work, LETTERS, number)
    )
    made.changes += older.changes
    made.requires += older.requires
    made.changes += added_letters(work.store, letters, run_id=work.lease.run_id, actor=work.actor)


def _file_changes(
    work: UnitWork,
    stored: StoredSlice,
    schema: TableSchema,
    schema_id: int,
    written: Written,
    made: TableChanges,
    *,
    number: int,
) -> None:
    if written.files:
        unique = made.mode == "upsert" and keys_are_unique(work.store.root, written.files, schema)
        made.add_files(schema_id, tuple(written.files), unique_keys=unique)
    bad = {item.source_id for item in written.bad_items}
    replaced = tuple(source_id for source_id in stored.slice.replaces if source_id not in bad)
    if replaced and made.mode == "append" and schema_id:
        _retire(work, replaced, made, attempt=number)


def _retire(work: UnitWork, source_ids: tuple[str, ...], made: TableChanges, *, attempt: int) -> None:
    """Take the rows that these items landed before out of the table: files that hold nothing else leave it, the
    others are written again without them."""
    gone = set(source_ids)
    states = [] if _entry(work) is None else [_state(work)]
    hit = [file for state in states for file in state.files if gone & file.sources.keys()]
    if not hit:
        return
    for number, file in enumerate(hit):
        if file.sources.keys() <= gone and sum(file.sources.values()) == file.rows:
            continue
        directory = f"{_directory(work, made.table, attempt)}/kept-{number}"
        kept = rewrite_without(
            work.store.root,
            file,
            schema=states[0].schemas[file.schema_id],
            drop_source_ids=gone,
            directory=directory,
            partition=number,
            task_attempt=0,
        )
        if kept:
            made.add_files(file.schema_id, kept)
    made.remove_files(tuple(file.path for file in hit))


def _replace_changes(work: UnitWork, schema_id: int, written: Written, made: TableChanges) -> tuple[FileRecord, ...]:
    """The run's files become the table, all at once; if they hold exactly the rows that are there, nothing does.
    Answers with the files of letters that waited with them."""
    with work.store.catalog.snapshot() as connection:
        earlier = staged_files(connection, work.lease.run_id, made.table)
        states = table_states(connection, [made.table])
    groups = [(staged.schema_id, tuple(f for f in staged.files if not is_letters(f))) for staged in earlier]
    groups = [(staged_id, files) for staged_id, files in groups if files]
    if written.files:
        groups.append((schema_id, tuple(written.files)))
    made.replace_files(states[0].files if states else (), groups)
    return tuple(file for staged in earlier for file in staged.files if is_letters(file))

"""Land one slice: read it on Spark, write its files, and commit everything it changes at once.

The schema is decided before the rows are written and committed with them. Where the rows show columns that nobody
knew, or another slice changed the schema meanwhile, the slice is written again with the newer schema; the files of
the first try are never named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, Place
from headwater.base.schema import TableSchema
from headwater.connectors.protocol import (
    ArrowRead,
    BadRows,
    Observed,
    SliceGone,
    SparkScan,
    TransientError,
)
from headwater.runtime.inlet import InletTable
from headwater.runtime.observe import merge_observed, shown_to
from headwater.runtime.plan import evolve_table
from headwater.runtime.units import StoredSlice, stored_slice
from headwater.store import records as r
from headwater.store.commit import Store
from headwater.store.decisions import refuse_change
from headwater.store.evolution import Evolution, refusal
from headwater.store.keys import current_hashes, keys_are_unique
from headwater.store.layout import attempt_directory, this_node
from headwater.store.reading import TableEntry, staged_files, table_entries, table_states
from headwater.store.state import LiveFile, TableState
from headwater.store.units import Lease
from headwater.store.write import rewrite_without, write_manifest

if TYPE_CHECKING:
    from headwater.spark.write_frame import SparkSession, WriteTarget, Written

SCHEMA_TRIES = 8
"""How often a slice is written again because its schema moved under it."""


@dataclass(frozen=True)
class Landed:
    rows: int
    bytes: int
    seq: int


@dataclass(frozen=True)
class UnitWork:
    """All that landing one claimed unit takes."""

    store: Store
    lease: Lease
    table: InletTable
    read: ArrowRead | SparkScan
    spark: Callable[[], SparkSession]
    actor: str


def land_unit(work: UnitWork) -> Landed:
    """Read, write and commit one slice. Raises `TransientError` or `SliceGone` for the caller to decide about,
    HW-T03 if the lease was lost, and any other error for good."""
    stored = stored_slice(work.lease.payload)
    observed = work.read.observed if isinstance(work.read, ArrowRead) else None
    for attempt in range(SCHEMA_TRIES):
        entry = _entry(work)
        if observed is None and attempt == 0 and entry is None and not work.table.declared:
            observed = _observe(work)
        evolution = evolve_table(entry, work.table, shown_to(entry, observed))
        if evolution.refused:
            _refuse(work, evolution)
        written = _write(work, evolution.schema, entry, number=attempt)
        if written.unknown:
            observed = _observe(work)
            continue
        try:
            return _commit(work, stored, entry, evolution, written)
        except HeadwaterError as conflict:
            if conflict.code != "HW-T02":
                raise
    raise HeadwaterError(
        "HW-T02",
        f"the schema of `{work.table.ask.name}` kept changing while a slice was written",
        hint="run the same command again",
        retryable=True,
    )


def bad_rows_error(table: str, error: BadRows) -> HeadwaterError:
    """What is wrong with which rows, never their values."""
    shown = error.errors[: limits.ERRORS_SHOWN]
    first = shown[0]
    column = f", column `{first.column}`" if first.column else ""
    found = f" ({first.value_type})" if first.value_type else ""
    more = f", and {error.total - 1} more" if error.total > 1 else ""
    return HeadwaterError(
        "HW-C04",
        f"a row cannot be landed in `{table}`{column}: {first.reason}{found}{more}",
        hint="mend the rows at the source, or declare the column with a type that takes them",
        places=tuple(Place(e.place, e.line) for e in shown),
        detail={
            "table": table,
            "total": error.total,
            "rows": [{"line": e.line, "column": e.column, "reason": e.reason, "type": e.value_type} for e in shown],
        },
    )


def _entry(work: UnitWork) -> TableEntry | None:
    with work.store.catalog.snapshot() as connection:
        return table_entries(connection).get(work.table.ask.name)


def _observe(work: UnitWork) -> Observed | None:
    """The columns of the whole slice, asked of every partition."""
    from headwater.spark.write_frame import observe_read

    if not isinstance(work.read, ArrowRead) or work.read.observe is None:
        return None
    return merge_observed(observe_read(work.spark(), work.read))


def _write(work: UnitWork, schema: TableSchema, entry: TableEntry | None, *, number: int) -> Written:
    from headwater.spark.write_frame import raise_bad, write_read

    written = write_read(work.spark(), work.read, _target(work, schema, entry, number=number))
    if written.gone is not None:
        raise SliceGone(written.gone)
    if written.transient is not None:
        raise TransientError(written.transient)
    raise_bad(written)
    return written


def _target(work: UnitWork, schema: TableSchema, entry: TableEntry | None, *, number: int) -> WriteTarget:
    from headwater.spark.write_frame import WriteTarget

    known = b""
    if isinstance(work.read, ArrowRead) and work.read.key_filter_column is not None and entry is not None:
        state = _state(work)
        known = current_hashes(work.store.root, state, work.read.key_filter_column, work.read.key_filter_from)
    return WriteTarget(
        root=work.store.root,
        directory=_directory(work) + (f"/again-{number}" if number else ""),
        schema=schema,
        run_id=work.lease.run_id,
        ingested_at_us=now_us(),
        known_hashes=known,
    )


def _directory(work: UnitWork) -> str:
    lease = work.lease
    return attempt_directory(
        lease.table, run_id=lease.run_id, node=this_node(), unit_id=lease.unit_id, attempt=lease.attempt
    )


def _state(work: UnitWork) -> TableState:
    with work.store.catalog.snapshot() as connection:
        (state,) = table_states(connection, [work.table.ask.name])
    return state


def _refuse(work: UnitWork, evolution: Evolution) -> None:
    """Note the refused change, so that `schema accept` finds it, and stop."""
    ask = work.table.ask
    refuse_change(work.store, ask.name, evolution, mode=ask.mode, actor=work.actor)
    raise refusal(ask.name, evolution.refused, work.table.declared)


def _commit(
    work: UnitWork, stored: StoredSlice, entry: TableEntry | None, evolution: Evolution, written: Written
) -> Landed:
    """One commit for all that the slice changes."""
    changes: list[r.Change] = []
    requires: list[r.Requirement] = [work.lease.fence]
    schema_id = _schema_changes(work, entry, evolution, changes, requires)
    if written.files:
        directory = written.files[0].path.rsplit("/", 1)[0]
        write_manifest(work.store.root, directory, written.files)
    staged: tuple[r.FileRecord, ...] = ()
    if work.table.ask.mode != "replace":
        _file_changes(work, stored, evolution.schema, schema_id, written, changes, requires)
    elif stored.is_last:
        _replace_changes(work, schema_id, written, changes, requires)
    else:
        staged = tuple(written.files)
    pipeline, table = work.lease.pipeline, work.table.ask.name
    items = {item.source_id: written.items.get(item.source_id, item.version) for item in stored.slice.items}
    if items:
        changes.append(r.ItemsLanded(pipeline=pipeline, table=table, items=items))
    changes += [
        r.UnitDone(
            unit_id=work.lease.unit_id,
            rows=written.rows,
            bytes=written.bytes,
            staged=staged,
            staged_schema_id=schema_id if staged else 0,
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
    seq = work.store.commit(r.Commit(changes=tuple(changes), requires=tuple(requires), actor=work.actor))
    return Landed(written.rows, written.bytes, seq)


def _schema_changes(
    work: UnitWork,
    entry: TableEntry | None,
    evolution: Evolution,
    changes: list[r.Change],
    requires: list[r.Requirement],
) -> int:
    """Add what the schema needs; returns the schema id that the new files have."""
    ask = work.table.ask
    if not evolution.events:
        assert entry is not None
        return entry.schema_id
    old_id = entry.schema_id if entry is not None else 0
    if entry is None:
        if not evolution.schema.columns:
            return 0  # an empty source shows no column: the table is made when there is something to put into it
        changes.append(r.TableCreated(table=ask.name, pipeline=work.lease.pipeline, mode=ask.mode))
    requires.append(r.SchemaIs(table=ask.name, schema_id=old_id))
    schema = evolution.schema.as_json()
    changes.append(r.SchemaSet(table=ask.name, schema_id=old_id + 1, schema=schema, events=evolution.events))
    return old_id + 1


def _file_changes(
    work: UnitWork,
    stored: StoredSlice,
    schema: TableSchema,
    schema_id: int,
    written: Written,
    changes: list[r.Change],
    requires: list[r.Requirement],
) -> None:
    ask = work.table.ask
    if written.files:
        unique = ask.mode == "upsert" and keys_are_unique(work.store.root, written.files, schema)
        changes.append(_added(work, schema_id, tuple(written.files), unique=unique))
    if stored.slice.replaces and ask.mode == "append" and schema_id:
        _retire(work, stored.slice.replaces, changes, requires)


def _retire(
    work: UnitWork, source_ids: tuple[str, ...], changes: list[r.Change], requires: list[r.Requirement]
) -> None:
    """Take the rows that these items landed before out of the table: files that hold nothing else leave it, the
    others are written again without them."""
    gone = set(source_ids)
    states = [] if _entry(work) is None else [_state(work)]
    hit = [file for state in states for file in state.files if gone & file.sources.keys()]
    if not hit:
        return
    paths = tuple(file.path for file in hit)
    for number, file in enumerate(hit):
        if file.sources.keys() <= gone and sum(file.sources.values()) == file.rows:
            continue
        directory = f"{_directory(work)}/kept-{number}"
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
            changes.append(_added(work, file.schema_id, kept, unique=False))
    changes.append(r.FilesRemoved(table=work.table.ask.name, paths=paths))
    requires.append(r.FilesLive(table=work.table.ask.name, paths=paths))


def _replace_changes(
    work: UnitWork, schema_id: int, written: Written, changes: list[r.Change], requires: list[r.Requirement]
) -> None:
    """The run's files become the table, all at once; if they hold exactly the rows that are there, nothing does."""
    table = work.table.ask.name
    with work.store.catalog.snapshot() as connection:
        earlier = staged_files(connection, work.lease.run_id, table)
        states = table_states(connection, [table])
    live = states[0].files if states else ()
    groups = [(staged.schema_id, staged.files) for staged in earlier]
    if written.files:
        groups.append((schema_id, tuple(written.files)))
    schema_moved = any(isinstance(change, r.SchemaSet) for change in changes)
    same = bool(live) and _content(live) == _content([f for _, files in groups for f in files])
    if same and not schema_moved:
        return
    changes += [_added(work, group_id, files, unique=False) for group_id, files in groups]
    if live:
        paths = tuple(file.path for file in live)
        changes.append(r.FilesRemoved(table=table, paths=paths))
        requires.append(r.FilesLive(table=table, paths=paths))


def _content(files: Sequence[r.FileRecord | LiveFile]) -> tuple[int, int]:
    """The number of rows and the sum of their content hashes; an unknown sum is equal to no other."""
    rows = sum(file.rows for file in files)
    if any(file.content_sum is None for file in files):
        return rows, -1
    return rows, sum(int(file.content_sum or "0", 16) for file in files) % (1 << 128)


def _added(work: UnitWork, schema_id: int, files: tuple[r.FileRecord, ...], *, unique: bool) -> r.FilesAdded:
    return r.FilesAdded(
        table=work.table.ask.name, schema_id=schema_id, run_id=work.lease.run_id, files=files, unique_keys=unique
    )

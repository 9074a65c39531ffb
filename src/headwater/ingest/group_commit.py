"""What a group of pushed batches changes: its table, its files, and the changes of its commit."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.node import this_node
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.database import Catalog
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import DeadLetter, add_dead_letters, dead_letter_of, write_dead_letters
from headwater.catalog.evolution import Evolution, Shown, evolve
from headwater.catalog.landing import Landing
from headwater.catalog.lease import Lease, lease_seconds, renew
from headwater.catalog.lookup import TableEntry, owned_by_another, table_entries
from headwater.catalog.push_writers import end_writer, new_writer
from headwater.catalog.schema_decisions import refuse_change
from headwater.coerce.row_errors import BadRow
from headwater.ingest.first_columns import undeclared
from headwater.ingest.prepare import Prepared, wider
from headwater.ingest.push_records import Accepted, Push, PushTable
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa

SEND_AGAIN = "send the same batch again; nothing of it was written"
FILES_PER_DIRECTORY = 1_000
_UNSURE_KINDS = frozenset({"real"})
"""Types for which Arrow and DuckDB may differ on whether two keys are equal: 0.0 and -0.0."""


@dataclass(frozen=True)
class Base:
    """The table that a batch is prepared for: as it is stored, and with what the manifest has changed since."""

    entry: TableEntry | None
    mode: str
    evolution: Evolution

    @property
    def schema(self) -> TableSchema:
        return self.evolution.schema


@dataclass
class Files:
    """Names for files, each used once: a process writes many small files into a few directories."""

    writer: Lease
    run_id: str = field(default_factory=uuid7)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, table: str) -> tuple[str, str, int]:
        """A run, its directory, and a free number in it."""
        with self._lock:
            number = next(self._numbers)
            if number and number % FILES_PER_DIRECTORY == 0:
                self.run_id = uuid7()
            run_id = self.run_id
        unit = self.writer.id
        return run_id, attempt_directory(table, run_id=run_id, node=this_node(), unit_id=unit, attempt=1), number


class PushWriter:
    """The lease that files are written under, so that gc leaves them alone. It is claimed when it is first needed, and
    renewed early enough; after it was lost, files get names under another."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._lock = threading.Lock()
        self._files: Files | None = None
        self._renewed_at = 0.0

    def files(self) -> Files:
        with self._lock:
            now = time.monotonic()
            if self._files is None or now - self._renewed_at > lease_seconds() / 3:
                if self._files is None or not renew(self._catalog, self._files.writer):
                    self._files = Files(new_writer(self._catalog))
                self._renewed_at = now
            return self._files

    def forget(self, lost: Lease) -> None:
        with self._lock:
            if self._files is not None and self._files.writer == lost:
                self._files = None

    def close(self) -> None:
        """Leaves files that were written and not committed to gc."""
        with self._lock:
            files, self._files = self._files, None
        if files is not None:
            end_writer(self._catalog, files.writer)


@contextmanager
def kept_files(catalog: Catalog) -> Iterator[Files]:
    """Names for files that take long to write: a thread renews their own lease until the block ends."""
    done = threading.Event()

    def keep(lease: Lease) -> None:
        while not done.wait(lease_seconds() / 3):
            with suppress(HeadwaterError):  # the catalog does not answer: the commit checks the lease anyway
                renew(catalog, lease)

    with closing(PushWriter(catalog)) as writer:
        files = writer.files()
        keeper = threading.Thread(target=keep, args=[files.writer], name="writer-keeper", daemon=True)
        keeper.start()
        try:
            yield files
        finally:
            done.set()
            keeper.join()


@dataclass(frozen=True)
class LandedPush:
    """A batch of a commit, and its share of the bytes of the files."""

    push: Push
    prepared: Prepared
    bytes: int

    def answer(self, seq: int) -> Accepted:
        errors = tuple(row.error for row in self.prepared.bad[: limits.ERRORS_SHOWN])
        return Accepted(str(seq), self.prepared.rows, self.bytes, rows_refused=len(self.prepared.bad), errors=errors)


@dataclass(frozen=True)
class WrittenRows:
    """The files of one or more batches, all with this schema, and their bad rows that are not known yet."""

    run_id: str
    schema: TableSchema
    files: tuple[FileRecord, ...]
    bad: tuple[BadRow, ...]
    unique_keys: bool


def base_of(connection: Connection, target: PushTable) -> Base:
    """The table as it is now, or as its first push creates it. Raises HW-I03 and HW-T07."""
    entry = table_entries(connection, [target.table]).get(target.table)
    if entry is None:
        _check_new(connection, target)
        shown = Shown(undeclared(target.declared, target.primary_key))
        made = evolve(None, shown, declared=target.declared, primary_key=target.primary_key)
        return Base(None, target.mode, made)
    _check_owner(connection, target, entry)
    if not target.in_manifest:
        return Base(entry, entry.mode, Evolution(entry.schema))
    modes = (entry.mode, target.mode)
    found = evolve(entry.schema, Shown({}), declared=target.declared, primary_key=target.primary_key, modes=modes)
    return Base(entry, target.mode, found)


def check_base(store: Store, target: PushTable, base: Base, *, actor: str) -> None:
    """Raises HW-S01 and HW-S02 if the manifest declares a change that needs a decision. The change is stored for
    `schema accept`, as an apply would do."""
    if base.evolution.refused:
        declared = target.declared
        raise refuse_change(store, target.table, base.evolution, mode=target.mode, actor=actor, declared=declared)


def land_pushes(
    landing: Landing, files: Files, base: Base, pushes: Sequence[tuple[Push, Prepared | None]]
) -> list[LandedPush]:
    """Write batches of one table and their dead letters, and add them to the commit. A batch that its sender writes
    has no rows in memory, and is the only one."""
    import pyarrow as pa

    push = pushes[0][0]
    if push.write is not None:
        written = push.write(base, files, landing)
        _add_rows(landing, push.target, base, written)
        rows, size = sum(file.rows for file in written.files), sum(file.bytes for file in written.files)
        landed = [LandedPush(push, Prepared(pa.RecordBatch.from_pylist([]), rows, written.bad), size)]
    else:
        batches = [prepared for _, prepared in pushes if prepared is not None]
        size = land_batches(landing, files, push.target, base, batches)
        rows = sum(prepared.rows for prepared in batches) or 1
        landed = [LandedPush(push, each, size * each.rows // rows) for (push, _), each in zip(pushes, batches)]
    _land_bad(landing, files, landed)
    return landed


def land_batches(landing: Landing, files: Files, target: PushTable, base: Base, batches: Sequence[Prepared]) -> int:
    """Write all batches, in their order, in as few files as possible, and add them to the commit. Returns the bytes of
    the files."""
    names = (name for prepared in batches for name in prepared.added)
    schema = wider(base.schema, names, rescues=any(prepared.rescues for prepared in batches))
    run_id, directory, number = files.next(target.table)
    writer = PartWriter(
        landing.store.root,
        directory,
        schema=schema,
        partition=0,
        task_attempt=number,
        run_id=run_id,
        ingested_at_us=now_us(),
    )
    with writer:
        for batch in _joined(batches):
            writer.write(batch)
    written = writer.close()
    landing.files += written
    unique = base.mode == "upsert" and len(written) > 0 and _keys_are_unique(schema, batches)
    _add_rows(landing, target, base, WrittenRows(run_id, schema, written, (), unique))
    return sum(file.bytes for file in written)


def _add_rows(landing: Landing, target: PushTable, base: Base, written: WrittenRows) -> None:
    """Adds the files and their new columns to the commit. Without a row the table stays as it is."""
    if written.files:
        evolution = base.evolution.extended(written.schema)
        schema_id = landing.evolve(
            target.table,
            base.entry,
            evolution,
            pipeline=target.pipeline,
            mode=base.mode,
            has_rows=True,
            pinned=True,
        )
        landing.add_files(target.table, schema_id, written.run_id, written.files, unique_keys=written.unique_keys)


def add_keys(landing: Landing, landed: Sequence[tuple[str, LandedPush]], *, ttl_seconds: float) -> None:
    """Adds the keys of batches of one table to the commit, each with its fingerprint and its answer."""
    keys = [
        r.LedgerKeySet(
            table=each.push.target.table,
            key=each.push.key or "",
            fingerprint=sent,
            rows=each.prepared.rows,
            bytes=each.bytes,
            refused=len(each.prepared.bad),
            expires_us=now_us() + int(ttl_seconds * 1e6) if each.push.key_expires else None,
        )
        for sent, each in landed
    ]
    if keys:
        landing.changes += keys
        landing.requires.append(r.KeysFree(table=keys[0].table, keys=tuple(key.key for key in keys)))


def _land_bad(landing: Landing, files: Files, landed: Sequence[LandedPush]) -> None:
    """Write the bad rows that are kept as dead letters, and add them to the commit."""
    kept = [each for each in landed if each.push.on_bad_row == "dead_letter"]
    letters = [_letter(each.push, row) for each in kept for row in each.prepared.bad]
    if letters:
        run_id, directory, number = files.next(LETTERS)
        written = write_dead_letters(landing.store.root, directory, letters, run_id=run_id, number=number)
        landing.files += written
        add_dead_letters(landing, written, run_id=run_id)


def _letter(push: Push, row: BadRow) -> DeadLetter:
    place = push.source or push.key or ""
    return dead_letter_of(row, table=push.target.table, pipeline=push.target.pipeline, place=place, format_=push.format)


def _check_new(connection: Connection, target: PushTable) -> None:
    if not target.in_manifest and not target.may_create:
        raise HeadwaterError(
            "HW-T07",
            f"there is no table `{target.table}`, and this push may not make one",
            hint='declare it in a pipeline with `source = { connector = "push" }`, or allow that it is made',
        )
    if connection.execute(select(t.view.c.name).where(t.view.c.name == target.table)).first() is not None:
        raise HeadwaterError("HW-I03", f"`{target.table}` is a view", hint="push to a table of another name")


def _check_owner(connection: Connection, target: PushTable, entry: TableEntry) -> None:
    """A table that the manifest does not declare takes pushes only if pushes created it. If a pipeline that is gone
    from the manifest filled it, its rows stay as they are."""
    landed = select(t.run.c.run_id).where(t.run.c.pipeline == entry.pipeline).limit(1)
    owned = entry.pipeline == target.pipeline
    if not owned or not (target.in_manifest or connection.execute(landed).first() is None):
        raise owned_by_another(entry, "HW-I03", hint="push to a table of another name")


def _joined(batches: Sequence[Prepared]) -> Iterator[pa.RecordBatch]:
    """Joins the rows of neighbouring batches that have the same columns: an operation on a batch costs as much for one
    row as for a thousand. A large batch comes in parts."""
    import pyarrow as pa

    for _, alike in itertools.groupby((prepared.batch for prepared in batches), key=lambda batch: batch.schema):
        yield from pa.Table.from_batches(list(alike)).combine_chunks().to_batches(limits.ROW_GROUP_ROWS)


def _keys_are_unique(schema: TableSchema, batches: Sequence[Prepared]) -> bool:
    """True if it is certain that no primary key appears twice in the rows. `duck.unique_keys` checks the same for
    files, and treats NaN and -0.0 as DuckDB does."""
    import pyarrow as pa

    kinds = {column.type.kind for column in schema.columns if column.name in schema.primary_key}
    if not schema.primary_key or kinds & _UNSURE_KINDS:
        return False
    keys = pa.Table.from_batches([prepared.batch.select(list(schema.primary_key)) for prepared in batches])
    return bool(keys.group_by(list(schema.primary_key)).aggregate([]).num_rows == keys.num_rows)

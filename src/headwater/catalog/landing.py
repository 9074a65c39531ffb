"""The one way into a table: files are written, and one commit names them and says all else that changes.

Slices, ripples, pushed batches, dropped files, dead letters and merges land through a `Landing`. The caller reads the
table, decides its next schema (`catalog.evolution`) and writes files; the landing says what that means for the table,
commits it, and deletes the files that no commit names. `until_landed` starts again from the new state if the table has
moved meanwhile. Records that create a table, set a schema, add files or remove them are made here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from headwater.base import limits
from headwater.base.errors import Conflict, HeadwaterError
from headwater.base.node import this_node
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import InboxEvent, JobEnd
from headwater.catalog.evolution import Evolution
from headwater.catalog.lookup import TableEntry
from headwater.storage.file_record import FileRecord, LiveFile
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import discard_files

T = TypeVar("T")


@dataclass
class Landing:
    """One commit on its way, for use in a `with` block. When the block ends, the files that no commit names are
    deleted: what is tried again must not fill the disk until gc runs."""

    store: Store
    actor: str
    changes: list[r.Change] = field(default_factory=list)
    requires: list[r.Requirement] = field(default_factory=list)
    """What must still be so when the commit is made."""
    files: list[FileRecord] = field(default_factory=list)
    """Every file that was written for the commit, also if it will not be named."""
    named: set[str] = field(default_factory=set)
    """The paths that the commit names."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        discard_files(self.store.root, self.files)

    def evolve(
        self,
        table: str,
        entry: TableEntry | None,
        evolution: Evolution,
        *,
        pipeline: str,
        mode: str,
        has_rows: bool,
        pinned: bool = False,
    ) -> int:
        """Create the table or change its schema, if the evolution says so. Returns the schema id that new files have.
        Rows create a table even if no column is known yet. With `pinned` the commit also requires a schema that does
        not change."""
        old_id = entry.schema_id if entry is not None else 0
        if evolution.events:
            if entry is None:
                if not evolution.schema.columns and not has_rows:
                    return 0  # an empty source shows no column: the table is created when there is a row
                self.changes.append(r.TableCreated(table=table, pipeline=pipeline, mode=mode))
            return self.set_schema(table, old_id, evolution.schema, evolution.events)
        if pinned:
            self.requires.append(r.SchemaIs(table=table, schema_id=old_id))
        return old_id

    def set_schema(
        self,
        table: str,
        old_id: int,
        schema: TableSchema,
        events: tuple[r.SchemaEvent, ...],
        *,
        decided_by: str = "auto",
    ) -> int:
        """The table gets this schema in place of the one with the old id. Returns the new id."""
        self.requires.append(r.SchemaIs(table=table, schema_id=old_id))
        body = schema.as_json()
        new = r.SchemaSet(table=table, schema_id=old_id + 1, schema=body, events=events, decided_by=decided_by)
        self.changes.append(new)
        return new.schema_id

    def add_files(
        self, table: str, schema_id: int, run_id: str, files: Sequence[FileRecord], *, unique_keys: bool = False
    ) -> None:
        """These files join the table."""
        if files:
            self.name_files(files)
            added = r.FilesAdded(
                table=table, schema_id=schema_id, run_id=run_id, files=tuple(files), unique_keys=unique_keys
            )
            self.changes.append(added)

    def remove_files(self, table: str, paths: Sequence[str]) -> None:
        """These files leave the table; they must be part of it until then."""
        self.changes.append(r.FilesRemoved(table=table, paths=tuple(paths)))
        self.requires.append(r.FilesLive(table=table, paths=tuple(paths)))

    def replace_files(
        self, table: str, live: Sequence[LiveFile], groups: Sequence[tuple[int, Sequence[FileRecord]]], *, run_id: str
    ) -> bool:
        """The groups (a schema id and its files) become the table, all at once. If they hold exactly the rows that
        are there, in the schema that is there, nothing does: False."""
        schema_moved = any(isinstance(change, r.SchemaSet) and change.table == table for change in self.changes)
        same = bool(live) and _content(live) == _content([f for _, files in groups for f in files])
        if same and not schema_moved:
            return False
        for schema_id, files in groups:
            self.add_files(table, schema_id, run_id, files)
        if live:
            self.remove_files(table, [file.path for file in live])
        return bool(live or groups)

    def merge_files(
        self,
        table: str,
        schema_id: int,
        files: Sequence[FileRecord],
        replaced: Sequence[LiveFile],
        *,
        unique_keys: bool,
    ) -> None:
        """These files take the place of others that hold the same rows."""
        self.name_files(files)
        paths = tuple(file.path for file in replaced)
        merged = r.FilesMerged(
            table=table,
            schema_id=schema_id,
            run_id=replaced[-1].run_id,
            files=tuple(files),
            replaces=paths,
            unique_keys=unique_keys,
        )
        self.changes.append(merged)
        self.requires.append(r.FilesLive(table=table, paths=paths))

    def commit(
        self,
        *,
        changes: Sequence[r.Change] = (),
        requires: Sequence[r.Requirement] = (),
        events: tuple[InboxEvent, ...] = (),
        ends: JobEnd | None = None,
        send: Callable[[Store, r.Commit], int] = Store.commit,
    ) -> int:
        """Commit everything at once, with what else is given; returns the sequence. Raises what `Store.commit` does."""
        commit = r.Commit(
            changes=(*self.changes, *changes),
            requires=(*requires, *self.requires),
            actor=self.actor,
            events=events,
            ends=ends,
        )
        try:
            seq = send(self.store, commit)
        except Conflict:
            raise
        except BaseException:
            # Only a conflict proves that no commit names the files. A lease may be lost because this very work was
            # committed and the answer never came; after any other error the transaction may have ended well. gc asks
            # the catalog before it deletes such files.
            self.files.clear()
            raise
        self.files = [file for file in self.files if file.path not in self.named]
        return seq

    def name_files(self, files: Sequence[FileRecord]) -> None:
        """A change of the commit names these files."""
        self.named.update(file.path for file in files)


def until_landed(
    table: str,
    attempt: Callable[[int], T | None],
    *,
    hint: str = "run the same command again",
    moved: Callable[[], bool] = lambda: True,
) -> T:
    """Call `attempt` with 0, 1, ... until it returns something. It is called again after None, and after a conflict if
    the table has `moved`. Raises HW-T02, with the last conflict, after `limits.LANDING_TRIES` calls."""
    reason = "the table kept changing"
    for number in range(limits.LANDING_TRIES):
        try:
            landed = attempt(number)
        except Conflict as error:
            if not moved():
                raise
            landed, reason = None, error.message
        if landed is not None:
            return landed
    raise HeadwaterError("HW-T02", f"rows for `{table}` could not be landed: {reason}", hint=hint, retryable=True)


def try_directory(table: str, run_id: str, unit_id: str, attempt: int, *, number: int) -> str:
    """The directory for the files of one try of `until_landed`."""
    directory = attempt_directory(table, run_id=run_id, node=this_node(), unit_id=unit_id, attempt=attempt)
    return directory + (f"/again-{number}" if number else "")


def _content(files: Sequence[FileRecord | LiveFile]) -> tuple[int, int]:
    """The number of rows and the sum of their content hashes; an unknown sum is equal to no other."""
    rows = sum(file.rows for file in files)
    if any(file.content_sum is None for file in files):
        return rows, -1
    return rows, sum(int(file.content_sum or "0", 16) for file in files) % (1 << 128)

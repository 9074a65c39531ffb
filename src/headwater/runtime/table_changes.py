"""What a commit says about one table, gathered step by step: its schema, its new files, the ones they replace.

Slices and ripples both land through here, so that a table is created, evolved and replaced in one way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.evolution import Evolution, refusal
from headwater.catalog.lookup import TableEntry
from headwater.catalog.schema_decisions import refuse_change
from headwater.storage.file_record import FileRecord, LiveFile


@dataclass
class TableChanges:
    """Changes of one table, and what must still be so when they are made."""

    table: str
    pipeline: str
    mode: str
    run_id: str
    changes: list[r.Change] = field(default_factory=list)
    requires: list[r.Requirement] = field(default_factory=list)

    def set_schema(self, entry: TableEntry | None, evolution: Evolution, *, has_rows: bool) -> int:
        """Add what the schema needs; answers with the schema id that the new files have. Rows make a table even if
        none of them has a value, and so no column is known yet."""
        if not evolution.events:
            assert entry is not None
            return entry.schema_id
        old_id = entry.schema_id if entry is not None else 0
        if entry is None:
            if not evolution.schema.columns and not has_rows:
                return 0  # an empty source shows no column: the table is made when there is something to put into it
            self.changes.append(r.TableCreated(table=self.table, pipeline=self.pipeline, mode=self.mode))
        self.requires.append(r.SchemaIs(table=self.table, schema_id=old_id))
        schema = evolution.schema.as_json()
        self.changes.append(r.SchemaSet(table=self.table, schema_id=old_id + 1, schema=schema, events=evolution.events))
        return old_id + 1

    def add_files(self, schema_id: int, files: tuple[FileRecord, ...], *, unique_keys: bool = False) -> None:
        self.changes.append(
            r.FilesAdded(
                table=self.table, schema_id=schema_id, run_id=self.run_id, files=files, unique_keys=unique_keys
            )
        )

    def remove_files(self, paths: tuple[str, ...]) -> None:
        """These files leave the table; they must be part of it until then."""
        self.changes.append(r.FilesRemoved(table=self.table, paths=paths))
        self.requires.append(r.FilesLive(table=self.table, paths=paths))

    def replace_files(self, live: Sequence[LiveFile], groups: Sequence[tuple[int, tuple[FileRecord, ...]]]) -> bool:
        """The groups (a schema id and its files) become the table, all at once. If they hold exactly the rows that
        are there, in the schema that is there, nothing does: False."""
        schema_moved = any(isinstance(change, r.SchemaSet) for change in self.changes)
        same = bool(live) and _content(live) == _content([f for _, files in groups for f in files])
        if same and not schema_moved:
            return False
        for schema_id, files in groups:
            self.add_files(schema_id, files)
        if live:
            self.remove_files(tuple(file.path for file in live))
        return bool(live or groups)


def check_owner(entry: TableEntry | None, pipeline: str, *, hint: str) -> None:
    """A table belongs to the pipeline that made it. Raises HW-M04 for any other."""
    if entry is not None and entry.pipeline != pipeline:
        message = f"table `{entry.name}` belongs to pipeline `{entry.pipeline}`"
        raise HeadwaterError("HW-M04", message, hint=hint)


def refuse(
    store: Store, table: str, evolution: Evolution, *, mode: str, declared: Collection[str], actor: str
) -> NoReturn:
    """Note the refused change, so that `schema accept` finds it, and stop."""
    refuse_change(store, table, evolution, mode=mode, actor=actor)
    raise refusal(table, evolution.refused, declared)


def _content(files: Sequence[FileRecord | LiveFile]) -> tuple[int, int]:
    """The number of rows and the sum of their content hashes; an unknown sum is equal to no other."""
    rows = sum(file.rows for file in files)
    if any(file.content_sum is None for file in files):
        return rows, -1
    return rows, sum(int(file.content_sum or "0", 16) for file in files) % (1 << 128)

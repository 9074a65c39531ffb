"""A table as of one sequence: all that a reader needs to know, as a value. `catalog` makes it; views and frames
read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.base.table_schema import TableSchema
from headwater.storage.file_record import LiveFile


@dataclass(frozen=True)
class TableState:
    """`files` are ordered by (added_seq, ordinal). `schemas` has every schema id that a file names, and
    `schema_id` itself."""

    name: str
    pipeline: str
    mode: str
    schema_id: int
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    files: tuple[LiveFile, ...]
    seq: int
    """The cut: files added after it are not here, files removed after it still are."""
    changed_seq: int
    """The last commit at or before `seq` that changed this table's rows or schema; of a cut before the last one, a
    merge of its files may count too."""
    rewritten_seq: int = 0
    """A reader that has got to a commit before this one must read the whole table."""

    @property
    def files_seq(self) -> int:
        """The last commit that changed its rows, its schema, or only the files that hold the rows."""
        return max([self.changed_seq, *(file.added_seq for file in self.files)])

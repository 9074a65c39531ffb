"""Records of a push: the batch, its table, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.catalog.evolution import DeclaredColumn
from headwater.coerce.row_errors import RowError

if TYPE_CHECKING:
    from headwater.catalog.landing import Landing
    from headwater.ingest.group_commit import Base, Files, WrittenRows
    from headwater.ingest.prepare import Prepared

OnBadRow = Literal["refuse", "leave_out", "dead_letter"]


@dataclass(frozen=True)
class PushTable:
    """A table, as a push needs it. `in_manifest`: a pipeline with the connector `push` declares it, and the other
    fields are from the manifest. Otherwise the first push creates the table, if it `may_create` it, and the table stays
    as it was created."""

    table: str
    pipeline: str
    mode: str = "append"
    primary_key: tuple[str, ...] = ()
    declared: Mapping[str, DeclaredColumn] = field(default_factory=dict)
    in_manifest: bool = False
    may_create: bool = True
    on_bad_row: OnBadRow | None = None
    """What the manifest says of bad rows; None: the entry point decides."""
    max_bad_rows: int = limits.MAX_BAD_ROWS
    """How many rows of a batch may become dead letters; a batch with more is refused."""

    @property
    def forms(self) -> Mapping[str, TextForm]:
        """The text forms of its columns that the manifest declares."""
        return {name: column.form for name, column in self.declared.items() if column.form}

    def coerced(self, schema: TableSchema) -> TableSchema:
        """The schema that rows of the table are coerced by."""
        return schema.formed(self.forms)


@dataclass(frozen=True)
class Push:
    """One batch: decompressed NDJSON, or what `reader` reads. All that lands of it lands at once. Without a `key` a
    repeated batch cannot be recognized."""

    target: PushTable
    body: bytes
    actor: str
    key: str | None = None
    evolve: bool = True
    """Whether unknown keys become columns; else they are kept in `_rescued`."""
    on_bad_row: OnBadRow = "refuse"
    """What happens if a row is bad: the batch is refused, or lands without it. Then the row becomes a dead letter, or
    is only reported to the sender."""
    source: str | None = None
    """The source that a dead letter names, such as a file."""
    key_expires: bool = True
    fingerprint: str | None = None
    """The fingerprint of what was sent, if the sender knows a better one than that of the body, such as a file's."""
    format: str = "ndjson"
    """The format in which a dead letter of it is read again."""
    reader: Callable[[TableSchema, int | None], Prepared] | None = None
    """Makes the rows of a batch that is a file; `body` is then empty. Takes the schema, and how many bad rows are
    allowed (None: any number). May be called more than once."""
    write: Callable[[Base, Files, Landing], WrittenRows] | None = None
    """Writes a batch that is too large for memory, for the table as it is now, into the directories that `Files` names,
    and reports every file to the landing. It is called again if the table changes meanwhile."""


@dataclass(frozen=True)
class Accepted:
    """The answer. `snapshot_id` is the commit sequence at which the rows are visible. `bytes_written` is the batch's
    share of the files that it was written to. `replayed`: the key had been used for the same batch, and nothing was
    written. `rows_refused` are bad rows that did not land with the others; `errors` has the first error of each of the
    first bad rows, but not in a replay."""

    snapshot_id: str
    rows_ingested: int
    bytes_written: int
    replayed: bool = False
    rows_refused: int = 0
    errors: tuple[RowError, ...] = ()

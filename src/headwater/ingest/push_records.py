"""What is pushed, where to, and what is answered: plain records."""

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
    from headwater.ingest.prepare import Prepared

OnBadRow = Literal["refuse", "leave_out", "dead_letter"]


@dataclass(frozen=True)
class PushTable:
    """A table as the one who pushes to it knows it. `in_manifest`: a pipeline with the connector `push` declares it,
    and the rest is what the manifest says; else the table is made by its first push, if it `may_create` it, and is
    what it was made as."""

    table: str
    pipeline: str
    mode: str = "append"
    primary_key: tuple[str, ...] = ()
    declared: Mapping[str, DeclaredColumn] = field(default_factory=dict)
    in_manifest: bool = False
    may_create: bool = True
    on_bad_row: OnBadRow | None = None
    """What the manifest says of bad rows; None leaves it to the door that they come by."""
    max_bad_rows: int = limits.MAX_BAD_ROWS
    """How many of a batch may become dead letters; with more of them it is refused."""

    @property
    def forms(self) -> Mapping[str, TextForm]:
        """How texts of its columns are written, where the manifest says so."""
        return {name: column.form for name, column in self.declared.items() if column.form}

    def coerced(self, schema: TableSchema) -> TableSchema:
        """The schema that rows of the table are coerced by."""
        return schema.formed(self.forms)


@dataclass(frozen=True)
class Push:
    """One batch: NDJSON, decompressed, or what `reader` reads. What lands of it lands at once. Without a `key` nobody can
    tell whether it was sent before."""

    target: PushTable
    body: bytes
    actor: str
    key: str | None = None
    evolve: bool = True
    """Whether unknown keys become columns; else they are kept in `_rescued`."""
    on_bad_row: OnBadRow = "refuse"
    """What one bad row does: the batch is refused, or lands without it; it is then kept as a dead letter, or left to
    the sender, who hears of it."""
    source: str | None = None
    """What a dead letter names as its place: a file, say."""
    key_expires: bool = True
    fingerprint: str | None = None
    """Of what was sent, where the sender knows better than the batch tells: one of a file, say."""
    format: str = "ndjson"
    """As what a dead letter of it is read again."""
    reader: Callable[[TableSchema, int | None], Prepared] | None = None
    """What makes the rows of a batch that is a file: `body` is then empty. Takes the schema, and how many bad rows are
    borne (None: any number); may be called again."""


@dataclass(frozen=True)
class Accepted:
    """The answer: `snapshot_id` is the commit sequence at which the rows are visible. `bytes_written` is the batch's
    share of the files that it was written to. `replayed`: the key had been used for the same batch, and nothing was
    written now. `rows_refused` are bad rows that did not land with the others; `errors` has the first error of each of
    the first ones, but not for a replay."""

    snapshot_id: str
    rows_ingested: int
    bytes_written: int
    replayed: bool = False
    rows_refused: int = 0
    errors: tuple[RowError, ...] = ()

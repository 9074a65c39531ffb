"""The slice protocol between Headwater and a connector: the calls, their order, and their answers.

A source turns a cursor into slices. A slice knows its start and its end, can be read on its own, and is the unit
of parallelism, retry and exactly-once: it is stored as a work unit (so `Slice.spec` is plain JSON without
secrets), read in one or more partitions by executors, and committed whole.

The order of calls in one run: `identity`, `bound`, `slices` (planning; cheap, no rows) and then, for each slice
and perhaps in another process after a crash, `read`. Errors: `TransientError` is retried with back-off,
`SliceGone` makes the run plan again, everything else is final and carries a code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headwater.base.errors import HeadwaterError, did_you_mean
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import Type

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.coerce.row_errors import BadRow, RowError

Json = Any
"""A value that survives `json.dumps` and `json.loads`. (`Any`, because Python has no short type for it.)"""


class CursorKind(StrEnum):
    """What a cursor's value means, and so what may run in parallel."""

    MONOTONIC = "monotonic"
    OPAQUE_TOKEN = "opaque-token"
    SNAPSHOT_ID = "snapshot-id"
    PARTITIONED_MONOTONIC = "partitioned-monotonic"


@dataclass(frozen=True)
class Cursor:
    """How far a table has been read. `version` counts its changes; `value` belongs to the connector."""

    kind: CursorKind
    version: int
    source_identity: str
    value: Json


@dataclass(frozen=True)
class BackfillHint:
    """How a backfill of the source is best cut up. Without hints it is read in order, one slice at a time."""

    cursor_kind: CursorKind = CursorKind.OPAQUE_TOKEN


@dataclass(frozen=True)
class BadItem:
    """An item that cannot be read at all: nothing of it lands. `version` is the one that was found, so that a repaired
    item is recognised; None where it was only sampled. `error` names its place, the reason and, where it is known, a
    line; `hint` says what can be done about it."""

    source_id: str
    version: Json
    error: RowError
    hint: str = ""


@dataclass(frozen=True)
class Observed:
    """Columns as a source shows them. `complete` means that a stored column which is missing here was dropped at
    the source (a typed source); text formats show only the keys that were present. `renamed` maps a new name to
    the old one where the source itself declares it. `nulls` are columns that hold only nulls, and so have no type.
    `bad_items` could not be read, and show no columns; `hints` are a preview's hints by column name."""

    columns: Mapping[str, Type]
    complete: bool = False
    primary_key: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    bad_items: tuple[BadItem, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceTable:
    """A table that a source offers, under the source's own name; columns are None where only a read shows them."""

    name: str
    observed: Observed | None = None


@dataclass(frozen=True)
class TableAsk:
    """What a pipeline wants of one table of a source. `name` is the table in the store, `source_name` the source's own;
    `declared` are the columns of the manifest, `forms` say how their texts are written, `exclude` are columns that are
    left out. A source that can keeps up to `max_bad_rows` bad rows and `max_bad_items` bad items of a slice as dead
    letters; one more of either fails the slice."""

    name: str
    source_name: str
    mode: str
    primary_key: tuple[str, ...] = ()
    declared: Mapping[str, Type] = field(default_factory=dict)
    incremental: str | None = None
    max_bad_rows: int = 0
    max_bad_items: int = 0
    exclude: tuple[str, ...] = ()
    forms: Mapping[str, TextForm] = field(default_factory=dict)


class Item(NamedTuple):
    """A thing that lands as a whole and may change later: a file. `source_id` is what its rows carry as
    `_source_id`; `version` is how a change is recognised (for files: size, mtime_ns, sha256, scanned_at_ns)."""

    source_id: str
    version: Json


@dataclass(frozen=True)
class Slice:
    """One piece of a source. `spec` is all that `read` needs; `start` and `end` are cursor values (`end` is replaced by
    a `CursorRead`); `describe` is for people. `items` are landed by this slice, `replaces` are the source ids among
    them that landed before and whose old rows this slice retires (append tables)."""

    start: Json
    end: Json
    spec: Json
    describe: str
    estimated_rows: int | None = None
    estimated_bytes: int | None = None
    items: tuple[Item, ...] = ()
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlicePlan:
    """The slices between a cursor and a bound, in order, with warnings for people. `touched` are items whose content is
    as landed but whose version changed (a file was only touched): the plan's commit notes them."""

    slices: tuple[Slice, ...]
    warnings: tuple[str, ...] = ()
    touched: tuple[Item, ...] = ()


@dataclass(frozen=True)
class ItemRead:
    """Yielded by a read when an item has been read whole: its exact version."""

    source_id: str
    version: Json


@dataclass(frozen=True)
class CursorRead:
    """Yielded by a read if only the read shows where its slice ends (a page token, a Singer state): the commit stores
    this value of the cursor instead of the slice's planned `end`. The last one of the last partition counts. Where
    cursors are opaque tokens only the last slice of a plan may yield one: a slice after it would have been planned from
    another end."""

    value: Json


@dataclass(frozen=True)
class ArrowRead:
    """A read that executors do with a plain function.

    `read(partition, schema)` yields record batches with the columns of `schema` (those it has; the rest is null) in
    their Arrow types and, where the connector has them, `_source_id` (the item that a row comes from) and `_source_pos`
    (a long, its place in the item); it may yield `ItemRead`s and `CursorRead`s between them, and `BadRow`s if rows may
    be bad. If items of a partition cannot be read, it yields a `BadItem` for each of them; the caller then discards
    what it has read and reads again without them: `without(partitions, source_ids)` gives the partitions for that.
    `read` must be picklable (a module-level function or a frozen dataclass with `__call__`), may hold secrets, and
    raises `BadRows`, `UnknownColumns`, `SliceGone` or `TransientError`.

    `observe(partition)` returns the columns of one partition; it runs in executors, and only while the table's schema
    is not known. `observed` is the answer if no partition must be read for it.

    `key_filter_column` asks the reader's caller to drop rows that the table already holds with equal content:
    only table rows whose value in that column is at least `key_filter_from` are compared.

    `format` is the format in which the sources of its bad rows are read again.

    `source_keys` is the number of primary keys that the source has, where the slices of the run read all of it at one
    moment: keys of the table beyond that number are no longer in the source.
    """

    partitions: tuple[Json, ...]
    read: Callable[[Json, TableSchema], Iterator[pa.RecordBatch | ItemRead | CursorRead | BadRow | BadItem]]
    observe: Callable[[Json], Observed] | None = None
    observed: Observed | None = None
    key_filter_column: str | None = None
    key_filter_from: Json = None
    format: str = ""
    source_keys: int | None = None
    without: Callable[[Sequence[Json], frozenset[str]], tuple[Json, ...]] | None = None


class Source(Protocol):
    """One configured source, open for one run. Closing it ends whatever it holds (connections, snapshots)."""

    connector: str
    version: str

    def discover(self) -> tuple[SourceTable, ...]:
        """The tables on offer. May query the source, reads no rows."""
        ...

    def backfill_hint(self) -> BackfillHint: ...

    def identity(self, ask: TableAsk) -> str:
        """What makes this the same source: a recreated table or another path has another identity."""
        ...

    def bound(self, ask: TableAsk) -> Json:
        """The upper bound of a run that starts now, read from the source."""
        ...

    def slices(self, ask: TableAsk, cursor: Cursor | None, bound: Json, landed: Mapping[str, Json]) -> SlicePlan:
        """The slices after `cursor` up to `bound`. `landed` maps source ids to the versions they landed with."""
        ...

    def read(self, ask: TableAsk, slice_: Slice) -> ArrowRead: ...

    def preview(self, ask: TableAsk, slice_: Slice) -> Observed | None:
        """The probable columns, for `plan`: cheap, in this process, from a bounded sample; None if the sample does not
        show them."""
        ...

    def close(self) -> None: ...


class TransientError(Exception):
    """A failure that a retry may not meet again."""


class SliceGone(Exception):
    """The slice can no longer be read as it was planned (a file changed under it): plan again."""


class BadRows(Exception):
    """Rows that do not fit the table's columns: the first error of each of the first bad rows; `total` counts also
    those that are not listed."""

    def __init__(self, errors: tuple[RowError, ...], total: int):
        super().__init__(errors, total)
        self.errors, self.total = errors, total


class UnknownColumns(Exception):
    """The source has columns that the schema does not: the caller evolves the schema and reads again."""

    def __init__(self, observed: Observed):
        super().__init__(observed)
        self.observed = observed


Problem = tuple[str, str, str]
"""What is wrong with a config: the key, a message, a hint."""


def unknown_keys(connector: str, config: Mapping[str, object], known: Sequence[str]) -> list[Problem]:
    """A problem for each key that a connector does not have, with the nearest known key."""
    problems: list[Problem] = []
    for key in config:
        if key not in known:
            hint = did_you_mean(key, known, "known keys: " + ", ".join(known))
            problems.append((key, f"the {connector} connector has no key `{key}`", hint))
    return problems


def config_error(message: str, hint: str = "") -> HeadwaterError:
    return HeadwaterError("HW-C01", message, hint=hint)

"""What a commit says: changes, and the facts it requires. These records are the log, word for word.

They are msgspec structs because they are written to and read from JSON for ever: a field may be added with a
default, never renamed or removed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.catalog.engine_records import InboxEvent, JobEnd, Step
from headwater.catalog.lease import Lease
from headwater.storage.file_record import FileRecord


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="do"):
    """Base of all records; the tag tells which one a JSON object is."""


class TableCreated(Record, frozen=True, kw_only=True, tag="table_created"):
    table: str
    pipeline: str
    mode: str


class TableModeSet(Record, frozen=True, kw_only=True, tag="table_mode_set"):
    table: str
    mode: str


class SchemaSet(Record, frozen=True, kw_only=True, tag="schema_set"):
    """The table's schema from this commit on, and the events that led to it."""

    table: str
    schema_id: int
    schema: dict[str, Any]
    events: tuple[SchemaEvent, ...] = ()
    decided_by: str = "auto"


class SchemaEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `schema log`. `kind`: created, add_column, drop_column, restore_column, widen_type,
    change_type, replace_column, rename_column, set_default, change_key, change_mode,
    promote_column."""

    kind: str
    column: str | None = None
    before: Any = None
    after: Any = None
    note: str = ""


class SchemaRefused(Record, frozen=True, kw_only=True, tag="schema_refused"):
    """A change that was not made; `schema accept` finds the proposal here."""

    table: str
    events: tuple[SchemaEvent, ...]
    proposal: dict[str, Any]
    """`{"schema": ..., "mode": ...}`: what accepting would set."""
    decided_by: str = "auto"


class FilesAdded(Record, frozen=True, kw_only=True, tag="files_added"):
    """Files that join a table, also files that were part of it before. `unique_keys` means that no primary key occurs
    twice among all of them. The commit decides their `level` (`catalog.levels`); records before format 6 have none."""

    table: str
    schema_id: int
    run_id: str
    files: tuple[FileRecord, ...]
    unique_keys: bool = False
    level: int | None = None


class FilesRemoved(Record, frozen=True, kw_only=True, tag="files_removed"):
    """Files that leave a table. `rewrites`: what is left is not what was there with more rows after it, so that a reader
    that has got to an earlier commit must read the whole table."""

    table: str
    paths: tuple[str, ...]
    rewrites: bool = False


class FilesMerged(Record, frozen=True, kw_only=True, tag="files_merged"):
    """Files that take the place of others and hold the same rows, each with its commit sequence: the table is what it
    was, and nothing that reads it need run again. `unique_keys` and `level` as for files that are added."""

    table: str
    schema_id: int
    run_id: str
    files: tuple[FileRecord, ...]
    replaces: tuple[str, ...]
    unique_keys: bool = False
    level: int | None = None


class FilesForgotten(Record, frozen=True, kw_only=True, tag="files_forgotten"):
    """Removed files that leave the catalog, so that gc may delete them. The table can no longer be read as of a
    sequence below `oldest_seq`."""

    table: str
    paths: tuple[str, ...]
    oldest_seq: int


VIEW_INPUT = "_hw_"
"""The prefix of a table's name in a view's query for DuckDB, where it means the table's own columns alone."""


class ViewDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A view: a query, and what it gives. Columns are pairs of a name and a type, in their order."""

    sql: str
    """As it was written, in Spark's SQL."""
    shown: str
    """The same in DuckDB's; a table `t` that it reads is called `_hw_t` there."""
    reads: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    declared: dict[str, tuple[tuple[str, str], ...]] = {}
    """The columns of what it reads and was not there yet."""
    named: tuple[str, ...] = ()
    """The names in the query, in small letters, that may mean a column which `*` does not show."""


class ViewSet(Record, frozen=True, kw_only=True, tag="view_set"):
    """What a view is from this commit on, and the cut that it shows: the sequence of each table that it reads;
    None for one that was not there yet."""

    view: str
    pipeline: str
    definition: ViewDefinition
    reads: dict[str, int | None]


class CursorSet(Record, frozen=True, kw_only=True, tag="cursor_set"):
    pipeline: str
    table: str
    kind: str
    source_identity: str
    value: Any = None


class CursorAdvanced(Record, frozen=True, kw_only=True, tag="cursor_advanced"):
    """The cursor goes to the end of the longest prefix of the run's slices of this table that are all done. Where
    that is, only the transaction can tell: slices may finish in any order."""

    run_id: str
    pipeline: str
    table: str
    kind: str
    source_identity: str


class ItemsLanded(Record, frozen=True, kw_only=True, tag="items_landed"):
    """Items of a source and the versions they landed with."""

    pipeline: str
    table: str
    items: dict[str, Any] = {}


class LedgerKeySet(Record, frozen=True, kw_only=True, tag="ledger_key_set"):
    """A key of pushed rows, and what was answered to it; the rows are in the same commit. One that stood there before
    had expired."""

    table: str
    key: str
    fingerprint: str
    rows: int
    bytes: int
    refused: int = 0
    """Bad rows of the batch, which are not among its `rows`."""
    expires_us: int | None = None
    """None: never."""


class LedgerKeysCleared(Record, frozen=True, kw_only=True, tag="ledger_keys_cleared"):
    """Keys that protect no longer: these of a table, or all of it."""

    table: str
    keys: tuple[str, ...] | None = None


class LedgerSwept(Record, frozen=True, kw_only=True, tag="ledger_swept"):
    """Keys of any table that had expired by then leave the ledger."""

    before_us: int


class RunStarted(Record, frozen=True, kw_only=True, tag="run_started"):
    run_id: str
    pipeline: str
    freshness_us: int
    trigger: str
    connector: str
    definition: str
    bounds: dict[str, Any] = {}
    trace_id: str | None = None


class RunEnded(Record, frozen=True, kw_only=True, tag="run_ended"):
    """The run ends in a state that its units do not tell: superseded."""

    run_id: str
    state: str


class RunError(Record, frozen=True, kw_only=True, tag="run_error"):
    """Something went wrong in a run; the first error is the one that is shown."""

    run_id: str
    error_kind: str
    error_message: str


class RunSettled(Record, frozen=True, kw_only=True, tag="run_settled"):
    """The state of the run follows from its units. If none is left to do, it has ended: as success, partial or failed.
    Otherwise it is reading until the first is done, then writing, and committing when one is left: its commit ends
    the run."""

    run_id: str


class LineageAdded(Record, frozen=True, kw_only=True, tag="lineage_added"):
    child_run_id: str
    parent_run_ids: tuple[str, ...]


class UnitSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One slice as a unit of work. `serial`: it may be claimed only when the units of its table before it are done."""

    unit_id: str
    table: str
    ordinal: int
    payload: dict[str, Any] = {}
    serial: bool = False


class UnitsPlanned(Record, frozen=True, kw_only=True, tag="units_planned"):
    """The slices of a run, stored before any of them is read: at most 1,000 in one commit."""

    run_id: str
    pipeline: str
    units: tuple[UnitSpec, ...]
    more: bool = False
    """More parts of the plan follow; the last one makes its slices work."""


class UnitDone(Record, frozen=True, kw_only=True, tag="unit_done"):
    """A slice has landed. A run of a `replace` table keeps its files in `staged` until its last slice adds them
    all at once. `cursor` holds the end that the read reported, if it did: it replaces the planned one."""

    unit_id: str
    rows: int = 0
    bytes: int = 0
    staged: tuple[FileRecord, ...] = ()
    staged_schema_id: int = 0
    cursor: tuple[Any, ...] = ()
    source_keys: int | None = None
    """The number of keys in the source, where the slices of the run read all of it at one moment."""


class UnitsAbandoned(Record, frozen=True, kw_only=True, tag="units_abandoned"):
    """The units of a run (of one table of it) that are not done, and will not be."""

    run_id: str
    table: str | None = None


TableChange = TableCreated | TableModeSet | SchemaSet | SchemaRefused
FilesChange = FilesAdded | FilesRemoved | FilesMerged | FilesForgotten
SourceChange = CursorSet | CursorAdvanced | ItemsLanded
LedgerChange = LedgerKeySet | LedgerKeysCleared | LedgerSwept
RunChange = RunStarted | RunEnded | RunError | RunSettled | LineageAdded
UnitChange = UnitsPlanned | UnitDone | UnitsAbandoned
Change = TableChange | FilesChange | ViewSet | SourceChange | LedgerChange | RunChange | UnitChange


class CursorIs(msgspec.Struct, frozen=True, kw_only=True):
    """The cursor has this version (0: there is none)."""

    pipeline: str
    table: str
    version: int


class SchemaIs(msgspec.Struct, frozen=True, kw_only=True):
    """The table's schema id (0: there is no table yet)."""

    table: str
    schema_id: int


class NoOpenRun(msgspec.Struct, frozen=True, kw_only=True):
    """No run of this pipeline has units that are not done."""

    pipeline: str


class FilesLive(msgspec.Struct, frozen=True, kw_only=True):
    """These files are part of the table now."""

    table: str
    paths: tuple[str, ...]


class UnitsOpen(msgspec.Struct, frozen=True, kw_only=True):
    """The run still has units that are not done."""

    run_id: str


class KeysFree(msgspec.Struct, frozen=True, kw_only=True):
    """No key among these is in the table's ledger, but for expired ones."""

    table: str
    keys: tuple[str, ...]


Requirement = CursorIs | SchemaIs | Lease | NoOpenRun | FilesLive | UnitsOpen | KeysFree


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one unit of work changes, and what must still be true when it does.

    The changes are the log. What is below `actor` is written by the same transaction and is not in the log: a
    rebuild makes the tables again, not what was under way."""

    changes: tuple[Change, ...]
    requires: tuple[Requirement, ...] = ()
    actor: str
    events: tuple[InboxEvent, ...] = ()
    """For the engine: what this commit completes."""
    ends: JobEnd | None = None
    """The job whose work this is; refused (HW-T03) if its lease was lost."""
    step: Step | None = None
    """What the engine decided together with these changes; refused (HW-T03) if its ownership was lost."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit as the log keeps it; its cell values lie beside it (`cell_values`), in records of before that in it."""

    seq: int
    commit_id: str
    at_us: int
    actor: str
    node: str
    changes: tuple[Change, ...]
    format: int = 5
    """The format of the catalog that wrote it; records before format 6 do not say."""
    previous: str | None = None
    """The sha256 of the record before this one: the records are a chain."""
    values_sha256: str | None = None
    """Of the file with the cell values of this record; None if it has none."""
    moved: tuple[str, ...] = ()
    """The names of the fields that are in that file."""

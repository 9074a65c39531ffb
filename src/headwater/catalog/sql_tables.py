"""The catalog's tables, for SQLite and PostgreSQL alike.

Two kinds: what the log rebuilds (`DATA`), written by commits alone, and what goes on at this moment (`TRANSIENT`:
leases, the engine's state, its inbox and its queue), which a rebuild leaves empty. JSON is kept as text, so that both
databases hold the same bytes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
    text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

FORMAT_VERSION = 6
"""Raised with every change of a table; `migrations` has the way from the format before."""

metadata = MetaData()


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def _required(kind: type[TypeEngine[Any]], *names: str, default: str | None = None) -> list[Column[Any]]:
    """Columns that are never null. The rows of before a column was added have its `default`."""
    return [
        Column(name, kind, nullable=False, server_default=None if default is None else text(default)) for name in names
    ]


def _optional(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


store = _table(
    "store",
    Column("id", Integer, primary_key=True),
    *_required(Integer, "format_version"),
    *_required(Text, "store_id", "project"),
    *_required(BigInteger, "seq", "logged_seq", "created_us"),
)

commit = _table(
    "commit_record",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_id", Text, nullable=False, unique=True),
    *_required(BigInteger, "at_us"),
    *_required(Text, "actor", "node"),
)

log_record = _table(  # neither of the two kinds: what the files of the log hold, until it is trimmed
    "log_record",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_required(Text, "body"),
    *_optional(Text, "cell_values"),
)

table = _table(
    "table_entry",
    Column("name", Text, primary_key=True),
    *_required(Text, "pipeline", "mode"),
    *_required(Integer, "schema_id"),
    *_required(BigInteger, "created_seq", "changed_seq", "oldest_seq"),
    *_required(BigInteger, "files_seq", "rewritten_seq", "purge_number", default="0"),
)

table_schema = _table(
    "table_schema",
    *_required(Text, "table_name"),
    *_required(Integer, "schema_id"),
    *_required(Text, "fingerprint", "body"),
    *_required(BigInteger, "seq"),
    PrimaryKeyConstraint("table_name", "schema_id"),
)

schema_event = _table(
    "schema_event",
    *_required(BigInteger, "seq"),
    *_required(Integer, "position"),
    *_required(Text, "table_name", "kind"),
    *_optional(Text, "column_name", "before_json", "after_json"),
    *_required(Text, "note"),
    *_optional(Text, "proposal"),
    *_required(Text, "decided_by"),
    *_required(BigInteger, "at_us"),
    PrimaryKeyConstraint("seq", "position"),
    Index("schema_event_table", "table_name", "seq"),
)

file = _table(  # a row is one life of a file: it may leave a table and come back
    "file_entry",
    *_required(Text, "path", "table_name"),
    *_required(Integer, "schema_id"),
    *_required(Text, "run_id"),
    *_required(BigInteger, "rows", "bytes"),
    *_required(Integer, "ordinal"),
    *_optional(Text, "sha256", "stats", "sources"),
    *_required(BigInteger, "source_count"),
    *_required(Boolean, "positions"),
    *_optional(Text, "content_sum"),
    *_required(Boolean, "unique_keys", "merged"),
    *_optional(Integer, "level"),
    *_optional(Text, "first_key", "last_key", "partition", "sort_order"),
    *_optional(Integer, "key_version"),
    *_optional(Text, "index_ids"),
    *_required(BigInteger, "added_seq"),
    *_optional(BigInteger, "removed_seq", "removed_us"),
    *_required(Text, "origin_node"),
    *_required(BigInteger, "origin_seq"),
    PrimaryKeyConstraint("path", "added_seq"),
    Index("file_entry_table", "table_name", "removed_seq", "first_key", "last_key"),
)


@event.listens_for(file, "after_create")
def _index_live_files(_file: Table, connection: Connection, **_: Any) -> None:
    """As text: an `Index` with a condition for each database would import the code for both at every start."""
    connection.exec_driver_sql("CREATE UNIQUE INDEX file_entry_live ON file_entry (path) WHERE removed_seq IS NULL")


view = _table(
    "view_entry",
    Column("name", Text, primary_key=True),
    *_required(Text, "pipeline"),
    *_required(BigInteger, "changed_seq"),
)

view_definition = _table(
    "view_definition",
    *_required(Text, "view_name"),
    *_required(BigInteger, "seq"),
    *_required(Text, "body"),
    PrimaryKeyConstraint("view_name", "seq"),
)

view_cut = _table(
    "view_cut",
    *_required(Text, "view_name"),
    *_required(BigInteger, "seq"),
    *_required(Text, "reads"),
    PrimaryKeyConstraint("view_name", "seq"),
)

cursor = _table(
    "pipeline_cursor",
    *_required(Text, "pipeline", "table_name", "kind"),
    *_required(Integer, "version"),
    *_required(Text, "source_identity", "value"),
    *_required(BigInteger, "seq"),
    PrimaryKeyConstraint("pipeline", "table_name"),
)

item = _table(
    "landed_item",
    *_required(Text, "pipeline", "table_name", "source_id", "version"),
    *_required(BigInteger, "seq"),
    PrimaryKeyConstraint("pipeline", "table_name", "source_id"),
)

ledger_key = _table(
    "ledger_key",
    *_required(Text, "table_name", "idempotency_key", "fingerprint"),
    *_required(BigInteger, "rows", "bytes", "refused", "seq", "at_us"),
    *_optional(BigInteger, "expires_us"),
    PrimaryKeyConstraint("table_name", "idempotency_key"),
    Index("ledger_key_expires", "expires_us"),
)

run = _table(
    "run",
    Column("run_id", Text, primary_key=True),
    *_required(Text, "pipeline"),
    *_required(BigInteger, "freshness_us"),
    *_required(Text, "trigger_kind", "actor", "connector", "definition", "cut", "state"),
    *_required(BigInteger, "rows", "bytes"),
    *_optional(Text, "error_kind", "error_message", "trace_id"),
    *_required(BigInteger, "started_us"),
    *_optional(BigInteger, "ended_us"),
    *_required(BigInteger, "started_seq"),
    *_optional(BigInteger, "ended_seq"),
    Index("run_pipeline", "pipeline", "started_seq"),
)

lineage = _table(
    "lineage",
    *_required(Text, "child_run_id", "parent_run_id"),
    PrimaryKeyConstraint("child_run_id", "parent_run_id"),
)

unit = _table(
    "work_unit",
    Column("unit_id", Text, primary_key=True),
    *_required(Text, "run_id", "pipeline", "table_name"),
    *_required(Integer, "ordinal"),
    *_required(Boolean, "serial"),
    *_required(Text, "payload", "state"),
    *_required(BigInteger, "rows", "bytes"),
    *_optional(Text, "staged"),
    *_optional(BigInteger, "done_seq"),
    *_required(BigInteger, "planned_seq", default="0"),
    Index("work_unit_place", "run_id", "table_name", "ordinal"),
)

run_table = _table(  # what commits count, so that nothing else has to
    "run_table",
    *_required(Text, "run_id", "table_name", "pipeline"),
    *_required(Integer, "slices", "pending", "done", "prefix"),
    *_required(BigInteger, "rows", "bytes"),
    *_optional(BigInteger, "source_keys"),
    PrimaryKeyConstraint("run_id", "table_name"),
    Index("run_table_open", "pending"),
)

lease = _table(
    "lease",
    *_required(Text, "kind", "id"),
    *_required(Integer, "attempt"),
    *_required(BigInteger, "epoch"),
    *_required(Text, "holder", "node"),
    *_required(BigInteger, "leased_until_us"),
    PrimaryKeyConstraint("kind", "id"),
)

inbox = _table(
    "inbox",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    *_required(BigInteger, "at_us"),
    *_required(Text, "kind", "body", "actor"),
    *_optional(Text, "answer"),
    sqlite_autoincrement=True,  # an id is never used again, also when the inbox was empty in between
)

engine_state = _table(
    "engine_state",
    Column("id", Integer, primary_key=True, autoincrement=False),
    *_required(Text, "header"),
    *_required(BigInteger, "step", "updated_us"),
)

pond_state = _table(
    "pond_state",
    Column("pond", Text, primary_key=True),
    *_required(Text, "record"),
    *_required(BigInteger, "step", "updated_us"),
)

job = _table(
    "job",
    Column("job_id", Text, primary_key=True),
    *_required(Text, "kind", "pond", "ripple"),
    *_required(BigInteger, "freshness_us"),
    *_required(Text, "body", "weight", "state"),
    *_required(Integer, "attempt"),
    *_required(BigInteger, "created_us"),
    *_optional(BigInteger, "started_us", "ended_us"),
    *_required(BigInteger, "rows", "bytes"),
    *_optional(Text, "error", "run_id", "trace_id", "landed_run_id"),
    *_required(BigInteger, "spark_start_us", default="0"),
    *_required(Integer, "changed", default="1"),
    Index("job_queue", "state", "created_us", "job_id"),
    Index("job_pond", "pond", "job_id"),
    Index("job_ended", "ended_us"),
    Index("job_run", "run_id"),
)

pond_run = _table(
    "pond_run",
    Column("run_id", Text, primary_key=True),
    *_required(Text, "pond"),
    *_required(BigInteger, "freshness_us"),
    *_required(Text, "cause", "actor", "state"),
    *_required(BigInteger, "started_us"),
    *_optional(BigInteger, "ended_us"),
    *_required(BigInteger, "rows", "bytes"),
    *_optional(Text, "error", "trace_id"),
    *_required(BigInteger, "spark_start_us", default="0"),
    *_required(Integer, "changed", default="1"),
    Index("pond_run_pond", "pond", "run_id"),
    Index("pond_run_state", "state"),
    Index("pond_run_ended", "ended_us"),
)

job_output = _table(
    "job_output",
    Column("job_id", Text, primary_key=True),
    *_optional(Text, "run_id"),
    *_required(Text, "pond", "ripple", "output", "exception", "traceback"),
    Index("job_output_run", "run_id"),
    Index("job_output_pond", "pond", "job_id"),
)

engine_event = _table(
    "engine_event",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    *_required(BigInteger, "at_us"),
    *_required(Text, "kind", "pond"),
    *_optional(Text, "run_id"),
    *_required(Text, "body"),
    Index("engine_event_run", "run_id"),
    sqlite_autoincrement=True,
)

standing_trigger = _table(
    "standing_trigger",
    *_required(Text, "pond", "trigger_id", "kind"),
    *_required(BigInteger, "limit_us"),
    *_required(Text, "actor"),
    *_required(BigInteger, "set_us"),
    *_optional(BigInteger, "expires_us"),
    PrimaryKeyConstraint("pond", "trigger_id"),
)

TRANSIENT = (
    inbox,
    engine_state,
    pond_state,
    job,
    lease,
    pond_run,
    job_output,
    engine_event,
    standing_trigger,
)
"""What a rebuild leaves empty. A transaction that locks rows of several of these does it in this order, but
for the lease of the engine or of a writer, which comes first."""
DATA = tuple(each for each in metadata.tables.values() if each not in (store, log_record, *TRANSIENT))
"""What `rebuild-catalog` makes again from the log, row for row."""

"""The catalog's tables, for SQLite and PostgreSQL alike.

Two kinds: what the log rebuilds (`DATA`), written by commits alone, and what goes on at this moment (`TRANSIENT`:
leases, the engine's state, its inbox and its queue), which a rebuild leaves empty. JSON is kept as text, so that both
databases hold the same bytes.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

FORMAT_VERSION = 6
"""Raised with every change of a table; `migrations` has the way from the format before."""

metadata = MetaData()
_LIVE = text("removed_seq IS NULL")

store = Table(
    "store",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("format_version", Integer, nullable=False),
    Column("store_id", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("logged_seq", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

commit = Table(
    "commit_record",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_id", Text, nullable=False, unique=True),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("node", Text, nullable=False),
)

log_record = Table(  # neither of the two kinds: what the files of the log hold, until it is trimmed
    "log_record",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("cell_values", Text),
)

table = Table(
    "table_entry",
    metadata,
    Column("name", Text, primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("schema_id", Integer, nullable=False),
    Column("created_seq", BigInteger, nullable=False),
    Column("changed_seq", BigInteger, nullable=False),
    Column("oldest_seq", BigInteger, nullable=False),
    Column("files_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("rewritten_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("purge_number", BigInteger, nullable=False, server_default=text("0")),
)

table_schema = Table(
    "table_schema",
    metadata,
    Column("table_name", Text, nullable=False),
    Column("schema_id", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_name", "schema_id"),
)

schema_event = Table(
    "schema_event",
    metadata,
    Column("seq", BigInteger, nullable=False),
    Column("position", Integer, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("column_name", Text),
    Column("before_json", Text),
    Column("after_json", Text),
    Column("note", Text, nullable=False),
    Column("proposal", Text),
    Column("decided_by", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("seq", "position"),
    Index("schema_event_table", "table_name", "seq"),
)

file = Table(  # a row is one life of a file: it may leave a table and come back
    "file_entry",
    metadata,
    Column("path", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("schema_id", Integer, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("sha256", Text),
    Column("stats", Text),
    Column("sources", Text),
    Column("source_count", BigInteger, nullable=False),
    Column("positions", Boolean, nullable=False),
    Column("content_sum", Text),
    Column("unique_keys", Boolean, nullable=False),
    Column("merged", Boolean, nullable=False),
    Column("level", Integer),
    Column("first_key", Text),
    Column("last_key", Text),
    Column("partition", Text),
    Column("sort_order", Text),
    Column("key_version", Integer),
    Column("index_ids", Text),
    Column("added_seq", BigInteger, nullable=False),
    Column("removed_seq", BigInteger),
    Column("removed_us", BigInteger),
    Column("origin_node", Text, nullable=False),
    Column("origin_seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("path", "added_seq"),
    Index("file_entry_table", "table_name", "removed_seq", "first_key", "last_key"),
    Index("file_entry_live", "path", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
)

view = Table(
    "view_entry",
    metadata,
    Column("name", Text, primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("changed_seq", BigInteger, nullable=False),
)

view_definition = Table(
    "view_definition",
    metadata,
    Column("view_name", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("view_name", "seq"),
)

view_cut = Table(
    "view_cut",
    metadata,
    Column("view_name", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("reads", Text, nullable=False),
    PrimaryKeyConstraint("view_name", "seq"),
)

cursor = Table(
    "pipeline_cursor",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("source_identity", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "table_name"),
)

item = Table(
    "landed_item",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("source_id", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "table_name", "source_id"),
)

ledger_key = Table(
    "ledger_key",
    metadata,
    Column("table_name", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    PrimaryKeyConstraint("table_name", "idempotency_key"),
    Index("ledger_key_expires", "expires_us"),
)

run = Table(
    "run",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("freshness_us", BigInteger, nullable=False),
    Column("trigger_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("connector", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("cut", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("error_kind", Text),
    Column("error_message", Text),
    Column("trace_id", Text),
    Column("started_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("started_seq", BigInteger, nullable=False),
    Column("ended_seq", BigInteger),
    Index("run_pipeline", "pipeline", "started_seq"),
)

lineage = Table(
    "lineage",
    metadata,
    Column("child_run_id", Text, nullable=False),
    Column("parent_run_id", Text, nullable=False),
    PrimaryKeyConstraint("child_run_id", "parent_run_id"),
)

unit = Table(
    "work_unit",
    metadata,
    Column("unit_id", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("serial", Boolean, nullable=False),
    Column("payload", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("staged", Text),
    Column("done_seq", BigInteger),
    Column("planned_seq", BigInteger, nullable=False, server_default=text("0")),
    Index("work_unit_place", "run_id", "table_name", "ordinal"),
)

run_table = Table(  # what commits count, so that nothing else has to
    "run_table",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("slices", Integer, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("done", Integer, nullable=False),
    Column("prefix", Integer, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("source_keys", BigInteger),
    PrimaryKeyConstraint("run_id", "table_name"),
    Index("run_table_open", "pending"),
)

lease = Table(
    "lease",
    metadata,
    Column("kind", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("leased_until_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("kind", "id"),
)

inbox = Table(
    "inbox",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("answer", Text),
    sqlite_autoincrement=True,  # an id is never used again, also when the inbox was empty in between
)

engine_state = Table(
    "engine_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("header", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

pond_state = Table(
    "pond_state",
    metadata,
    Column("pond", Text, primary_key=True),
    Column("record", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

job = Table(
    "job",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("pond", Text, nullable=False),
    Column("ripple", Text, nullable=False),
    Column("freshness_us", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("weight", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("error", Text),
    Column("run_id", Text),
    Column("trace_id", Text),
    Column("landed_run_id", Text),
    Column("spark_start_us", BigInteger, nullable=False, server_default=text("0")),
    Column("changed", Integer, nullable=False, server_default=text("1")),
    Index("job_queue", "state", "created_us", "job_id"),
    Index("job_pond", "pond", "job_id"),
    Index("job_ended", "ended_us"),
    Index("job_run", "run_id"),
)

pond_run = Table(
    "pond_run",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("pond", Text, nullable=False),
    Column("freshness_us", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("error", Text),
    Column("trace_id", Text),
    Column("spark_start_us", BigInteger, nullable=False, server_default=text("0")),
    Column("changed", Integer, nullable=False, server_default=text("1")),
    Index("pond_run_pond", "pond", "run_id"),
    Index("pond_run_state", "state"),
    Index("pond_run_ended", "ended_us"),
)

job_output = Table(
    "job_output",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("run_id", Text),
    Column("pond", Text, nullable=False),
    Column("ripple", Text, nullable=False),
    Column("output", Text, nullable=False),
    Column("exception", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Index("job_output_run", "run_id"),
    Index("job_output_pond", "pond", "job_id"),
)

engine_event = Table(
    "engine_event",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("pond", Text, nullable=False),
    Column("run_id", Text),
    Column("body", Text, nullable=False),
    Index("engine_event_run", "run_id"),
    sqlite_autoincrement=True,
)

standing_trigger = Table(
    "standing_trigger",
    metadata,
    Column("pond", Text, nullable=False),
    Column("trigger_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("limit_us", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("set_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    PrimaryKeyConstraint("pond", "trigger_id"),
)

DATA = (
    commit,
    table,
    table_schema,
    schema_event,
    file,
    view,
    view_definition,
    view_cut,
    cursor,
    item,
    ledger_key,
    run,
    lineage,
    unit,
    run_table,
)
"""What `rebuild-catalog` makes again from the log, row for row."""

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

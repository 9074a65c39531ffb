"""A table made by hand: commits of real files, and the state that the catalog would give for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headwater.base.table_schema import TableSchema
from headwater.catalog.lookup import TableInfo
from headwater.catalog.table_state import TableState
from headwater.duck.table_select import view_select
from headwater.storage.file_record import FileRecord, LiveFile
from headwater.storage.key_text import joined_range
from headwater.storage.part_writer import PartWriter
from unit.storage.batches import batch_of

INGESTED_AT_US = 1_750_000_000_000_000


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One for all tests of a process: a database takes longer to make than most questions take to answer."""
    return duckdb.connect()


def ask(root: Path, state: TableState, sql: str = "SELECT * FROM t") -> list[tuple[Any, ...]]:
    """A question to the view `t` of a state. What it shows does not depend on the zone of whoever asks."""
    with database().cursor() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(f"CREATE TEMP VIEW t AS {view_select(state, root=str(root))}")
        return connection.execute(sql).fetchall()


def plan(root: Path, state: TableState, sql: str) -> str:
    """How a question to the view `t` was answered."""
    return str(ask(root, state, f"EXPLAIN ANALYZE {sql}")[0][1])


class HandMade:
    """One table under `root`. Each `commit` takes the next sequence."""

    def __init__(self, root: Path, schema: TableSchema, *, name: str = "orders", mode: str = "append"):
        self.root, self.name, self.mode = root, name, mode
        self.schemas = {1: schema}
        self.schema_id = 1
        self.seq = 0
        self.files: list[LiveFile] = []

    @property
    def schema(self) -> TableSchema:
        return self.schemas[self.schema_id]

    def evolve(self, schema: TableSchema) -> None:
        self.schema_id += 1
        self.schemas[self.schema_id] = schema

    def commit(self, rows: Sequence[dict[str, Any]] | pa.RecordBatch, *, unique_keys: bool = False) -> list[LiveFile]:
        """Rows as dicts (times as integers; `_source_id` where there is one), or a batch."""
        self.seq += 1
        run_id = f"run-{self.seq}"
        writer = PartWriter(
            self.root,
            f"tables/{self.name}/data/runs/{run_id}",
            schema=self.schema,
            partition=0,
            task_attempt=0,
            run_id=run_id,
            ingested_at_us=INGESTED_AT_US,
        )
        with writer:
            writer.write(rows if isinstance(rows, pa.RecordBatch) else self.batch(rows))
        return self.add(writer.close(), run_id, unique_keys=unique_keys)

    def batch(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        types = {column.name: str(column.type) for column in self.schema.columns}
        if any("_source_id" in row for row in rows):
            types["_source_id"] = "string"
        return batch_of(list(rows), types)

    def add(self, records: Sequence[FileRecord], run_id: str, *, unique_keys: bool = False) -> list[LiveFile]:
        """Files that somebody else wrote, as part of the commit that is at hand."""
        added = [
            live_file(r, seq=self.seq, schema_id=self.schema_id, run_id=run_id, unique=unique_keys) for r in records
        ]
        if unique_keys and not self.touched(added):
            added = [replace(file, level=1) for file in added]
        self.files += added
        return added

    def touched(self, added: Sequence[LiveFile]) -> bool:
        """Whether a file that is there may hold a key of these, as a commit decides it."""
        mine = joined_range([file.key_range for file in added])
        ranges = [file.key_range for file in self.files]
        return any(mine is None or r is None or (r[0] <= mine[1] and mine[0] <= r[1]) for r in ranges)

    def state(self, **changed: Any) -> TableState:
        values: dict[str, Any] = {
            "name": self.name,
            "pipeline": "shop",
            "mode": self.mode,
            "schema_id": self.schema_id,
            "schema": self.schema,
            "schemas": self.schemas,
            "files": tuple(self.files),
            "seq": self.seq,
            "changed_seq": self.seq,
        }
        return TableState(**(values | changed))

    def info(self, **changed: Any) -> TableInfo:
        rows = sum(file.rows for file in self.files)
        values: dict[str, Any] = {
            "name": self.name,
            "pipeline": "shop",
            "mode": self.mode,
            "rows": rows,
            "stored_rows": rows,
            "bytes": sum(file.bytes for file in self.files),
            "files": len(self.files),
            "freshness_us": INGESTED_AT_US,
            "seq": self.seq,
        }
        return TableInfo(**(values | changed))


def live_file(record: FileRecord, *, seq: int, schema_id: int, run_id: str, unique: bool = False) -> LiveFile:
    return LiveFile(
        path=record.path,
        schema_id=schema_id,
        added_seq=seq,
        ordinal=record.ordinal,
        rows=record.rows,
        bytes=record.bytes,
        run_id=run_id,
        unique_keys=unique,
        merged=record.merged,
        sha256=record.sha256,
        stats=record.stats or {},
        sources=record.sources,
        positions=record.positions,
        key_range=(record.first_key, record.last_key or "") if record.first_key is not None else None,
    )

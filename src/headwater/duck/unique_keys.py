"""Facts about the rows of files that only a scan can find, by DuckDB in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.base.table_schema import TableSchema
from headwater.catalog.table_state import TableState
from headwater.duck.duck_types import quote
from headwater.duck.table_select import column_names, view_select
from headwater.storage.file_record import FileRecord, LiveFile


def keys_are_unique(root: Path, files: Sequence[FileRecord], schema: TableSchema) -> bool:
    """True if no primary key occurs twice among these files, all written with this schema."""
    import duckdb

    state = _state_of(files, schema)
    keys = ", ".join(quote(_exact_name(schema, name)) for name in schema.primary_key)
    query = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM ({view_select(state, root=str(root))}))"
    with duckdb.connect() as connection:
        found = connection.execute(query).fetchone()
    return found is not None and found[0] == sum(file.rows for file in files)


def stored_keys(root: Path, state: TableState) -> int:
    """How many keys an upsert table has. Reads the key columns of files whose keys may be in other files too."""
    import duckdb

    if all(file.level for file in state.files):
        return sum(file.rows for file in state.files)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT count(*) FROM ({view_select(state, root=str(root))})").fetchone()
    return int(found[0]) if found is not None else 0


def current_hashes(root: Path, state: TableState, column: str, start: Any) -> bytes:
    """The content hashes, 16 bytes each, of the table's rows whose `column` is at least `start` (or null). A time is
    given as its nanoseconds."""
    import duckdb

    name = quote(_exact_name(state.schema, column))
    where = "" if start is None else f" WHERE {name} >= ? OR {name} IS NULL"
    query = f"SELECT _content_hash FROM ({view_select(state, root=str(root))}){where}"
    with duckdb.connect() as connection:
        found = connection.execute(query, [] if start is None else [start])
        return b"".join(value for (value,) in found.fetchall())


def _exact_name(schema: TableSchema, name: str) -> str:
    """The view's column that holds a column's exact values: for a time, its nanoseconds."""
    names, exact_names = column_names(schema)
    column = schema.column(name)
    assert column is not None, name
    return exact_names.get(column.id, names[column.id])


def _state_of(files: Sequence[FileRecord], schema: TableSchema) -> TableState:
    """A table of these files, which no commit names yet."""
    live = tuple(
        LiveFile(path=f.path, schema_id=1, added_seq=1, ordinal=f.ordinal, rows=f.rows, bytes=f.bytes, run_id="")
        for f in files
    )
    return TableState("", "", "append", 1, schema, {1: schema}, live, seq=1, changed_seq=1)

"""Questions about the rows of files that only their bytes answer, asked of DuckDB in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.base.schema import TableSchema
from headwater.store.duck_types import quote
from headwater.store.records import FileRecord
from headwater.store.state import TableState
from headwater.store.view_sql import view_select


def keys_are_unique(root: Path, files: Sequence[FileRecord], schema: TableSchema) -> bool:
    """True if no primary key stands twice among these files."""
    import duckdb

    rows = sum(file.rows for file in files)
    keys = ", ".join(quote(name) for name in schema.primary_key)
    paths = [str(root / file.path) for file in files]
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM read_parquet(?))"
        found = connection.execute(query, [paths]).fetchone()
    return found is not None and found[0] == rows


def current_hashes(root: Path, state: TableState, column: str, start: Any) -> bytes:
    """The content hashes, 16 bytes each, of the table's rows whose `column` is at least `start` (or null). A time is
    given as its nanoseconds."""
    import duckdb

    kept = state.schema.column(column)
    assert kept is not None, column
    name = quote(column + "_ns" if kept.type.kind == "timestamp" else column)
    select = view_select(state, root=str(root))
    where = "" if start is None else f" WHERE {name} >= ? OR {name} IS NULL"
    with duckdb.connect() as connection:
        query = f"SELECT _content_hash FROM ({select}){where}"
        found = connection.execute(query, [] if start is None else [start])
        return b"".join(value for (value,) in found.fetchall())

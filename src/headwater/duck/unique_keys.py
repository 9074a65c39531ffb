"""Facts about the rows of files that only a scan can find, by DuckDB in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.base.table_schema import TableSchema
from headwater.catalog.table_state import TableState
from headwater.duck.duck_types import quote
from headwater.duck.table_select import exact_name, view_select
from headwater.storage.file_record import FileRecord, LiveFile

_ROWS = "_hw_rows"


def keys_are_unique(root: Path, files: Sequence[FileRecord], schema: TableSchema) -> bool:
    """True if no primary key occurs twice among these files, all written with this schema."""
    keys = ", ".join(quote(exact_name(schema, name)) for name in schema.primary_key)
    ((found,),) = _scan(root, _state_of(files, schema), f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {_ROWS})")
    return bool(found == sum(file.rows for file in files))


def stored_keys(root: Path, state: TableState) -> int:
    """How many keys an upsert table has. Reads the key columns of files whose keys may be in other files too."""
    if all(file.level for file in state.files):
        return sum(file.rows for file in state.files)
    ((found,),) = _scan(root, state, f"SELECT count(*) FROM {_ROWS}")
    return int(found)


def current_hashes(root: Path, state: TableState, column: str, start: Any) -> bytes:
    """The content hashes, 16 bytes each, of the table's rows whose `column` is at least `start` (or null). A time is
    given as its nanoseconds."""
    name = quote(exact_name(state.schema, column))
    where, values = ("", []) if start is None else (f" WHERE {name} >= ? OR {name} IS NULL", [start])
    return b"".join(value for (value,) in _scan(root, state, f"SELECT _content_hash FROM {_ROWS}{where}", values))


def _scan(root: Path, state: TableState, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The answer to a query over the table's rows, which it names as `_ROWS`."""
    import duckdb

    with duckdb.connect() as connection:
        rows = f"WITH {_ROWS} AS NOT MATERIALIZED ({view_select(state, root=str(root))})"
        return connection.execute(f"{rows} {query}", list(values)).fetchall()


def _state_of(files: Sequence[FileRecord], schema: TableSchema) -> TableState:
    """A table of these files, which no commit names yet."""
    live = tuple(
        LiveFile(path=f.path, schema_id=1, added_seq=1, ordinal=f.ordinal, rows=f.rows, bytes=f.bytes, run_id="")
        for f in files
    )
    return TableState("", "", "append", 1, schema, {1: schema}, live, seq=1, changed_seq=1)

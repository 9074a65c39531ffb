"""Questions to the store in SQL, answered by DuckDB, which can read the tables' files and do nothing else.

The fence has two rails. DuckDB is told to open no file but the live data files, to load no extension and to change
no setting. And `run_query` lets only statements pass that are known to read: DuckDB can write to every file that it
may read, and since version 2 a `SELECT` can hold an INSERT or a COPY in a WITH clause.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.base.errors import HeadwaterError, nearest
from headwater.store.sql_views import ViewState, Visible
from headwater.store.state import TableState
from headwater.store.views import create_views

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headwater.store.reading import TableInfo

FETCH_ROWS = 10_000
MESSAGE_CHARACTERS = 400
SPILL_SHARE = 10

_READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset(
    [
        "duckdb_columns",
        "duckdb_constraints",
        "duckdb_databases",
        "duckdb_functions",
        "duckdb_keywords",
        "duckdb_schemas",
        "duckdb_settings",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "generate_series",
        "histogram",
        "histogram_values",
        "icu_calendar_names",
        "json_each",
        "json_tree",
        "pg_timezone_names",
        "pragma_show",
        "pragma_table_info",
        "pragma_version",
        "query_table",
        "range",
        "repeat",
        "repeat_row",
        "summary",
        "unnest",
    ]
)
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s", re.IGNORECASE)
_MISSING_TABLE = re.compile(r"Table with name (\S+) does not exist")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class QueryResult:
    """A query that DuckDB has understood, and its answer, computed when it is taken. DuckDB's errors are HW-Q01 then
    too. `rows` and `reader` each ask anew."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    _connection: duckdb.DuckDBPyConnection
    _statement: str

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """One for `rows`, for who wants to interrupt it: DuckDB refuses other work on a connection whose answer was not
        read to its end, so each answer has one of its own."""
        return self._connection.cursor()

    def rows(self, of: duckdb.DuckDBPyConnection | None = None) -> Iterator[tuple[Any, ...]]:
        with _translated(self._connection), of or self.cursor() as cursor:
            cursor.execute(self._statement)
            while batch := cursor.fetchmany(FETCH_ROWS):
                yield from batch

    def reader(self) -> pa.RecordBatchReader:
        """The answer as Arrow batches."""
        import pyarrow as pa

        with _translated(self._connection):
            found: Any = self._connection.cursor().sql(self._statement).to_arrow_reader(FETCH_ROWS)
        return pa.RecordBatchReader.from_batches(found.schema, self._batches(found))

    def _batches(self, found: Any) -> Iterator[pa.RecordBatch]:
        with _translated(self._connection):
            yield from found


def connect(
    root: Path,
    states: Sequence[TableState],
    *,
    tables_info: Sequence[TableInfo],
    views: Sequence[ViewState] = (),
    sql: str | None = None,
    memory_bytes: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """A database in memory with a view of each table, the views of ripples and `headwater.tables`, in UTC, fenced in.
    With `sql` there is only what it names, and what that reads, which is what one question to a store of many tables
    needs. Raises HW-T04 if a file of a table is not there. A stranger's SQL goes through `run_query` only. `memory_bytes`
    bounds what a query takes; what needs more uses the disk, at most ten times as much, or fails."""
    import duckdb

    root = root.resolve()
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": False})
    try:
        visible = Visible.of(states, views)
        if sql is not None:
            states, views = _named(connection, sql, visible)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute("SET temp_directory = ?", [str(Path(tempfile.gettempdir()) / "headwater-query")])
        if memory_bytes is not None:
            connection.execute("SET memory_limit = ?", [f"{memory_bytes}B"])
            connection.execute("SET max_temp_directory_size = ?", [f"{SPILL_SHARE * memory_bytes}B"])
        selects = {view.name: visible.select(view.definition) for view in views}
        create_views(connection, root, states, tables_info=tables_info, views=selects)
        connection.execute("SET autoinstall_known_extensions = false")
        connection.execute("SET autoload_known_extensions = false")
        connection.execute("SET allow_community_extensions = false")
        files = [str(root / file.path) for state in states for file in state.files]
        connection.execute("SET allowed_paths = ?", [files])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def _named(
    connection: duckdb.DuckDBPyConnection, sql: str, visible: Visible
) -> tuple[Sequence[TableState], Sequence[ViewState]]:
    """The tables and views that a statement names, and those that they read; all of them where it asks for something
    else too, as `SHOW TABLES` does."""
    import duckdb

    states, views = list(visible.tables.values()), list(visible.views.values())
    try:
        names = {name.strip('"').lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:
        return states, views
    if not names or names - visible.tables.keys() - visible.views.keys() - {"tables"} or "query_table" in sql.lower():
        return states, views
    names |= visible.behind(view for view in views if view.name in names)
    return [state for state in states if state.name in names], [view for view in views if view.name in names]


def run_query(connection: duckdb.DuckDBPyConnection, sql: str) -> QueryResult:
    """Answer one statement that reads: SELECT, VALUES, FROM, DESCRIBE, SHOW, SUMMARIZE, or EXPLAIN of one of them.
    Everything else, and everything that DuckDB refuses, is HW-Q01."""
    with _translated(connection):
        statement = _reading(connection, sql)
        found = connection.sql(statement)
        return QueryResult(tuple(found.columns), tuple(map(str, found.types)), connection, statement)


def _reading(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The statement, if all that it does is read."""
    import duckdb

    statements = connection.extract_statements(sql)
    if not statements:
        raise HeadwaterError("HW-Q01", "there is no statement", hint="give one, such as `SELECT * FROM orders`")
    if len(statements) > 1:
        raise HeadwaterError("HW-Q01", f"one statement at a time, not {len(statements)}", hint="ask them one by one")
    prefix, inner = "", statements[0].query
    if statements[0].type == duckdb.StatementType.EXPLAIN:
        found = _EXPLAIN.match(inner)
        if found is None:
            raise _not_reading()
        prefix, inner = ("EXPLAIN ANALYZE " if found[1] else "EXPLAIN "), inner[found.end() :]
        statements = connection.extract_statements(inner)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise _not_reading()
    tree = connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [inner]).fetchall()
    parsed = json.loads(tree[0][0])
    if parsed["error"]:
        raise _not_reading()
    _check(parsed["statements"])
    return prefix + inner


def _check(node: Any) -> None:
    """Walk DuckDB's own parse: every query node must be one that reads, every table function a harmless one."""
    if isinstance(node, list):
        for part in node:
            _check(part)
    elif isinstance(node, dict):
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING_NODES:
            raise _not_reading()
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in _TABLE_FUNCTIONS:
                raise HeadwaterError(
                    "HW-Q01",
                    f"the table function `{name}` cannot be used here",
                    hint="query the tables by their names; `SELECT * FROM headwater.tables` lists them",
                )
        for part in node.values():
            _check(part)


def _not_reading() -> HeadwaterError:
    return HeadwaterError(
        "HW-Q01",
        "a query can only read",
        hint="write SELECT, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN; tables change by pipelines",
    )


@contextmanager
def _translated(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = str(error).split("\n\nLINE ")[0].strip()
        if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.InvalidInputException):
            text = _QUOTED.sub("'...'", text)
        missing = _MISSING_TABLE.search(text)
        hint = _nearest_table(connection, missing[1]) if missing else ""
        message = text.splitlines()[0] if missing else text
        if len(message) > MESSAGE_CHARACTERS:
            message = message[:MESSAGE_CHARACTERS] + "..."
        raise HeadwaterError("HW-Q01", message, hint=hint) from error


def _nearest_table(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    known = [row[0] for row in connection.execute("SELECT name FROM headwater.tables ORDER BY name").fetchall()]
    meant = nearest(name.strip('"`'), known)
    if meant:
        return f"did you mean `{meant}`?"
    return "tables: " + ", ".join(known) if known else "there is no table yet: run `headwater apply`"

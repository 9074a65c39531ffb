"""A DuckDB session that can read the tables' files and do nothing else, and the answer to one query in it.

Two rules protect it. DuckDB opens no file but the live data files, loads no extension and changes no setting: the
session is locked before anything else is run in it. And `run_query` takes only statements that `parse` lets pass:
DuckDB can write to every file that it may read, and since version 2 a `SELECT` can hold an INSERT or a COPY in a
WITH clause.

Nothing here needs the catalog: for clients it runs in a separate process, see `query_worker`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.duck.duck_types import literal, quote
from headwater.duck.statement import LOCKED_CONFIG, Statement, parse
from headwater.duck.table_select import META, meta_name

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_NO_FILE = re.compile(r'Cannot access file "(.*)/\*\*/\*\.parquet"')
_WHERE = re.compile(r"\n\n(?:LINE |Stack Trace)")
"""Where DuckDB's message ends and the position in the SQL, or in DuckDB's own code, begins."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class SessionDefinitions:
    """What a session shows, as SQL.

    tables   name of each table, and the statements that make its views over its files
    views    name and SELECT of each view of a ripple, after the views that it reads
    listing  the statements that make `headwater.tables`
    files    the paths of all files that the tables are read from
    """

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    views: tuple[tuple[str, str], ...]
    listing: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Resources:
    """What a session may use; None: DuckDB's default.

    memory_bytes    the memory that DuckDB manages; what needs more uses the disk, at most ten times as much, or fails
    threads         the threads that run a query
    temp_directory  where it uses the disk; without one it uses none
    """

    memory_bytes: int | None = None
    threads: int | None = None
    temp_directory: str | None = None


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query, which can be read once. DuckDB's errors while it is read are HW-Q01 too."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    _cursor: duckdb.DuckDBPyConnection

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, some at a time."""
        with translated(), self._cursor as cursor:
            while batch := cursor.fetchmany(limits.QUERY_FETCH_ROWS):
                yield batch


def new_database() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, for `open_session`: making it takes longer than all the rest."""
    import duckdb

    return duckdb.connect(":memory:", config=dict(LOCKED_CONFIG))


def open_session(
    definitions: SessionDefinitions, resources: Resources, database: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyConnection:
    """A session with these tables and views, in UTC. `database` is new and unused. Raises HW-T04 if a file of a table
    is missing."""
    connection = database or new_database()
    try:
        connection.execute(_lock(definitions.files, resources))
        create_views(connection, definitions)
    except BaseException:
        connection.close()
        raise
    return connection


def create_views(
    connection: duckdb.DuckDBPyConnection,
    definitions: SessionDefinitions,
    damaged: dict[str, HeadwaterError] | None = None,
) -> None:
    """Make all views in a database. Raises HW-T04 if a file of a table is missing or has changed. With `damaged`, such
    a table is noted there instead, and a query of its views fails with that reason, as does one of a ripple's view that
    DuckDB rejects."""
    import duckdb

    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {META}")
    for name, statements in definitions.tables:
        try:
            for statement in statements:
                connection.execute(statement)
        except (
            duckdb.IOException,
            duckdb.InvalidInputException,
            duckdb.ConversionException,
            duckdb.PermissionException,
        ) as error:
            problem = HeadwaterError(
                "HW-T04",
                f"table `{name}` cannot be read: {_reason(error)}",
                hint="`headwater context verify` lists every file that is missing or damaged",
            )
            if damaged is None:
                raise problem from error
            damaged[name] = problem
            for view in (meta_name(name), quote(name)):
                connection.execute(_broken(view, name, problem.message))
    for name, select in definitions.views:
        try:
            connection.execute(f"CREATE OR REPLACE VIEW {quote(name)} AS {select}")
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            connection.execute(_broken(quote(name), name, str(error).splitlines()[0]))
    connection.execute(definitions.listing)


def _reason(error: Exception) -> str:
    """DuckDB's message. A locked session takes a missing file for a folder, which it may not open."""
    found = _NO_FILE.search(str(error))
    return f'there is no file "{found[1]}"' if found else str(error).splitlines()[0]


def _broken(view: str, name: str, reason: str) -> str:
    """Replaces a view that DuckDB rejects: a query of it fails with the reason, and all other views work."""
    message = f"the view `{name}` cannot be shown: {reason}"
    return f"CREATE OR REPLACE VIEW {view} AS SELECT error({literal(message)}) AS {quote('error')}"


def run_query(connection: duckdb.DuckDBPyConnection, sql: str) -> QueryResult:
    """Check one statement, and begin to answer it. Everything but reading, and everything that DuckDB refuses, is
    HW-Q01."""
    return run_statement(connection, _checked(connection, sql))


def run_to_arrow(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """As `run_query`, with the answer as Arrow batches."""
    import pyarrow as pa

    statement = _checked(connection, sql)
    with translated():
        found: Any = connection.cursor().sql(statement.sql).to_arrow_reader(limits.QUERY_ARROW_ROWS)
    return pa.RecordBatchReader.from_batches(found.schema, _batches(found))


def run_statement(connection: duckdb.DuckDBPyConnection, statement: Statement) -> QueryResult:
    """Begin to answer a statement whose names were checked. DuckDB refuses other work on a connection whose answer was
    not read to its end, so each answer has its own connection."""
    with translated():
        cursor = connection.cursor()
        cursor.execute(statement.sql)
        columns = cursor.description or []
    return QueryResult(tuple(column[0] for column in columns), tuple(str(column[1]) for column in columns), cursor)


@contextmanager
def translated() -> Iterator[None]:
    """DuckDB's errors as ours, without values of rows."""
    import duckdb

    try:
        yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise out_of_memory() from error
    except duckdb.Error as error:
        text = _WHERE.split(str(error))[0].strip()
        if isinstance(error, duckdb.InternalException | duckdb.FatalException) and "allocation failure" in text:
            raise out_of_memory() from error
        if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.InvalidInputException):
            text = _QUOTED.sub("'...'", text)
        if len(text) > limits.MESSAGE_CHARACTERS:
            text = text[: limits.MESSAGE_CHARACTERS] + "..."
        raise HeadwaterError("HW-Q01", text) from error


def out_of_memory() -> HeadwaterError:
    return HeadwaterError(
        "HW-Q03",
        "the query needs more memory than it may have",
        hint="ask for fewer rows or columns, or shorter values",
    )


def _checked(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    statement = parse(sql)
    statement.check_names([row[0] for row in connection.execute("SELECT name FROM headwater.tables").fetchall()])
    return statement


def _batches(found: Any) -> Iterator[pa.RecordBatch]:
    with translated():
        yield from found


def _lock(files: Sequence[str], resources: Resources) -> str:
    """The first statements of a session. DuckDB accepts the list of files only while it has access to all files; after
    these statements neither can be changed."""
    settings = {"temp_directory": literal(resources.temp_directory or "")}
    if resources.memory_bytes is not None:
        settings["memory_limit"] = literal(f"{resources.memory_bytes}B")
        settings["max_temp_directory_size"] = literal(f"{limits.QUERY_SPILL_SHARE * resources.memory_bytes}B")
    if resources.threads is not None:
        settings["threads"] = str(resources.threads)
    settings["allowed_paths"] = f"[{', '.join(map(literal, files))}]"
    settings["enable_external_access"] = "false"
    settings["lock_configuration"] = "true"
    return "SET GLOBAL TimeZone = 'UTC'; " + "; ".join(f"SET {name} = {value}" for name, value in settings.items())

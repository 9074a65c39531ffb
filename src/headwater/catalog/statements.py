"""What statements need on both databases: JSON as text, parameters in parts, INSERT ... ON CONFLICT."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, CursorResult, Select, Table, Update, bindparam, update

from headwater.base import limits

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

Value = TypeVar("Value")


def json_text(value: Any) -> str:
    """JSON as the catalog keeps it: text, so that both databases hold the same bytes."""
    return msgspec.json.encode(value).decode()


def chunks(values: Sequence[Value]) -> list[Sequence[Value]]:
    """The values in parts, each of which fits into one statement: databases bound how many parameters one may have."""
    size = limits.SQL_PARAMETERS
    return [values[i : i + size] for i in range(0, len(values), size)]


def among(query: Select[Any], column: ColumnElement[Any], values: Collection[Any] | None) -> Select[Any]:
    """The query, only for rows whose column has one of these values; for all rows if there are none to choose by."""
    return query if values is None else query.where(column.in_(list(values)))


def chosen(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Collection[Any] | None, **given: Any
) -> CursorResult[Any]:
    """The rows of `among`, of a query that is made once: making a statement takes longer than running it. `given` are
    its other parameters."""
    if values is None:
        return connection.execute(query, given)
    one = len(values) == 1  # a list would be written into the statement each time
    return connection.execute(
        _chosen(query, column, one), {"chosen": next(iter(values)) if one else list(values), **given}
    )


@cache
def _chosen(query: Select[Any], column: ColumnElement[Any], one: bool) -> Select[Any]:
    return query.where(column == bindparam("chosen") if one else column.in_(bindparam("chosen", expanding=True)))


def set_columns(connection: Connection, table: Table, of: Mapping[str, Any], **values: Any) -> None:
    """Set columns of the rows that hold the values in `of`. The statement is made once."""
    given = {f"of_{name}": value for name, value in of.items()} | {
        f"to_{name}": value for name, value in values.items()
    }
    connection.execute(_set_columns(table, tuple(of), tuple(values)), given)


@cache
def _set_columns(table: Table, of: tuple[str, ...], names: tuple[str, ...]) -> Update:
    rows = (table.c[name] == bindparam(f"of_{name}") for name in of)
    return update(table).where(*rows).values({name: bindparam(f"to_{name}") for name in names})


def upsert(on: Connection | str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that has `on_conflict_do_nothing` and `on_conflict_do_update`, which SQLite and PostgreSQL write alike and
    SQLAlchemy keeps in two places. `on` may be the name of a dialect."""
    if (on if isinstance(on, str) else on.dialect.name) == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)

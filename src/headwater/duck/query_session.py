"""What a query needs to see of the store: the SQL of its tables and views, and the files that they are read from."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.catalog.table_state import TableState
from headwater.duck.ripple_views import ViewState, Visible
from headwater.duck.sandbox import Resources, SessionDefinitions, open_session
from headwater.duck.statement import Statement
from headwater.duck.view_files import table_views, tables_text

if TYPE_CHECKING:
    import duckdb

    from headwater.catalog.lookup import TableInfo


def define(
    states: Sequence[TableState],
    *,
    tables_info: Sequence[TableInfo],
    views: Sequence[ViewState] = (),
    root: Path | None = None,
    statement: Statement | None = None,
) -> SessionDefinitions:
    """The definitions of a session: every table and view, or only those that `statement` names and what they read,
    which is faster in a store of many tables. Raises HW-Q01 if it names one that does not exist. Paths are absolute
    under `root`, or relative to the store."""
    visible = Visible.of(states, views)
    if statement is not None:
        known = [*visible.tables, *visible.views]
        statement.check_names(known)
        names = statement.tables(known)
        names |= visible.behind(view for view in views if view.name in names)
        states = [state for state in states if state.name in names]
        views = [view for view in views if view.name in names]
    prefix = None if root is None else root.resolve()
    return SessionDefinitions(
        tables=tuple((s.name, table_views(s, root=None if prefix is None else str(prefix))) for s in states),
        views=tuple((view.name, visible.select(view.definition)) for view in views),
        listing=tables_text(tables_info),
        files=tuple(file.path if prefix is None else str(prefix / file.path) for s in states for file in s.files),
    )


def connect(
    root: Path,
    states: Sequence[TableState],
    *,
    tables_info: Sequence[TableInfo],
    views: Sequence[ViewState] = (),
    statement: Statement | None = None,
) -> duckdb.DuckDBPyConnection:
    """A session of this process, see `define`. A client's SQL goes through `run_query` only."""
    definitions = define(states, tables_info=tables_info, views=views, root=root, statement=statement)
    return open_session(definitions, Resources(temp_directory=_temp_directory()))


def _temp_directory() -> str | None:
    """None if no directory is writable."""
    try:
        return str(Path(tempfile.gettempdir()) / "headwater-query")
    except OSError:
        return None

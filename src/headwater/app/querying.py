"""query: DuckDB over the store, read-only, at a cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.app.declared import declared_states
from headwater.app.refreshing import is_current, refresh
from headwater.app.workspace import Workspace
from headwater.store.info import table_infos
from headwater.store.reading import current_seq, freshness_by_pipeline, table_entries, table_states
from headwater.store.sql_views import view_states

if TYPE_CHECKING:
    import duckdb


@contextmanager
def reader(
    workspace: Workspace, *, as_of: int | None = None, sql: str | None = None, memory_bytes: int | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that sees the tables of the store as of one sequence (default: now), and nothing else. With
    `sql`, the one query that will be asked, only its tables are made ready. A declared table that
    nothing has landed in is there, and empty. The views on disk are brought up to
    date first."""
    from headwater.store.read import connect

    store = workspace.landed_store()
    with store.catalog.snapshot() as connection:
        entries = table_entries(connection)
    if not is_current(store, entries):
        refresh(store)
    with store.catalog.snapshot() as connection:
        states, views = table_states(connection, as_of=as_of), view_states(connection, as_of=as_of)
        if as_of is None:
            landed = {state.name for state in states} | {view.name for view in views}
            states += declared_states(workspace, landed, seq=current_seq(connection))
        infos = table_infos(states, freshness_by_pipeline(connection), views=views)
    session = connect(store.root, states, tables_info=infos, views=views, sql=sql, memory_bytes=memory_bytes)
    try:
        yield session
    finally:
        session.close()

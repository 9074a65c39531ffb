"""query: DuckDB over the store, read-only, at a cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.app.declared_tables import declared_states
from headwater.app.refresh_views import is_current, refresh
from headwater.app.workspace import Workspace, nothing_landed
from headwater.base.errors import StoreDamaged, StoreUnwritable
from headwater.catalog.lookup import TableInfo, current_seq, freshness_by_pipeline, table_entries, table_states
from headwater.catalog.table_state import TableState
from headwater.duck.ripple_views import ViewState, view_states
from headwater.duck.sandbox import run_query, run_to_arrow
from headwater.duck.view_files import table_infos

if TYPE_CHECKING:
    import duckdb

__all__ = ["run_query", "run_to_arrow"]

_LOG = logging.getLogger("headwater.query")


@dataclass(frozen=True)
class Cut:
    """The tables and views of a store as of one sequence."""

    root: Path
    states: Sequence[TableState]
    views: Sequence[ViewState]
    infos: Sequence[TableInfo]


@contextmanager
def reader(
    workspace: Workspace, *, as_of: int | None = None, sql: str | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A session in this process that sees only the tables of the store as of one sequence (default: now). With `sql`,
    the one query that will be run, only its tables are prepared. A declared table without landed rows is empty."""
    from headwater.duck.query_session import connect
    from headwater.duck.statement import parse

    statement = parse(sql) if sql is not None else None
    cut = read_cut(workspace, as_of=as_of)
    session = connect(cut.root, cut.states, tables_info=cut.infos, views=cut.views, statement=statement)
    try:
        yield session
    finally:
        session.close()


def read_cut(workspace: Workspace, *, as_of: int | None = None) -> Cut:
    """The store as of one sequence. The views on disk are refreshed first; reading goes on if the disk is full or
    read-only, or if a table that is not asked for is damaged. Before anything has landed, the tables of the manifest
    are there and empty. Raises HW-T07 if there is no such table either, or if a sequence was given then."""
    project, store = workspace.project, workspace.existing_store()
    if store is None:
        states = declared_states(project, (), seq=0)
        if as_of is not None or not states:
            raise nothing_landed()
        return Cut(project.store_root, states, (), table_infos(states, {}))
    with store.catalog.snapshot() as connection:
        entries = table_entries(connection)
    if not is_current(store, project, entries):
        try:
            refresh(store, project)
        except (StoreDamaged, StoreUnwritable) as error:
            _LOG.warning("the views on disk are not up to date: %s", error.message)
    with store.catalog.snapshot() as connection:
        states, views = table_states(connection, as_of=as_of), view_states(connection, as_of=as_of)
        if as_of is None:
            landed = {state.name for state in states} | {view.name for view in views}
            states += declared_states(project, landed, seq=current_seq(connection))
        infos = table_infos(states, freshness_by_pipeline(connection), views=views)
    return Cut(store.root, states, views, infos)

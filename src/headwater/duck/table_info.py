"""What the catalog knows of each table and view without reading a row: the lines of `headwater.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.catalog.lookup import TableInfo
from headwater.catalog.table_state import TableState
from headwater.duck.ripple_views import ViewState

VIEW = "view"
"""Shown as the mode of a view."""


def table_infos(
    states: Sequence[TableState], freshness_us: Mapping[str, int], *, views: Sequence[ViewState] = ()
) -> list[TableInfo]:
    tables = [
        TableInfo(
            name=state.name,
            pipeline=state.pipeline,
            mode=state.mode,
            rows=_rows(state),
            stored_rows=sum(file.rows for file in state.files),
            bytes=sum(file.bytes for file in state.files),
            files=len(state.files),
            freshness_us=freshness_us.get(state.pipeline),
            seq=state.changed_seq,
        )
        for state in states
    ]
    return tables + [
        TableInfo(
            name=view.name,
            pipeline=view.pipeline,
            mode=VIEW,
            rows=None,
            stored_rows=0,
            bytes=0,
            files=0,
            freshness_us=freshness_us.get(view.pipeline),
            seq=view.changed_seq,
        )
        for view in views
    ]


def _rows(state: TableState) -> int | None:
    """Exact, or None: a key that is in several files of an upsert table is one row, and only a scan can count those."""
    if state.mode == "upsert" and not all(file.level for file in state.files):
        return None
    return sum(file.rows for file in state.files)

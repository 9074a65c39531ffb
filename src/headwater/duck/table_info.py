"""What the catalog knows of each table and view without reading a row: the lines of `headwater.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.catalog.lookup import TableInfo
from headwater.catalog.table_state import TableState
from headwater.duck.ripple_views import ViewState
from headwater.storage.file_record import LiveFile

_VIEW = "view"
"""Shown as the mode of a view."""


def table_infos(
    states: Sequence[TableState], freshness_us: Mapping[str, int], *, views: Sequence[ViewState] = ()
) -> list[TableInfo]:
    shown: list[tuple[TableState | ViewState, str, int | None, Sequence[LiveFile]]]
    shown = [(state, state.mode, _rows(state), state.files) for state in states]
    shown += [(view, _VIEW, None, ()) for view in views]
    return [
        TableInfo(
            name=each.name,
            pipeline=each.pipeline,
            mode=mode,
            rows=rows,
            stored_rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            files=len(files),
            freshness_us=freshness_us.get(each.pipeline),
            seq=each.changed_seq,
        )
        for each, mode, rows, files in shown
    ]


def _rows(state: TableState) -> int | None:
    """Exact, or None: a key that is in several files of an upsert table is one row, and only a scan can count those."""
    if state.mode == "upsert" and not all(file.level for file in state.files):
        return None
    return sum(file.rows for file in state.files)

"""What the catalog knows of each table without reading a row: the lines of `headwater.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.store.reading import TableInfo
from headwater.store.state import TableState
from headwater.store.view_sql import base_prefix


def table_infos(states: Sequence[TableState], freshness_us: Mapping[str, int]) -> list[TableInfo]:
    return [
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


def _rows(state: TableState) -> int | None:
    """Exact, or None: a key that stands in several files of an upsert table is one row, and only reading tells."""
    if state.mode == "upsert" and base_prefix(state) < len(state.files):
        return None
    return sum(file.rows for file in state.files)

"""Arrow batches from plain rows, for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.base.types import parse_type, to_arrow


def batch_of(rows: list[dict[str, Any]], types: dict[str, str]) -> pa.RecordBatch:
    """Rows by the house's types; times are given as integers."""
    columns = []
    for name, text in types.items():
        arrow = to_arrow(parse_type(text))
        storage = arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow
        array = pa.array([row.get(name) for row in rows], storage)
        columns.append(pa.ExtensionArray.from_storage(arrow, array) if storage is not arrow else array)
    return pa.record_batch(columns, names=list(types))

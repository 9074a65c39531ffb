"""Values of a typed file as text: what a column of text takes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.base.types import STRING, from_arrow
from headwater.connectors.files.convert_columns import convert_typed, json_texts, texts_of_scalars
from headwater.connectors.files.json_texts import base64_texts, is_bytes, stored

if TYPE_CHECKING:
    import pyarrow as pa


def texts_of(column: pa.Array) -> pa.Array:
    """Every value has a text: scalars as the `files` connector writes them into a column of text, bytes as base64,
    lists and structs as JSON."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    column = stored(column, texts_of_scalars)
    if pa.types.is_string(column.type) or from_arrow(column.type).kind not in ("binary", "list", "struct", "vector"):
        return convert_typed(column, STRING)[0]
    texts = base64_texts(column) if is_bytes(column.type) else json_texts(column)
    valid = column.is_valid().to_pylist()
    return pa.array([text if is_valid else None for text, is_valid in zip(texts, valid)], pa.string())

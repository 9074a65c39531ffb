"""Values of a typed file as text: what a column of text takes of them, and what JSON says of them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec

from headwater.base.types import STRING, from_arrow
from headwater.connectors.files.columns import convert_typed

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "null"


def texts_of(column: pa.Array) -> pa.Array:
    """Every value has a text: scalars as the `files` connector writes them into a column of text, bytes as base64,
    lists and structs as JSON."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    column = _plain(column)
    if pa.types.is_string(column.type) or from_arrow(column.type).kind not in ("binary", "list", "struct", "vector"):
        return convert_typed(column, STRING)[0]
    is_bytes = from_arrow(column.type).kind == "binary"
    texts = _base64(column) if is_bytes else json_texts(column)
    valid = column.is_valid().to_pylist()
    return pa.array([text if is_valid else None for text, is_valid in zip(texts, valid)], pa.string())


def json_texts(column: pa.Array) -> list[str]:
    """Every value as JSON text. Numbers keep their digits; what JSON has no word for is text."""
    import pyarrow as pa

    column = _plain(column)
    type_ = column.type
    if pa.types.is_null(type_):
        return [NULL] * len(column)
    if pa.types.is_struct(type_):
        texts = _objects(column)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        texts = ["" if not each.is_valid else f"[{','.join(json_texts(each.values))}]" for each in column]
    elif from_arrow(type_).kind == "binary":
        texts = [_quoted(text) for text in _base64(column)]
    else:
        is_bare = pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_decimal(type_)
        found = [text or "" for text in convert_typed(column, STRING)[0].to_pylist()]
        if pa.types.is_floating(type_):
            texts = [_quoted(text) if text.endswith(("nan", "inf")) else text for text in found]
        else:
            texts = found if is_bare else [_quoted(text) for text in found]
    return [text if is_valid else NULL for text, is_valid in zip(texts, column.is_valid().to_pylist())]


def _plain(column: pa.Array) -> pa.Array:
    """Without what only says how values are stored."""
    import pyarrow as pa

    if isinstance(column.type, pa.UuidType):
        return convert_typed(column, STRING)[0]
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _objects(column: pa.Array) -> list[str]:
    names = [_quoted(field.name) for field in column.type]
    members = [json_texts(column.field(index)) for index in range(len(names))]
    rows = zip(*members) if members else (() for _ in range(len(column)))
    return ["{" + ",".join(f"{name}:{text}" for name, text in zip(names, row)) + "}" for row in rows]


def _base64(column: pa.Array) -> list[str]:
    return [b64encode(value or b"").decode() for value in column.to_pylist()]


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()

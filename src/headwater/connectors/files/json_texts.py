"""Values of a typed file as JSON text. Numbers keep their digits; a value of a type that JSON lacks is a text.

A map whose keys are texts is an object; any other map is an array of `{"key": ..., "value": ...}`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "null"


Scalars = Callable[["pa.Array"], "pa.Array"]
"""Gives the texts of a column of scalars."""


def json_texts_of(column: pa.Array, scalars: Scalars) -> list[str]:
    """Every value as JSON text. Raises what `scalars` raises."""
    import pyarrow as pa

    column = stored(column, scalars)
    type_ = column.type
    if pa.types.is_null(type_):
        return [NULL] * len(column)
    if pa.types.is_struct(type_):
        texts = _objects(column, scalars)
    elif pa.types.is_map(type_):
        texts = _maps(column, scalars)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        texts = [f"[{','.join(items)}]" for items in _runs(column, json_texts_of(column.flatten(), scalars))]
    elif is_bytes(type_):
        texts = [_quoted(text) for text in base64_texts(column)]
    else:
        texts = _scalars(column, scalars)
    return [text if is_valid else NULL for text, is_valid in zip(texts, column.is_valid().to_pylist())]


def stored(column: pa.Array, scalars: Scalars) -> pa.Array:
    """The column without types that only say how values are stored."""
    import pyarrow as pa

    if isinstance(column.type, pa.UuidType):
        return scalars(column)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_bytes(type_: pa.DataType) -> bool:
    from pyarrow import types as at

    known = (at.is_binary, at.is_large_binary, at.is_fixed_size_binary, at.is_binary_view)
    return any(is_kind(type_) for is_kind in known)


def base64_texts(column: pa.Array) -> list[str]:
    return [b64encode(value or b"").decode() for value in column.to_pylist()]


def _scalars(column: pa.Array, scalars: Scalars) -> list[str]:
    import pyarrow as pa

    type_ = column.type
    found = [text or "" for text in scalars(column).to_pylist()]
    if pa.types.is_floating(type_):
        return [_quoted(text) if text.endswith(("nan", "inf")) else text for text in found]
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return found
    return [_quoted(text) for text in found]


def _objects(column: pa.Array, scalars: Scalars) -> list[str]:
    names = [_quoted(field.name) for field in column.type]
    members = [json_texts_of(column.field(index), scalars) for index in range(len(names))]
    rows = zip(*members) if members else (() for _ in range(len(column)))
    return ["{" + ",".join(f"{name}:{text}" for name, text in zip(names, row)) + "}" for row in rows]


def _maps(column: pa.Array, scalars: Scalars) -> list[str]:
    import pyarrow as pa

    type_ = column.type
    lists = column.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)])))
    entries = lists.flatten()
    keys, values = (json_texts_of(entries.field(index), scalars) for index in range(2))
    if pa.types.is_string(type_.key_type) or pa.types.is_large_string(type_.key_type):
        members = [f"{key}:{value}" for key, value in zip(keys, values)]
        return ["{" + ",".join(run) + "}" for run in _runs(lists, members)]
    members = [f'{{"key":{key},"value":{value}}}' for key, value in zip(keys, values)]
    return [f"[{','.join(run)}]" for run in _runs(lists, members)]


def _runs(column: pa.Array, texts: list[str]) -> list[list[str]]:
    """The texts of all items, cut into those of each list; none of a null."""
    import pyarrow.compute as pc

    ends = [0, *accumulate(pc.list_value_length(column).fill_null(0).to_pylist())]
    return [texts[start:end] for start, end in pairwise(ends)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

"""The value at a place inside JSON, as a column of a type: what a promoted column shows of a `dynamic` one.

A scalar becomes what it would become if it were pushed into the column; what is refused there is null here. Objects and
arrays, whose source text DuckDB does not keep, are null too, and so is everything in a text that is not JSON. If an
object has a key twice, the first one counts, as it does for DuckDB's `->`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.base.json_path import Steps
from headwater.base.limits import MAX_JSON_DEPTH
from headwater.base.types import Type
from headwater.coerce.objects import parts
from headwater.coerce.row_errors import Refused
from headwater.coerce.values import Value, coerce_value, nesting, raw_items, raw_members, raw_value

if TYPE_CHECKING:
    import pyarrow as pa


def is_json(text: str) -> bool:
    """Whether a text can be a value of a `dynamic` column: then DuckDB can read it."""
    try:
        raw_value(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return nesting(text.encode(), beyond=MAX_JSON_DEPTH) is None


def value_at(source: str, steps: Steps, type_: Type) -> Value:
    """The value at a place of a JSON text, in a type that a promoted column can have; None where there is none."""
    try:
        found = _found(source.strip(), steps)
        return None if found is None or found[0] in "{[" else coerce_value(found, type_)
    except (Refused, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def column_at(texts: pa.Array, steps: Steps, type_: Type) -> pa.Array:
    """The values of a column of JSON texts, as the files hold them; times as their nanoseconds."""
    import pyarrow as pa

    from headwater.coerce.columns import column_from_values

    values = [None if text is None else value_at(text, steps, type_) for text in texts.to_pylist()]
    return pa.array(values, pa.int64()) if type_.kind == "timestamp" else column_from_values(values, type_)


def _found(source: str, steps: Steps) -> str | None:
    """The source text at a place."""
    for step in steps:
        found = _item(source, step) if isinstance(step, int) else _member(source, step)
        if found is None:
            return None
        source = found
    return source


def _item(source: str, index: int) -> str | None:
    items = raw_items(source) if source.startswith("[") else []
    return str(items[index], "utf-8") if index < len(items) else None


def _member(source: str, key: str) -> str | None:
    if not source.startswith("{"):
        return None
    if "\\" in source or source.count(f'"{key}"') > 1:
        raw_members(source)  # from here on it is an object
        # One member after the other, because a key may occur twice: msgspec reports only the last one.
        return next((value for name, value in parts(source) if name == key), None)
    found = raw_members(source).get(key)
    return None if found is None else str(found, "utf-8")

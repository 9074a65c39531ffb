"""Values as they are written in JSON answers: one form for the command line, HTTP and queries."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any


def plain(value: object) -> object:
    """The JSON form of a value for which JSON has none."""
    import datetime
    import decimal
    import uuid

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo else value
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | Path | datetime.timedelta):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    as_json: Callable[[], object] | None = getattr(value, "as_json", None)
    return as_json() if as_json is not None else str(value)


def distinct(columns: list[str]) -> list[str]:
    """Unique names for a query's columns. JSON objects need them, so a repeated name gets a number, as in DuckDB."""
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def json_value(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinity have no form in JSON."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case list() | tuple():
            return [json_value(part) for part in value]
        case dict():
            return {str(key): json_value(part) for key, part in value.items()}
        case _:
            return value

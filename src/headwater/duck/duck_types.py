"""Headwater's types in DuckDB's SQL: what a file's column is, what a view shows, and how one becomes the other.

A view shows a `timestamp` as TIMESTAMPTZ, because DuckDB's time functions refuse nanosecond types, and a `vector`
as a fixed-size array; everything else as it is stored. Every conversion of `base.types.converts` is written out here,
so that nothing depends on a reader's own widening rules. Pure text in, text out.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from headwater.base.table_schema import Column
from headwater.base.types import STRING, TIMESTAMP, Type, converts

_SIMPLE = {
    "bool": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "real": "DOUBLE",
    "string": "VARCHAR",
    "timestamp": "TIMESTAMPTZ_NS",
    "date": "DATE",
    "binary": "BLOB",
    "dynamic": "JSON",
}
_TIMESTAMP = "TIMESTAMP WITH TIME ZONE"
_NUMBERS = ("int", "long", "real", "decimal")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)?)?")


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def stored_type(type_: Type) -> str:
    """The type that DuckDB finds in the store's files."""
    return _duck_type(type_, is_shown=False)


def shown_type(type_: Type) -> str:
    """What a view's column is."""
    return _duck_type(type_, is_shown=True)


def _duck_type(type_: Type, *, is_shown: bool) -> str:
    parts = [(quote(name), _duck_type(part, is_shown=is_shown)) for name, part in type_.fields]
    match type_.kind:
        case "decimal":
            return f"DECIMAL({type_.numbers[0]},{type_.numbers[1]})"
        case "timestamp" if is_shown:
            return _TIMESTAMP
        case "vector":
            return f"FLOAT[{type_.numbers[0]}]" if is_shown else "FLOAT[]"
        case "list":
            return f"{parts[0][1]}[]"
        case "struct":
            return f"STRUCT({', '.join(f'{name} {part}' for name, part in parts)})"
        case kind:
            return _SIMPLE[kind]


def shown(expression: str, old: Type, new: Type, *, micros: bool = False) -> str:
    """A stored value of type `old` as a view shows a column of type `new`; null where a user has accepted a change that
    does not keep values. `micros`: it is a time of whole microseconds, which needs no rounding."""
    if old == new:
        return f"CAST({expression} AS {_TIMESTAMP})" if micros else _as_shown(expression, old)
    if not converts(old, new):
        return f"CAST(NULL AS {shown_type(new)})"
    match old.kind, new.kind:
        case ("date", "timestamp"):
            return f"make_timestamptz(epoch_us(CAST({expression} AS TIMESTAMP)))"
        case ("timestamp", "date"):
            return f"CAST(make_timestamp(epoch_us({floored(expression)})) AS DATE)"
        case (_, "string"):
            return _as_text(expression, old)
        case (wide, "int" | "long" | "decimal") if wide in _NUMBERS and not _always_fits(old, new):
            # A user has accepted that these numbers become narrower: one that does not fit is null, not an error that
            # hides all others.
            return f"TRY_CAST({expression} AS {stored_type(new)})"
        case _:
            return f"CAST({_as_shown(expression, old)} AS {shown_type(new)})"


def nanoseconds(expression: str, old: Type) -> str:
    """A stored value of type `old` as the exact nanoseconds of a column that is a timestamp now."""
    if old.kind == "timestamp":
        return f"epoch_ns({expression})"
    if not converts(old, TIMESTAMP):
        return "CAST(NULL AS BIGINT)"
    return f"TRY(epoch_us(CAST({expression} AS TIMESTAMP)) * 1000)"


def exact(expression: str, old: Type, new: Type) -> str:
    """A value to compare keys by: as shown, but a timestamp to the nanosecond."""
    return nanoseconds(expression, old) if new.kind == "timestamp" else shown(expression, old, new)


def floored(expression: str) -> str:
    """TIMESTAMPTZ_NS as TIMESTAMPTZ, rounded down.

    DuckDB's own cast rounds half away from zero: one microsecond too far where the rest below a microsecond is half of
    one or more (or, before 1970, less than half). DuckDB loses a column's bounds at a subtraction, and without them it
    could skip no row group by time. It keeps them through `time_bucket`: a bucket of two microseconds, with an origin
    chosen for odd or even values, begins exactly one microsecond lower. Where a file's statistics say that its values
    are whole microseconds, the cast alone is enough, and takes a fraction of the time to bind and to compute."""
    cast = f"CAST({expression} AS {_TIMESTAMP})"
    rest = f"epoch_ns({expression}) % 1000"
    two = "INTERVAL '2 microseconds'"
    even, odd = (f"CAST('1970-01-01 00:00:00.00000{i}+00' AS {_TIMESTAMP})" for i in (0, 1))
    return (
        f"CASE WHEN {rest} BETWEEN 0 AND 499 OR {rest} <= -500 THEN {cast}"
        f" WHEN epoch_us({cast}) % 2 = 0 THEN time_bucket({two}, {cast}, {odd})"
        f" ELSE time_bucket({two}, {cast}, {even}) END"
    )


def default_value(column: Column) -> tuple[str, int | None]:
    """What rows older than the column show: an expression, and the nanoseconds if it is a timestamp."""
    value = None if column.default is None else json.loads(column.default)
    target = shown_type(column.type)
    if column.default is None or value is None:
        return f"CAST(NULL AS {target})", None
    match column.type.kind:
        case "timestamp":
            ns = _nanoseconds_of(value)
            return f"make_timestamptz(CAST({ns // 1000} AS BIGINT))", ns
        case "dynamic" | "vector" | "list" | "struct":
            return f"CAST(CAST({literal(column.default)} AS JSON) AS {target})", None
        case "binary":
            return f"encode({literal(str(value))})", None
        case _:
            return f"CAST({literal(value if isinstance(value, str) else json.dumps(value))} AS {target})", None


def _nanoseconds_of(value: Any) -> int:
    """A default for a timestamp: RFC 3339 text (UTC unless it says otherwise), or epoch nanoseconds."""
    if not isinstance(value, str):
        return int(value)
    found = _RFC3339.fullmatch(value)
    if found is None:
        return int(value)
    day, clock, fraction, zone = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{'+00:00' if zone in (None, 'Z', 'z') else zone}")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return int(seconds) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def _always_fits(old: Type, new: Type) -> bool:
    if new.kind == "decimal":
        digits = {"int": 10, "long": 19}.get(old.kind)
        whole = digits if digits is not None else old.numbers[0] - old.numbers[1] if old.kind == "decimal" else 39
        return whole <= new.numbers[0] - new.numbers[1]
    return old.kind == "int"


def _as_shown(expression: str, type_: Type, depth: int = 0) -> str:
    if not _looks_different(type_):
        return expression
    match type_.kind:
        case "timestamp":
            return floored(expression)
        case "vector":
            return f"CAST({expression} AS {shown_type(type_)})"
        case "list":
            item = f"x{depth}"
            return f"list_transform({expression}, lambda {item}: {_as_shown(item, type_.fields[0][1], depth + 1)})"
        case _:
            parts = ", ".join(
                f"{literal(name)}: {_as_shown(f'struct_extract({expression}, {literal(name)})', part, depth)}"
                for name, part in type_.fields
            )
            return f"CASE WHEN {expression} IS NULL THEN NULL ELSE {{{parts}}} END"


def _looks_different(type_: Type) -> bool:
    return type_.kind in ("timestamp", "vector") or any(_looks_different(part) for _, part in type_.fields)


def _as_text(expression: str, old: Type) -> str:
    match old.kind:
        case "timestamp":
            rest = f"((epoch_ns({expression}) % 1000000000 + 1000000000) % 1000000000)"
            second = f"make_timestamp((epoch_ns({expression}) - {rest}) // 1000)"
            return f"strftime({second}, '%Y-%m-%dT%H:%M:%S') || '.' || lpad(CAST({rest} AS VARCHAR), 9, '0') || 'Z'"
        case "vector" | "list" | "struct":
            return f"CAST(to_json({_as_shown(expression, old)}) AS {stored_type(STRING)})"
        case _:
            return f"CAST({expression} AS {stored_type(STRING)})"

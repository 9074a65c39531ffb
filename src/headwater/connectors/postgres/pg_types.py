"""PostgreSQL types and ours: what a column becomes, and the SQL that brings its values over exactly.

| PostgreSQL                                     | here                                                              |
|------------------------------------------------|-------------------------------------------------------------------|
| bool                                           | bool                                                              |
| smallint, integer / bigint, oid                | int / long                                                        |
| real, double precision                         | real (a NaN stays a NaN)                                          |
| numeric(p,s) with p <= 38                      | decimal(p,s); a larger one, and plain numeric: string, every digit |
| text, varchar, char(n), uuid, enums, ...       | string (char(n) without its padding, as PostgreSQL casts it)      |
| json, jsonb                                    | dynamic: the text that the server holds                           |
| bytea / date                                   | binary / date                                                     |
| timestamptz, timestamp                         | timestamp; one without a zone is taken as UTC                     |
| T[]                                            | list<T>; declared with two or more dimensions: dynamic            |
| vector(n) of pgvector                          | vector(n); without a length: list<real>                           |
| time, interval, inet, ranges, composites, ...  | string, in ISO style and UTC where there is a choice              |

A domain counts as its base type. A manifest may declare another type; `transfer` knows which conversions lose nothing
but what was asked for, and gives None if there is no such conversion.

A value that the type cannot hold (a NaN in a decimal, `infinity` or the year 9999 in a nanosecond timestamp, a
two-dimensional value in a `T[]` column) is never changed to fit: the server itself marks such rows, and the read fails
with a reason. A column that is declared `string` (or `dynamic`, for arrays) takes such values as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.base import types
from headwater.base.types import Type

_SCALARS: dict[str, Type] = {
    "bool": types.BOOL,
    "int2": types.INT,
    "int4": types.INT,
    "int8": types.LONG,
    "oid": types.LONG,
    "float4": types.REAL,
    "float8": types.REAL,
    "json": types.DYNAMIC,
    "jsonb": types.DYNAMIC,
    "bytea": types.BINARY,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP,
    "timestamptz": types.TIMESTAMP,
}
INTEGER_TYPES = ("int2", "int4", "int8")
CURSOR_TYPES = {"int2": "int8", "int4": "int8", "int8": "int8", "date": "date"} | {
    name: name for name in ("timestamp", "timestamptz")
}
"""Types of a column that `incremental` may name, and the type in which its values are compared."""

_INTEGER_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19, "oid": 10}
_FIRST_MOMENT, _LAST_MOMENT = "1677-09-21 00:12:44", "2262-04-11 23:47:16"
"""The whole seconds inside the range of 64-bit nanoseconds."""
_FIRST_DAY, _LAST_DAY = "1677-09-22", "2262-04-11"
_LARGEST_REAL, _SMALLEST_REAL = "1.797693134862315e308", "1e-307"
_ARRAY_CASTS = {
    "bool": "bool[]",
    "int": "int4[]",
    "long": "int8[]",
    "real": "float8[]",
    "string": "text[]",
    "decimal": "text[]",
    "dynamic": "text[]",
    "binary": "bytea[]",
    "date": "date[]",
}


@dataclass(frozen=True)
class PgColumn:
    """A column as the server's catalog has it. `base` is the name of its type without domains, or of the elements
    of an array; a type that is not the server's own is named `schema.name`. `modifier` is the raw number behind
    numeric's precision or vector's length, -1 for none. `dimensions` is 0 for a scalar."""

    name: str
    base: str
    modifier: int = -1
    dimensions: int = 0
    not_null: bool = False

    @property
    def type(self) -> Type:
        """The type that holds every value of the column, except those named above."""
        if self.dimensions == 0:
            return self._scalar()
        if self.dimensions > 1:
            return types.DYNAMIC
        element = self._scalar()
        return types.list_of(types.STRING if element.kind in ("vector", "list") else element)

    def _scalar(self) -> Type:
        if self.base == "numeric":
            return self._numeric()
        if self.base.endswith(".vector"):
            return types.vector(self.modifier) if self.modifier > 0 else types.list_of(types.REAL)
        return _SCALARS.get(self.base, types.STRING)

    def _numeric(self) -> Type:
        if self.modifier < 4:
            return types.STRING
        precision, scale = (self.modifier - 4) >> 16 & 0xFFFF, ((self.modifier - 4 & 0x7FF) ^ 1024) - 1024
        if scale < 0:
            precision, scale = precision - scale, 0
        precision = max(precision, scale)
        return types.decimal(precision, scale) if precision <= 38 else types.STRING

    def as_json(self) -> list[object]:
        return [self.name, self.base, self.modifier, self.dimensions, self.not_null]


@dataclass(frozen=True)
class Transfer:
    """How one column travels: the expression that is selected, and the conditions under which its value is wrong,
    each with its reason. The result casts to the Arrow type of the column without loss."""

    sql: str
    wrong: tuple[tuple[str, str], ...] = ()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text constant; the sessions of this connector have `standard_conforming_strings` on."""
    return "'" + text.replace("'", "''") + "'"


def transfer(column: PgColumn, target: Type) -> Transfer | None:
    """How values of `column` become values of `target`; None if they cannot, or only by guessing."""
    name = quoted(column.name)
    if target.kind == "string":
        return Transfer(f"{name}::text")
    if target.kind == "dynamic":
        is_json = column.base in ("json", "jsonb") and not column.dimensions
        return Transfer(f"{name}::text" if is_json else f"to_json({name})::text")
    if target.kind == "vector":
        return _to_vector(column, name, target.numbers[0])
    if target.kind == "list":
        return _to_list(column, name, target.fields[0][1])
    return None if column.dimensions else _to_scalar(column, name, target)


def _to_scalar(column: PgColumn, name: str, target: Type) -> Transfer | None:
    match target.kind:
        case "int" | "long":
            return _to_integer(column.base, name, target.kind)
        case "real":
            return _to_real(column.base, name)
        case "decimal":
            return _to_decimal(column, name, target)
        case "timestamp":
            return _to_timestamp(column.base, name)
        case "date" if column.base == "date":
            return Transfer(name, ((f"not isfinite({name})", "date_out_of_range"),))
        case "bool" if column.base == "bool":
            return Transfer(name)
        case "binary" if column.base == "bytea":
            return Transfer(name)
        case _:
            return None


def _to_integer(base: str, name: str, kind: str) -> Transfer | None:
    cast, (low, high) = ("int4" if kind == "int" else "int8"), _INTEGER_RANGES[kind]
    if base in ("int2", "int4") or (base in ("int8", "oid") and kind == "long"):
        return Transfer(f"{name}::{cast}")
    if base not in ("int8", "oid", "numeric"):
        return None
    value = f"{name}::int8" if base == "oid" else name
    fits = f"{value} between {low} and {high}"
    wrong = [(f"not ({fits})", "int32_out_of_range" if kind == "int" else "int64_out_of_range")]
    if base == "numeric":
        wrong.append((f"{name} <> trunc({name})", "not_integral"))
    return Transfer(f"case when {fits} then {value}::{cast} end", tuple(wrong))


def _to_real(base: str, name: str) -> Transfer | None:
    if base in (*_INTEGER_DIGITS, "float4", "float8"):
        return Transfer(f"{name}::float8" if base != "oid" else f"{name}::int8::float8")
    if base != "numeric":
        return None
    fits = f"({name} = 0 or abs({name}) between {_SMALLEST_REAL} and {_LARGEST_REAL})"
    return Transfer(f"case when {fits} then {name}::float8 end", ((f"not {fits}", "not_finite"),))


def _to_decimal(column: PgColumn, name: str, target: Type) -> Transfer | None:
    precision, scale = target.numbers
    whole_digits = precision - scale
    if column.base in _INTEGER_DIGITS:
        value = f"{name}::int8" if column.base == "oid" else name
        if whole_digits >= _INTEGER_DIGITS[column.base]:
            return Transfer(f"{value}::text")
        return Transfer(f"{value}::text", ((f"abs({value}::numeric) >= 1e{whole_digits}", "decimal_out_of_range"),))
    if column.base != "numeric":
        return None
    if column.type == target:
        return Transfer(f"{name}::text", ((f"{name} = 'NaN'", "not_finite"),))
    wrong = (
        (f"abs({name}) >= 1e{whole_digits}", "decimal_out_of_range"),  # NaN is larger than every number
        (f"{name} <> trunc({name}, {scale})", "too_many_digits"),
    )
    return Transfer(f"trunc({name}, {scale})::text", wrong)


def _to_timestamp(base: str, name: str) -> Transfer | None:
    if base in ("timestamp", "timestamptz"):
        fits = f"{name} between '{_FIRST_MOMENT}' and '{_LAST_MOMENT}'"
        return Transfer(name, ((f"not ({fits})", "timestamp_out_of_range"),))
    if base != "date":
        return None
    fits = f"{name} between '{_FIRST_DAY}' and '{_LAST_DAY}'"
    return Transfer(f"case when {fits} then {name}::timestamp end", ((f"not ({fits})", "timestamp_out_of_range"),))


def _to_vector(column: PgColumn, name: str, length: int) -> Transfer | None:
    if column.dimensions == 0 and column.base.endswith(".vector"):
        return Transfer(f"{name}::real[]", ((f"cardinality({name}::real[]) <> {length}", "vector_length"),))
    if column.dimensions != 1 or column.base not in ("float4", "float8", "int2", "int4"):
        return None
    # Sent as doubles and narrowed here: the server would end the whole read at the first underflow.
    value = f"({name}[:]::float8[])"
    not_finite = " or ".join(f"'{word}' = any({value})" for word in ("NaN", "Infinity", "-Infinity"))
    wrong = (
        (f"array_ndims({name}) > 1", "multi_dimensional"),
        (f"cardinality({name}) <> {length}", "vector_length"),
        (f"array_position({value}, null) is not null", "non_numeric_element"),
        (not_finite, "not_finite"),
    )
    return Transfer(value, wrong)


def _to_list(column: PgColumn, name: str, element: Type) -> Transfer | None:
    if column.dimensions == 0:
        is_open_vector = column.base.endswith(".vector") and element == types.REAL
        return Transfer(f"{name}::real[]") if is_open_vector else None
    if column.dimensions > 1:
        return None
    own = PgColumn(column.name, column.base, column.modifier).type
    widened = (own.kind, element.kind) in {("int", "long"), ("int", "real")}
    if element.kind != "string" and element != own and not widened:
        return None
    wrong = [(f"array_ndims({name}) > 1", "multi_dimensional"), *_wrong_elements(name, element)]
    cast = _ARRAY_CASTS.get(element.kind)
    value = f"({name}[:])"  # a slice counts from 1, whatever the array's own lower bound
    return Transfer(value if cast is None else f"{value}::{cast}", tuple(wrong))


def _wrong_elements(name: str, element: Type) -> list[tuple[str, str]]:
    match element.kind:
        case "timestamp":
            outside = f"'{_FIRST_MOMENT}' > any({name}) or '{_LAST_MOMENT}' < any({name})"
            return [(outside, "timestamp_out_of_range")]
        case "date":
            return [(f"'infinity' = any({name}) or '-infinity' = any({name})", "date_out_of_range")]
        case "decimal":
            return [(f"'NaN' = any({name})", "not_finite")]
        case _:
            return []

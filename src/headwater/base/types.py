"""Column types: the words of the manifest, as values.

`bool int long real string timestamp date decimal(p,s) binary dynamic vector(n) list<T> struct<name:T,...>`.
`parse_type` and `str(type)` are inverse to each other. The Arrow form of a type is decided here, because every file is
written from it; the packages for DuckDB and Spark decide theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.base.errors import HeadwaterError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

SIMPLE = ("bool", "int", "long", "real", "string", "timestamp", "date", "binary", "dynamic")
_WORDS = (*SIMPLE, "decimal", "vector", "list", "struct")


@dataclass(frozen=True)
class Type:
    """One column type. `numbers` are decimal's precision and scale or vector's length, `fields` the parts of a
    list (one, named `item`) or a struct."""

    kind: str
    numbers: tuple[int, ...] = ()
    fields: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "decimal" | "vector":
                return f"{self.kind}({','.join(map(str, self.numbers))})"
            case "list":
                return f"list<{self.fields[0][1]}>"
            case "struct":
                return f"struct<{','.join(f'{_quoted(name)}:{part}' for name, part in self.fields)}>"
            case _:
                return self.kind


BOOL, INT, LONG, REAL, STRING, TIMESTAMP, DATE, BINARY, DYNAMIC = (Type(kind) for kind in SIMPLE)


def decimal(precision: int, scale: int) -> Type:
    return Type("decimal", (precision, scale))


def vector(length: int) -> Type:
    return Type("vector", (length,))


def list_of(item: Type) -> Type:
    return Type("list", fields=(("item", item),))


def struct_of(fields: tuple[tuple[str, Type], ...]) -> Type:
    return Type("struct", fields=fields)


@lru_cache(maxsize=1024)
def parse_type(text: str) -> Type:
    """The type that a user wrote. Raises HW-S03 with the nearest word for a misspelt one."""
    parser = _Parser(text)
    found = parser.type()
    if parser.rest():
        raise _bad(text, f"unexpected `{parser.rest()}`")
    return found


def widens(old: Type, new: Type) -> bool:
    """True if every value of `old` is a value of `new`. Only these changes are made without a user's decision."""
    match old.kind, new.kind:
        case ("int", "long") | ("int", "real"):
            return True
        case ("decimal", "decimal"):
            return new.numbers[1] == old.numbers[1] and new.numbers[0] > old.numbers[0]
        case _:
            return False


def converts(old: Type, new: Type) -> bool:
    """True if a reader can show files of type `old` as `new` once a user has accepted the change."""
    if old == new or widens(old, new) or new.kind == "string":
        return True
    numeric = ("int", "long", "real", "decimal")
    if old.kind in numeric and new.kind in numeric:
        return True
    return (old.kind, new.kind) in {("date", "timestamp"), ("timestamp", "date"), ("bool", "int"), ("bool", "long")}


def to_arrow(type_: Type) -> pa.DataType:
    """The Arrow type of a column in the store's files."""
    import pyarrow as pa

    simple = {"bool": pa.bool_, "int": pa.int32, "long": pa.int64, "real": pa.float64, "string": pa.string}
    simple |= {"date": pa.date32, "binary": pa.binary}
    match type_.kind:
        case kind if kind in simple:
            return simple[kind]()
        case "timestamp":
            return pa.timestamp("ns", tz="UTC")
        case "decimal":
            return pa.decimal128(*type_.numbers)
        case "dynamic":
            return pa.json_(pa.string())
        case "vector":
            return pa.list_(pa.float32(), type_.numbers[0])
        case "list":
            return pa.list_(to_arrow(type_.fields[0][1]))
        case "struct":
            return pa.struct([pa.field(name, to_arrow(part)) for name, part in type_.fields])
        case kind:
            raise AssertionError(kind)


def is_list(arrow: pa.DataType) -> bool:
    """Whether an Arrow type is a list, however it is stored."""
    from pyarrow import types as at

    return bool(at.is_list(arrow) or at.is_large_list(arrow) or at.is_fixed_size_list(arrow))


def from_arrow(arrow: pa.DataType) -> Type:
    """The type that holds every value of an Arrow column from a source. A time of day becomes the text
    `HH:MM:SS.nnnnnnnnn`, a map becomes a list of its entries. Raises HW-S03 if there is none."""
    import pyarrow as pa
    from pyarrow import types as at

    kinds = {
        BOOL: (at.is_boolean,),
        INT: (at.is_int8, at.is_int16, at.is_int32, at.is_uint8, at.is_uint16),
        LONG: (at.is_int64, at.is_uint32),
        decimal(20, 0): (at.is_uint64,),
        REAL: (at.is_floating,),
        DYNAMIC: (lambda arrow: isinstance(arrow, pa.JsonType),),
        STRING: (at.is_string, at.is_large_string, at.is_string_view, at.is_null, at.is_time),
        BINARY: (at.is_binary, at.is_large_binary, at.is_fixed_size_binary, at.is_binary_view),
        TIMESTAMP: (at.is_timestamp,),
        DATE: (at.is_date,),
    }
    for type_, tests in kinds.items():
        if any(is_kind(arrow) for is_kind in tests):
            return type_
    if isinstance(arrow, pa.UuidType):
        return STRING
    if at.is_decimal(arrow) and arrow.precision <= 38:
        return decimal(arrow.precision, arrow.scale)
    if at.is_dictionary(arrow):
        return from_arrow(arrow.value_type)
    if at.is_fixed_size_list(arrow) and at.is_floating(arrow.value_type):
        return vector(arrow.list_size)
    if at.is_map(arrow):
        return list_of(struct_of((("key", from_arrow(arrow.key_type)), ("value", from_arrow(arrow.item_type)))))
    if is_list(arrow):
        return list_of(from_arrow(arrow.value_type))
    if at.is_struct(arrow):
        return struct_of(tuple((field.name, from_arrow(field.type)) for field in arrow))
    raise HeadwaterError(
        "HW-S03",
        f"a column of Arrow type `{arrow}` has no type here",
        hint="cast it at the source, or leave the column out",
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _bad(text: str, reason: str, hint: str = "") -> HeadwaterError:
    known = "known types: " + " ".join(SIMPLE) + " decimal(p,s) vector(n) list<T> struct<name:T,...>"
    return HeadwaterError("HW-S03", f"`{text}` is not a type: {reason}", hint=hint or known)


class _Parser:
    """Recursive descent over one short text; depth is bounded by the text's own length limit."""

    def __init__(self, text: str):
        if len(text) > 10_000:
            raise _bad(text[:40] + "...", "too long")
        self.text, self.at = text, 0

    def rest(self) -> str:
        return self.text[self.at :].strip()

    def type(self) -> Type:
        word = self._next("[A-Za-z]+", "a type name is missing")
        if word in SIMPLE:
            return Type(word)
        match word:
            case "decimal":
                precision, scale = self._numbers(2)
                if not (1 <= precision <= 38 and 0 <= scale <= precision):
                    raise _bad(self.text, "decimal(p,s) takes 1 <= p <= 38 and 0 <= s <= p")
                return decimal(precision, scale)
            case "vector":
                (length,) = self._numbers(1)
                if not 1 <= length <= 65_536:
                    raise _bad(self.text, "vector(n) takes 1 <= n <= 65536")
                return vector(length)
            case "list":
                self._next("<")
                item = self.type()
                self._next(">")
                return list_of(item)
            case "struct":
                return self._struct()
        raise _bad(self.text, f"unknown word `{word}`", hint=did_you_mean(word, _WORDS))

    def _struct(self) -> Type:
        self._next("<")
        fields: list[tuple[str, Type]] = []
        while not fields or self._match(","):
            name = self._next(r'[A-Za-z_][A-Za-z0-9_]*|"(?:[^"]|"")+"', "a field name is missing")
            self._next(":")
            fields.append((name[1:-1].replace('""', '"') if name[0] == '"' else name, self.type()))
        self._next(">")
        if len({name for name, _ in fields}) < len(fields):
            raise _bad(self.text, "a field name occurs twice")
        return struct_of(tuple(fields))

    def _numbers(self, count: int) -> list[int]:
        found = self._match(r"\(\s*\d{1,6}(?:\s*,\s*\d{1,6})*\s*\)")
        numbers = [int(part) for part in re.findall(r"\d+", found)]
        if len(numbers) != count:
            raise _bad(self.text, f"{count} number{'s' * (count > 1)} in brackets expected")
        return numbers

    def _next(self, pattern: str, problem: str = "") -> str:
        """The next part of the text, which must match."""
        found = self._match(pattern)
        if not found:
            raise _bad(self.text, problem or f"`{pattern}` expected")
        return found

    def _match(self, pattern: str) -> str:
        """The next part of the text if it matches, else nothing."""
        found = re.compile(rf"\s*({pattern})").match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[1]

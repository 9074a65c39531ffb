"""The value at a place inside JSON, as a column of a type, in DuckDB's SQL. Pure text in, text out.

Scalars become what `coerce.values` makes of them; everything that it refuses is null, and so are objects and arrays.
`coerce.at_path` is the same rule for Python, and tests compare the two.

DuckDB keeps a number's own digits only if the number is a 64-bit integer. Where the digits matter (is `1e3` integral,
is `1.50` the text `1.50`), all numbers of the document are put into quotes first, and read as texts.
"""

from __future__ import annotations

from headwater.base.json_path import Steps
from headwater.base.types import Type
from headwater.coerce.times import FIRST_NS, LAST_NS
from headwater.duck.duck_types import literal

_INTEGERS = "'UBIGINT', 'BIGINT'"
_NUMBERS = f"{_INTEGERS}, 'DOUBLE'"
_PLAIN_INTEGER = "'-?[0-9]+'"
_PLAIN_NUMBER = r"'-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?'"
_PARTS = r"'^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$'"
_TIME = (
    "'^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?)?$'"
)
_PART = "_hw_part"
_NUMBER_TOKEN = r"""'(?s)((?:[^"0-9-]|"(?:[^"\\]|\\.)*")*)(-?[0-9][0-9.eE+-]*|$)'"""
"""Text that is not a number (strings as a whole), then a number or the end, which gets quotes too."""


def value_at(expression: str, steps: Steps, type_: Type) -> str:
    """The value of type `type_` at a place inside a JSON column: as a view shows it, but a timestamp as its
    nanoseconds. The type is one that a promoted column can have."""
    place = _JsonValue(expression, steps)
    match type_.kind:
        case "bool":
            return f"CASE {place.kind} WHEN 'BOOLEAN' THEN {place.text} = 'true' END"
        case "int":
            return f"TRY_CAST({_long(place)} AS INTEGER)"
        case "long":
            return _long(place)
        case "real":
            return _real(place)
        case "string":
            return (
                f"CASE WHEN {place.kind} IN ('VARCHAR', 'BOOLEAN', 'UBIGINT') THEN {place.text}"
                f" WHEN {place.kind} IN ('BIGINT', 'DOUBLE') THEN {place.source} END"
            )
        case "timestamp":
            found = f"CASE {place.kind} WHEN 'VARCHAR' THEN {_nanoseconds(place.text)} ELSE {_integer(place)} END"
            in_range = f"CASE WHEN {_PART} BETWEEN {FIRST_NS} AND {LAST_NS} THEN {_PART} END"
            return f"list_transform([{found}], lambda {_PART}: {in_range})[1]"
        case "date":
            # DuckDB knows a year 0, and days beyond the year 9999 that no text of this form names.
            day = f"regexp_extract({place.text}, '^([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})$', 1)"
            return f"CASE WHEN {place.kind} = 'VARCHAR' AND {day} >= '0001' THEN TRY_CAST({day} AS DATE) END"
        case kind:
            raise AssertionError(kind)


def floored_micros(nanoseconds: str) -> str:
    """Nanoseconds since 1970 as a view shows a time: rounded down, where DuckDB's division cuts off."""
    floor = f"{_PART} // 1000 - CASE WHEN {_PART} % 1000 < 0 THEN 1 ELSE 0 END"
    return f"list_transform([{nanoseconds}], lambda {_PART}: make_timestamptz({floor}))[1]"


class _JsonValue:
    """The expressions for what DuckDB finds at a place: the kind of value, its text, and the text of a number exactly
    as the document has it."""

    def __init__(self, expression: str, steps: Steps):
        path = literal("$" + "".join(f"[{step}]" if isinstance(step, int) else _key(step) for step in steps))
        quoted = f"regexp_replace(CAST({expression} AS VARCHAR), {_NUMBER_TOKEN}, '\\1\"\\2\"', 'g')"
        self.kind = f"json_type({expression}, {path})"
        self.text = f"json_extract_string({expression}, {path})"
        self.source = f"json_extract_string(left({quoted}, -2), {path})"


def _key(key: str) -> str:
    return '."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _long(place: _JsonValue) -> str:
    return (
        f"CASE WHEN {place.kind} <> 'VARCHAR' THEN {_integer(place)}"
        f" WHEN regexp_full_match({place.text}, {_PLAIN_INTEGER}) THEN TRY_CAST({place.text} AS BIGINT) END"
    )


def _integer(place: _JsonValue) -> str:
    """An integral number. `lambda` names its parts: digits that do not end in 0, times a power of ten."""
    parts = f"regexp_extract({place.source}, {_PARTS}, ['sign', 'whole', 'rest', 'power'])"
    kept = f"rtrim({_PART}.whole || {_PART}.rest, '0')"
    zeros = f"(CASE {_PART}.power WHEN '' THEN 0 ELSE TRY_CAST({_PART}.power AS INTEGER) END + length({_PART}.whole) - length({kept}))"
    exact = (
        f"CASE WHEN trim({kept}, '0') = '' THEN 0"
        f" WHEN {zeros} BETWEEN 0 AND 18 THEN TRY_CAST({_PART}.sign || {kept} || repeat('0', {zeros}) AS BIGINT) END"
    )
    return (
        f"CASE WHEN {place.kind} IN ({_INTEGERS}) THEN TRY_CAST({place.text} AS BIGINT)"
        f" WHEN {place.kind} = 'DOUBLE' THEN list_transform([{parts}], lambda {_PART}: {exact})[1] END"
    )


def _real(place: _JsonValue) -> str:
    """A number or the text of one. An integer has no negative zero."""
    number = f"TRY_CAST({place.text} AS DOUBLE)"
    known = f"{place.kind} IN ({_NUMBERS}) OR ({place.kind} = 'VARCHAR' AND regexp_full_match({place.text}, {_PLAIN_NUMBER}))"
    whole = f"CASE WHEN regexp_full_match({place.text}, {_PLAIN_INTEGER}) THEN {number} + 0 ELSE {number} END"
    return f"CASE WHEN ({known}) AND isfinite({number}) THEN {whole} END"


def _nanoseconds(text: str) -> str:
    """A text that is a time, as nanoseconds since 1970. The second 60 is valid at 23:59 UTC only."""
    parts = f"regexp_extract({text}, {_TIME}, ['day', 'h', 'm', 's', 'f', 'side', 'zh', 'zm'])"
    h, m, s, zh, zm = (f"CAST('0' || {_PART}.{part} AS BIGINT)" for part in ("h", "m", "s", "zh", "zm"))
    offset = f"({zh} * 3600 + {zm} * 60) * (CASE {_PART}.side WHEN '-' THEN -1 ELSE 1 END)"
    minute = f"({h} * 3600 + {m} * 60 - {offset})"
    seconds = f"(TRY_CAST({_PART}.day AS DATE) - DATE '1970-01-01') * 86400 + {minute} + {s}"
    fraction = f"CAST(rpad(left('0' || {_PART}.f, 10), 10, '0') AS BIGINT)"
    valid = (
        f"{_PART}.day >= '0001' AND {h} < 24 AND {m} < 60 AND {zh} < 24 AND {zm} < 60"
        f" AND ({s} < 60 OR ({s} = 60 AND ({minute} + 86400) % 86400 = 86340))"
    )
    exact = f"CASE WHEN {valid} THEN TRY_CAST(({seconds}) * CAST(1000000000 AS HUGEINT) + {fraction} AS BIGINT) END"
    return f"list_transform([{parts}], lambda {_PART}: {exact})[1]"

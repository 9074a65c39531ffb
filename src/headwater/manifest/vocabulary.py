"""The types of a manifest's values: names, types, durations, schedules, each with its check.

A wrong value raises `PydanticCustomError` of type `headwater`, whose context holds the code, the message and the hint;
`violations.py` adds the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from headwater.base.errors import HeadwaterError, nearest
from headwater.base.ids import (
    PIPELINE_ID,
    RESERVED_TABLES,
    TABLE_NAME,
    is_column_name,
    is_pipeline_id,
    is_reserved_column,
    is_table_name,
)
from headwater.base.text_form import DIRECTIVES, BadFormat, parse_format
from headwater.base.types import parse_type
from headwater.manifest import durations

SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PYTHON_REFERENCE = re.compile(r"[^:\s]+\.py:[A-Za-z_][A-Za-z0-9_]*")
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")
_WORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast
check collate collation column concurrently constraint create cross default deferrable desc describe
distinct do else end except false fetch for foreign freeze from full glob group having ilike in initially
inner intersect into is isnull join lambda lateral leading left like limit natural not notnull null offset
on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify references
returning right select semi show similar some summarize symmetric table tablesample then to trailing true
union unique unpack unpivot using variadic verbose when where window with
"""
KEYWORDS = frozenset(_WORDS.split())
"""Names that DuckDB reads as columns only in double quotes. A test compares the list with DuckDB."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def needs_quotes(name: str) -> bool:
    return _PLAIN.fullmatch(name) is None or name.lower() in KEYWORDS


def invalid_value(message: str, hint: str = "", code: str = "HW-M03") -> PydanticCustomError:
    return PydanticCustomError("headwater", "{message}", {"message": message, "hint": hint, "code": code})


def legal_name(text: str) -> str:
    """The nearest name that is legal for a pipeline, a table or a project; `-` becomes `_`."""
    cut = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:63].rstrip("_")
    return f"_{cut}"[:63] if cut[:1].isdigit() or not cut else cut


def is_host(text: str) -> bool:
    """True for the name of a host and for an address, without a port; an IPv6 address has no brackets."""
    try:
        ip_address(text)
    except ValueError:
        return len(text) <= 253 and HOST_NAME.fullmatch(text) is not None
    return True


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_moment(text: str, kind: type[date]) -> bool:
    """True for a date or time (`kind`) as ISO 8601 writes it."""
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True


def _legal(
    is_legal: Callable[[str], bool], message: str, hint: str | Callable[[str], str], code: str = "HW-M03"
) -> AfterValidator:
    """Refuses every text that is not legal; `{}` in the message is the text."""

    def check(text: str) -> str:
        if not is_legal(text):
            raise invalid_value(message.format(_short(text)), hint if isinstance(hint, str) else hint(text), code)
        return text

    return AfterValidator(check)


def _parsed(what: str, parse: Callable[[str], object], hint: str = "") -> AfterValidator:
    """Refuses every text that cannot be parsed."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            said = error.hint if isinstance(error, BadFormat) else hint
            raise invalid_value(f"`{_short(text)}` is not a {what}: {error}", said) from error
        return text

    return AfterValidator(check)


def _type_text(text: str) -> str:
    try:
        parse_type(text)
    except HeadwaterError as error:
        raise invalid_value(error.message, error.hint, error.code) from error
    return text


def _timezone(text: str) -> str:
    if text == "UTC":
        return text
    from zoneinfo import ZoneInfo, available_timezones

    try:
        ZoneInfo(text)
    except (OSError, ValueError, KeyError) as error:
        zones = {zone.lower(): zone for zone in available_timezones()}
        meant = zones.get(nearest(text, zones) or "")
        hint = f"did you mean `{meant}`?" if meant else "use a name such as `Europe/Berlin` or `UTC`"
        if not zones:
            hint = "this machine has no time zone database: install the package `tzdata`"
        raise invalid_value(f"`{_short(text)}` is not a time zone", hint) from error
    return text


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _text(**schema: object) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", **schema})


_ID = "small letters, digits, `_` and `-`, at most 63, not a digit first"
_NOT_RESERVED = _legal(
    lambda text: text not in RESERVED_TABLES,
    "the name `{}` is reserved: Headwater keeps bad rows there",
    "choose another name",
)
PipelineName = Annotated[
    str,
    _NOT_RESERVED,
    _legal(
        is_pipeline_id,
        f"`{{}}` is not a pipeline id: {_ID}",
        lambda text: f"for example `{legal_name(text).replace('_', '-').strip('-') or 'orders'}`",
    ),
    _text(pattern=f"^{PIPELINE_ID.pattern}$", description="A pipeline id, unique in the project."),
]
ProjectName = Annotated[
    str,
    _legal(is_pipeline_id, f"`{{}}` is not a project name: {_ID}", lambda text: f"for example `{legal_name(text)}`"),
    _text(pattern=f"^{PIPELINE_ID.pattern}$", description="The name of the project's store."),
]
StoreTable = Annotated[
    str,
    _NOT_RESERVED,
    _legal(
        is_table_name,
        "`{}` is not a table name: small letters, digits and `_`, at most 63, not a digit first",
        lambda text: f"for example `{legal_name(text)}`",
    ),
    _text(pattern=f"^{TABLE_NAME.pattern}$", description="A table name, unique in the project."),
]
_OTHER_NAME = "give the column another name"
ColumnName = Annotated[
    str,
    _legal(
        lambda text: not is_reserved_column(text),
        "the column name `{}` is reserved: every table has its own",
        _OTHER_NAME,
    ),
    _legal(is_column_name, "`{}` is not a column name: 1 to 255 bytes of printable text", _OTHER_NAME),
    _text(minLength=1, maxLength=255, description="A column name."),
]
TypeText = Annotated[
    str,
    AfterValidator(_type_text),
    _text(
        minLength=1,
        description="bool int long real string timestamp date decimal(p,s) binary dynamic vector(n) list<T> struct<name:T,...>",
        examples=["long", "timestamp", "decimal(10,2)", "vector(8)"],
    ),
]
SecretName = Annotated[
    str,
    _legal(
        lambda text: SECRET_NAME.fullmatch(text) is not None,
        "an entry of `secrets` is not the name of an environment variable",
        'list names here, never values: `secrets = ["GITHUB_TOKEN"]`, and refer to them as `env:GITHUB_TOKEN`',
        "HW-M08",
    ),
    _text(pattern=f"^{SECRET_NAME.pattern}$", description="The name of an environment variable."),
]
PythonReference = Annotated[
    str,
    _legal(
        lambda text: PYTHON_REFERENCE.fullmatch(text) is not None,
        "`{}` does not name a Python function",
        "write it as `models/revenue.py:top_days`",
    ),
    _text(pattern=f"^{PYTHON_REFERENCE.pattern}$", description="A file and a function in it."),
]
Duration = Annotated[
    str,
    _parsed("duration", durations.duration_us, "for example `30s`, `15m`, `6h`, `7d`"),
    _text(pattern=durations.DURATION_PATTERN, description="A duration.", examples=["30s", "15m", "6h", "7d"]),
]
Schedule = Annotated[
    str,
    _parsed("schedule", durations.parse_schedule, "for example `every 15m`, or cron: `0 */2 * * *`"),
    _text(minLength=1, examples=["every 15m", "0 */2 * * *"]),
]
CronText = Annotated[
    str,
    _parsed("cron expression", durations.parse_cron, "minute, hour, day, month, weekday: `0 */2 * * *`"),
    _text(minLength=1, examples=["0 */2 * * *"]),
]
Rate = Annotated[
    str,
    _parsed("rate", durations.check_rate, "for example `60/min`"),
    _text(pattern=durations.RATE_PATTERN, description="A rate.", examples=["60/min", "5/s"]),
]
TimeOfDay = Annotated[
    str,
    _parsed("time of day", durations.time_of_day_us, "for example `02:00`"),
    _text(pattern=durations.TIME_OF_DAY_PATTERN, description="A time of day.", examples=["02:00"]),
]
TimeZone = Annotated[str, AfterValidator(_timezone), _text(examples=["UTC", "Europe/Berlin"])]
TimeFormat = Annotated[
    str,
    _parsed("format of times", parse_format),
    _text(
        minLength=1,
        description="How a source writes times: " + ", ".join(f"%{key} {what}" for key, what in DIRECTIVES.items()),
        examples=["%Y/%m/%d %H:%M", "%b %d %Y", "%d.%m.%Y %H:%M:%S.%f"],
    ),
]
DecimalMark = Annotated[
    str,
    _legal(lambda text: text in (".", ","), "`{}` is not a decimal mark", 'write "," or "."'),
    WithJsonSchema({"enum": [".", ","], "description": "The mark before the fraction of a number."}),
]
Moment = Annotated[
    str,
    _legal(
        lambda text: is_moment(text, date if len(text) == len("2010-01-01") else datetime),
        "`{}` is not a date",
        "write it as `2010-01-01` or `2010-01-01T00:00:00Z`",
    ),
    _text(examples=["2010-01-01", "2010-01-01T00:00:00Z"]),
]
HostName = Annotated[
    str,
    _legal(
        is_host,
        "`{}` is not a host name or an address",
        "write it alone, without `http://` and without a port: `data.example.com` or `10.0.0.5`",
    ),
    _text(minLength=1, description="A host name or an address, without a port."),
]
Text = Annotated[
    str,
    _legal(lambda text: bool(text.strip()), "this text is empty", "write something, or leave the key out"),
    _text(minLength=1),
]

Listed = Strict(False)
"""A tuple that is written as a list: its items stay strict."""

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


def invalid_value(message: str, hint: str = "", code: str = "HW-M03") -> PydanticCustomError:
    return PydanticCustomError("headwater", "{message}", {"message": message, "hint": hint, "code": code})


def legal_name(text: str) -> str:
    """The nearest name that is legal for a pipeline, a table or a project; `-` becomes `_`."""
    cut = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:63].rstrip("_")
    return f"_{cut}"[:63] if cut[:1].isdigit() or not cut else cut


def _refuse_reserved(text: str) -> None:
    if text in RESERVED_TABLES:
        raise invalid_value(f"the name `{text}` is reserved: Headwater keeps bad rows there", "choose another name")


def _pipeline_name(text: str) -> str:
    _refuse_reserved(text)
    if not is_pipeline_id(text):
        raise invalid_value(
            f"`{_short(text)}` is not a pipeline id: small letters, digits, `_` and `-`, at most 63, not a digit first",
            f"for example `{legal_name(text).replace('_', '-').strip('-') or 'orders'}`",
        )
    return text


def _table_name(text: str) -> str:
    _refuse_reserved(text)
    if not is_table_name(text):
        raise invalid_value(
            f"`{_short(text)}` is not a table name: small letters, digits and `_`, at most 63, not a digit first",
            f"for example `{legal_name(text)}`",
        )
    return text


def _project_name(text: str) -> str:
    if not is_pipeline_id(text):
        raise invalid_value(
            f"`{_short(text)}` is not a project name: small letters, digits, `_` and `-`, at most 63, not a digit first",
            f"for example `{legal_name(text)}`",
        )
    return text


def _column_name(text: str) -> str:
    if is_reserved_column(text):
        raise invalid_value(
            f"the column name `{_short(text)}` is reserved: every table has its own", "give the column another name"
        )
    if not is_column_name(text):
        raise invalid_value(
            f"`{_short(text)}` is not a column name: 1 to 255 bytes of printable text", "give the column another name"
        )
    return text


def _type_text(text: str) -> str:
    try:
        parse_type(text)
    except HeadwaterError as error:
        raise invalid_value(error.message, error.hint, error.code) from error
    return text


def _secret_name(text: str) -> str:
    if SECRET_NAME.fullmatch(text) is None:
        raise invalid_value(
            "an entry of `secrets` is not the name of an environment variable",
            'list names here, never values: `secrets = ["GITHUB_TOKEN"]`, and refer to them as `env:GITHUB_TOKEN`',
            "HW-M08",
        )
    return text


def _python_reference(text: str) -> str:
    if PYTHON_REFERENCE.fullmatch(text) is None:
        raise invalid_value(
            f"`{_short(text)}` does not name a Python function", "write it as `models/revenue.py:top_days`"
        )
    return text


def _host_name(text: str) -> str:
    if not is_host(text):
        raise invalid_value(
            f"`{_short(text)}` is not a host name or an address",
            "write it alone, without `http://` and without a port: `data.example.com` or `10.0.0.5`",
        )
    return text


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


def _moment(text: str) -> str:
    try:
        if len(text) == len("2010-01-01"):
            date.fromisoformat(text)
        else:
            datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid_value(
            f"`{_short(text)}` is not a date", "write it as `2010-01-01` or `2010-01-01T00:00:00Z`"
        ) from error
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


def _time_format(text: str) -> str:
    try:
        parse_format(text)
    except BadFormat as error:
        raise invalid_value(f"`{_short(text)}` is not a format of times: {error}", error.hint) from error
    return text


def _decimal_mark(text: str) -> str:
    if text not in (".", ","):
        raise invalid_value(f"`{_short(text)}` is not a decimal mark", 'write "," or "."')
    return text


def _parsed(what: str, parse: Callable[[str], object], hint: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise invalid_value(f"`{_short(text)}` is not a {what}: {error}", hint) from error
        return text

    return check


def _not_empty(text: str) -> str:
    if not text.strip():
        raise invalid_value("this text is empty", "write something, or leave the key out")
    return text


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _text(pattern: str, description: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, object] = {"type": "string", "pattern": pattern, "description": description}
    if examples:
        schema["examples"] = list(examples)
    return WithJsonSchema(schema)


PipelineName = Annotated[
    str, AfterValidator(_pipeline_name), _text(f"^{PIPELINE_ID.pattern}$", "A pipeline id, unique in the project.")
]
ProjectName = Annotated[
    str, AfterValidator(_project_name), _text(f"^{PIPELINE_ID.pattern}$", "The name of the project's store.")
]
StoreTable = Annotated[
    str, AfterValidator(_table_name), _text(f"^{TABLE_NAME.pattern}$", "A table name, unique in the project.")
]
ColumnName = Annotated[
    str,
    AfterValidator(_column_name),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 255, "description": "A column name."}),
]
TypeText = Annotated[
    str,
    AfterValidator(_type_text),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "description": "bool int long real string timestamp date decimal(p,s) binary dynamic vector(n) list<T> struct<name:T,...>",
            "examples": ["long", "timestamp", "decimal(10,2)", "vector(8)"],
        }
    ),
]
SecretName = Annotated[
    str, AfterValidator(_secret_name), _text(f"^{SECRET_NAME.pattern}$", "The name of an environment variable.")
]
PythonReference = Annotated[
    str, AfterValidator(_python_reference), _text(f"^{PYTHON_REFERENCE.pattern}$", "A file and a function in it.")
]
Duration = Annotated[
    str,
    AfterValidator(_parsed("duration", durations.duration_us, "for example `30s`, `15m`, `6h`, `7d`")),
    _text(durations.DURATION_PATTERN, "A duration.", "30s", "15m", "6h", "7d"),
]
Schedule = Annotated[
    str,
    AfterValidator(_parsed("schedule", durations.parse_schedule, "for example `every 15m`, or cron: `0 */2 * * *`")),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["every 15m", "0 */2 * * *"]}),
]
CronText = Annotated[
    str,
    AfterValidator(
        _parsed("cron expression", durations.parse_cron, "minute, hour, day, month, weekday: `0 */2 * * *`")
    ),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["0 */2 * * *"]}),
]
Rate = Annotated[
    str,
    AfterValidator(_parsed("rate", durations.rate_per_us, "for example `60/min`")),
    _text(durations.RATE_PATTERN, "A rate.", "60/min", "5/s"),
]
TimeOfDay = Annotated[
    str,
    AfterValidator(_parsed("time of day", durations.time_of_day_us, "for example `02:00`")),
    _text(durations.TIME_OF_DAY_PATTERN, "A time of day.", "02:00"),
]
TimeZone = Annotated[
    str, AfterValidator(_timezone), WithJsonSchema({"type": "string", "examples": ["UTC", "Europe/Berlin"]})
]
TimeFormat = Annotated[
    str,
    AfterValidator(_time_format),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "description": "How a source writes times: "
            + ", ".join(f"%{key} {what}" for key, what in DIRECTIVES.items()),
            "examples": ["%Y/%m/%d %H:%M", "%b %d %Y", "%d.%m.%Y %H:%M:%S.%f"],
        }
    ),
]
DecimalMark = Annotated[
    str,
    AfterValidator(_decimal_mark),
    WithJsonSchema({"enum": [".", ","], "description": "The mark before the fraction of a number."}),
]
Moment = Annotated[
    str, AfterValidator(_moment), WithJsonSchema({"type": "string", "examples": ["2010-01-01", "2010-01-01T00:00:00Z"]})
]
HostName = Annotated[
    str,
    AfterValidator(_host_name),
    WithJsonSchema({"type": "string", "minLength": 1, "description": "A host name or an address, without a port."}),
]
Text = Annotated[str, AfterValidator(_not_empty), WithJsonSchema({"type": "string", "minLength": 1})]

Listed = Strict(False)
"""A tuple that is written as a list: its items stay strict."""

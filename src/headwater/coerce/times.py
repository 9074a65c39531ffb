"""One RFC 3339 text as UTC nanoseconds, one date as days, by the grammar. `time_columns` reads many at once.

Accepted: `2024-05-06T07:08:09.123456789+02:00`; `t`, `z` and a space for the T; no zone means UTC; a date alone is its
midnight in UTC. Digits of a second beyond the ninth are cut off. `:60` is valid only at 23:59 UTC, and means the first
second of the next day.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date

from headwater.coerce.row_errors import Refused

DATE_FORM = "expected YYYY-MM-DD"
TIME_FORM = "expected RFC 3339, as 2026-01-31T07:08:09Z"
"""The form that is expected if none is declared, as errors name it."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FIRST_NS, LAST_NS = INT64_MIN + 2, INT64_MAX - 1
"""The first and the last instant. 64 bits hold three more nanoseconds: DuckDB reads two of them as infinity, and pandas
reads the third as no time."""
NS = 1_000_000_000
_EPOCH = date(1970, 1, 1).toordinal()

_date = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_timestamp = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?)?"
).fullmatch


def days_of(text: str) -> int:
    """Days since 1970-01-01 of `YYYY-MM-DD`, years 0001 to 9999."""
    if _date(text):
        with suppress(ValueError):
            return date.fromisoformat(text).toordinal() - _EPOCH
    raise Refused("bad_date", "string", detail=DATE_FORM)


def nanoseconds_of(text: str) -> int:
    """UTC nanoseconds since 1970 of one text; raises `Refused`."""
    found = _timestamp(text)
    if found is None:
        raise Refused("bad_timestamp", "string", detail=TIME_FORM)
    day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = found.groups(default="0")
    # RFC 3339 has a year 0, Python has none; 2000 is a leap year too, and both are judged by range alone.
    early = day.startswith("0000")
    try:
        days = days_of("2000" + day[4:] if early else day)
    except Refused:
        raise Refused("bad_timestamp", "string", detail=TIME_FORM) from None
    offset = (int(zone_hours) * 60 + int(zone_minutes)) * (-60 if sign == "-" else 60)
    minutes = int(hour) * 60 + int(minute)
    if second == "60" and (minutes * 60 - offset) % 86_400 != 86_340:
        raise Refused("bad_timestamp", "string", detail=TIME_FORM)
    seconds = days * 86_400 + minutes * 60 + int(second) - offset
    nanoseconds = seconds * NS + int(fraction[:9].ljust(9, "0"))
    if early or not FIRST_NS <= nanoseconds <= LAST_NS:
        raise Refused("timestamp_out_of_range", "string")
    return nanoseconds

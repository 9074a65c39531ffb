"""RFC 3339 texts as UTC nanoseconds, and dates as days: one by one by the grammar, and many at once.

Accepted: `2024-05-06T07:08:09.123456789+02:00`; `t`, `z` and a space for the T; no zone means UTC; a date alone is its
midnight in UTC. Digits of a second beyond the ninth are cut off. `:60` is valid only at 23:59 UTC, and means the first
second of the next day.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from headwater.coerce.row_errors import Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]
    Bools = npt.NDArray[np.bool_]

DATE_FORM = "expected YYYY-MM-DD"
TIME_FORM = "expected RFC 3339, as 2026-01-31T07:08:09Z"
"""The form that is expected if none is declared, as errors name it."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FIRST_NS, LAST_NS = INT64_MIN + 2, INT64_MAX - 1
"""The first and the last instant. 64 bits hold three more nanoseconds: DuckDB reads two of them as infinity, and pandas
reads the third as no time."""
_NS = 1_000_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_SAFE_YEARS = (1678, 2261)
"""Every instant of these years, and of one day around them, fits into 64 bits of nanoseconds."""
_SHAPES = 40
"""Texts of more different lengths than this in one column are read one by one."""

_date = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch
_timestamp = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?)?"
).fullmatch


def days_of(text: str) -> int:
    """Days since 1970-01-01 of `YYYY-MM-DD`, years 0001 to 9999."""
    found = _date(text)
    if found is None:
        raise Refused("bad_date", "string", detail=DATE_FORM)
    year, month, day = map(int, found.groups())
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        raise Refused("bad_date", "string", detail=DATE_FORM) from None


def nanoseconds_of(text: str) -> int:
    """UTC nanoseconds since 1970 of one text; raises `Refused`."""
    found = _timestamp(text)
    if found is None:
        raise Refused("bad_timestamp", "string", detail=TIME_FORM)
    day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = found.groups(default="0")
    if hour > "23" or minute > "59" or second > "60" or zone_hours > "23" or zone_minutes > "59":
        raise Refused("bad_timestamp", "string", detail=TIME_FORM)
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
    nanoseconds = seconds * _NS + int(fraction[:9].ljust(9, "0"))
    if early or not FIRST_NS <= nanoseconds <= LAST_NS:
        raise Refused("timestamp_out_of_range", "string")
    return nanoseconds


def timestamps(texts: pa.StringArray) -> pa.Array:
    """A column of texts as timestamps, nulls kept. Common shapes are read all at once, the rest one by one; raises
    `Refused` for the first text that is no timestamp."""
    import numpy as np
    import pyarrow as pa

    type_ = pa.timestamp("ns", tz="UTC")
    count = len(texts)
    if texts.null_count == count:
        return pa.nulls(count, type_)
    found = np.zeros(count, dtype=np.int64)
    open_ = np.ones(count, dtype=np.bool_)
    if texts.null_count:
        open_ = ~texts.is_null().to_numpy(zero_copy_only=False)
    nulls = ~open_
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + count + 1]
    _read_shapes(np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8), offsets, open_, found)
    for index in np.flatnonzero(open_).tolist():
        found[index] = nanoseconds_of(texts[index].as_py())
    return pa.array(found, mask=nulls if texts.null_count else None).view(type_)


def _read_shapes(data: Bytes, offsets: npt.NDArray[np.int32], open_: Bools, found: Ints) -> None:
    """Fill in every text of a common shape and mark it as no longer open."""
    import numpy as np

    lengths = np.diff(offsets)
    sizes = np.unique(lengths[open_])
    if len(sizes) > _SHAPES:
        return
    for length in sizes.tolist():
        if not (length == 10 or 19 <= length <= 35):
            continue
        rows = np.flatnonzero(open_ & (lengths == length))
        if len(rows) == len(lengths):
            texts = data[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            texts = data[offsets[rows][:, None] + np.arange(length)]
        for picked, values in _read_length(texts, length):
            found[rows[picked]] = values
            open_[rows[picked]] = False


def _read_length(texts: Bytes, length: int) -> list[tuple[Ints, Ints]]:
    """Row numbers and nanoseconds of those texts of one length that are plainly right."""
    import numpy as np

    days, fits = _days(texts)
    if length == 10:
        rows = np.flatnonzero(fits)
        return [(rows, days[rows] * 86_400 * _NS)]
    seconds, clock_fits = _clock(texts)
    fits &= clock_fits
    last = texts[:, length - 1] | 0x20
    zulu = last == ord("z")
    parts: list[tuple[Bools, int]] = [(zulu, 1)]
    offset = np.zeros(len(texts), dtype=np.int64)
    rest = ~zulu
    if length >= 25 and rest.any():
        offset, has_offset = _zone(texts[:, length - 6 :])
        parts.append((rest & has_offset, 6))
        rest &= ~has_offset
    parts.append((rest, 0))
    found: list[tuple[Ints, Ints]] = []
    for chosen, zone_length in parts:
        rows = np.flatnonzero(fits & chosen)
        if not len(rows):
            continue
        nanos, good = _fraction(texts[rows, 19 : length - zone_length])
        whole = days[rows] * 86_400 + seconds[rows] - (offset[rows] if zone_length == 6 else 0)
        found.append((rows[good], (whole * _NS + nanos)[good]))
    return found


def _number(texts: Bytes, start: int, end: int) -> tuple[Ints, Bools]:
    import numpy as np

    value = np.zeros(len(texts), dtype=np.int64)
    good = np.ones(len(texts), dtype=np.bool_)
    for at in range(start, end):
        digit = texts[:, at] - np.uint8(48)
        good &= digit <= 9
        value = value * 10 + digit
    return value, good


def _days(texts: Bytes) -> tuple[Ints, Bools]:
    import numpy as np

    year, good = _number(texts, 0, 4)
    month, month_good = _number(texts, 5, 7)
    day, day_good = _number(texts, 8, 10)
    good &= month_good & day_good & (texts[:, 4] == ord("-")) & (texts[:, 7] == ord("-"))
    good &= (year >= _SAFE_YEARS[0]) & (year <= _SAFE_YEARS[1])
    days, is_date = civil_days(year, np.where(good, month, 0), day)
    return days, good & is_date


def civil_days(year: Ints, month: Ints, day: Ints) -> tuple[Ints, Bools]:
    """Days since 1970-01-01 of dates of the Gregorian calendar, and which of them are dates at all."""
    import numpy as np

    good = (month >= 1) & (month <= 12)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    month_days = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    limit = month_days[np.where(good, month, 0)] + (leap & (month == 2))
    good &= (day >= 1) & (day <= limit)
    # Days from a civil date, counting years from March so that the leap day is the last one.
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468, good


def _clock(texts: Bytes) -> tuple[Ints, Bools]:
    hour, good = _number(texts, 11, 13)
    minute, minute_good = _number(texts, 14, 16)
    second, second_good = _number(texts, 17, 19)
    mark = texts[:, 10]
    good &= minute_good & second_good & ((mark == ord("T")) | (mark == ord("t")) | (mark == ord(" ")))
    good &= (texts[:, 13] == ord(":")) & (texts[:, 16] == ord(":"))
    good &= (hour <= 23) & (minute <= 59) & (second <= 59)
    return hour * 3600 + minute * 60 + second, good


def _zone(texts: Bytes) -> tuple[Ints, Bools]:
    import numpy as np

    hours, good = _number(texts, 1, 3)
    minutes, minutes_good = _number(texts, 4, 6)
    sign = texts[:, 0]
    good &= minutes_good & ((sign == ord("+")) | (sign == ord("-"))) & (texts[:, 3] == ord(":"))
    good &= (hours <= 23) & (minutes <= 59)
    return (hours * 60 + minutes) * np.where(sign == ord("-"), -60, 60), good


def _fraction(texts: Bytes) -> tuple[Ints, Bools]:
    """Nanoseconds of `.123` (or of nothing); more than nine digits are left to the exact way."""
    import numpy as np

    length = texts.shape[1]
    if length == 0:
        return np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=np.bool_)
    if not 2 <= length <= 10:
        return np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.bool_)
    value, good = _number(texts, 1, length)
    return value * 10 ** (10 - length), good & (texts[:, 0] == ord("."))

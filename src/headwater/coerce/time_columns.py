"""Columns of RFC 3339 texts as timestamps: the common shapes all at once, the rest one by one by `times`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.coerce.times import NS, nanoseconds_of

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

_SAFE_YEARS = (1678, 2261)
"""Every instant of these years, and of one day around them, fits into 64 bits of nanoseconds."""
_SHAPES = 40
"""Texts of more different lengths than this in one column are read one by one."""


def timestamps(texts: pa.StringArray) -> pa.Array:
    """A column of texts as timestamps, nulls kept. Common shapes are read all at once, the rest one by one; raises
    `Refused` for the first text that is no timestamp."""
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
    days, fits = _days(texts)
    if length == 10:
        rows = np.flatnonzero(fits)
        return [(rows, days[rows] * 86_400 * NS)]
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
        found.append((rows[good], (whole * NS + nanos)[good]))
    return found


def _number(texts: Bytes, start: int, end: int) -> tuple[Ints, Bools]:
    value = np.zeros(len(texts), dtype=np.int64)
    good = np.ones(len(texts), dtype=np.bool_)
    for at in range(start, end):
        digit = texts[:, at] - np.uint8(48)
        good &= digit <= 9
        value = value * 10 + digit
    return value, good


def _days(texts: Bytes) -> tuple[Ints, Bools]:
    year, good = _number(texts, 0, 4)
    month, month_good = _number(texts, 5, 7)
    day, day_good = _number(texts, 8, 10)
    good &= month_good & day_good & (texts[:, 4] == ord("-")) & (texts[:, 7] == ord("-"))
    good &= (year >= _SAFE_YEARS[0]) & (year <= _SAFE_YEARS[1])
    days, is_date = civil_days(year, np.where(good, month, 0), day)
    return days, good & is_date


def civil_days(year: Ints, month: Ints, day: Ints) -> tuple[Ints, Bools]:
    """Days since 1970-01-01 of dates of the Gregorian calendar, and which of them are dates at all."""
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
    hours, good = _number(texts, 1, 3)
    minutes, minutes_good = _number(texts, 4, 6)
    sign = texts[:, 0]
    good &= minutes_good & ((sign == ord("+")) | (sign == ord("-"))) & (texts[:, 3] == ord(":"))
    good &= (hours <= 23) & (minutes <= 59)
    return (hours * 60 + minutes) * np.where(sign == ord("-"), -60, 60), good


def _fraction(texts: Bytes) -> tuple[Ints, Bools]:
    """Nanoseconds of `.123` (or of nothing); more than nine digits are left to the exact way."""
    length = texts.shape[1]
    if not 2 <= length <= 10:
        return np.zeros(len(texts), dtype=np.int64), np.full(len(texts), length == 0)
    value, good = _number(texts, 1, length)
    return value * 10 ** (10 - length), good & (texts[:, 0] == ord("."))

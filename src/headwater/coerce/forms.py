"""Texts of a column that declares how it is written: times by a format and in a zone, numbers with a decimal comma.

One implementation for every input path, over whole columns: each directive of a format is read from all texts at once,
at each text's own position. The rules:
- The format must match the whole text. Names of months and days are English, in any case. A number has one or two
  digits (a year four, a day of the year three); exactly two, where it is next to another number.
- A year of two digits is 1969 to 2068. A weekday that is not that of the date is refused. `:60` is as in RFC 3339.
- A time without a zone is in the declared zone, else in UTC. A local time that a zone skips is refused; one that occurs
  twice means the earlier instant.
- In a column with a format a JSON number is read by its text: `20260131` fits `%Y%m%d`, and is never nanoseconds.
- With a decimal comma `1,5` is a number and `1.5` is not; numbers of JSON are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from headwater.base.text_form import TextForm, parse_format
from headwater.base.types import TIMESTAMP, Type, to_arrow
from headwater.coerce.columns import Column, column_exactly, column_from_texts
from headwater.coerce.row_errors import Refused
from headwater.coerce.strptime import read_texts
from headwater.coerce.time_columns import Bools, Ints
from headwater.coerce.times import FIRST_NS, LAST_NS, NS, TIME_FORM
from headwater.coerce.values import text_of, type_of

Reasons = npt.NDArray[np.int8]

_DAY = 86_400
_MOST_DAYS = 400 * 366
_EPOCH = datetime(1970, 1, 1)
_NAMES_ZONE = r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})$"
_GOOD, _BAD, _OUT_OF_RANGE, _SKIPPED = range(4)
"""What is wrong with a text."""


def sources_by_form(sources: Sequence[Raw], type_: Type, form: TextForm) -> Column:
    """A column of JSON values."""
    texts: list[str | None] = [None] * len(sources)
    refusals: dict[int, Refused] = {}
    numbers: list[int] = []
    for index, source in enumerate(sources):
        text = str(source, "utf-8")
        match type_of(text):
            case "string":
                texts[index] = text_of(text)
            case "number" if form.format is not None:
                texts[index] = text
            case "number":
                numbers.append(index)
            case "null":
                pass
            case other if form.decimal == ",":
                refusals[index] = Refused("expected_number", other)
            case other:
                refusals[index] = Refused(f"bad_{type_.kind}", other, detail=_expected(form))
    array, refused = texts_by_form(pa.array(texts, pa.string()), type_, form)
    if numbers:
        exact, wrong = column_exactly([sources[index] for index in numbers], type_)
        mask = np.zeros(len(array), dtype=np.bool_)
        mask[numbers] = True
        array = pc.replace_with_mask(array, pa.array(mask), exact)
        refused |= {numbers[place]: one for place, one in wrong.items()}
    return array, refused | refusals


def texts_by_form(texts: pa.Array, type_: Type, form: TextForm) -> Column:
    """A column of texts."""
    if form.decimal == ",":
        array, refusals = column_from_texts(_swapped(texts), type_)
        return array, {index: _with_comma(one) for index, one in refusals.items()}
    if not len(texts):
        return pa.nulls(0, to_arrow(type_)), {}
    if form.format is not None:
        seconds, nanos, reasons = _read_format(texts, form)
    else:
        seconds, nanos, reasons = _read_rfc3339(texts, form.timezone)
    return _column(seconds, nanos, reasons, _nulls(texts), type_, form)


def local_instants(local_ns: pa.Array, zone: str) -> Column:
    """The UTC instants of local times of a zone, which are given as nanoseconds."""
    whole = local_ns.fill_null(0).to_numpy()
    seconds, nanos = np.floor_divide(whole, NS), np.mod(whole, NS)
    reasons = np.full(len(whole), _GOOD, dtype=np.int8)
    seconds = seconds - _offsets(seconds, zone, reasons)
    return _column(seconds, nanos, reasons, _nulls(local_ns), TIMESTAMP, TextForm(timezone=zone))


def _nulls(array: pa.Array) -> Bools:
    found: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _column(seconds: Ints, nanos: Ints, reasons: Reasons, nulls: Bools, type_: Type, form: TextForm) -> Column:
    """Times in UTC as a column of dates or timestamps, and what is wrong as refusals."""
    if type_.kind == "date":
        values, bits = seconds // _DAY, pa.int32()
    else:
        (values, is_out), bits = _nanoseconds(seconds, nanos), pa.int64()
        reasons[is_out & (reasons == _GOOD)] = _OUT_OF_RANGE
    reasons[nulls] = _GOOD
    wrong = reasons != _GOOD
    refusals = {index: _refused(int(reasons[index]), type_, form) for index in np.flatnonzero(wrong).tolist()}
    return pa.array(values, mask=nulls | wrong).cast(bits).view(to_arrow(type_)), refusals


def _refused(reason: int, type_: Type, form: TextForm) -> Refused:
    if reason == _OUT_OF_RANGE:
        return Refused("timestamp_out_of_range", "string")
    detail = f"no such time in {form.timezone}" if reason == _SKIPPED else _expected(form)
    return Refused(f"bad_{type_.kind}", "string", detail=detail)


def _expected(form: TextForm) -> str:
    return f"expected the format {form.format}" if form.format is not None else TIME_FORM


def _with_comma(refused: Refused) -> Refused:
    """A refusal that says which form of number was expected."""
    if refused.reason != "not_a_number":
        return refused
    return Refused(refused.reason, refused.value_type, detail="expected a decimal comma", path=refused.path)


def _swapped(texts: pa.Array) -> pa.Array:
    """Swaps comma and point: a decimal comma becomes a point, and a number with a point is no number any more."""
    for old, new in ((".", "\0"), (",", "."), ("\0", ",")):
        texts = pc.replace_substring(texts, old, new)
    return texts


def _read_format(texts: pa.Array, form: TextForm) -> tuple[Ints, Ints, Reasons]:
    """Seconds and nanoseconds in UTC of every text, and what is wrong with it."""
    assert form.format is not None
    found = read_texts(texts, parse_format(form.format))
    reasons: Reasons = np.where(found.good, _GOOD, _BAD).astype(np.int8)
    offset = found.offset
    if offset is None:
        offset = _offsets(found.seconds, form.timezone, reasons)
    seconds = found.seconds - offset
    # Second 60 is a leap second: it ends a day in UTC, and is the first second of the next one.
    reasons[found.is_leap & (seconds % _DAY != 0) & (reasons == _GOOD)] = _BAD
    return seconds, found.nanos, reasons


def _read_rfc3339(texts: pa.Array, zone: str | None) -> tuple[Ints, Ints, Reasons]:
    reasons: Reasons = np.full(len(texts), _GOOD, dtype=np.int8)
    array, refusals = column_from_texts(texts, TIMESTAMP)
    whole = array.view("int64").fill_null(0).to_numpy()
    for index, refused in refusals.items():
        reasons[index] = _OUT_OF_RANGE if refused.reason == "timestamp_out_of_range" else _BAD
    seconds, nanos = np.floor_divide(whole, NS), np.mod(whole, NS)
    is_local = pc.invert(pc.match_substring_regex(texts, _NAMES_ZONE)).fill_null(False).to_numpy(zero_copy_only=False)
    local = np.flatnonzero(is_local & (reasons == _GOOD))
    if len(local):
        own = reasons[local]
        seconds[local] -= _offsets(seconds[local], zone, own)
        reasons[local] = own
    return seconds, nanos, reasons


def _nanoseconds(seconds: Ints, nanos: Ints) -> tuple[Ints, Bools]:
    """Both as one number, and where that is outside the range of a column."""
    low, high = FIRST_NS // NS, LAST_NS // NS
    inside = (seconds > low) & (seconds < high)
    values: Ints = np.where(inside, seconds, 0) * NS + np.where(inside, nanos, 0)
    for index in np.flatnonzero((seconds == low) | (seconds == high)).tolist():
        exact = int(seconds[index]) * NS + int(nanos[index])
        if FIRST_NS <= exact <= LAST_NS:
            values[index], inside[index] = exact, True
    return values, ~inside


def _offsets(seconds: Ints, zone: str | None, reasons: Reasons) -> Ints:
    """How far a zone's clock is ahead of UTC at each local time. A time that the zone skips is noted in `reasons`."""
    offsets = np.zeros(len(seconds), dtype=np.int64)
    if zone in (None, "UTC"):
        return offsets
    days = np.floor_divide(seconds, _DAY)
    # Other days are outside the range of a column.
    good = np.flatnonzero((reasons == _GOOD) & (np.abs(days) < _MOST_DAYS))
    unique, inverse = np.unique(days[good], return_inverse=True)
    by_day = [_day_offset(zone, int(day)) for day in unique]
    offsets[good] = np.array([offset or 0 for offset in by_day], dtype=np.int64)[inverse]
    changing = np.array([offset is None for offset in by_day], dtype=np.bool_)[inverse]
    for index in good[changing].tolist():
        offset = _offset_at(zone, int(seconds[index]))
        if offset is None:
            reasons[index] = _SKIPPED
        else:
            offsets[index] = offset
    return offsets


@lru_cache(maxsize=100_000)
def _day_offset(zone: str, day: int) -> int | None:
    """The offset of a whole local day; None if it changes within it."""
    start = _EPOCH + timedelta(days=day)
    tz = ZoneInfo(zone)
    moments = (start + timedelta(hours=hour) for hour in range(25))
    found = {moment.replace(tzinfo=tz, fold=fold).utcoffset() for moment in moments for fold in (0, 1)}
    offset = found.pop()
    return int(offset.total_seconds()) if offset is not None and not found else None


def _offset_at(zone: str, local: int) -> int | None:
    """The offset at a local time: the earlier one if the clock shows the time twice, None if it never does."""
    moment = (_EPOCH + timedelta(seconds=local)).replace(tzinfo=ZoneInfo(zone))
    before, after = (moment.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    return None if before < after else int(before.total_seconds())

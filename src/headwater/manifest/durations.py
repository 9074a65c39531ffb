"""The small languages of time in a manifest: durations, schedules, cron, times of day, rates.

All of them are pure: text in, numbers out, `ValueError` with a plain sentence otherwise. Units are microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.base.errors import HeadwaterError

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
_UNITS_US = {
    "ms": 1_000,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "d": DAY_US,
    "w": 7 * DAY_US,
}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)")
DURATION_PATTERN = r"^([0-9]{1,9}(ms|s|m|h|d|w))+$"
MAX_DURATION_US = 36_525 * DAY_US
"""A hundred years: a longer duration is a typing error."""

RATE_PATTERN = r"^[0-9]{1,9}/(s|sec|min|m|hour|h|day|d)$"
TIME_OF_DAY_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True)
class Every:
    """`every 15m`: at most this stale, and nothing runs more often."""

    interval_us: int


@dataclass(frozen=True)
class Cron:
    """The instants of a five-field cron expression, as the sets of its fields; Sunday is 0. As in every cron, if both
    `days_restricted` and `weekdays_restricted` are set, a day that matches either field counts."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    days_restricted: bool
    weekdays_restricted: bool


def duration_us(text: str) -> int:
    """`"15m"`, `"6h"`, `"1h30m"` in microseconds; more than zero."""
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise ValueError("a duration is a number and a unit: ms, s, m, h, d or w")
    total = sum(int(number) * _UNITS_US[unit] for number, unit in _DURATION.findall(text))
    if total == 0:
        raise ValueError("a duration is longer than nothing")
    if total > MAX_DURATION_US:
        raise ValueError("a duration is at most a hundred years")
    return total


def given_duration_us(text: str) -> int:
    """A duration that a user gave to a command. Raises HW-U01 if it is not a duration, or zero."""
    try:
        return duration_us(text)
    except ValueError as error:
        raise HeadwaterError("HW-U01", f"`{text}` is not a duration: {error}", hint="for example `15m`") from error


def check_rate(text: str) -> None:
    """`"60/min"`."""
    if re.fullmatch(RATE_PATTERN, text) is None or int(text.partition("/")[0]) == 0:
        raise ValueError("a rate is a number above zero, a slash and a unit: s, min, hour or day")


def time_of_day_us(text: str) -> int:
    """`"02:00"` or `"02:00:30"` in microseconds after midnight."""
    if re.fullmatch(TIME_OF_DAY_PATTERN, text) is None:
        raise ValueError("a time of day has the form HH:MM")
    hours, minutes, seconds = (*map(int, text.split(":")), 0)[:3]
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND_US


def parse_schedule(text: str) -> Every | Cron:
    """`"every 15m"`, or a cron expression."""
    words = text.split()
    if words and words[0] == "every":
        if len(words) != 2:
            raise ValueError("`every` is followed by one duration")
        return Every(duration_us(words[1]))
    if len(words) == 1 and _DURATION.match(text):
        raise ValueError("the word `every` is missing before the duration")
    return parse_cron(text)


def parse_cron(text: str) -> Cron:
    """A cron expression of five fields: numbers, `*`, lists, ranges, steps, English names of months and days. One
    that can never match (31 February) is refused."""
    words = _MACROS.get(text.strip(), text).split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"a cron expression has 5 fields, this one has {len(words)}")
    minutes, hours, days, months, weekdays = (_cron_field(word, *field) for word, field in zip(words, _FIELDS))
    days_restricted, weekdays_restricted = not words[2].startswith("*"), not words[4].startswith("*")
    last_day = max(_DAYS_IN_MONTH[month - 1] for month in months)
    if min(days) > last_day and not weekdays_restricted:
        raise ValueError("no month of this cron expression has such a day")
    weekdays = frozenset(day % 7 for day in weekdays)
    return Cron(minutes, hours, days, months, weekdays, days_restricted, weekdays_restricted)


def _cron_field(word: str, name: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        body, slash, step_text = part.partition("/")
        if slash and (not _is_number(step_text) or int(step_text) == 0):
            raise ValueError(f"the {name} has a step that is not a number above zero")
        step = int(step_text) if slash else 1
        if body == "*":
            first, last = low, high
        else:
            start, dash, end = body.partition("-")
            first = _cron_number(start, name, low, names)
            last = _cron_number(end, name, low, names) if dash else (high if slash else first)
        if not (low <= first <= high and low <= last <= high):
            raise ValueError(f"the {name} goes from {low} to {high}")
        if first > last:
            raise ValueError(f"the {name} has a range that runs backwards")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _cron_number(text: str, name: str, low: int, names: tuple[str, ...]) -> int:
    if _is_number(text):
        return int(text)
    if text.lower() in names:
        return names.index(text.lower()) + low
    raise ValueError(f"the {name} is a number" + (f" or a name such as `{names[0]}`" if names else ""))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4

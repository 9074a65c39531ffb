"""Windows and cron as instants: times of a wall clock in a time zone, in microseconds since the epoch.

Both are times of a wall clock, so both need rules for the two days a year on which the clock is changed:
- A time that the clock skips moves forward by what was skipped: 02:30 becomes 03:30 where 02:00 to 03:00 is missing.
- A time that the clock shows twice is the first of the two, unless it belongs to something that repeats within the hour
  shown twice (`every = "15m"`, a cron expression for every hour): that continues in real time.
- Two times that become the same instant are one.

Windows: `start`, and again each `every` on the wall clock, counted from a Monday: `1w` opens on Mondays, `6h` at the
same four times of every day. `duration` is real time, except that a window ends when the next one opens, so that a day
with an hour less or more makes no overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from headwater.manifest.durations import DAY_US, SECOND_US, Cron, duration_us, parse_cron, time_of_day_us

if TYPE_CHECKING:
    from headwater.manifest.spec import WindowSpec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MONDAY_US = 4 * DAY_US
"""1970-01-05 as a clock reading, the first Monday: `every` is counted from here."""
_LAST_US = (datetime(9999, 12, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The calendars end here, and so do the iterators."""
_SETTLED_US = 2 * DAY_US
"""No clock is changed by more than a day, so this long after a change it has no effect any more."""

Marks = Callable[[int, int, int], Sequence[int]]
"""(from, until, offset) -> the instants in between at which a clock that is `offset` ahead of UTC shows one of the
times, in order."""


class _Stretch(NamedTuple):
    """From `start` to `end` the clock is `offset` ahead of UTC; just before, it was `before` ahead."""

    start: int
    end: int
    offset: int
    before: int


def windows_of(specs: Sequence[WindowSpec], *, after_us: int) -> Iterator[tuple[int, int]]:
    """The windows of an Inlet as (start, end): endless, ascending, never overlapping. The first is the one that is open
    at `after_us`, else the next. The windows do not depend on `after_us`."""
    each = [_windows_of_one(spec, after_us) for spec in specs]
    longest = (max(same) for _, same in groupby(merge(*each), key=itemgetter(0)))
    for (start, end), (next_start, _) in pairwise(longest):
        closes = min(end, next_start)
        if closes > after_us:
            yield start, closes


def cron_times(at: str, timezone: str, *, after_us: int) -> Iterator[int]:
    """The instants of a cron expression later than `after_us`: endless and ascending."""
    cron = parse_cron(at)
    every_hour = len(cron.hours) == 24
    ticks = _instants(timezone, _cron_marks(cron), lambda _: every_hour, since_us=after_us, begin_us=after_us)
    return (tick for tick, _ in groupby(ticks) if tick > after_us)


def _windows_of_one(spec: WindowSpec, after_us: int) -> Iterator[tuple[int, int]]:
    """Every window, starting with the last that opened by `after_us`; its length ignores later windows."""
    every, duration = duration_us(spec.every), duration_us(spec.duration)
    phase = _MONDAY_US + time_of_day_us(spec.start)

    def marks(first: int, until: int, offset: int) -> Sequence[int]:
        return range(first + (phase - offset - first) % every, until, every)

    openings = _instants(
        spec.timezone, marks, lambda change: change % every == 0, since_us=after_us, begin_us=after_us - every
    )
    for opening in openings:
        yield opening, opening + duration


def _cron_marks(cron: Cron) -> Marks:
    times = [(hour * 60 + minute) * 60 * SECOND_US for hour in sorted(cron.hours) for minute in sorted(cron.minutes)]

    def marks(first: int, until: int, offset: int) -> Sequence[int]:
        found: list[int] = []
        for day in range((first + offset) // DAY_US, (until + offset) // DAY_US + 1):
            if _is_cron_day(cron, date.fromordinal(_EPOCH_DAY + day)):
                midnight = day * DAY_US - offset
                found += [midnight + time for time in times if first <= midnight + time < until]
        return found

    return marks


def _is_cron_day(cron: Cron, day: date) -> bool:
    if day.month not in cron.months:
        return False
    by_date, by_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    if cron.days_restricted and cron.weekdays_restricted:
        return by_date or by_weekday
    return by_date and by_weekday


def _instants(
    timezone: str, marks: Marks, repeats: Callable[[int], bool], *, since_us: int, begin_us: int
) -> Iterator[int]:
    """When the clock shows one of the times, ascending; an instant may come twice. Of the instants up to `since_us` at
    least the last is included, if it is not before `begin_us`. `repeats(change)` says whether times are repeated when
    the clock is set back by that much."""
    zone = ZoneInfo(timezone)
    for stretch in _stretches(zone, begin_us - _SETTLED_US):
        change = stretch.offset - stretch.before
        first = stretch.start
        skipped: Sequence[int] = ()
        if change > 0:
            # Read as if the clock had not been changed yet, which moves a skipped time forward by the gap.
            skipped = marks(first, first + change, stretch.before)
        elif not repeats(-change):
            first -= change
        shown = marks(first, stretch.end, stretch.offset)
        yield from merge(_from_last_before(shown, since_us), _from_last_before(skipped, since_us))


def _from_last_before(instants: Sequence[int], since_us: int) -> Sequence[int]:
    """Without the instants before `since_us`, except the last: its window may still be open."""
    return instants[max(0, bisect_right(instants, since_us) - 1) :]


def _stretches(zone: ZoneInfo, begin_us: int) -> Iterator[_Stretch]:
    """Time from `begin_us` on, cut wherever the clock changes, and sometimes elsewhere."""
    start, before = begin_us, _offset(zone, begin_us)
    offset = before
    while start < _LAST_US:
        end = start + DAY_US
        following = _offset(zone, end)
        if following != offset:
            end = _first_with_other_offset(zone, start, end)
            following = _offset(zone, end)
        yield _Stretch(start, end, offset, before)
        start, before, offset = end, offset, following


def _first_with_other_offset(zone: ZoneInfo, low: int, high: int) -> int:
    """The instant at which the clock changes, once, between the two."""
    was = _offset(zone, low)
    return low + bisect_left(range(low, high), True, key=lambda instant: _offset(zone, instant) != was)


def _offset(zone: ZoneInfo, instant_us: int) -> int:
    offset = (_EPOCH + timedelta(microseconds=instant_us)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)

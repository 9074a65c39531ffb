"""Windows and cron beside a clock that is read minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.freshness.windows import Windows
from headwater.manifest.durations import duration_us, parse_cron, time_of_day_us
from headwater.manifest.spec import WindowSpec
from headwater.runtime.calendars import cron_times, windows_of

MINUTE_US = 60_000_000
DAY_US = 1440 * MINUTE_US
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CHANGES = {
    # zone -> days around which its clock changes
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/Santiago": ("2026-04-05", "2026-09-06"),  # at midnight
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),  # by half an hour
    "Pacific/Apia": ("2011-12-30", "2012-04-01"),  # skipped a whole day
    "Asia/Kathmandu": ("2026-05-01", "2026-06-01"),  # never, and 5:45 ahead
    "UTC": ("2026-05-01", "2026-06-01"),
}


def us(text: str) -> int:
    """`2026-03-29T02:30+01:00`, or without an offset in UTC, in microseconds."""
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def local(instant: int, zone: str) -> str:
    return (EPOCH + instant * MICROSECOND).astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")


def window(start: str, every: str, duration: str, timezone: str = "UTC") -> WindowSpec:
    return WindowSpec(start=start, every=every, duration=duration, timezone=timezone)


def shown(specs: list[WindowSpec], after: str, count: int) -> list[str]:
    zone = specs[0].timezone
    found = islice(windows_of(specs, after_us=us(after)), count)
    return [f"{local(start, zone)} {local(end, zone)}" for start, end in found]


def shown_cron(at: str, zone: str, after: str, count: int) -> list[str]:
    return [local(tick, zone) for tick in islice(cron_times(at, zone, after_us=us(after)), count)]


# By example.


def test_a_daily_window_is_the_same_on_the_wall_in_summer_and_winter() -> None:
    spec = [window("02:00", "1d", "22h", "Europe/Berlin")]
    assert shown(spec, "2026-01-10T00:30+01:00", 1) == ["2026-01-10T02:00+01:00 2026-01-11T00:00+01:00"]
    assert shown(spec, "2026-07-10T00:30+02:00", 1) == ["2026-07-10T02:00+02:00 2026-07-11T00:00+02:00"]


def test_the_first_window_is_the_open_one_and_an_end_is_outside() -> None:
    spec = [window("02:00", "1d", "4h")]
    assert shown(spec, "2026-01-10T05:59:59", 1) == ["2026-01-10T02:00+00:00 2026-01-10T06:00+00:00"]
    assert shown(spec, "2026-01-10T06:00", 1) == ["2026-01-11T02:00+00:00 2026-01-11T06:00+00:00"]
    assert shown(spec, "2026-01-10T02:00", 1) == ["2026-01-10T02:00+00:00 2026-01-10T06:00+00:00"]


def test_a_start_that_the_clock_skips_moves_forward_by_the_gap() -> None:
    spec = [window("02:30", "1d", "1h", "Europe/Berlin")]
    assert shown(spec, "2026-03-28T12:00+01:00", 2) == [
        "2026-03-29T03:30+02:00 2026-03-29T04:30+02:00",
        "2026-03-30T02:30+02:00 2026-03-30T03:30+02:00",
    ]


def test_a_start_that_the_clock_shows_twice_is_the_first() -> None:
    spec = [window("02:30", "1d", "1h", "Europe/Berlin")]
    assert shown(spec, "2026-10-24T12:00+02:00", 2) == [
        "2026-10-25T02:30+02:00 2026-10-25T02:30+01:00",
        "2026-10-26T02:30+01:00 2026-10-26T03:30+01:00",
    ]


def test_a_window_as_long_as_its_period_is_never_closed_on_a_short_or_a_long_day() -> None:
    found = list(islice(windows_of([window("02:00", "1d", "1d", "Europe/Berlin")], after_us=us("2026-01-01")), 80))
    assert all(end == start for (_, end), (start, _) in pairwise(found))


def test_what_opens_within_the_hour_goes_on_in_the_hour_shown_twice() -> None:
    spec = [window("00:00", "30m", "30m", "Europe/Berlin")]
    assert shown(spec, "2026-10-25T02:00+02:00", 4) == [
        "2026-10-25T02:00+02:00 2026-10-25T02:30+02:00",
        "2026-10-25T02:30+02:00 2026-10-25T02:00+01:00",
        "2026-10-25T02:00+01:00 2026-10-25T02:30+01:00",
        "2026-10-25T02:30+01:00 2026-10-25T03:00+01:00",
    ]


def test_weekly_windows_open_on_mondays() -> None:
    found = shown([window("06:00", "1w", "1d", "Europe/Berlin")], "2026-01-01", 2)
    assert found == [
        "2026-01-05T06:00+01:00 2026-01-06T06:00+01:00",
        "2026-01-12T06:00+01:00 2026-01-13T06:00+01:00",
    ]


def test_a_window_that_opened_days_ago_is_still_open() -> None:
    found = shown([window("06:00", "1w", "6d")], "2026-01-10T12:00", 1)
    assert found == ["2026-01-05T06:00+00:00 2026-01-11T06:00+00:00"]


def test_several_windows_come_in_order() -> None:
    specs = [window("18:00", "1d", "2h"), window("06:00", "1d", "3h")]
    assert shown(specs, "2026-01-10T07:00", 3) == [
        "2026-01-10T06:00+00:00 2026-01-10T09:00+00:00",
        "2026-01-10T18:00+00:00 2026-01-10T20:00+00:00",
        "2026-01-11T06:00+00:00 2026-01-11T09:00+00:00",
    ]


def test_a_moved_window_cuts_the_one_it_falls_into() -> None:
    specs = [window("02:30", "1d", "30m", "Europe/Berlin"), window("03:00", "1d", "1h", "Europe/Berlin")]
    assert shown(specs, "2026-03-29T00:00+01:00", 2) == [
        "2026-03-29T03:00+02:00 2026-03-29T03:30+02:00",
        "2026-03-29T03:30+02:00 2026-03-29T04:00+02:00",
    ]


def test_the_first_of_a_million_windows_costs_no_more_than_the_others() -> None:
    found = list(islice(windows_of([window("00:00", "1ms", "1ms", "Europe/Berlin")], after_us=us("2026-03-30")), 2))
    assert found == [(us("2026-03-30"), us("2026-03-30") + 1000), (us("2026-03-30") + 1000, us("2026-03-30") + 2000)]


def test_the_engine_takes_these_windows_over_years() -> None:
    specs = [window("22:30", "1d", "4h", "Europe/Berlin"), window("03:00", "1d", "1h", "America/New_York")]
    windows = Windows(windows_of(specs, after_us=us("2026-01-01")))
    for day in range(3 * 365):
        now = us("2026-01-01") + day * DAY_US
        opens = windows.next_start(now, now)
        assert opens is not None and now < opens < now + DAY_US


@pytest.mark.parametrize(
    ("at", "zone", "after", "ticks"),
    [
        ("0 */2 * * *", "UTC", "2026-01-01T23:30", ["2026-01-02T00:00+00:00", "2026-01-02T02:00+00:00"]),
        ("@daily", "Europe/Berlin", "2026-01-01T12:00", ["2026-01-02T00:00+01:00", "2026-01-03T00:00+01:00"]),
        # a tick is never the moment asked from
        ("30 2 * * *", "UTC", "2026-01-01T02:30", ["2026-01-02T02:30+00:00"]),
        # skipped: forward by the gap
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"]),
        # shown twice: the first, also if we begin in between
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        ("45 2 * * *", "Europe/Berlin", "2026-10-25T02:40+01:00", ["2026-10-26T02:45+01:00"]),
        # two that become one
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
        # every hour: in real time
        ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30", ["2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]),
        ("0 * * * *", "Europe/Berlin", "2026-10-24T23:30", ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"]),
        ("0 */2 * * *", "Australia/Lord_Howe", "2026-04-05T00:30+11:00", ["2026-04-05T02:00+10:30"]),
        # days of the month and of the week: either
        ("0 0 13 * fri", "UTC", "2026-03-12", ["2026-03-13T00:00+00:00", "2026-03-20T00:00+00:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        ("5-5/20 2 * * *", "UTC", "2026-01-01", ["2026-01-01T02:05+00:00", "2026-01-02T02:05+00:00"]),
    ],
)
def test_cron_ticks(at: str, zone: str, after: str, ticks: list[str]) -> None:
    assert shown_cron(at, zone, after, len(ticks)) == ticks


# Beside a naive reading of the clock.

MONDAY = datetime(1970, 1, 5)
Reading = tuple[int, datetime, int, int | None]
"""When the clock shows it, what it shows, how long that is after a Monday, and, if the clock shows it for the second
time, by how much it was set back."""


@cache
def readings(zone: str, day: str) -> list[Reading]:
    """Every minute that a wall clock shows or skips in the four days before a day and the three days after it."""
    found: list[Reading] = []
    for minute in range(-4 * 1440, 3 * 1440):
        shown = datetime.fromisoformat(day) + timedelta(minutes=minute)
        first, second = (shown.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1))
        # In a gap the first of the two, by the old offset, is the later instant: forward by the gap.
        after = (shown - MONDAY) // MICROSECOND
        found.append(((first - EPOCH) // MICROSECOND, shown, after, None))
        if second > first:
            found.append(((second - EPOCH) // MICROSECOND, shown, after, (second - first) // MICROSECOND))
    return found


def naive_windows(specs: list[WindowSpec], day: str) -> list[tuple[int, int]]:
    ends: dict[int, int] = {}
    for spec in specs:
        every, duration, start = duration_us(spec.every), duration_us(spec.duration), time_of_day_us(spec.start)
        for instant, _, after, back in readings(spec.timezone, day):
            if (after - start) % every == 0 and (back is None or back % every == 0):
                ends[instant] = max(ends.get(instant, 0), instant + duration)
    return [(start, min(ends[start], following)) for start, following in pairwise(sorted(ends))]


def naive_ticks(at: str, zone: str, day: str) -> list[int]:
    cron = parse_cron(at)
    either = "*" not in (at.split()[2], at.split()[4])
    return sorted(
        {
            instant
            for instant, reading, _, back in readings(zone, day)
            if reading.minute in cron.minutes
            and reading.hour in cron.hours
            and (any if either else all)((reading.day in cron.days, reading.isoweekday() % 7 in cron.weekdays))
            and (back is None or len(cron.hours) == 24)
        }
    )


zones = st.sampled_from(sorted(CHANGES))
lengths = st.sampled_from(["15m", "20m", "30m", "40m", "1h", "90m", "2h", "5h", "6h", "12h", "1d", "36h", "2d"])
around = st.integers(-720, 720)
"""Minutes before or after the day of a change."""


def specs_in(zone: str) -> st.SearchStrategy[WindowSpec]:
    return st.builds(
        lambda hour, minute, every, part: WindowSpec(
            start=f"{hour:02}:{minute:02}",
            every=every,
            duration=f"{duration_us(every) * part // 4 // MINUTE_US}m",
            timezone=zone,
        ),
        hour=st.integers(0, 23),
        minute=st.sampled_from([0, 10, 30, 45]),
        every=lengths,
        part=st.integers(1, 4),
    )


@given(
    specs=zones.flatmap(lambda zone: st.lists(specs_in(zone), min_size=1, max_size=2)),
    change=st.integers(0, 1),
    minute=around,
)
def test_windows_are_those_of_a_clock_read_minute_by_minute(specs: list[WindowSpec], change: int, minute: int) -> None:
    day = CHANGES[specs[0].timezone][change]
    after = us(day) + minute * MINUTE_US
    expected = [window for window in naive_windows(specs, day) if window[1] > after]
    # At the end of what was read, one that the change moved may be missing.
    expected = [window for window in expected if window[1] < us(day) + 2 * DAY_US]
    assert list(islice(windows_of(specs, after_us=after), len(expected))) == expected


@given(spec=zones.flatmap(specs_in), minutes=st.tuples(st.integers(0, 50_000), st.integers(0, 50_000)))
def test_windows_do_not_depend_on_where_they_begin(spec: WindowSpec, minutes: tuple[int, int]) -> None:
    early, late = (us("2026-03-01") + minute * MINUTE_US for minute in sorted(minutes))
    later = next(windows_of([spec], after_us=late))
    assert later == next(window for window in windows_of([spec], after_us=early) if window[1] > late)


@given(
    at=st.tuples(
        st.sampled_from(["0", "30", "*/20", "15,45", "*"]),
        st.sampled_from(["*", "2", "0-3", "*/2", "0", "1,2,3", "23"]),
        st.sampled_from(["*", "*", "*", "5", "25-31"]),
        st.just("*"),
        st.sampled_from(["*", "*", "*", "sun", "1-5"]),
    ).map(" ".join),
    zone=zones,
    change=st.integers(0, 1),
    minute=around,
)
def test_cron_ticks_are_those_of_a_clock_read_minute_by_minute(at: str, zone: str, change: int, minute: int) -> None:
    day = CHANGES[zone][change]
    after = us(day) + minute * MINUTE_US
    expected = [tick for tick in naive_ticks(at, zone, day) if after < tick < us(day) + 2 * DAY_US]
    assert list(islice(cron_times(at, zone, after_us=after), len(expected))) == expected

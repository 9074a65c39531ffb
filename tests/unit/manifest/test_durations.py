"""The small languages of time, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.manifest.durations import (
    DAY_US,
    SECOND_US,
    Cron,
    Every,
    check_rate,
    duration_us,
    parse_cron,
    parse_schedule,
    time_of_day_us,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("15m", 900), ("6h", 21_600), ("7d", 604_800), ("2w", 1_209_600), ("1h30m", 5_400), ("500ms", 0.5)],
)
def test_a_duration_is_its_microseconds(text: str, seconds: float) -> None:
    assert duration_us(text) == seconds * SECOND_US


@pytest.mark.parametrize(
    "text", ["", "15", "m", "15 m", "-5m", "1.5h", "15min", "0s", "0h0m", "999999999w", "٣m", "5m "]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_us(text)


@given(st.lists(st.tuples(st.integers(1, 999), st.sampled_from(["ms", "s", "m", "h", "d"])), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    assert duration_us("".join(f"{n}{u}" for n, u in parts)) == sum(duration_us(f"{n}{u}") for n, u in parts)


def test_a_schedule_is_a_tide_or_a_cron() -> None:
    assert parse_schedule("every 15m") == Every(900 * SECOND_US)
    assert isinstance(parse_schedule("0 */2 * * *"), Cron)


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("*/15 * * * *", "minutes", {0, 15, 30, 45}),
        ("5-20/5 * * * *", "minutes", {5, 10, 15, 20}),
        ("50/4 * * * *", "minutes", {50, 54, 58}),
        ("0 1,13 * * *", "hours", {1, 13}),
        ("0 0 1-3 * *", "days", {1, 2, 3}),
        ("0 0 * jan,DEC *", "months", {1, 12}),
        ("0 0 * * mon-fri", "weekdays", {1, 2, 3, 4, 5}),
        ("0 0 * * 7", "weekdays", {0}),
        ("0 0 * * *", "weekdays", {0, 1, 2, 3, 4, 5, 6}),
        ("@daily", "hours", {0}),
        ("0 0 29 2 *", "days", {29}),
        ("0 0 31 2 1", "weekdays", {1}),
    ],
)
def test_a_cron_field_is_the_set_of_its_values(text: str, field: str, expected: set[int]) -> None:
    assert getattr(parse_cron(text), field) == expected


def test_a_cron_knows_which_days_are_restricted() -> None:
    assert parse_cron("0 0 1 * *").days_restricted and not parse_cron("0 0 1 * *").weekdays_restricted
    assert parse_cron("0 0 * * 1").weekdays_restricted and not parse_cron("0 0 */2 * 1").days_restricted


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "a * * * *"]
    + ["*/0 * * * *", "*/x * * * *", "5-1 * * * *", "1, * * * *", "- * * * *", "* * * foo *", "0 0 30 2 *", "@often"],
)
def test_what_is_not_a_cron_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cron|minute|hour|day|month"):
        parse_cron(text)


def test_times_of_day_and_rates() -> None:
    assert time_of_day_us("02:00") == DAY_US // 12
    assert time_of_day_us("23:59:59") == DAY_US - SECOND_US
    check_rate("60/min")
    for text in ("24:00", "2:00", "02:60", "02:00:60", "noon"):
        with pytest.raises(ValueError, match="time of day"):
            time_of_day_us(text)
    for text in ("60", "0/s", "1/year", "/s", "-1/s"):
        with pytest.raises(ValueError, match="rate"):
            check_rate(text)

"""Windows are read as far as needed, and never overlap."""

from __future__ import annotations

from itertools import count

import pytest

from headwater.freshness.windows import Windows


def test_a_window_is_open_from_its_start_until_just_before_its_end() -> None:
    windows = Windows([(10, 20), (20, 30), (40, 50)])
    assert [windows.current(now) for now in (9, 10, 19, 20, 30, 39, 40, 50)] == [
        None,
        (10, 20),
        (10, 20),
        (20, 30),
        None,
        None,
        (40, 50),
        None,
    ]


def test_the_next_window_is_one_that_ends_late_enough() -> None:
    windows = Windows([(10, 20), (30, 40), (50, 60)])
    assert windows.next_start(10, 0) == 30
    assert windows.next_start(10, 41) == 50
    assert windows.next_start(10, 61) is None


def test_endless_windows_are_read_one_at_a_time() -> None:
    read = []

    def days() -> object:
        for day in count():
            read.append(day)
            yield day * 10, day * 10 + 9

    windows = Windows(days())  # type: ignore[arg-type]
    assert windows.current(25) == (20, 29)
    assert windows.next_start(25, 0) == 30
    assert read == [0, 1, 2, 3]


@pytest.mark.parametrize("listed", [[(0, 10), (9, 20)], [(5, 5)], [(0, 10), (12, 11)]])
def test_windows_that_overlap_or_are_empty_are_refused(listed: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        Windows(listed).next_start(0, 10**9)

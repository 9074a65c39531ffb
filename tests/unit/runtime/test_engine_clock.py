"""The engine's time, while the system's jumps."""

from __future__ import annotations

import pytest

from headwater.base.clock import now_us
from headwater.runtime.engine import EngineClock

DAY_US = 86_400_000_000


def test_it_is_the_systems_time() -> None:
    before = now_us()
    assert before <= EngineClock().now_us() <= now_us()


def test_a_clock_that_was_set_back_goes_on_from_where_it_was() -> None:
    ahead = now_us() + DAY_US
    clock = EngineClock(ahead)
    first = clock.now_us()
    assert first >= ahead
    while clock.now_us() <= first:  # it does not stand still
        pass
    assert clock.now_us() - ahead < DAY_US


def test_it_never_goes_back_when_the_systems_does(monkeypatch: pytest.MonkeyPatch) -> None:
    start, clock, seen = now_us(), EngineClock(), []
    for offset in (0, DAY_US, 0, -DAY_US, DAY_US // 2, 2 * DAY_US, 0):
        monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(offset))
        seen += [clock.now_us(), clock.now_us()]
    assert seen == sorted(seen)
    assert seen[-1] >= start + 2 * DAY_US


def test_what_it_will_show_is_told_in_the_systems_time() -> None:
    now = now_us()
    assert EngineClock().on_the_system(now + DAY_US) == pytest.approx(now + DAY_US, abs=DAY_US / 10)
    behind = EngineClock(now + DAY_US).on_the_system(now + 2 * DAY_US)
    assert behind == pytest.approx(now + 2 * DAY_US, abs=DAY_US / 10), "a day of its time takes two of the system's"

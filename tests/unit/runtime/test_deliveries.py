"""Pushes wake the engine, a few times a second at most."""

from __future__ import annotations

import pytest

from headwater.base import limits
from headwater.freshness.events import Delivered
from headwater.runtime.service import Deliveries


def test_who_comes_first_wakes_and_all_are_told_once() -> None:
    deliveries = Deliveries()
    assert [deliveries.add(name) for name in ("b", "a", "b")] == [True, False, False]
    assert deliveries.take() == [Delivered("a"), Delivered("b")]
    assert deliveries.take() == []


def test_what_comes_soon_after_waits_and_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELIVERY_SECONDS", 3600.0)
    deliveries = Deliveries()
    deliveries.add("a")
    deliveries.take()
    assert deliveries.wait_seconds(60.0) == 60.0, "nothing waits"
    assert deliveries.add("a")
    assert deliveries.take() == []
    assert deliveries.wait_seconds(60.0) == 60.0
    assert 60.0 < deliveries.wait_seconds(1e6) <= 3600.0


def test_without_a_pause_it_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELIVERY_SECONDS", 0.0)
    deliveries = Deliveries()
    for _ in range(2):
        deliveries.add("a")
        assert deliveries.wait_seconds(60.0) == 0.0
        assert deliveries.take() == [Delivered("a")]

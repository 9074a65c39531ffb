"""Counts that only grow."""

from __future__ import annotations

import threading

import pytest

from headwater.observe.counters import Counters


def test_counts_are_kept_by_label_and_lose_nothing_to_threads() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(500):
            counters.add("runs", "orders", "success")
        counters.add("lease_takeovers", times=3)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counters.add("runs", "orders", "failed")
    assert counters.counts("runs") == {("orders", "success"): 2_000, ("orders", "failed"): 1}
    assert counters.counts("lease_takeovers") == {(): 12}


def test_what_never_happened_is_counted_as_such_where_it_has_no_label() -> None:
    assert Counters().counts("lease_takeovers") == {(): 0}
    assert Counters().counts("runs") == {}


def test_a_count_has_its_labels() -> None:
    with pytest.raises(AssertionError):
        Counters().add("runs", "orders")

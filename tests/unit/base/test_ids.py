from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.base.ids import is_column_name, is_pipeline_id, is_table_name, uuid7


def test_ids_are_uuids_of_version_seven() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(uuid7()) for _ in range(100)]
    assert {(found.version, found.variant) for found in ids} == {(7, uuid.RFC_4122)}
    assert all(before <= found.int >> 80 for found in ids)


def test_ids_of_one_process_sort_in_the_order_they_were_made() -> None:
    ids = [uuid7() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_many_threads_are_all_different() -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = [found for batch in threads.map(lambda _: [uuid7() for _ in range(2_000)], range(8)) for found in batch]
    assert len(set(ids)) == 16_000


def test_ids_stay_sorted_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert uuid7() > first


@pytest.mark.parametrize(
    ("name", "table", "pipeline"),
    [
        ("orders", True, True),
        ("_x9", True, True),
        ("a-b", False, True),
        ("-a", False, False),
        ("9a", False, False),
        ("Orders", False, False),
        ("", False, False),
        ("a" * 63, True, True),
        ("a" * 64, False, False),
        ("a\n", False, False),
        ("ä", False, False),
        ("a.b", False, False),
        ("a/b", False, False),
    ],
)
def test_names_are_checked(name: str, table: bool, pipeline: bool) -> None:
    assert (is_table_name(name), is_pipeline_id(name)) == (table, pipeline)


@pytest.mark.parametrize(
    ("name", "legal"),
    [("Größe (cm)", True), ('"', True), ("ä" * 127, True), ("ä" * 128, False), ("_commit_seq", False), ("_hw_x", False)]
    + [("", False), ("a\tb", False), ("_x", True)],
)
def test_column_names_are_the_sources_own_but_for_the_stores(name: str, legal: bool) -> None:
    assert is_column_name(name) == legal

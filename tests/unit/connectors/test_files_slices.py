"""Files into slices, slices into partitions."""

from __future__ import annotations

import pytest

from headwater.base import limits
from headwater.connectors.files.changes import Changes
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import byte_cuts, cut_partitions, files_of, group_files, plan_slices
from headwater.connectors.protocol import Item, Slice

A, B, C, D = (FoundFile(name, 10, 1) for name in "abcd")


def plan(mode: str, changes: Changes, found: list[FoundFile]) -> list[Slice]:
    return plan_slices(
        mode, changes, found, format_="ndjson", start=None, end="end", estimate_rows=lambda files: len(files)
    )


def shape(slices: list[Slice]) -> list[tuple[list[str], tuple[str, ...]]]:
    return [([file.source_id for file in files_of(slice_.spec)], slice_.replaces) for slice_ in slices]


def test_append_gives_each_changed_file_a_slice_that_retires_its_rows() -> None:
    slices = plan("append", Changes(new=(A, C), changed=(B, D)), [A, B, C, D])
    assert shape(slices) == [(["a", "c"], ()), (["b"], ("b",)), (["d"], ("d",))]


def test_upsert_takes_new_and_changed_files_together_in_path_order() -> None:
    assert shape(plan("upsert", Changes(new=(A, D), changed=(B,)), [A, B, C, D])) == [(["a", "b", "d"], ())]


@pytest.mark.parametrize("changes", [Changes(new=(A,)), Changes(changed=(B,)), Changes(vanished=("z",))])
def test_replace_takes_every_file_again_if_anything_differs(changes: Changes) -> None:
    assert shape(plan("replace", changes, [A, B])) == [(["a", "b"], ())]


def test_replace_without_a_difference_does_nothing() -> None:
    assert plan("replace", Changes(touched=(Item("a", {}),)), [A, B]) == []


def test_replace_forgets_vanished_files_with_its_last_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_FILES", 1)
    first, last = plan("replace", Changes(vanished=("z",)), [A, B])
    assert [item.source_id for item in first.items] == ["a"]
    assert last.items[-1] == Item("z", {"gone": True})


def test_replace_of_a_source_without_files_does_nothing() -> None:
    assert plan("replace", Changes(vanished=("z",)), []) == []


def test_a_slice_says_how_much_it_holds() -> None:
    (slice_,) = plan("append", Changes(new=(A, B)), [A, B])
    assert (slice_.estimated_bytes, slice_.estimated_rows, slice_.describe) == (20, 2, "2 files, a .. b")
    assert (slice_.start, slice_.end) == (None, "end")
    assert files_of(slice_.spec) == [A, B]


def test_slices_are_filled_up_to_their_bytes_and_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_BYTES", 25)
    assert group_files([A, B, C]) == [[A, B], [C]]
    monkeypatch.setattr(limits, "SLICE_FILES", 1)
    assert group_files([A, B, C]) == [[A], [B], [C]]


def test_a_file_larger_than_a_slice_is_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_BYTES", 5)
    assert group_files([A, B]) == [[A], [B]]


def test_cuts_cover_a_file_without_gap_or_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 10)
    assert byte_cuts(0) == [(0, 0)]
    assert byte_cuts(10) == [(0, 10)]
    assert byte_cuts(25) == [(0, 8), (8, 16), (16, 25)]


def test_small_files_share_partitions_and_large_ones_have_their_own_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 10)
    files = [FoundFile(name, size, 1) for name, size in (("a", 4), ("b", 0), ("c", 6), ("d", 1), ("e", 12), ("f", 3))]
    partitions = cut_partitions(files, lambda file: byte_cuts(file.size))
    pieces = [[(piece[0], *piece[3:]) for piece in partition["pieces"]] for partition in partitions]
    assert pieces == [
        [("a", 0, 4, True), ("b", 0, 0, True)],
        [("c", 0, 6, True), ("d", 0, 1, True)],
        [("e", 0, 6, False)],
        [("e", 6, 12, False)],
        [("f", 0, 3, True)],
    ]

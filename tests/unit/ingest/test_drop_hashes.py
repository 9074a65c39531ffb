"""Hashes of dropped files that are remembered: only of those that cannot have changed unseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.ingest.dropped_files import Dropped, Stamp
from headwater.ingest.due_files import Memory

NOW_NS = 1_800_000_000_000_000_000
OLD = NOW_NS - limits.DROP_HASH_OLD_NS
FILE = Dropped("t", "a.csv", Stamp(5, OLD, 7, OLD))


def kept(path: Path, file: Dropped) -> str | None:
    """What another process knows of a file after this one has hashed it now."""
    hashes = Memory(path)
    hashes.due([file], now=0.0, now_ns=NOW_NS)
    hashes.hashed(file, "abc")
    hashes.save()
    return Memory(path).hash_of(file)


def test_an_old_file_is_remembered_until_anything_of_it_changes(tmp_path: Path) -> None:
    assert kept(tmp_path / "new" / "drop.json", FILE) == "abc"
    hashes = Memory(tmp_path / "new" / "drop.json")
    for place in range(4):
        stamp = [*FILE.stamp]
        stamp[place] -= 1
        assert hashes.hash_of(replace(FILE, stamp=Stamp(*stamp))) is None
    assert hashes.hash_of(replace(FILE, name="b.csv")) is None


@pytest.mark.parametrize("stamp", [Stamp(5, OLD + 1, 7, OLD), Stamp(5, OLD, 7, OLD + 1), Stamp(5, NOW_NS * 2, 7, OLD)])
def test_a_file_that_changed_not_long_ago_is_not_remembered(tmp_path: Path, stamp: Stamp) -> None:
    assert kept(tmp_path / "drop.json", replace(FILE, stamp=stamp)) is None


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    hashes = Memory(tmp_path / "drop.json")
    files = [replace(FILE, name=name) for name in ("a.csv", "b.csv", "c.csv")]
    hashes.due(files, now=0.0, now_ns=NOW_NS)
    for each in files:
        hashes.hashed(each, each.name)
    hashes.hashed(files[1], None)
    hashes.due(files[:2], now=0.0, now_ns=NOW_NS)
    hashes.save()
    again = Memory(tmp_path / "drop.json")
    assert [again.hash_of(replace(FILE, name=name)) for name in ("a.csv", "b.csv", "c.csv")] == ["a.csv", None, None]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"t/a.csv": 1}', b'{"t/a.csv": [[1, 2, 3], "abc"]}', b"\xff"])
def test_a_memory_that_cannot_be_read_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "drop.json").write_bytes(content)
    assert Memory(tmp_path / "drop.json").hash_of(FILE) is None


def test_a_memory_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert kept(tmp_path / "file" / "drop.json", FILE) is None

"""Hashes of dropped files that are remembered: only of those that cannot have changed unseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.ingest.drop.folder import Dropped
from headwater.ingest.drop.hashes import Hashes

NOW_NS = 1_800_000_000_000_000_000
OLD = NOW_NS - limits.DROP_HASH_OLD_NS
FILE = Dropped("t", "a.csv", (5, OLD, 7, OLD))


def kept(path: Path, file: Dropped) -> str | None:
    """What another process knows of a file after this one has hashed it now."""
    hashes = Hashes(path)
    hashes.put(file, "abc", looked_at_ns=NOW_NS)
    hashes.save({file.path})
    return Hashes(path).get(file)


def test_an_old_file_is_remembered_until_anything_of_it_changes(tmp_path: Path) -> None:
    assert kept(tmp_path / "new" / "drop.json", FILE) == "abc"
    hashes = Hashes(tmp_path / "new" / "drop.json")
    for place in range(4):
        stamp = [*FILE.stamp]
        stamp[place] -= 1
        assert hashes.get(replace(FILE, stamp=(stamp[0], stamp[1], stamp[2], stamp[3]))) is None
    assert hashes.get(replace(FILE, name="b.csv")) is None


@pytest.mark.parametrize("stamp", [(5, OLD + 1, 7, OLD), (5, OLD, 7, OLD + 1), (5, NOW_NS * 2, 7, OLD)])
def test_a_file_that_changed_not_long_ago_is_not_remembered(tmp_path: Path, stamp: tuple[int, int, int, int]) -> None:
    assert kept(tmp_path / "drop.json", replace(FILE, stamp=stamp)) is None


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    hashes = Hashes(tmp_path / "drop.json")
    for name in ("a.csv", "b.csv", "c.csv"):
        hashes.put(replace(FILE, name=name), name, looked_at_ns=NOW_NS)
    hashes.forget(replace(FILE, name="b.csv"))
    hashes.save({"t/a.csv", "t/b.csv"})
    again = Hashes(tmp_path / "drop.json")
    assert [again.get(replace(FILE, name=name)) for name in ("a.csv", "b.csv", "c.csv")] == ["a.csv", None, None]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"t/a.csv": 1}', b'{"t/a.csv": [[1, 2, 3], "abc"]}', b"\xff"])
def test_a_memory_that_cannot_be_read_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "drop.json").write_bytes(content)
    assert Hashes(tmp_path / "drop.json").get(FILE) is None


def test_a_memory_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert kept(tmp_path / "file" / "drop.json", FILE) is None

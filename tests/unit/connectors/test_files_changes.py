"""What a scan means for a file that has landed, tabled."""

from __future__ import annotations

import pytest

from headwater.base.limits import MTIME_TRUST_NS
from headwater.connectors.files.changes import Changes, compare
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.protocol import Item

NOW = 1_000 * MTIME_TRUST_NS
OLD = 10 * MTIME_TRUST_NS
FILE = FoundFile("a", 3, OLD)


def version(*, size: int = 3, mtime_ns: int = OLD, sha256: str = "same", scanned_at_ns: int = OLD + MTIME_TRUST_NS):
    return {"size": size, "mtime_ns": mtime_ns, "sha256": sha256, "scanned_at_ns": scanned_at_ns}


def judge(file: FoundFile, landed, *, sha256: str | None = "same", now: int = NOW) -> tuple[Changes, int]:
    """The changes, and how many files were hashed for them."""
    hashed: list[FoundFile] = []

    def content_hash(asked: FoundFile) -> str | None:
        hashed.append(asked)
        return sha256

    return compare([file], landed, scanned_at_ns=now, content_hash=content_hash), len(hashed)


def test_a_file_that_never_landed_is_new_and_not_hashed() -> None:
    assert judge(FILE, {}) == (Changes(new=(FILE,)), 0)


def test_a_settled_file_is_trusted_without_a_look_inside() -> None:
    assert judge(FILE, {"a": version()}, sha256="other") == (Changes(), 0)


def test_one_nanosecond_within_the_window_is_not_trusted() -> None:
    landed = {"a": version(scanned_at_ns=OLD + MTIME_TRUST_NS - 1)}
    assert judge(FILE, landed, sha256="other") == (Changes(changed=(FILE,)), 1)


def test_equal_content_within_the_window_is_noted_so_that_the_next_look_can_trust_it() -> None:
    landed = {"a": version(scanned_at_ns=OLD)}
    noted = Item("a", version(scanned_at_ns=NOW))
    changes, hashed = judge(FILE, landed)
    assert (changes, hashed) == (Changes(touched=(noted,)), 1)
    assert judge(FILE, {"a": changes.touched[0].version}, sha256="other") == (Changes(), 0)


def test_equal_content_is_not_noted_while_noting_would_not_help() -> None:
    landed = {"a": version(scanned_at_ns=OLD)}
    assert judge(FILE, landed, now=OLD + 1) == (Changes(), 1)


@pytest.mark.parametrize("mtime_ns", [OLD - 1, OLD + 1])
def test_a_touched_file_is_as_landed_and_noted_with_its_new_mtime(mtime_ns: int) -> None:
    file = FoundFile("a", 3, mtime_ns)
    noted = Item("a", version(mtime_ns=mtime_ns, scanned_at_ns=NOW))
    assert judge(file, {"a": version()}) == (Changes(touched=(noted,)), 1)


def test_another_content_of_the_same_size_is_a_change() -> None:
    file = FoundFile("a", 3, OLD + 1)
    assert judge(file, {"a": version()}, sha256="other") == (Changes(changed=(file,)), 1)


def test_another_size_is_a_change_without_hashing() -> None:
    file = FoundFile("a", 4, OLD)
    assert judge(file, {"a": version()}) == (Changes(changed=(file,)), 0)


def test_a_file_that_changes_while_it_is_hashed_is_a_change() -> None:
    file = FoundFile("a", 3, OLD + 1)
    assert judge(file, {"a": version()}, sha256=None) == (Changes(changed=(file,)), 1)


def test_a_landed_file_that_is_not_found_has_vanished() -> None:
    assert judge(FILE, {"a": version(), "c": version(), "b": version()})[0] == Changes(vanished=("b", "c"))


def test_a_forgotten_file_is_neither_missed_nor_known() -> None:
    assert judge(FILE, {"a": {"gone": True}, "b": {"gone": True}})[0] == Changes(new=(FILE,))

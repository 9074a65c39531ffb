from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.blobs import make_directory, sha256_of, write_whole
from headwater.base.clock import from_text, now_us, to_text
from headwater.base.errors import HeadwaterError


def test_a_file_is_replaced_whole_and_leaves_no_other(tmp_path: Path) -> None:
    for data in (b"first", b"", b"x" * 3_000_000):
        write_whole(tmp_path / "a", data)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": data}
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as failed:
        write_whole(tmp_path / "none" / "a", b"1")
    assert (failed.value.code, failed.value.retryable) == ("HW-T05", True)
    assert str(tmp_path / "none" / "a") in failed.value.message


def test_a_directory_that_is_there_is_fine(tmp_path: Path) -> None:
    for _ in range(2):
        make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


@given(st.integers(-30_610_224_000_000_000, 253_402_300_799_999_999))
def test_times_as_text_come_back_and_sort_as_they_are(us: int) -> None:
    assert from_text(to_text(us)) == us
    assert (to_text(us) < to_text(0)) == (us < 0)


def test_a_time_without_a_zone_is_utc() -> None:
    assert from_text("1970-01-01T00:00:01") == from_text("1970-01-01T01:00:01+01:00") == 1_000_000


def test_tests_can_move_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = now_us()
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", "-3600000000")
    assert now_us() < before - 3_000_000_000

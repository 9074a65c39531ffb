"""The class-data archive: used when it is there, passed over when it is broken, made by one, kept by few."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.spark import archive as archives
from headwater.spark.java import Java, find_java
from spark.children import finished, python

SESSION = """
from pathlib import Path
from headwater.spark import session
spark = session.spark_session()
maps = Path(f"/proc/{session._live.gateway.pid}/maps").read_text()
assert spark.range(0, 100, 1, 2).selectExpr("sum(id) as total").collect()[0].total == 4950
session.stop_session()
print("mapped" if "classes.jsa" in maps else "not mapped")
"""


@pytest.fixture(scope="module")
def made() -> archives.Archive:
    """The archive of this machine, made now if it is not there; that takes minutes, once."""
    assert archives.wait_for_archive()
    archive = archives.find_archive(find_java())
    assert archive is not None
    archive.release()
    return archive


def broken_archive(cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Path:
    """A cache directory whose archive is not one."""
    monkeypatch.setenv("HEADWATER_CACHE_DIR", str(cache))
    directory = archives.archive_directory(find_java())
    directory.mkdir(parents=True)
    archives.write_unsigned_jars(directory)
    (directory / "classes.jsa").write_bytes(content)
    return directory


def test_a_session_maps_the_archive(made: archives.Archive) -> None:
    assert finished(python(SESSION)) == ("mapped\n", "")


def test_a_torn_archive_is_passed_over_in_silence(
    made: archives.Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = made.file.stat().st_size
    with open(made.file, "rb") as file:
        broken_archive(tmp_path / "cache", monkeypatch, file.read(size // 2))
    out, err = finished(python(SESSION))
    assert out in {"mapped\n", "not mapped\n"}
    assert err == ""


def test_an_archive_of_garbage_is_passed_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_archive(tmp_path / "cache", monkeypatch, b"garbage" * 1000)
    assert finished(python(SESSION)) == ("not mapped\n", "")


def test_switched_off_there_is_no_archive_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = broken_archive(tmp_path / "cache", monkeypatch, b"")
    monkeypatch.setenv("HEADWATER_SPARK_ARCHIVE", "off")
    assert archives.find_archive(find_java()) is None
    (directory / "classes.jsa").unlink()
    assert not archives.ensure_archive_async()
    assert not archives.wait_for_archive()
    assert not (directory / "making").exists()


def test_a_maker_that_failed_lately_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = broken_archive(tmp_path / "cache", monkeypatch, b"")
    (directory / "classes.jsa").unlink()
    archives.note_failure(directory)
    assert not archives.wait_for_archive()


def test_one_maker_works_at_a_time(tmp_path: Path) -> None:
    with archives.the_only_maker(tmp_path) as first, archives.the_only_maker(tmp_path) as second:
        assert (first, second) == (True, False)
    with archives.the_only_maker(tmp_path) as third:
        assert third


def test_an_archive_belongs_to_one_jvm_and_one_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE_DIR", str(tmp_path / "cache"))
    executable = tmp_path / "image" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("one")
    java = Java(executable=executable, home=tmp_path / "image", version="17.0.1")
    first = archives.archive_directory(java)
    assert archives.archive_directory(java) == first
    executable.write_text("another")
    assert archives.archive_directory(java) != first


def test_old_archives_are_removed_but_never_one_in_use(tmp_path: Path) -> None:
    for age, name in enumerate(["newest", "newer", "old", "older", "oldest"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        os.utime(tmp_path / name / "lock", (1_000_000 - age, 1_000_000 - age))
    held = os.open(tmp_path / "oldest" / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_SH)
    archives.remove_old_archives(keep=tmp_path / "newest")
    os.close(held)
    assert limits.ARCHIVES_KEPT == 3
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "newer", "old", "oldest"}

"""Which files a pattern names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.connectors.files.scan import scan

FILES = (
    "a.csv",
    "b.json",
    "x/c.csv",
    "x/y/d.csv",
    "x/y/z/e.csv",
    "x2/y/f.csv",
    "x/.hidden.csv",
    "x/_temporary/g.csv",
    "x/_part.csv",
    "_in/h.csv",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in FILES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    return project


def ids(root: Path, *patterns: str) -> list[str]:
    return [file.source_id for file in scan(root, patterns)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.csv", ["a.csv"]),
        ("./x/../a.csv", ["a.csv"]),
        ("*.csv", ["a.csv"]),
        ("*", ["a.csv", "b.json"]),
        ("?.*", ["a.csv", "b.json"]),
        ("[ab].csv", ["a.csv"]),
        ("x", ["x/c.csv", "x/y/d.csv", "x/y/z/e.csv"]),
        ("x/", ["x/c.csv", "x/y/d.csv", "x/y/z/e.csv"]),
        ("x/**", ["x/c.csv", "x/y/d.csv", "x/y/z/e.csv"]),
        ("x/*/", ["x/y/d.csv", "x/y/z/e.csv"]),
        ("**/*.csv", ["a.csv", "x/c.csv", "x/y/d.csv", "x/y/z/e.csv", "x2/y/f.csv"]),
        ("**/y/*.csv", ["x/y/d.csv", "x2/y/f.csv"]),
        ("**/y/**/*.csv", ["x/y/d.csv", "x/y/z/e.csv", "x2/y/f.csv"]),
        ("x/**/**/e.csv", ["x/y/z/e.csv"]),
        ("x*/y/?.csv", ["x/y/d.csv", "x2/y/f.csv"]),
        ("*/*.csv", ["x/c.csv"]),
        ("x/.*.csv", ["x/.hidden.csv"]),
        ("x/_*/*", ["x/_temporary/g.csv"]),
        ("_in/*", ["_in/h.csv"]),
        ("nothing.csv", []),
        ("x/*.nothing", []),
    ],
)
def test_patterns_find_what_they_say(root: Path, pattern: str, found: list[str]) -> None:
    assert ids(root, pattern) == found


def test_a_file_that_two_patterns_name_is_found_once_in_path_order(root: Path) -> None:
    assert ids(root, "x/*.csv", "*.csv", "**/c.csv") == ["a.csv", "x/c.csv"]


def test_size_and_mtime_are_those_of_the_file(root: Path) -> None:
    os.utime(root / "a.csv", ns=(1, 123_456_789))
    (file,) = scan(root, ["a.csv"])
    assert (file.size, file.mtime_ns) == (5, 123_456_789)


def test_files_outside_of_the_project_have_absolute_ids(root: Path) -> None:
    outside = root.parent / "outside.csv"
    outside.write_text("x")
    assert ids(root, "../*.csv") == [str(outside)]
    assert ids(root, str(outside)) == [str(outside)]


def test_ids_do_not_change_when_the_project_moves(root: Path) -> None:
    before = ids(root, "**/*.csv")
    moved = root.rename(root.parent / "moved")
    assert ids(moved, "**/*.csv") == before


@pytest.mark.parametrize("pattern", ["mount/*.csv", "mount/"])
def test_a_missing_folder_is_an_error_not_an_empty_answer(root: Path, pattern: str) -> None:
    with pytest.raises(HeadwaterError) as error:
        ids(root, pattern)
    assert error.value.code == "HW-C01"
    assert "`mount` does not exist" in error.value.message


def test_a_pattern_below_a_file_is_an_error(root: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"`a\.csv` is a file"):
        ids(root, "a.csv/*")


def test_a_link_to_a_file_is_that_file(root: Path) -> None:
    (root / "x2/link.csv").symlink_to(root / "x/c.csv")
    (file,) = scan(root, ["x2/*.csv"])
    assert (file.source_id, file.size) == ("x2/link.csv", len("x/c.csv"))


def test_a_link_to_nothing_is_an_error_with_its_path(root: Path) -> None:
    (root / "x2/link.csv").symlink_to(root / "gone.csv")
    with pytest.raises(HeadwaterError) as error:
        ids(root, "x2/*.csv")
    assert error.value.code == "HW-C02"
    assert "`x2/link.csv`" in error.value.message


def test_a_link_to_a_folder_is_followed_where_it_is_named(root: Path) -> None:
    (root / "link").symlink_to(root / "x", target_is_directory=True)
    assert ids(root, "link/*.csv") == ["link/c.csv"]
    assert ids(root, "l*/*.csv") == ["link/c.csv"]


def test_a_circle_of_links_is_refused_with_its_path(root: Path) -> None:
    (root / "x/y/up").symlink_to(root / "x", target_is_directory=True)
    with pytest.raises(HeadwaterError) as error:
        ids(root, "x/**/*.csv")
    assert error.value.code == "HW-C01"
    assert "`x/y/up`" in error.value.message


def test_a_pipe_is_refused_with_its_path(root: Path) -> None:
    os.mkfifo(root / "x2/pipe.csv")
    with pytest.raises(HeadwaterError, match=r"`x2/pipe\.csv` is not a regular file"):
        ids(root, "x2/*.csv")


def test_a_name_that_is_not_utf8_is_refused(root: Path) -> None:
    (Path(os.fsdecode(os.fsencode(root / "x2") + b"/\xff.csv"))).write_text("x")
    with pytest.raises(HeadwaterError, match="is not UTF-8"):
        ids(root, "x2/*.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_may_not_be_listed_is_an_error(root: Path) -> None:
    (root / "x").chmod(0)
    try:
        with pytest.raises(HeadwaterError) as error:
            ids(root, "x/*.csv")
        assert error.value.code == "HW-C02"
    finally:
        (root / "x").chmod(0o755)

"""A drop folder: what is looked at, what is passed over, and where files go that cannot be taken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece
from headwater.connectors.protocol import SliceGone
from headwater.ingest.dropped_files import DropFolder, Dropped, Stamp


@pytest.fixture
def folder(tmp_path: Path) -> DropFolder:
    return DropFolder(tmp_path, "drop")


def put(folder: DropFolder, name: str, content: bytes = b"{}\n") -> None:
    path = folder.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_folder_that_is_not_there_is_empty(folder: DropFolder) -> None:
    assert folder.scan() == ([], {})


def test_every_file_below_a_folder_of_a_table_is_for_that_table(folder: DropFolder) -> None:
    names = ["orders/a.ndjson", "orders/2026/01/b.JSONL.gz", "orders/c.csv.zst", "_own/d.csv", "goods/e.parquet"]
    for name in names:
        put(folder, name)
    assert sorted(file.path for file in folder.scan()[0]) == [
        "goods/e.parquet",
        "orders/2026/01/b.JSONL.gz",
        "orders/a.ndjson",
        "orders/c.csv.zst",
    ], "the folder of a table does not begin with `_`"


def test_folders_may_be_as_deep_as_the_system_lets_them(folder: DropFolder) -> None:
    put(folder, "orders/a.csv")
    path = folder.root / "orders"
    for _ in range(1_200):
        path = path / "d"
        path.mkdir()
    (path / "b.csv").write_bytes(b"")
    assert sorted(file.name[-5:] for file in folder.scan()[0]) == ["a.csv", "b.csv"]
    for empty in [path, *path.parents][:1_200]:  # pytest's own way to remove it is recursive
        (empty / "b.csv").unlink(missing_ok=True)
        empty.rmdir()


def test_unfinished_hidden_and_put_away_files_are_passed_over(folder: DropFolder) -> None:
    for name in ("a.csv.tmp", "b.csv.part", ".c.csv", "_d.csv", "_failed/e.csv", ".git/f.csv"):
        put(folder, f"orders/{name}")
    assert folder.scan() == ([], {})


def test_what_cannot_be_taken_is_told_with_a_hint(folder: DropFolder) -> None:
    for name in ("loose.csv", "No Table/a.csv", "orders/readme.txt", "orders/a.json", "orders/b.parquet.gz"):
        put(folder, name)
    os.mkfifo(folder.root / "orders/pipe.csv")
    (folder.root / os.fsdecode(b"orders/\xff.csv")).write_bytes(b"")
    (folder.root / os.fsdecode(b"\xfe")).mkdir()
    (folder.root / "orders/nowhere.csv").symlink_to("gone.csv")
    (folder.root / "orders/link.csv").symlink_to("/etc/hostname")
    (folder.root / "behind").symlink_to(folder.root / "orders")
    put(folder, "orders/two\nlines.txt")
    files, problems = folder.scan()
    assert files == []
    assert {place: error.message for place, error in problems.items()} == {
        "loose.csv": "`drop/loose.csv` lies in no table's folder",
        "No Table": "`drop/No Table` is a folder whose name no table can have",
        "\\xfe": "`drop/\\xfe` is a folder whose name no table can have",
        "orders/readme.txt": "`drop/orders/readme.txt` has a name without a known format",
        "orders/a.json": "`drop/orders/a.json` has a name without a known format",
        "orders/b.parquet.gz": "`drop/orders/b.parquet.gz` is a compressed Parquet file",
        "orders/pipe.csv": "`drop/orders/pipe.csv` is not a regular file",
        "orders/nowhere.csv": "`drop/orders/nowhere.csv` is not a regular file",
        "orders/link.csv": "`drop/orders/link.csv` is not a regular file",
        "behind": "`drop/behind` is a symbolic link, and those are not followed",
        "orders/two\\nlines.txt": "`drop/orders/two\\nlines.txt` has a name without a known format",
        "orders/\\xff.csv": "`drop/orders/\\xff.csv` has a name that is not UTF-8",
    }
    assert all(error.hint for error in problems.values())


def test_a_drop_folder_that_is_none_says_so(folder: DropFolder) -> None:
    folder.root.write_bytes(b"")
    (error,) = folder.scan()[1].values()
    assert (error.message, error.hint) == ("cannot list `drop`: Not a directory", "it must be a folder")


def test_folders_behind_links_are_not_followed(folder: DropFolder) -> None:
    put(folder, "orders/a.csv")
    (folder.root / "orders/circle").symlink_to(folder.root / "orders")
    files, problems = folder.scan()
    assert [file.name for file in files] == ["a.csv"]
    assert [error.message for error in problems.values()] == ["`drop/orders/circle` is not a regular file"]


@pytest.mark.parametrize("part", ["orders/2026/a.csv", "orders/2026", "orders"])
def test_what_becomes_a_link_after_the_look_is_not_read(folder: DropFolder, tmp_path: Path, part: str) -> None:
    """The file behind the link is the very file that the look saw."""
    put(folder, "orders/2026/a.csv", b"1")
    ((file,), _) = folder.scan()
    (folder.root / part).rename(tmp_path / "moved")
    (folder.root / part).symlink_to(tmp_path / "moved")
    with pytest.raises(SliceGone):
        folder.hash_of(file)


def test_what_becomes_a_pipe_after_the_look_is_not_waited_for(folder: DropFolder) -> None:
    put(folder, "orders/a.csv", b"1")
    ((file,), _) = folder.scan()
    (folder.root / "orders/a.csv").unlink()
    os.mkfifo(folder.root / "orders/a.csv")
    with pytest.raises(SliceGone):
        folder.hash_of(file)


def test_nothing_is_put_away_through_a_link(folder: DropFolder, tmp_path: Path) -> None:
    put(folder, "orders/2026/a.csv", b"1")
    ((file,), _) = folder.scan()
    (tmp_path / "elsewhere").mkdir()
    (folder.root / "orders/_failed").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HeadwaterError, match="`drop/orders/_failed` is a symbolic link") as raised:
        folder.put_away(file, {})
    assert (raised.value.code, list((tmp_path / "elsewhere").iterdir())) == ("HW-T05", [])


def test_a_file_that_changed_since_the_look_is_not_read(folder: DropFolder) -> None:
    put(folder, "orders/a.csv", b"1")
    ((file,), _) = folder.scan()
    assert folder.hash_of(file) == "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    put(folder, "orders/a.csv", b"12")
    with pytest.raises(SliceGone):
        folder.hash_of(file)
    (folder.root / "orders/a.csv").unlink()
    with pytest.raises(SliceGone):
        folder.hash_of(file)


def test_a_file_that_changes_while_it_is_read_is_noticed(folder: DropFolder) -> None:
    put(folder, "orders/a.csv", b"1")
    ((file,), _) = folder.scan()
    piece = Piece(FoundFile("drop/orders/a.csv", file.stamp.size, file.stamp.mtime_ns), 0, file.stamp.size, whole=True)
    with pytest.raises(SliceGone), OpenFile(folder.project, piece, below="drop") as opened:
        opened.read()
        put(folder, "orders/a.csv", b"12")
        opened.finish()


def test_a_file_that_cannot_be_opened_says_so(folder: DropFolder) -> None:
    put(folder, "orders/a.csv")
    with pytest.raises(HeadwaterError, match=r"cannot read `drop/orders/a{300}\.csv`: File name too long") as raised:
        folder.hash_of(Dropped("orders", "a" * 300 + ".csv", Stamp(1, 1, 1, 1)))
    assert (raised.value.code, raised.value.retryable) == ("HW-C03", True)


def test_a_file_is_put_away_with_the_reason_beside_it_and_never_over_another(folder: DropFolder) -> None:
    places = []
    for content in (b"1", b"2", b"3"):
        put(folder, "orders/sub/a.csv.gz", content)
        ((file,), _) = folder.scan()
        places.append(folder.put_away(file, {"code": "HW-I02", "message": content.decode()}))
    away = folder.root / "orders/_failed/sub"
    assert places == [f"drop/orders/_failed/sub/{name}" for name in ("a.csv.gz", "a-2.csv.gz", "a-3.csv.gz")]
    assert [(away / name).read_bytes() for name in ("a.csv.gz", "a-2.csv.gz", "a-3.csv.gz")] == [b"1", b"2", b"3"]
    reason = json.loads((away / "a-2.csv.gz.reason.json").read_text())
    assert (reason["file"], reason["code"], reason["message"]) == ("drop/orders/sub/a.csv.gz", "HW-I02", "2")
    assert folder.scan()[0] == []


def test_a_long_name_leaves_room_for_the_reason(folder: DropFolder) -> None:
    for content in (b"1", b"2"):
        put(folder, f"orders/{'ä' * 125}.csv", content)
        ((file,), _) = folder.scan()
        folder.put_away(file, {})
    names = sorted(path.name for path in (folder.root / "orders/_failed").iterdir())
    assert [name.lstrip("ä") for name in names] == ["-2.csv", "-2.csv.reason.json", ".csv", ".csv.reason.json"]


def test_a_file_is_never_put_away_over_the_thousandth_of_its_name(folder: DropFolder) -> None:
    for number in range(1, 1_000):
        put(folder, f"orders/_failed/a{'' if number == 1 else f'-{number}'}.csv", b"before")
    put(folder, "orders/a.csv")
    ((file,), _) = folder.scan()
    with pytest.raises(HeadwaterError, match=r"999 files named `a\.csv` have failed already"):
        folder.put_away(file, {})
    assert {path.read_bytes() for path in (folder.root / "orders/_failed").iterdir()} == {b"before"}
    assert folder.scan()[0] == [file]


def test_a_file_that_was_mended_meanwhile_is_not_put_away(folder: DropFolder) -> None:
    put(folder, "orders/a.csv", b"bad")
    ((file,), _) = folder.scan()
    put(folder, "orders/a.csv", b"mended")
    with pytest.raises(SliceGone):
        folder.put_away(file, {})
    assert (folder.root / "orders/a.csv").read_bytes() == b"mended"
    assert list((folder.root / "orders/_failed").iterdir()) == []


def test_the_reason_stays_when_two_put_a_file_away_at_once(folder: DropFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "orders/a.csv")
    ((file,), _) = folder.scan()
    free = folder._free(folder.root / "orders/_failed/a.csv")
    folder.put_away(file, {})
    monkeypatch.setattr(folder, "_free", lambda _wanted: free)  # it was free when the other one looked
    with pytest.raises(SliceGone):
        folder.put_away(file, {})
    assert sorted(path.name for path in free.parent.iterdir()) == ["a.csv", "a.csv.reason.json"]


def test_a_file_that_somebody_else_put_away_is_no_longer_there(folder: DropFolder) -> None:
    put(folder, "orders/a.csv")
    ((file,), _) = folder.scan()
    folder.put_away(file, {})
    with pytest.raises(SliceGone):
        folder.put_away(file, {})
    assert sorted(path.name for path in (folder.root / "orders/_failed").iterdir()) == ["a.csv", "a.csv.reason.json"]

"""Only regular files are opened, whatever else has their name; none of these tests can hang on a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.base.regular_files import NotRegular, open_below, open_regular


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            bound.bind(path.name)
        finally:
            os.chdir(here)


STRANGE: dict[str, Callable[[Path], object]] = {"pipe": os.mkfifo, "folder": Path.mkdir, "socket": _socket}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    STRANGE[kind](tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "link"):
        with pytest.raises(OSError, match=r"regular|directory|No such device"):
            open_regular(tmp_path / name)
        with pytest.raises(OSError, match=r"regular|directory"):
            open_below(tmp_path, name)


def test_links_are_followed_only_where_no_folder_bounds_them(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_bytes(b"1")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep/a").write_bytes(b"2")
    (inside / "file").symlink_to("../outside/a")
    (inside / "folder").symlink_to("../outside")
    (inside / "deep/up").symlink_to("..")
    with open_regular(inside / "file") as file:
        assert file.read() == b"1"
    for name in ("file", "folder/a", "deep/up/deep/a"):
        with pytest.raises(NotRegular):
            open_below(inside, name)
    with open_below(inside, "deep/a") as opened:
        assert opened.read() == b"2"
    (tmp_path / "known").symlink_to("inside")
    with open_below(tmp_path / "known", "deep/a") as opened:
        assert opened.read() == b"2", "the folder itself may be a link"


def test_no_file_stays_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    lowest = os.dup(0)  # the next number that is free
    os.close(lowest)
    for opening in (lambda: open_below(tmp_path, "pipe"), lambda: open_regular(tmp_path / "pipe")):
        with pytest.raises(NotRegular):
            opening()
    again = os.dup(0)
    os.close(again)
    assert again == lowest

"""A drop folder on this machine: `<folder>/<table>/...`, every file below a table's folder is for that table.

Names that begin with `.` or `_`, or end in `.tmp` or `.part`, are not looked at: half-written files, and what was put
away. Only regular files are read, and no symbolic link is followed: whoever may drop files must not read others through
them. Nothing is ever deleted. A file that cannot be taken is moved to `<folder>/<table>/_failed/`, under the path that
it had, with the reason beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from headwater.base import limits
from headwater.base.blobs import cannot_write, make_directory, write_whole
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_table_name
from headwater.base.printable import printable
from headwater.base.regular_files import NotRegular, open_below
from headwater.connectors.files.config import FORMAT_SUFFIXES, compression_of, format_of

FAILED = "_failed"
REASON = ".reason.json"
UNFINISHED = (".tmp", ".part")
FORMATS = ("ndjson", "csv", "parquet")
_CHUNK = 1 << 20

Stamp = tuple[int, int, int, int]
"""Size, mtime in nanoseconds, inode and ctime: as long as they stay, a file is taken for the same one. A program may set
the mtime as it likes; only the system sets the ctime."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file as one look saw it. `name` is its path below the folder of its table, with `/`."""

    table: str
    name: str
    stamp: Stamp

    @property
    def path(self) -> str:
        return f"{self.table}/{self.name}"

    @property
    def size(self) -> int:
        return self.stamp[0]

    @property
    def mtime_ns(self) -> int:
        return self.stamp[1]

    @property
    def changed_ns(self) -> int:
        """When it was last seen to change, whichever of its times tells."""
        return max(self.stamp[1], self.stamp[3])


@dataclass
class Listing:
    """What one look found. `strange` has, by its place, what will not be taken, and why."""

    files: list[Dropped] = field(default_factory=list)
    strange: dict[str, HeadwaterError] = field(default_factory=dict)


class Changed(Exception):
    """The file is not the one that the look saw: the next look will see what it is now."""


class DropFolder:
    """`root` is the folder, `shown` what people call it: its path in the project."""

    def __init__(self, root: Path, *, shown: str):
        self.root, self.shown = root, shown

    def look(self) -> Listing:
        """Every file of every table, with one stat each. A folder that is not there has none."""
        found = Listing()
        for entry in self._entries(self.root, found):
            if _is_passed_over(entry.name):
                continue
            name = _shown(entry.name)
            if entry.is_symlink():
                found.strange[name] = _strange(
                    f"`{self.shown_path(name)}` is a symbolic link, and those are not followed", "put a folder there"
                )
            elif not entry.is_dir(follow_symlinks=False):
                found.strange[name] = _strange(
                    f"`{self.shown_path(name)}` lies in no table's folder", f"move it to `{self.shown}/<table>/`"
                )
            elif not is_table_name(entry.name):
                found.strange[name] = _strange(
                    f"`{self.shown_path(name)}` is a folder whose name no table can have",
                    "small letters, digits and `_`, at most 63 of them, and no digit first",
                )
            else:
                self._below(entry.name, found)
        return found

    def shown_path(self, path: str) -> str:
        """What people call a file or folder below this one."""
        return f"{self.shown}/{path}"

    def path_of(self, file: Dropped) -> Path:
        return self.root / file.table / file.name

    @contextmanager
    def open(self, file: Dropped) -> Iterator[BinaryIO]:
        """The file, if it is and stays what the look saw until the end of the block; else `Changed`."""
        try:
            with open_below(self.root, file.path) as opened:
                _check(opened, file)
                yield opened
                _check(opened, file)
        except (FileNotFoundError, NotRegular) as error:
            raise Changed from error
        except OSError as error:
            raise HeadwaterError(
                "HW-C03",
                f"cannot read `{_shown(self.shown_path(file.path))}`: {error.strerror or error}",
                hint="let this user read it" if isinstance(error, PermissionError) else "",
                retryable=True,
            ) from error

    def hash_of(self, file: Dropped) -> str:
        """The sha256 of a file's bytes, in bounded memory."""
        digest = hashlib.sha256()
        with self.open(file) as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def put_away(self, file: Dropped, reason: dict[str, object]) -> str:
        """Move a file to where nobody looks, with the reason beside it; its new place. The reason is written first:
        a crash in between leaves a file that fails once more. Raises `Changed` if it is no longer the file that failed,
        and HW-T05 if it cannot be moved."""
        source = self.path_of(file)
        self._refuse_links(file)
        target = self._free(self.root / file.table / FAILED / file.name)
        beside = target.with_name(target.name + REASON)
        try:
            make_directory(target.parent)
            body = json.dumps({"file": self.shown_path(file.path), "failed_at": to_text(now_us()), **reason}, indent=2)
            write_whole(beside, body.encode() + b"\n")
            if _stamp(source.lstat()) != file.stamp:
                raise FileNotFoundError(f"{source} is another file by now")
            source.rename(target)
        except OSError as error:
            if not os.path.lexists(target):  # else somebody else has put it away, with this reason beside it
                with suppress(OSError):
                    beside.unlink()
            if isinstance(error, FileNotFoundError):
                raise Changed from error
            raise cannot_write(_shown(self.shown_path(f"{file.table}/{FAILED}/{file.name}")), error) from error
        return self.shown_path(target.relative_to(self.root).as_posix())

    def _refuse_links(self, file: Dropped) -> None:
        """Raises HW-T05 if a folder that a failed file would be moved to is a link: it may lead anywhere."""
        folder = self.root / file.table / FAILED
        for part in ("", *file.name.split("/")[:-1]):
            folder = folder / part
            if folder.is_symlink():
                shown = _shown(self.shown_path(folder.relative_to(self.root).as_posix()))
                raise HeadwaterError(
                    "HW-T05", f"`{shown}` is a symbolic link, and nothing is moved through one", hint="remove it"
                )

    def _free(self, wanted: Path) -> Path:
        """A name that no file has that failed before: those are kept too. Raises HW-T05 if there are too many."""
        name = wanted.name.encode()[-limits.DROP_NAME_BYTES :].decode(errors="ignore")
        first, dot, rest = name.partition(".")
        for number in range(1, limits.DROP_NAMES):
            tried = wanted.with_name(f"{first}-{number}{dot}{rest}" if number > 1 else name)
            if not os.path.lexists(tried):
                return tried
        raise HeadwaterError(
            "HW-T05",
            f"{limits.DROP_NAMES - 1} files named `{_shown(name)}` have failed already",
            hint=f"move them out of `{_shown(self.shown_path(wanted.parent.relative_to(self.root).as_posix()))}`",
        )

    def _below(self, table: str, found: Listing) -> None:
        folders = [""]
        while folders:
            prefix = folders.pop()
            for entry in self._entries(self.root / table / prefix, found):
                if _is_passed_over(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{prefix}{entry.name}/")
                else:
                    self._file(table, prefix + entry.name, entry, found)

    def _file(self, table: str, name: str, entry: os.DirEntry[str], found: Listing) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return  # gone between the listing and the look
        problem = _problem(name, status)
        if problem is None:
            found.files.append(Dropped(table, name, _stamp(status)))
        else:
            message, hint = problem
            path = _shown(f"{table}/{name}")
            found.strange[path] = _strange(f"`{self.shown_path(path)}` {message}", hint)

    def _entries(self, folder: Path, found: Listing) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            path = _shown(folder.relative_to(self.root).as_posix())
            shown = self.shown if folder == self.root else self.shown_path(path)
            hint = "let this user read it" if isinstance(error, PermissionError) else "it must be a folder"
            found.strange[path] = _strange(f"cannot list `{shown}`: {error.strerror or error}", hint)
            return []


def _check(opened: BinaryIO, file: Dropped) -> None:
    if _stamp(os.fstat(opened.fileno())) != file.stamp:
        raise Changed


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def _is_passed_over(name: str) -> bool:
    return name[0] in "._" or name.lower().endswith(UNFINISHED)


def _problem(name: str, status: os.stat_result) -> tuple[str, str] | None:
    """Why a file is none that could be taken: what, and what to do."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file", "drop the file itself: links, pipes and devices are not read"
    if not _is_utf8(name):
        return "has a name that is not UTF-8", "rename it"
    if format_of(name) not in FORMATS:
        known = ", ".join(suffix for suffix, format_ in FORMAT_SUFFIXES.items() if format_ in FORMATS)
        return "has a name that tells no format", f"rename it: {known}; all but Parquet also with .gz or .zst behind"
    if format_of(name) == "parquet" and compression_of(name) != "none":
        return "is a compressed Parquet file", "decompress it: a Parquet file is compressed inside"
    return None


def _shown(name: str) -> str:
    """A name in a message: what is not UTF-8 and what steers a terminal or a log is an escape."""
    return printable(os.fsencode(name).decode("utf-8", "backslashreplace"))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _strange(message: str, hint: str) -> HeadwaterError:
    return HeadwaterError("HW-I04", message, hint=hint)

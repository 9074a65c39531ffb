"""A drop folder on this machine: `<folder>/<table>/...`, every file below a table's folder is for that table.

Names that begin with `.` or `_`, or end in `.tmp` or `.part`, are skipped: they are unfinished files and failed ones.
Only regular files are read, and no symbolic link is followed: a user who may drop files must not read other files
through them. Nothing is ever deleted. A file that cannot be landed is moved to `<folder>/<table>/_failed/`, under the
path that it had, with the reason beside it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headwater.base import limits
from headwater.base.blobs import cannot_write, make_directory, write_whole
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_table_name
from headwater.base.printable import printable
from headwater.base.text_form import TextForm
from headwater.connectors.files.config import FORMAT_SUFFIXES, FileFormat, compression_of, format_of
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece
from headwater.connectors.protocol import SliceGone
from headwater.ingest.drop.rows import FileRows, file_errors

FAILED = "_failed"
REASON = ".reason.json"
UNFINISHED = (".tmp", ".part")
FORMATS = ("ndjson", "csv", "parquet")


class Stamp(NamedTuple):
    """A file counts as the same one while all of these stay the same. A program can set the mtime; only the system sets
    the ctime."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file as one scan saw it. `name` is its path below the folder of its table, with `/`."""

    table: str
    name: str
    stamp: Stamp

    @property
    def path(self) -> str:
        return f"{self.table}/{self.name}"


Problems = dict[str, HeadwaterError]
"""The files and folders that cannot be taken, by their paths, and why."""


class DropFolder:
    """The folder `drop` of a project, which may be outside of it; `shown` is its name in messages."""

    def __init__(self, project: Path, drop: str):
        self.project, self.root, self.shown = project, project / drop, drop.rstrip("/")

    def scan(self) -> tuple[list[Dropped], Problems]:
        """Every file of every table, with one stat each. A missing folder has no files."""
        files: list[Dropped] = []
        problems: Problems = {}
        folders = [""]
        while folders:
            prefix = folders.pop()
            for entry in self._entries(prefix, problems):
                path = prefix + entry.name
                if entry.name[0] in "._" or entry.name.lower().endswith(UNFINISHED):
                    continue
                if entry.is_dir(follow_symlinks=False) and (prefix or is_table_name(path)):
                    folders.append(f"{path}/")
                    continue
                with suppress(OSError):  # gone since it was listed
                    status = entry.stat(follow_symlinks=False)
                    if problem := self._problem(path, status):
                        message = f"`{_shown(self.shown_path(path))}` {problem[0]}"
                        problems[_shown(path)] = HeadwaterError("HW-I04", message, hint=problem[1])
                    else:
                        table, _, name = path.partition("/")
                        files.append(Dropped(table, name, _stamp(status)))
        return files, problems

    def shown_path(self, path: str) -> str:
        """The path of a file or folder in messages; the connector reads it under the same name."""
        return f"{self.shown}/{path}"

    def rows(self, file: Dropped, sha256: str, forms: Mapping[str, TextForm]) -> FileRows:
        """The rows of a file whose hash is known."""
        how = FileFormat(format_of(file.name) or "", forms=dict(forms), takes_all=True, below=self.shown)
        return FileRows(self.project.absolute(), how, self._found(file), sha256, file.table)

    def hash_of(self, file: Dropped) -> str:
        """The sha256 of a file's bytes. Raises `SliceGone` if the file has changed since the scan, and HW-C03."""
        whole = Piece(self._found(file), 0, file.stamp.size, whole=True)
        with file_errors(), OpenFile(self.project, whole, below=self.shown) as opened:
            return str(opened.finish().version["sha256"])

    def put_away(self, file: Dropped, reason: dict[str, object]) -> str:
        """Move a file to the folder of failed files, with the reason beside it; returns its new path. The reason is
        written first: after a crash in between, the file fails once more. Raises `SliceGone` if it is no longer the
        file that failed, and HW-T05 if it cannot be moved."""
        source, target = self.root / file.path, self._free(self.root / file.table / FAILED / file.name)
        for folder in target.relative_to(self.root).parents[:-1]:
            if (self.root / folder).is_symlink():  # it may lead anywhere
                message = f"`{self._place(self.root / folder)}` is a symbolic link, and nothing is moved through one"
                raise HeadwaterError("HW-T05", message, hint="remove it")
        beside = target.with_name(target.name + REASON)
        try:
            make_directory(target.parent)
            body = json.dumps({"file": self.shown_path(file.path), "failed_at": to_text(now_us()), **reason}, indent=2)
            write_whole(beside, body.encode() + b"\n")
            if _stamp(source.lstat()) != file.stamp:
                raise FileNotFoundError(f"{source} is another file by now")
            source.rename(target)
        except OSError as error:
            if not os.path.lexists(target):  # else another process has put it away, with this reason beside it
                with suppress(OSError):
                    beside.unlink()
            if isinstance(error, FileNotFoundError):
                raise SliceGone(str(error)) from error
            raise cannot_write(self._place(target), error) from error
        return self.shown_path(target.relative_to(self.root).as_posix())

    def _free(self, wanted: Path) -> Path:
        """A name that no failed file has yet: those are kept too. Raises HW-T05 if there are too many."""
        name = wanted.name.encode()[-limits.DROP_NAME_BYTES :].decode(errors="ignore")
        first, dot, rest = name.partition(".")
        for number in range(1, limits.DROP_NAMES):
            tried = wanted.with_name(f"{first}-{number}{dot}{rest}" if number > 1 else name)
            if not os.path.lexists(tried):
                return tried
        message = f"{limits.DROP_NAMES - 1} files named `{_shown(name)}` have failed already"
        raise HeadwaterError("HW-T05", message, hint=f"move them out of `{self._place(wanted.parent)}`")

    def _entries(self, prefix: str, problems: Problems) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / prefix) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            hint = "let this user read it" if isinstance(error, PermissionError) else "it must be a folder"
            message = f"cannot list `{_shown(self.shown_path(prefix)).rstrip('/')}`: {error.strerror or error}"
            problems[_shown(prefix).rstrip("/") or "."] = HeadwaterError("HW-I04", message, hint=hint)
            return []

    def _problem(self, path: str, status: os.stat_result) -> tuple[str, str] | None:
        """Why something cannot be taken, and what to do."""
        if "/" not in path:
            if stat.S_ISLNK(status.st_mode):
                return "is a symbolic link, and those are not followed", "put a folder there"
            if stat.S_ISDIR(status.st_mode):
                hint = "small letters, digits and `_`, at most 63 of them, and no digit first"
                return "is a folder whose name no table can have", hint
            return "lies in no table's folder", f"move it to `{self.shown}/<table>/`"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file", "drop the file itself: links, pipes and devices are not read"
        if os.fsencode(path).decode("utf-8", "replace") != path:
            return "has a name that is not UTF-8", "rename it"
        if format_of(path) not in FORMATS:
            known = ", ".join(suffix for suffix, format_ in FORMAT_SUFFIXES.items() if format_ in FORMATS)
            return (
                "has a name without a known format",
                f"rename it: {known}; all but Parquet may end in .gz or .zst too",
            )
        if format_of(path) == "parquet" and compression_of(path) != "none":
            return "is a compressed Parquet file", "decompress it: a Parquet file is compressed inside"
        return None

    def _found(self, file: Dropped) -> FoundFile:
        return FoundFile(self.shown_path(file.path), file.stamp.size, file.stamp.mtime_ns)

    def _place(self, path: Path) -> str:
        return _shown(self.shown_path(path.relative_to(self.root).as_posix()))


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _shown(name: str) -> str:
    """A name in a message. Bytes that are not UTF-8, and characters that control a terminal or a log, are escaped."""
    return printable(os.fsencode(name).decode("utf-8", "backslashreplace"))

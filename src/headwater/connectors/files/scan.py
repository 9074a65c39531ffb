"""Which files a pattern names now: one pass over the folders, one stat per file, no file opened.

A symbolic link to a file is that file. A link to a folder is followed where a pattern's part names it; under `**` it is
refused, because links may form a cycle. A folder that cannot be listed is an error, never an empty answer: otherwise a
disk that is not mounted would look like a source whose files are gone.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.base.printable import quoted
from headwater.connectors.files.config import WILD
from headwater.connectors.protocol import config_error


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as one scan saw it. `source_id` is its path relative to the project with `/`, absolute if it lies outside:
    the permanent name of the source of its rows."""

    source_id: str
    size: int
    mtime_ns: int


def scan(root: Path, patterns: Sequence[str]) -> list[FoundFile]:
    """All files that the patterns name, each once, in the order of their source ids."""
    project = os.path.abspath(root)  # noqa: PTH100 (Path.resolve would follow links and change the ids)
    found: dict[str, FoundFile] = {}
    for pattern in patterns:
        base, segments = _split(pattern)
        start = os.path.normpath(os.path.join(project, base))  # noqa: PTH118 (strings: this is the hot path)
        _TreeWalk(project, start, segments, found).run()
    return [found[source_id] for source_id in sorted(found)]


@lru_cache(maxsize=1024)
def _split(pattern: str) -> tuple[str, tuple[str, ...]]:
    """The folder (or file) in front of the first wildcard, and the parts from there on."""
    parts = pattern.split("/")
    for place, part in enumerate(parts):
        if WILD.search(part):
            rest = tuple(part for part in parts[place:] if part not in ("", "."))
            # `data/*/` means everything below the folders that it names.
            return "/".join(parts[:place]) or ("/" if place else ""), (*rest, "**") if not parts[-1] else rest
    return pattern, ("**",) if not parts[-1] else ()


@lru_cache(maxsize=4096)
def _matcher(segment: str) -> Callable[[str], bool]:
    """Whether a name fits one part of a pattern. Hidden names fit only a part that itself begins with `.` or `_`."""
    if segment.startswith("*") and not WILD.search(segment, 1):
        tail = segment[1:]
        return lambda name: name.endswith(tail) and name[0] not in "._"
    whole = re.compile(fnmatch.translate(segment)).match
    if segment[0] in "._":
        return lambda name: whole(name) is not None
    return lambda name: name[0] not in "._" and whole(name) is not None


class _TreeWalk:
    """One pattern over one tree. The state at a folder is the set of the pattern's parts that may come next, so
    that each folder is listed once however many `**` there are."""

    def __init__(self, project: str, start: str, segments: tuple[str, ...], found: dict[str, FoundFile]):
        self.start, self.segments, self.found = start, segments, found
        self.prefix = project if project.endswith("/") else f"{project}/"

    def run(self) -> None:
        try:
            status = os.stat(self.start)  # noqa: PTH116
        except FileNotFoundError:
            if not self.segments:
                return
            raise config_error(
                f"the folder {quoted(self._id(self.start))} does not exist",
                "create it, or correct `path`: it is relative to the project",
            ) from None
        except OSError as error:
            raise cannot_read(self._id(self.start), error) from error
        if stat.S_ISDIR(status.st_mode):
            self.segments = self.segments or ("**",)
            self._folder(self.start, self._closed({0}))
        elif self.segments:
            raise config_error(f"{quoted(self._id(self.start))} is a file, and `path` goes on below it")
        else:
            self._add(self.start, status)

    def _closed(self, states: set[int]) -> frozenset[int]:
        """The states, and those that are reached because `**` may match no folder at all."""
        reached = set(states)
        for state in states:
            while state + 1 < len(self.segments) and self.segments[state] == "**":
                state += 1
                reached.add(state)
        return frozenset(reached)

    def _folder(self, folder: str, states: frozenset[int]) -> None:
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot_read(self._id(folder), error) from error
        below: list[tuple[str, frozenset[int]]] = []
        for entry in listed:
            if entry.is_symlink():
                status = self._follow(entry)
                is_folder = stat.S_ISDIR(status.st_mode) if status else False
            else:
                status, is_folder = None, entry.is_dir(follow_symlinks=False)
            if is_folder:
                if onward := self._onward(entry.name, states):
                    self._refuse_circle(entry, onward)
                    below.append((entry.path, onward))
            elif self._is_match(entry.name, states):
                self._file(entry, status)
        for path, onward in below:
            self._folder(path, onward)

    def _onward(self, name: str, states: frozenset[int]) -> frozenset[int]:
        """The states below the folder `name`."""
        last = len(self.segments) - 1
        onward: set[int] = set()
        for state in states:
            segment = self.segments[state]
            if segment == "**":
                if name[0] not in "._":
                    onward.add(state)
            elif state < last and _matcher(segment)(name):
                onward.add(state + 1)
        return self._closed(onward)

    def _is_match(self, name: str, states: frozenset[int]) -> bool:
        last = len(self.segments) - 1
        if last not in states:
            return False
        segment = self.segments[last]
        return name[0] not in "._" if segment == "**" else _matcher(segment)(name)

    def _refuse_circle(self, entry: os.DirEntry[str], onward: frozenset[int]) -> None:
        if entry.is_symlink() and any(self.segments[state] == "**" for state in onward):
            raise config_error(
                f"{quoted(self._id(entry.path))} is a symbolic link to a folder, and `**` does not follow those",
                "name the folder it points to in `path`, or move the link away",
            )

    def _follow(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        try:
            return entry.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot_read(self._id(entry.path), error) from error

    def _file(self, entry: os.DirEntry[str], status: os.stat_result | None) -> None:
        status = status or self._follow(entry)
        if status is None:
            if entry.is_symlink():
                raise HeadwaterError(
                    "HW-C02",
                    f"{quoted(self._id(entry.path))} is a symbolic link to a file that does not exist",
                    hint="remove the link, or bring its file back",
                )
            return  # it vanished between the listing and the stat: as if it had vanished before
        self._add(entry.path, status)

    def _add(self, path: str, status: os.stat_result) -> None:
        source_id = self._id(path)
        if not stat.S_ISREG(status.st_mode):
            raise config_error(
                f"{quoted(source_id)} is not a regular file", "leave pipes, sockets and devices out of `path`"
            )
        try:
            source_id.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(source_id).decode("utf-8", "backslashreplace")
            raise config_error(f"the name of the file {quoted(shown)} is not UTF-8", "rename the file") from None
        self.found[source_id] = FoundFile(source_id, status.st_size, status.st_mtime_ns)

    def _id(self, path: str) -> str:
        return path[len(self.prefix) :] if path.startswith(self.prefix) else path


def cannot_read(source_id: str, error: OSError) -> HeadwaterError:
    """The error for a file or folder that the system does not let us read."""
    hint = "let this user read it" if isinstance(error, PermissionError) else ""
    return HeadwaterError("HW-C02", f"cannot read {quoted(source_id)}: {error.strerror or error}", hint=hint)

"""Decides which dropped files are due, from what the scans saw, with the time as an argument.

A file is due when it has stopped changing: two scans, a pause apart, saw the same stamp, or its mtime is long past. A
file that was taken is not due again until it changes; one that failed waits longer after each failure. The hashes of
old files are kept for the next process. The ledger, not this memory, says what has landed: if the memory is lost, files
are only hashed again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headwater.base import limits
from headwater.base.blobs import write_whole
from headwater.base.errors import HeadwaterError
from headwater.connectors.files.changes import is_settled
from headwater.ingest.dropped_files import Dropped, Stamp


@dataclass
class _FileState:
    """What is known of a file while its stamp stays the same, or of a table."""

    stamp: Stamp | None = None
    since: float = math.inf
    due_at_ns: int = 0
    sha256: str | None = None
    is_done: bool = False
    tries: int = 0
    until: float = 0.0

    def fail(self, now: float) -> None:
        doubled = min(self.tries, 30)  # the store may be unreachable for days
        self.tries += 1
        self.until = now + min(limits.DROP_SCAN_SECONDS * 2**doubled, limits.DROP_PAUSE_SECONDS)


class Memory:
    """What one process knows of the files of a drop folder. `path` is where hashes are kept for the next one."""

    def __init__(self, path: Path):
        self._path = path
        self._tables: dict[str, _FileState] = {}
        self._kept: dict[str, tuple[Stamp, str]] = {}
        with suppress(OSError, msgspec.MsgspecError):
            self._kept = msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[Stamp, str]])
        self._files = {path: _FileState(stamp, sha256=sha256) for path, (stamp, sha256) in self._kept.items()}

    def due(
        self, files: Sequence[Dropped], *, now: float, now_ns: int, busy: Collection[str] = ()
    ) -> tuple[dict[str, list[Dropped]], int]:
        """The files to take now, for each table in the order of their times and names, and how many files a later scan
        may find due. `now` is the clock of the pauses, `now_ns` the clock of the files. Files at `busy` paths are being
        landed. Files that are gone are forgotten."""
        found: dict[str, list[Dropped]] = {}
        left = 0
        self._files = {file.path: self._of(file) for file in files}
        for file in files:
            known = self._files[file.path]
            known.since = min(known.since, now)
            if file.path in busy or known.is_done:
                continue
            is_old = now_ns - file.stamp.mtime_ns >= limits.DROP_SETTLED_NS
            if now >= known.until and (is_old or now - known.since >= limits.DROP_SCAN_SECONDS):
                known.due_at_ns = now_ns
                found.setdefault(file.table, []).append(file)
            else:
                left += 1
        return {t: sorted(found[t], key=lambda file: (file.stamp.mtime_ns, file.name)) for t in sorted(found)}, left

    def done(self, file: Dropped) -> None:
        """The file has landed. If it was written a moment before it was due, it may change again with the same mtime,
        so it is read again."""
        known = self._of(file)
        known.tries, known.until, known.is_done = 0, 0.0, is_settled(file.stamp.mtime_ns, known.due_at_ns)

    def given_up(self, file: Dropped) -> None:
        """The file is not tried again until it changes."""
        self._of(file).is_done = True

    def failed(self, file: Dropped, *, now: float) -> bool:
        """Landing the file failed; True if it is to be tried again."""
        known = self._of(file)
        known.fail(now)
        return known.tries < limits.DROP_TRIES

    def table_failed(self, table: str, *, now: float) -> None:
        """The table or the store has a problem, not a single file: all files of the table wait."""
        self._tables.setdefault(table, _FileState()).fail(now)

    def table_works(self, table: str) -> None:
        self._tables.pop(table, None)

    def table_waits(self, table: str, *, now: float) -> bool:
        return table in self._tables and now < self._tables[table].until

    def forget(self, tables: Iterable[str]) -> None:
        """The ledgers of these tables were cleared, so their files count as new."""
        prefixes = tuple(f"{table}/" for table in tables)
        for path, known in list(self._files.items()):
            known.is_done = known.is_done and not path.startswith(prefixes)

    def hash_of(self, file: Dropped) -> str | None:
        """The hash of a file that was old when it was hashed, and has not changed since."""
        known = self._files.get(file.path)
        return known.sha256 if known is not None and known.stamp == file.stamp else None

    def hashed(self, file: Dropped, sha256: str | None) -> None:
        known = self._of(file)
        changed_ns = max(file.stamp.mtime_ns, file.stamp.ctime_ns)
        known.sha256 = sha256 if known.due_at_ns - changed_ns >= limits.DROP_HASH_OLD_NS else None

    def save(self) -> None:
        """Keep the hashes for the next process. Raises nothing."""
        known = list(self._files.items())
        kept = {path: (file.stamp, file.sha256) for path, file in known if file.stamp and file.sha256}
        if kept != self._kept:
            with suppress(OSError, HeadwaterError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._path, msgspec.json.encode(kept), durable=False)

    def _of(self, file: Dropped) -> _FileState:
        known = self._files.get(file.path)
        if known is None or known.stamp != file.stamp:
            known = self._files[file.path] = _FileState(file.stamp)
        return known

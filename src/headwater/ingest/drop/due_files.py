"""Which dropped files are due, from what the scans saw, with the time as an argument.

A file is due when it has stopped changing: two scans, a pause apart, saw the same, or its mtime lies well in the past.
What is done with stays done until it changes; what failed waits longer each time. The hashes of old files are kept for
the next process. Nothing here says what has landed, the ledger does: what is lost costs a file that is hashed once more.
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
from headwater.ingest.drop.folder import Dropped, Stamp


@dataclass
class _FileState:
    """What is known of a file while its stamp stays, or of a table: since when it was seen so, when it was found due, its
    hash, whether it is done with, how often it failed, and until when it waits."""

    stamp: Stamp | None = None
    since: float = math.inf
    due_at_ns: int = 0
    sha256: str | None = None
    is_done: bool = False
    tries: int = 0
    until: float = 0.0

    def fail(self, now: float) -> None:
        doubled = min(self.tries, 30)  # the store may be away for days
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
        """The files to take now, each table's in the order of their times and names, and how many a later scan may find
        due. `now` is the time that pauses are counted by, `now_ns` that of the files; those at `busy` paths are being
        landed. What is no longer there is forgotten."""
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
        """It has landed. One that was written a moment before it was due may change once more without another mtime: it
        is read again."""
        known = self._of(file)
        known.tries, known.until, known.is_done = 0, 0.0, is_settled(file.stamp.mtime_ns, known.due_at_ns)

    def given_up(self, file: Dropped) -> None:
        """As it is, it is not tried again."""
        self._of(file).is_done = True

    def failed(self, file: Dropped, *, now: float) -> bool:
        """Taking it went wrong; True if it is to be tried again."""
        known = self._of(file)
        known.fail(now)
        return known.tries < limits.DROP_TRIES

    def table_failed(self, table: str, *, now: float) -> None:
        """Something is wrong with the table or the store, not with a file: all of its files wait."""
        self._tables.setdefault(table, _FileState()).fail(now)

    def table_works(self, table: str) -> None:
        self._tables.pop(table, None)

    def table_waits(self, table: str, *, now: float) -> bool:
        return table in self._tables and now < self._tables[table].until

    def forget(self, tables: Iterable[str]) -> None:
        """The ledgers of these tables were cleared: their files count as new."""
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
        kept = {
            path: (known.stamp, known.sha256)
            for path, known in list(self._files.items())
            if known.stamp and known.sha256
        }
        if kept != self._kept:
            with suppress(OSError, HeadwaterError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._path, msgspec.json.encode(kept), durable=False)

    def _of(self, file: Dropped) -> _FileState:
        known = self._files.get(file.path)
        if known is None or known.stamp != file.stamp:
            known = self._files[file.path] = _FileState(file.stamp)
        return known

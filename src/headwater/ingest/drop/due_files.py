"""Which dropped files are due, from what the looks saw: pure, with the time as an argument.

A file is due when it has stopped changing: two looks, a scan apart, saw the same size and mtime, or its mtime lies well
in the past. What is done with stays done until it changes; what failed waits longer each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.ingest.drop.folder import Dropped, Stamp


@dataclass
class _Wait:
    """How often something failed, and until when it is left alone."""

    stamp: Stamp | None
    tries: int
    until: float


@dataclass(frozen=True)
class Due:
    """The files to take now, each table's in the order of their times and then of their names. `left` counts those that
    a later look may find due."""

    tables: Mapping[str, Sequence[Dropped]]
    left: int


@dataclass
class Memory:
    """What one process knows of the files of a drop folder. Forgotten, it costs a second hash of each file and no
    second landing."""

    _first_seen: dict[str, tuple[Stamp, float]] = field(default_factory=dict)
    _done: dict[str, Stamp] = field(default_factory=dict)
    _failed: dict[str, _Wait] = field(default_factory=dict)
    _tables: dict[str, _Wait] = field(default_factory=dict)

    def due(self, files: Sequence[Dropped], *, now: float, now_ns: int, busy: Collection[str] = ()) -> Due:
        """`now` is the time that the memory counts by, `now_ns` that of the files; `busy` are the paths of those that
        somebody is at. What is no longer there is forgotten."""
        self._forget_missing({file.path for file in files})
        found: dict[str, list[Dropped]] = {}
        left = 0
        for file in files:
            if file.path in busy or self._done.get(file.path) == file.stamp:
                continue
            if not self._is_settled(file, now=now, now_ns=now_ns) or self._is_waiting(file, now):
                left += 1
            else:
                found.setdefault(file.table, []).append(file)
        tables = {table: sorted(found[table], key=lambda file: (file.mtime_ns, file.name)) for table in sorted(found)}
        return Due(tables, left)

    def done(self, file: Dropped, *, looked_at_ns: int) -> None:
        """Landed, known or put away. A file that was written a moment before it was looked at may change once more
        without another mtime: it is looked at again."""
        self._failed.pop(file.path, None)
        if looked_at_ns - file.mtime_ns >= limits.MTIME_TRUST_NS:
            self._done[file.path] = file.stamp
            self._first_seen.pop(file.path, None)

    def given_up(self, file: Dropped) -> None:
        """As it is, it is not tried again."""
        self._done[file.path] = file.stamp

    def failed(self, file: Dropped, *, now: float) -> bool:
        """Taking it went wrong; True if it is to be tried again."""
        before = self._failed.get(file.path)
        tries = 1 + (before.tries if before is not None and before.stamp == file.stamp else 0)
        self._failed[file.path] = _Wait(file.stamp, tries, now + _pause(tries))
        return tries < limits.DROP_TRIES

    def table_failed(self, table: str, *, now: float) -> None:
        """Something is wrong with the table or the store, not with a file: all of its files wait."""
        before = self._tables.get(table)
        tries = 1 + (before.tries if before is not None else 0)
        self._tables[table] = _Wait(None, tries, now + _pause(tries))

    def table_works(self, table: str) -> None:
        self._tables.pop(table, None)

    def table_waits(self, table: str, *, now: float) -> bool:
        wait = self._tables.get(table)
        return wait is not None and now < wait.until

    def forget(self, tables: Iterable[str]) -> None:
        """The ledgers of these tables were cleared: their files count as new."""
        prefixes = tuple(f"{table}/" for table in tables)
        if prefixes:
            self._done = {path: stamp for path, stamp in self._done.items() if not path.startswith(prefixes)}

    def _is_settled(self, file: Dropped, *, now: float, now_ns: int) -> bool:
        if now_ns - file.mtime_ns >= limits.DROP_SETTLED_NS:
            return True
        stamp, since = self._first_seen.get(file.path, (None, now))
        if stamp != file.stamp:
            self._first_seen[file.path] = file.stamp, now
            return False
        return now - since >= limits.DROP_SCAN_SECONDS

    def _is_waiting(self, file: Dropped, now: float) -> bool:
        wait = self._failed.get(file.path)
        return wait is not None and wait.stamp == file.stamp and now < wait.until

    def _forget_missing(self, there: set[str]) -> None:
        for known in (self._first_seen, self._done, self._failed):
            for path in known.keys() - there:
                del known[path]


def _pause(tries: int) -> float:
    doubled = min(tries - 1, 30)  # the store may be away for days
    return float(min(limits.DROP_SCAN_SECONDS * 2**doubled, limits.DROP_PAUSE_SECONDS))

"""Keeps the tail of a pushed table short: merges its many small files into a few, in the background.

Every push commits its own files, and every file costs a reader time. So files are sorted by size into classes, each
eight times as large as the one below. As soon as a class has eight files, they are merged into one of the next class,
so at most seven files of each class remain. Files larger than the last class are left alone. A row is rewritten about
once for each of the four classes that it passes; only in the smallest class it can be more often, and there the bytes
rewritten are about those of the files added since.

A push never waits for a merge: the slow part is outside of any transaction, and a merge that comes too late leaves
nothing behind. If pushes are faster than merges, the tail grows; the next merge takes all of it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, select

from headwater.base import limits
from headwater.base.errors import HeadwaterError, LeaseLost
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import dead_letter_files
from headwater.catalog.lookup import table_states
from headwater.catalog.table_state import TableState
from headwater.duck.merge_files import Merge, merge_files, same_rows
from headwater.ingest.group_commit import PushWriter
from headwater.storage.file_record import LiveFile


@dataclass(frozen=True)
class _TailCommit:
    """The files of one commit: they are merged together or not at all."""

    files: tuple[LiveFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def schema_ids(self) -> set[int]:
        return {file.schema_id for file in self.files}


def choose(state: TableState) -> Merge | None:
    """What to merge next; None if the tail is short. Files with the same columns are merged with each other. Only if
    the tail is too long are files with different columns merged too; if that does not help, a class need not be
    full."""
    landed = [_TailCommit(tuple(group)) for _, group in groupby(state.files, key=lambda file: file.added_seq)]
    tail = [each for each in landed if _class_of(each.bytes) is not None]
    long = sum(len(each.files) for each in tail) > limits.LIVE_TAIL_FILES
    for columns_added in (False, True) if long else (False,):
        groups = _by_target(state, tail, columns_added=columns_added)
        for schema_id, group in groups.items():
            if found := _full_class(group):
                return _merge(found, schema_id)
    if long and groups:
        schema_id, largest = max(groups.items(), key=lambda item: len(item[1]))
        return _merge(largest, schema_id) if len(largest) > 1 else None
    return None


def is_long(sizes: Iterable[int]) -> bool:
    """Whether files of these sizes may need a merge."""
    classes = [place for size in sizes if (place := _class_of(size)) is not None]
    full = any(classes.count(place) >= limits.TAIL_CLASS_FILES for place in set(classes))
    return full or len(classes) > limits.LIVE_TAIL_FILES


class Tails:
    """Merges the tails of the tables that this process pushes to, and of their dead letters: one merge at a time, in a
    thread that starts when there is work."""

    def __init__(self, store: Store, *, actor: str, on_merged: Callable[[], None] = lambda: None):
        self._store, self._actor, self._on_merged = store, actor, on_merged
        self._changed = threading.Condition()
        self._commits: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._writer = PushWriter(store.catalog)  # not that of the pushes: no push has to wait for it
        self.bytes_written = 0
        """By all merges so far."""

    def landed(self, table: str) -> None:
        """A batch has landed. Returns at once."""
        with self._changed:
            self._commits[table] = self._commits.get(table, 0) + 1
            if self._commits[table] < limits.TAIL_CLASS_FILES or self._stopped:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="headwater-tails", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """No further merge begins."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the running merge, and check the tables that were pushed to since their last check: so a command
        that pushes a file and ends keeps tails short too. Raises nothing; what is not merged now is merged later."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        with self._changed:  # a running push may still report that it has landed
            tables = list(self._commits)
        for table in tables:
            with suppress(HeadwaterError):
                self.merge(table)
        with suppress(HeadwaterError):
            self._writer.close()

    def merge(self, table: str) -> int:
        """Merge until the tail is short: one merge may fill the next class. Returns the number of merges."""
        done = 0
        for find in (_tail_of, _letters_tail_of):
            for _ in limits.TAIL_CLASS_BYTES:
                if (written := self._merge_once(table, find)) is None:
                    break
                done += 1
                self.bytes_written += written
        if done:
            self._on_merged()
        return done

    def _work(self) -> None:
        while (table := self._next()) is not None:
            with suppress(HeadwaterError):  # tried again after the same number of commits
                self.merge(table)

    def _next(self) -> str | None:
        """The table with the most commits since its last merge, once there are enough of them."""

        def due() -> bool:
            return self._stopped or max(self._commits.values(), default=0) >= limits.TAIL_CLASS_FILES

        with self._changed:
            self._changed.wait_for(due)
            if self._stopped:
                return None
            table = max(self._commits, key=lambda name: self._commits[name])
            del self._commits[table]
            return table

    def _merge_once(self, table: str, find: Callable[[Connection, str], TableState | None]) -> int | None:
        with self._store.catalog.snapshot() as connection:
            state = find(connection, table)
        wanted = choose(state) if state is not None else None
        if state is None or wanted is None:
            return None
        files = self._writer.files()
        _, directory, number = files.next(state.name)
        try:
            return merge_files(
                self._store,
                state,
                wanted,
                directory=directory,
                number=number,
                writer=files.writer,
                actor=self._actor,
                partition=table if state.name == LETTERS else None,
            )
        except LeaseLost:
            self._writer.forget(files.writer)
            raise


def _tail_of(connection: Connection, table: str) -> TableState | None:
    """The table, if its tail may be too long."""
    if not is_long(_sizes(connection, t.file.c.table_name == table)):
        return None
    return next(iter(table_states(connection, [table])), None)


def _letters_tail_of(connection: Connection, table: str) -> TableState | None:
    """The same for its dead letters: each table has its own files of them."""
    if not is_long(_sizes(connection, (t.file.c.table_name == LETTERS) & (t.file.c.partition == table))):
        return None
    letters = dead_letter_files(connection, table)
    return replace(letters.state, files=letters.files) if letters is not None else None


def _sizes(connection: Connection, files: ColumnElement[bool]) -> list[int]:
    live = select(t.file.c.bytes).where(files, t.file.c.removed_seq.is_(None))
    return [size for (size,) in connection.execute(live)]


def _class_of(size: int) -> int | None:
    """None for a file that is too large for the tail."""
    place = bisect_right(limits.TAIL_CLASS_BYTES, size)
    return place if place < len(limits.TAIL_CLASS_BYTES) else None


def _full_class(group: Sequence[_TailCommit]) -> list[_TailCommit]:
    """All files of the smallest full class, and of each class above that becomes full by this merge."""
    classes: dict[int, list[_TailCommit]] = {}
    for each in group:
        classes.setdefault(_class_of(each.bytes) or 0, []).append(each)
    full = [place for place, found in classes.items() if len(found) >= limits.TAIL_CLASS_FILES]
    if not full:
        return []
    place = min(full)
    found = classes[place]
    while len(classes.get(place := place + 1, [])) >= limits.TAIL_CLASS_FILES - 1:
        found = found + classes[place]
    return found


def _by_target(
    state: TableState, tail: Sequence[_TailCommit], *, columns_added: bool
) -> Mapping[int, Sequence[_TailCommit]]:
    """The parts of the tail by the schema that they can be written with: the newest in which their rows are the
    same."""
    newest_first = sorted(state.schemas, reverse=True)

    def target(old: int) -> int:
        schema = state.schemas[old]
        fitting = (id_ for id_ in newest_first if same_rows(schema, state.schemas[id_], columns_added=columns_added))
        return next(fitting)

    targets = {old: target(old) for old in {schema_id for each in tail for schema_id in each.schema_ids}}
    found: dict[int, list[_TailCommit]] = {}
    for each in tail:
        wanted = {targets[schema_id] for schema_id in each.schema_ids}
        if len(wanted) == 1:
            found.setdefault(wanted.pop(), []).append(each)
    return found


def _merge(landed: Sequence[_TailCommit], schema_id: int) -> Merge:
    """The oldest of them, as many as one merge takes."""
    files: list[LiveFile] = []
    size = 0
    for each in sorted(landed, key=lambda each: each.files[0].added_seq):
        size += each.bytes
        if files and (size > limits.TAIL_MERGE_BYTES or len(files) + len(each.files) > limits.TAIL_MERGE_FILES):
            break
        files += each.files
    return Merge(tuple(files), schema_id)

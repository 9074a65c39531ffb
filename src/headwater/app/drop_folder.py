"""The drop folder: files that are put there land by themselves, each once.

A scan finds the files that are due, asks the ledger which of them are known, and lands the rest: small files of a table
together, in their order; a big one by Spark, in parallel. A problem with one file never keeps another from landing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from headwater.app.ingest import Ingestor
from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, PassingFailure, Position, RejectedBatch, as_headwater
from headwater.base.printable import printable
from headwater.catalog.landing import Landing
from headwater.catalog.ledger import cleared_since, taken_keys
from headwater.catalog.lookup import current_seq
from headwater.connectors.protocol import SliceGone
from headwater.duck.unique_keys import keys_are_unique
from headwater.ingest.decode import TooLarge
from headwater.ingest.dropped_files import DropFolder, Dropped, FileRows, file_errors, new_columns
from headwater.ingest.due_files import Memory
from headwater.ingest.group_commit import Base, Files, WrittenRows
from headwater.ingest.prepare import wider
from headwater.ingest.push_records import Accepted, Push, PushTable

KEY = "filedrop:"
"""A file's key is this and the hash of its bytes: another file with the same bytes is the same batch."""


@dataclass(frozen=True)
class Taken:
    """Files that one scan landed in a table, their rows, and the bad rows that were kept as dead letters."""

    table: str
    files: int
    rows: int
    rows_refused: int


class PutAway(HeadwaterError):
    """A file that cannot be landed and was moved away. The place of the error is where it is now."""


News = Taken | HeadwaterError
"""What happened, or a problem that keeps a file or a table from landing; a problem is reported once."""


@dataclass
class Dropping:
    """Scans the drop folder of a project, from one thread. Any number of processes may scan one folder: the ledger
    decides which of them lands a file."""

    workspace: Workspace
    on_news: Callable[[News], object]
    ingestor: Ingestor
    ended: threading.Event = field(default_factory=threading.Event)
    _memory: Memory = field(init=False)
    _reported: dict[str, HeadwaterError] = field(default_factory=dict)
    _listing_seconds: float = 0.0
    _seen_seq: int | None = None
    _big: dict[str, tuple[Dropped, Future[Accepted | Exception]]] = field(default_factory=dict)
    _taken: dict[str, list[Accepted]] = field(default_factory=dict)
    _again: int = 0
    """How many files of this scan will be retried."""

    def __post_init__(self) -> None:
        self._memory = Memory(self.workspace.project.root / ".headwater/drop.json")

    def run(self, ended: threading.Event) -> None:
        """Scan repeatedly until `ended`. A folder that takes long to list is listed less often."""
        self.ended = ended
        while not ended.wait(max(limits.DROP_SCAN_SECONDS, limits.DROP_LISTING_SHARE * self._listing_seconds)):
            try:
                self.scan()
                self._reported.pop("", None)
            except Exception as error:
                with suppress(Exception):  # files land even if reporting fails
                    self._report({"": error})
        self.close()

    def scan(self) -> bool:
        """Land the files that are due now; True if a later scan may find more of the present files."""
        self._again = 0
        began, began_ns = time.monotonic(), time.time_ns()
        files, problems = self._folder().scan()
        self._listing_seconds = time.monotonic() - began
        self._note_big()
        # Of the problems with files and folders, those that are gone are forgotten.
        self._reported = {place: e for place, e in self._reported.items() if place in problems or place[-1:] in "/"}
        self._report(problems)
        if files:
            self._forget_cleared()
        due, left = self._memory.due(files, now=time.monotonic(), now_ns=began_ns, busy=self._big)
        for table in due:
            if not self.ended.is_set() and not self._memory.table_waits(table, now=time.monotonic()):
                self._take_table(table, due[table])
        self._report_taken()
        return left + self._again > 0

    def finish(self) -> bool:
        """Wait for big files and report their outcome; True if one will be retried."""
        self._again = 0
        wait([landed for _, landed in self._big.values()])
        self._note_big()
        self._report_taken()
        return self._again > 0

    def close(self) -> None:
        """Stop landing a big file: it lands when the folder is scanned again."""
        self._memory.save()

    def _folder(self) -> DropFolder:
        project = self.workspace.project
        return DropFolder(project.root, project.spec.project.drop)

    def _take_table(self, table: str, files: Sequence[Dropped]) -> None:
        try:
            target = self.ingestor.target(self.workspace, table)
            for start in range(0, len(files), limits.PUSH_GROUP_BATCHES):
                self._take(target, files[start : start + limits.PUSH_GROUP_BATCHES])
        except Exception as error:  # the other tables go on
            self._table_failed(table, error)
        else:
            self._memory.table_works(table)
            self._reported.pop(f"{table}/", None)

    def _take(self, target: PushTable, files: Sequence[Dropped]) -> None:
        """Land the files of one table that the ledger does not know. Raises errors of the table or the store."""
        found: list[tuple[Dropped, Push]] = []
        for file in files:
            if self.ended.is_set():
                return
            if file.stamp.size > limits.MAX_BODY_BYTES:
                self._begin_big(file)
                continue
            try:
                found.append((file, self._push(target, file)))
            except (SliceGone, HeadwaterError) as error:
                self._note(file, error)
        with self.workspace.store().catalog.snapshot() as connection:
            known = taken_keys(connection, target.table, [push.key or "" for _, push in found], now_us=now_us())
        for file, push in found:
            if push.key in known:
                self._memory.done(file)
        new = [(file, push) for file, push in found if push.key not in known]
        pushes = (push for _, push in new if not self.ended.is_set())
        outcomes = list(zip(new, self.ingestor.ingest_together(self.workspace, pushes)))
        for (file, _), outcome in sorted(outcomes, key=lambda pair: not isinstance(pair[1], Accepted)):
            self._note(file, outcome)  # landed files first: an error of the table ends this loop

    def _push(self, target: PushTable, file: Dropped) -> Push:
        """A file as a batch. The hash of its bytes is remembered. Raises `SliceGone`, and HW-C03."""
        folder, sha256 = self._folder(), self._memory.hash_of(file)
        if sha256 is None:
            sha256 = folder.hash_of(file)
            self._memory.hashed(file, sha256)
        rows = folder.rows(file, sha256, target.forms)
        return Push(
            target,
            b"",
            this_actor(),
            key=KEY + sha256,
            key_expires=False,
            fingerprint=f"sha256:{sha256}",
            on_bad_row=target.on_bad_row or "dead_letter",
            source=rows.file.source_id,
            format=rows.how.format,
            reader=rows,
        )

    def _note(self, file: Dropped, outcome: Accepted | BaseException) -> None:
        """Record the outcome of a file. Raises errors of the table or the store, not those of the file."""
        match outcome:
            case Accepted():
                self._memory.done(file)
                if not outcome.replayed:
                    self._taken.setdefault(file.table, []).append(outcome)
            case TooLarge():
                self._begin_big(file)
            case SliceGone():
                self._memory.hashed(file, None)
                self._again += 1
            case PassingFailure() if self._memory.failed(file, now=time.monotonic()):
                self._again += 1
            case RejectedBatch() | PassingFailure():
                self._put_away(file, outcome)
            case error:
                raise as_headwater(error)

    def _table_failed(self, table: str, error: BaseException) -> None:
        self._memory.table_failed(table, now=time.monotonic())
        self._report({f"{table}/": error})

    def _put_away(self, file: Dropped, error: HeadwaterError) -> None:
        self._memory.given_up(file)
        folder = self._folder()
        place = folder.shown_path(file.path)
        message = error.message.replace(place, printable(place))  # a line break in a name begins no line of a log
        hint = f"fix the file, and move it back to `{folder.shown_path(file.table)}/`"
        away = PutAway(error.code, message, hint=hint, detail=error.detail)
        try:
            away.places = (Position(folder.put_away(file, away.as_json())),)
        except SliceGone:
            return  # another process has moved it away
        except HeadwaterError as problem:  # it stays where it is, and is retried only after it has changed
            self.on_news(problem)
            away.hint, away.places = "fix the file", (Position(place),)
        self.on_news(away)

    def _begin_big(self, file: Dropped) -> None:
        """Land a file in one commit with its key, or find that it has landed; in parallel, after earlier big files. Even
        its hash takes a while."""
        before = [landed for _, landed in self._big.values()][-1:]
        landed: Future[Accepted | Exception] = Future()

        def land() -> None:
            wait(before)
            try:
                push = self._push(self.ingestor.target(self.workspace, file.table), file)
                written = replace(push, write=partial(self._write_big, push))
                landed.set_result(self.ingestor.ingest_together(self.workspace, [written])[0])
            except BaseException as error:
                landed.set_exception(error)

        self._big[file.path] = file, landed
        threading.Thread(target=land, name="drop-big", daemon=True).start()

    def _write_big(self, push: Push, base: Base, files: Files, landing: Landing) -> WrittenRows:
        """`Push.write`: Spark writes the file, twice if it brings columns."""
        from headwater.spark.write_frame import WriteTarget, check_written, write_read

        rows = push.reader
        assert isinstance(rows, FileRows)
        run_id, directory, number = files.next(push.target.table)
        root, schema, added = self.workspace.store().root, base.schema, None
        most_bad = push.target.max_bad_rows if push.on_bad_row == "dead_letter" else 0
        for place in (f"big-{number}", f"big-{number}-wider"):
            target = WriteTarget(root, f"{directory}/{place}", schema, run_id, now_us())
            with file_errors(push.target.table):
                written = write_read(self.workspace.spark(), rows.in_parts(most_bad, added), target)
                landing.files += written.files
                check_written(written, max_bad_rows=most_bad)
            if not written.unknown:
                break
            added, rescues = new_columns(schema, written.unknown)
            schema = wider(schema, added, rescues=rescues)
        assert not written.unknown
        rows.check(written.items[rows.file.source_id])
        unique = base.mode == "upsert" and keys_are_unique(root, written.files, schema)
        return WrittenRows(run_id, schema, tuple(written.files), tuple(written.bad), unique)

    def _note_big(self) -> None:
        for path, (file, landed) in list(self._big.items()):
            if landed.done():
                del self._big[path]
                try:
                    self._note(file, landed.exception() or landed.result())
                except HeadwaterError as error:
                    self._table_failed(file.table, error)

    def _forget_cleared(self) -> None:
        """Treat the files of a table whose ledger was cleared as new."""
        store = self.workspace.existing_store()
        if store is not None:
            with store.catalog.snapshot() as connection:
                seq = current_seq(connection)
                if self._seen_seq is not None and seq > self._seen_seq:
                    self._memory.forget(cleared_since(connection, self._seen_seq))
            self._seen_seq = seq

    def _report(self, problems: Mapping[str, BaseException]) -> None:
        """Report each problem once: not again while it stays as it is."""
        found = {place: as_headwater(error) for place, error in problems.items()}
        new = {place: error for place, error in found.items() if not error.is_like(self._reported.get(place))}
        self._reported |= new
        for error in list(new.values())[: limits.ERRORS_SHOWN]:
            self.on_news(error)
        if (more := len(new) - limits.ERRORS_SHOWN) > 0:
            hint = f"move them out of `{self._folder().shown}`"
            self.on_news(HeadwaterError("HW-I04", f"{more} more entries of the folder cannot be landed", hint=hint))

    def _report_taken(self) -> None:
        taken, self._taken = self._taken, {}
        for table, found in taken.items():
            rows, refused = sum(each.rows_ingested for each in found), sum(each.rows_refused for each in found)
            self.on_news(Taken(table, len(found), rows, refused))
        if taken:
            self.ingestor.show_soon(self.workspace)


def take_dropped(workspace: Workspace, on_news: Callable[[News], object]) -> None:
    """Land the files of the drop folder once: `apply` does this before it reads sources. It waits a moment for files
    that are still being written; if they are not complete then, they are left for the next time."""
    with closing(Ingestor()) as ingestor, closing(Dropping(workspace, on_news, ingestor)) as dropping:
        for _ in range(2 ** (limits.DROP_TRIES - 1) + 1):  # enough time for all tries of a file
            left = dropping.scan()
            if not dropping.finish() and not left:
                break
            time.sleep(limits.DROP_SCAN_SECONDS)

"""The drop folder: files that are put there land by themselves, each once.

A look finds what is due, asks the ledger which of it is known, and lands the rest: small files of a table together, in
their order; a big one by Spark, beside the others. What is wrong with a file never keeps another from landing.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from headwater.app.dropped_big_files import KEY, hash_in, land_big
from headwater.app.ingest import Ingestor
from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, PassingFailure, Position, RejectedBatch, as_headwater
from headwater.base.printable import printable
from headwater.catalog.ledger import cleared_since, taken_keys
from headwater.catalog.lookup import current_seq
from headwater.connectors.files.config import compression_of, format_of
from headwater.connectors.files.scan import FoundFile
from headwater.ingest.decode import TooLarge
from headwater.ingest.drop.due_files import Memory
from headwater.ingest.drop.folder import Changed, DropFolder, Dropped, Listing
from headwater.ingest.drop.hashes import Hashes
from headwater.ingest.drop.rows import FileRows, GroupBudget, body_of, is_lines
from headwater.ingest.push_records import Accepted, Push, PushTable

HASHES = ".headwater/drop.json"


@dataclass(frozen=True)
class Taken:
    """Files that one look landed into a table, their rows, and the bad rows that were kept as dead letters."""

    table: str
    files: int
    rows: int
    rows_refused: int = 0


@dataclass(frozen=True)
class PutAway:
    """A file that cannot be taken. The error names the place where it is now."""

    error: HeadwaterError


News = Taken | PutAway | HeadwaterError
"""What happened, or what keeps a file or a table from landing; the latter is told once."""


class _TableWaits(Exception):
    """Nothing more of this table for now."""


@dataclass
class _Big:
    """A big file on its way. One after the other is landed, by a thread of its own: small ones do not wait for it."""

    file: Dropped
    looked_at_ns: int
    land: Callable[[], Accepted]
    done: threading.Event = field(default_factory=threading.Event)
    outcome: Accepted | Exception | None = None

    def run(self) -> None:
        try:
            self.outcome = self.land()
        except Exception as error:
            self.outcome = error
        finally:
            self.done.set()


@dataclass
class Dropping:
    """Looks into the drop folder of a project, from one thread. Any number of processes may look into one folder: the
    ledger decides who lands a file."""

    workspace: Workspace
    on_news: Callable[[News], None]
    ingestor: Ingestor
    ended: threading.Event = field(default_factory=threading.Event)
    _memory: Memory = field(default_factory=Memory)
    _told: dict[str, HeadwaterError] = field(default_factory=dict)
    _listing_seconds: float = 0.0
    _seen_seq: int | None = None
    _big: dict[str, _Big] = field(default_factory=dict)
    _hands: queue.SimpleQueue[_Big | None] | None = None
    _taken: dict[str, Taken] = field(default_factory=dict)
    _hashes: Hashes = field(init=False)
    _listing: Listing = field(default_factory=Listing)

    def __post_init__(self) -> None:
        self._hashes = Hashes(self.workspace.project.root / HASHES)

    def run(self, ended: threading.Event) -> None:
        """Look again and again until `ended`. A folder that takes long to list is listed less often."""
        self.ended = ended
        while not ended.wait(max(limits.DROP_SCAN_SECONDS, limits.DROP_LISTING_SHARE * self._listing_seconds)):
            try:
                self.look()
                self._told.pop("", None)
            except Exception as error:
                with suppress(Exception):  # if nobody hears it, files land all the same
                    self._tell("", as_headwater(error))
        self.close()

    def look(self) -> bool:
        """Lands what is due now; True if a later look may find more of what is there."""
        folder = self._folder()
        began = time.monotonic()
        self._listing = listing = folder.look()
        self._listing_seconds = time.monotonic() - began
        self._reap(folder)
        self._tell_strange(listing)
        if listing.files:
            self._forget_cleared()
        due = self._memory.due(listing.files, now=time.monotonic(), now_ns=time.time_ns(), busy=self._big.keys())
        left = due.left
        for table, files in due.tables.items():
            if not self.ended.is_set() and not self._memory.table_waits(table, now=time.monotonic()):
                left += self._take_table(folder, table, files)
        self._tell_taken()
        return left > 0

    def finish(self) -> bool:
        """Wait for big files, and tell what became of them; True if one will be tried again."""
        for big in list(self._big.values()):
            big.done.wait()
        again = self._reap(self._folder())
        self._tell_taken()
        return again > 0

    def close(self) -> None:
        """A big file that is under way is given up: it lands when somebody looks again."""
        if self._hands is not None:
            self._hands.put(None)
        self._hashes.save({file.path for file in self._listing.files})

    def hash_of(self, folder: DropFolder, file: Dropped, *, looked_at_ns: int) -> str:
        """The hash of a file's bytes; an old file need not be read again for it. Raises `Changed`, and HW-C03."""
        found = self._hashes.get(file)
        if found is None:
            found = folder.hash_of(file)
            self._hashes.put(file, found, looked_at_ns=looked_at_ns)
        return found

    def _folder(self) -> DropFolder:
        project = self.workspace.project
        drop = project.spec.project.drop
        return DropFolder(project.root / drop, shown=drop.rstrip("/"))

    def _take_table(self, folder: DropFolder, table: str, files: Sequence[Dropped]) -> int:
        """How many of the files will be tried again."""
        taking = _Taking(self, folder, table)
        try:
            taking.target = self.ingestor.target(self.workspace, table)
            for i in range(0, len(files), limits.PUSH_GROUP_BATCHES):
                if not self.ended.is_set():
                    taking.take(files[i : i + limits.PUSH_GROUP_BATCHES])
        except _TableWaits:
            pass
        except Exception as error:  # the other tables go on
            self._table_failed(table, as_headwater(error))
        else:
            self._memory.table_works(table)
            self._told.pop(f"{table}/", None)
        return taking.again

    def _table_failed(self, table: str, error: HeadwaterError) -> None:
        now = time.monotonic()
        if not self._memory.table_waits(table, now=now):  # all files of a group may say it
            self._memory.table_failed(table, now=now)
        self._tell(f"{table}/", error)

    def known(self, file: Dropped, looked_at_ns: int) -> None:
        """It has landed before, by whatever name."""
        self._memory.done(file, looked_at_ns=looked_at_ns)

    def landed(self, file: Dropped, answer: Accepted, looked_at_ns: int) -> None:
        """It has landed now, or, if the answer is an old one, before."""
        self.known(file, looked_at_ns)
        if answer.replayed:
            return
        before = self._taken.get(file.table, Taken(file.table, 0, 0))
        rows, refused = before.rows + answer.rows_ingested, before.rows_refused + answer.rows_refused
        self._taken[file.table] = Taken(file.table, before.files + 1, rows, refused)

    def failed(self, folder: DropFolder, file: Dropped, error: Exception) -> bool:
        """What to do about a file that was not landed; True if it will be tried again. Raises `_TableWaits`."""
        if isinstance(error, Changed):
            self._hashes.forget(file)
            return True
        told = as_headwater(error)
        if not isinstance(told, RejectedBatch | PassingFailure):  # the table or the store is at fault, not the file
            self._table_failed(file.table, told)
            raise _TableWaits
        if isinstance(told, PassingFailure) and self._memory.failed(file, now=time.monotonic()):
            return True
        self._put_away(folder, file, told)
        return False

    def _put_away(self, folder: DropFolder, file: Dropped, error: HeadwaterError) -> None:
        self._memory.given_up(file)
        hint = f"fix the file, and move it back to `{folder.shown_path(file.table)}/`"
        place = folder.shown_path(file.path)
        message = error.message.replace(place, printable(place))  # a line break in a name begins no line of a log
        error = HeadwaterError(error.code, message, hint=hint, detail=error.detail)
        try:
            error.places = (Position(folder.put_away(file, error.as_json())),)
            self.on_news(PutAway(error))
        except Changed:
            return  # another process has put it away
        except HeadwaterError as problem:  # it stays where it is, and is not tried again as it is
            self.on_news(problem)
            error.hint, error.places = "fix the file", (Position(folder.shown_path(file.path)),)
            self.on_news(PutAway(error))

    def begin_big(self, folder: DropFolder, file: Dropped, push: Callable[[], Push], looked_at_ns: int) -> None:
        """Leave a file to the thread for big ones, which asks for the push when it is its turn."""
        found = found_file(folder, file)
        big = _Big(file, looked_at_ns, lambda: land_big(self.workspace, self.ingestor, push(), found))
        if self._hands is None:
            self._hands = queue.SimpleQueue()
            threading.Thread(target=_land_all, args=(self._hands,), name="drop-big", daemon=True).start()
        self._big[file.path] = big
        self._hands.put(big)

    def _reap(self, folder: DropFolder) -> int:
        """What became of big files; how many will be tried again."""
        again = 0
        for path, big in list(self._big.items()):
            if not big.done.is_set():
                continue
            del self._big[path]
            if isinstance(big.outcome, Accepted):
                self.landed(big.file, big.outcome, big.looked_at_ns)
                continue
            with suppress(_TableWaits):
                again += self.failed(folder, big.file, big.outcome or HeadwaterError("HW-X01", "it did not land"))
        return again

    def _forget_cleared(self) -> None:
        """Files of a table whose ledger was cleared are new again."""
        store = self.workspace.existing_store()
        if store is None:
            return
        with store.catalog.snapshot() as connection:
            seq = current_seq(connection)
            if self._seen_seq is not None and seq > self._seen_seq:
                self._memory.forget(cleared_since(connection, self._seen_seq))
        self._seen_seq = seq

    def _tell_strange(self, listing: Listing) -> None:
        """What is no longer there is told again if it comes back."""
        if self._told:
            there = {file.path for file in listing.files} | listing.strange.keys()
            self._told = {place: error for place, error in self._told.items() if place in there or place[-1:] in "/"}
        new = [(place, error) for place, error in listing.strange.items() if not error.is_like(self._told.get(place))]
        for place, error in new[: limits.ERRORS_SHOWN]:
            self._tell(place, error)
        if more := new[limits.ERRORS_SHOWN :]:
            self._told |= dict(more)
            self.on_news(
                HeadwaterError(
                    "HW-I04",
                    f"{len(more)} more of what lies there will not be taken",
                    hint=f"move it out of `{self._folder().shown}`, and look again",
                )
            )

    def _tell(self, place: str, error: HeadwaterError) -> None:
        if not error.is_like(self._told.get(place)):
            self._told[place] = error
            self.on_news(error)

    def _tell_taken(self) -> None:
        taken, self._taken = self._taken, {}
        for news in taken.values():
            self.on_news(news)
        if taken:
            self.ingestor.show_soon(self.workspace)


@dataclass
class _Taking:
    """Files of one table, in their order. `again` counts those that will be tried again."""

    dropping: Dropping
    folder: DropFolder
    table: str
    target: PushTable = field(init=False)
    again: int = 0
    _group: list[tuple[Dropped, Push, int]] = field(default_factory=list)
    _weight: int = 0
    _room: GroupBudget = field(default_factory=GroupBudget)

    def take(self, files: Sequence[Dropped]) -> None:
        """Land those that the ledger does not know. Raises `_TableWaits`, or what is wrong with the store."""
        hashes: dict[Dropped, tuple[str, int]] = {}
        for file in files:
            if self.dropping.ended.is_set():
                return
            looked_at_ns = time.time_ns()
            if file.size > limits.MAX_BODY_BYTES:
                self._begin_big(file, None, looked_at_ns)
                continue
            try:
                sha256 = self.dropping.hash_of(self.folder, file, looked_at_ns=looked_at_ns)
                hashes[file] = sha256, looked_at_ns
            except (Changed, HeadwaterError) as error:
                self._not_taken(file, error)
        with self.dropping.workspace.store().catalog.snapshot() as connection:
            keys = [KEY + sha256 for sha256, _ in hashes.values()]
            known = taken_keys(connection, self.table, keys, now_us=now_us())
        for file, (sha256, looked_at_ns) in hashes.items():
            if KEY + sha256 in known:
                self.dropping.known(file, looked_at_ns)
            else:
                self._add(file, sha256, looked_at_ns)
        self._flush()

    def _begin_big(self, file: Dropped, sha256: str | None, looked_at_ns: int) -> None:
        """Even the hash takes a while: if it is not known, it is left to those who land the file."""

        def push() -> Push:
            known = sha256 or self.dropping.hash_of(self.folder, file, looked_at_ns=looked_at_ns)
            return self._push(file, known, b"")

        self.dropping.begin_big(self.folder, file, push, looked_at_ns)

    def _add(self, file: Dropped, sha256: str, looked_at_ns: int) -> None:
        """Into the group that lands next."""
        try:
            body = self._body(file, sha256) if is_lines(file.name) else b""
        except TooLarge:
            self._begin_big(file, sha256, looked_at_ns)
            return
        except (Changed, HeadwaterError) as error:
            self._not_taken(file, error)
            return
        weight = len(body) or _weight(file)
        if self._group and (self._weight + weight > limits.DROP_GROUP_BYTES or self._is_behind_cells(file)):
            self._flush()
        self._group.append((file, self._push(file, sha256, body), looked_at_ns))
        self._weight += weight

    def _is_behind_cells(self, file: Dropped) -> bool:
        """Whether a file of cells that proves too large for the group would land after these lines."""
        return is_lines(file.name) and not is_lines(self._group[-1][0].name)

    def _flush(self) -> None:
        group, self._group, self._weight, self._room = self._group, [], 0, GroupBudget()
        if not group or self.dropping.ended.is_set():
            return
        outcomes = self.dropping.ingestor.ingest_together(self.dropping.workspace, [push for _, push, _ in group])
        waits = False
        for (file, push, looked_at_ns), outcome in zip(group, outcomes):
            if isinstance(outcome, Accepted):
                self.dropping.landed(file, outcome, looked_at_ns)
                continue
            try:
                if isinstance(outcome, TooLarge):
                    self._too_large(file, push, looked_at_ns, is_alone=len(group) == 1)
                else:
                    self._not_taken(file, outcome)
            except _TableWaits:  # those that landed are noted first
                waits = True
        if waits:
            raise _TableWaits

    def _too_large(self, file: Dropped, push: Push, looked_at_ns: int, *, is_alone: bool) -> None:
        """With others it was too large; alone it may be small enough, else it is a big one."""
        if is_alone:
            self._begin_big(file, hash_in(push), looked_at_ns)
        else:
            self._group = [(file, self._push(file, hash_in(push), push.body), looked_at_ns)]
            self._flush()

    def _not_taken(self, file: Dropped, error: Exception) -> None:
        self.again += self.dropping.failed(self.folder, file, error)

    def _push(self, file: Dropped, sha256: str, body: bytes) -> Push:
        lines = is_lines(file.name)
        found = found_file(self.folder, file)
        root = self.dropping.workspace.project.root
        return Push(
            target=self.target,
            body=body,
            actor=this_actor(),
            key=KEY + sha256,
            key_expires=False,
            fingerprint=f"sha256:{sha256}",
            on_bad_row=self.target.on_bad_row or "dead_letter",
            source=self.folder.shown_path(file.path),
            format=format_of(file.name) or "ndjson",
            reader=None if lines else FileRows(root, found, sha256, self.table, self._room),
        )

    def _body(self, file: Dropped, sha256: str) -> bytes:
        with self.folder.open(file) as opened:
            data = opened.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Changed
        return body_of(data, self.folder.shown_path(file.path))


def take_dropped(workspace: Workspace, on_news: Callable[[News], None]) -> None:
    """Land what is in the drop folder, once: what `apply` does before it looks at sources. Files that are still being
    written are waited for a moment, and else left for the next time."""
    with closing(Ingestor()) as ingestor, closing(Dropping(workspace, on_news, ingestor)) as dropping:
        for _ in range(2 ** (limits.DROP_TRIES - 1) + 1):  # time enough for all tries of a file
            left = dropping.look()
            if not dropping.finish() and not left:
                break
            time.sleep(limits.DROP_SCAN_SECONDS)


def found_file(folder: DropFolder, file: Dropped) -> FoundFile:
    """The file under the name that the `files` connector reads it by."""
    return FoundFile(folder.shown_path(file.path), file.size, file.mtime_ns)


def _weight(file: Dropped) -> int:
    """What a file that is read later may need, as far as its size tells."""
    is_plain = compression_of(file.name) == "none" and format_of(file.name) == "csv"
    return file.size if is_plain else file.size * limits.DROP_COMPRESSION


def _land_all(hands: queue.SimpleQueue[_Big | None]) -> None:
    while (big := hands.get()) is not None:
        big.run()

"""The one way in for pushed rows: key, coercion, files, one commit, one answer.

A batch lands whole, with its key, its new columns and the answer to it, in one transaction; or nothing of it does.
Batches for one table that come while another commit of it is under way share the next one, and each gets its own
answer. An answer that was lost is found again by the key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_table_name
from headwater.ingest.landing import Base, Files, base_of, changes_of, refuse_change_of, write, write_bad
from headwater.ingest.ledger import check_key, fingerprint, replay, sweep
from headwater.ingest.prepare import Prepared, prepare
from headwater.ingest.push import Accepted, Push
from headwater.store.commit import Store
from headwater.store.dead_letters import TABLE as LETTERS
from headwater.store.ledger import taken_keys
from headwater.store.reading import current_seq
from headwater.store.records import Commit, KeysFree, Requirement, WriterHeld
from headwater.store.write import discard_files
from headwater.store.writers import end_writer, new_writer, renew_writer

MOVED, DEAD = "HW-T02", "HW-T03"
"""Something that the commit requires is no longer so: it was rolled back, and can be tried from the new state."""


@dataclass
class _Ticket:
    """A batch on its way, and what became of it. `base` is what it was prepared for."""

    push: Push
    sent: str
    base: Base
    prepared: Prepared
    answer: Accepted | None = None
    error: BaseException | None = None

    @property
    def ended(self) -> bool:
        return self.answer is not None or self.error is not None


@dataclass
class _Lane:
    """The batches of one table. Who holds `landing` lands for all that wait."""

    landing: threading.Lock = field(default_factory=threading.Lock)
    door: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Ticket] = field(default_factory=list)

    def join(self, ticket: _Ticket) -> None:
        with self.door:
            self.waiting.append(ticket)

    def take(self) -> list[_Ticket]:
        """The batches that can share a commit with the first that waits. Of two with one key the second comes later: it
        will find the first one's answer."""
        with self.door:
            group: list[_Ticket] = []
            left: list[_Ticket] = []
            keys: set[str] = set()
            room = limits.PUSH_GROUP_BYTES
            for ticket in self.waiting:
                push = ticket.push
                first = group[0].push if group else push
                fits = (
                    (push.target, push.actor) == (first.target, first.actor)
                    and push.key not in keys
                    and len(group) < limits.PUSH_GROUP_BATCHES
                    and (room >= len(push.body) or not group)
                )
                (group if fits else left).append(ticket)
                if fits:
                    room -= len(push.body)
                    keys |= {push.key} if push.key is not None else set()
            self.waiting = left
            return group


class Acceptor:
    """Takes pushed batches for one store. Any thread may call `accept`; one acceptor a process is enough."""

    def __init__(
        self,
        store: Store,
        *,
        ttl_seconds: float = limits.LEDGER_TTL_SECONDS,
        on_landed: Callable[[str, Prepared], None] = lambda _table, _prepared: None,
    ):
        self._store, self._ttl_seconds, self._on_landed = store, ttl_seconds, on_landed
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._files: Files | None = None
        self._swept_at: float | None = None

    def accept(self, push: Push) -> Accepted:
        """Land a batch, and answer when it is durable. Raises HW-I01 for a key that was used for another batch, HW-I02
        for bad rows, HW-I03 for a table that takes no pushes, HW-T07 for one that is not there and may not be made;
        nothing of the batch is then there."""
        if not is_table_name(push.target.table):
            raise HeadwaterError(
                "HW-I03",
                "that is not a name that a table can have",
                hint="small letters, digits and `_`, at most 63 of them, and no digit first",
            )
        if push.target.table == LETTERS:
            raise HeadwaterError(
                "HW-I03",
                f"`{LETTERS}` is where bad rows are kept: nobody pushes to it",
                hint="push to a table of another name",
            )
        if push.key is not None:
            check_key(push.key)
        sent = fingerprint(push)
        found = self._look(push, sent)
        if isinstance(found, Accepted):
            return found
        crash_point("ingest.after_key")
        ticket = _Ticket(push, sent, found, _prepared(push, found))
        with self._lock:
            lane = self._lanes.setdefault(push.target.table, _Lane())
        lane.join(ticket)
        while not ticket.ended:
            with lane.landing:
                if not ticket.ended:
                    self._land(lane.take())
        if ticket.error is not None:
            raise ticket.error
        assert ticket.answer is not None
        crash_point("ingest.before_answer")
        return ticket.answer

    def close(self) -> None:
        """Files that were written and not committed are gc's from now on."""
        with self._lock:
            files, self._files = self._files, None
        if files is not None:
            end_writer(self._store.catalog, files.writer)

    def _look(self, push: Push, sent: str) -> Accepted | Base:
        """What was answered to the key before, asked before anything of the body is looked at; else the table."""
        with self._store.catalog.snapshot() as connection:
            if push.key is not None:
                taken = taken_keys(connection, push.target.table, [push.key], now_us=now_us())
                if push.key in taken:
                    return replay(taken[push.key], sent)
            base = base_of(connection, push.target)
        if base.evolution.refused:
            refuse_change_of(self._store, push, base)
        return base

    def _land(self, group: Sequence[_Ticket]) -> None:
        """Every batch of the group gets an answer or an error."""
        try:
            for _ in range(limits.PUSH_TRIES):
                left = [ticket for ticket in group if not ticket.ended]
                if not left or self._try(left):
                    return
            raise HeadwaterError(
                MOVED,
                f"`{group[0].push.target.table}` kept changing while rows were pushed to it",
                hint="send the same batch again",
                retryable=True,
            )
        except BaseException as error:
            for ticket in group:
                if not ticket.ended:
                    ticket.error = error
            if not isinstance(error, Exception):
                raise

    def _try(self, group: Sequence[_Ticket]) -> bool:
        """One commit for what is left of the group; False if the state moved, and nothing was written."""
        group = self._still_to_land(group)
        if not group:
            return True
        first = group[0].push
        crash_point("ingest.before_write")
        files = self._writer()
        letters, said = write_bad(self._store, files, [(t.push, t.prepared) for t in group])
        written = write(self._store, files, first.target.table, group[0].base, [t.prepared for t in group])
        keyed = [(t.push, t.sent, part) for t, part in zip(group, written.parts) if t.push.key is not None]
        changes, needed = changes_of(first.target, group[0].base, written, keyed, ttl_seconds=self._ttl_seconds)
        changes = (*changes, *said)
        if not changes:  # nothing came, and nobody wants to know of it again
            with self._store.catalog.snapshot() as connection:
                seq = current_seq(connection)
        else:
            keys = tuple(push.key for push, _, _ in keyed if push.key is not None)
            requires: tuple[Requirement, ...] = (files.writer, *needed)
            if keys:
                requires = (*requires, KeysFree(table=first.target.table, keys=keys))
            try:
                seq = self._store.commit(Commit(changes=changes, requires=requires, actor=first.actor))
            except HeadwaterError as error:
                if error.code not in (MOVED, DEAD):
                    raise  # it may have been committed: only who asks the ledger will know
                discard_files(self._store.root, (*written.files, *letters))
                if error.code == DEAD:
                    self._forget(files.writer)
                return False
        for ticket, share in zip(group, written.parts):
            errors = tuple(bad.error for bad in ticket.prepared.bad[: limits.ERRORS_SHOWN])
            ticket.answer = Accepted(str(seq), share.rows, share.bytes, rows_refused=share.refused, errors=errors)
            self._on_landed(first.target.table, ticket.prepared)
        self._sweep(first.actor)
        return True

    def _still_to_land(self, group: Sequence[_Ticket]) -> list[_Ticket]:
        """Those whose key is still free, prepared for the schema as it is now."""
        target = group[0].push.target
        with self._store.catalog.snapshot() as connection:
            base = base_of(connection, target)
            keys = [ticket.push.key for ticket in group if ticket.push.key is not None]
            taken = taken_keys(connection, target.table, keys, now_us=now_us()) if keys else {}
        if base.evolution.refused:
            refuse_change_of(self._store, group[0].push, base)
        left = []
        for ticket in group:
            try:
                if ticket.push.key is not None and ticket.push.key in taken:
                    ticket.answer = replay(taken[ticket.push.key], ticket.sent)
                    continue
                if ticket.base.schema != base.schema:
                    ticket.prepared = _prepared(ticket.push, base)
                ticket.base = base
                left.append(ticket)
            except HeadwaterError as error:
                ticket.error = error
        return left

    def _writer(self) -> Files:
        """Under which name files are written now. It is renewed in good time: gc leaves its files alone."""
        with self._lock:
            files = self._files
        if files is not None and (not files.is_old or renew_writer(self._store.catalog, files.writer)):
            return files.renewed()
        files = Files(new_writer(self._store.catalog))
        with self._lock:
            self._files = files
        return files

    def _forget(self, writer: WriterHeld) -> None:
        with self._lock:
            if self._files is not None and self._files.writer == writer:
                self._files = None

    def _sweep(self, actor: str) -> None:
        """Now and then, by whoever comes by."""
        with self._lock:
            now = time.monotonic()
            if self._swept_at is not None and now - self._swept_at < limits.LEDGER_SWEEP_SECONDS:
                return
            self._swept_at = now
        sweep(self._store, actor=actor)


def _prepared(push: Push, base: Base) -> Prepared:
    most = {"refuse": 0, "leave_out": None, "dead_letter": limits.MAX_BAD_ROWS}[push.on_bad_row]
    return prepare(push.body, base.schema, table=push.target.table, evolve=push.evolve, most_bad=most)

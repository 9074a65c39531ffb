"""The one entry point for pushed rows: key, coercion, files, one commit, one answer.

A batch lands whole, with its key, its new columns and its answer, in one transaction; or nothing of it lands. Batches
that arrive while another commit of their table runs share the next commit; each gets its own answer. The key finds an
answer that was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError, LeaseLost
from headwater.base.ids import TABLE_NAME_HINT, is_table_name
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.landing import Landing, until_landed
from headwater.catalog.ledger import LedgerKey, taken_keys
from headwater.catalog.log import heal_log
from headwater.catalog.lookup import current_seq
from headwater.ingest.batch_queue import BatchQueue, Ticket, Waiter
from headwater.ingest.group_commit import (
    SEND_AGAIN,
    Base,
    PushWriter,
    add_keys,
    base_of,
    check_base,
    kept_files,
    land_pushes,
)
from headwater.ingest.ledger_rules import check_key, fingerprint, replay, sweep
from headwater.ingest.prepare import Prepared, prepare, prepare_together
from headwater.ingest.push_records import Accepted, Push


class Acceptor:
    """Takes pushed batches for one store. Any thread may call `accept`; one acceptor a process is enough."""

    def __init__(
        self,
        store: Store,
        *,
        ttl_seconds: float = limits.LEDGER_TTL_SECONDS,
        on_landed: Callable[[Push, Prepared], None] = lambda _push, _prepared: None,
    ):
        self._store, self._ttl_seconds, self._on_landed = store, ttl_seconds, on_landed
        self._lock = threading.Lock()
        self._queues: dict[str, BatchQueue] = {}
        self._writer = PushWriter(store.catalog)
        self._swept_at: float | None = None

    def accept(self, push: Push) -> Accepted:
        """Land a batch, and answer when it is durable. Raises HW-I01 for a key that was used for another batch, HW-I02
        for bad rows, HW-I03 for a table that takes no pushes, HW-T07 for a missing table that may not be created. Then
        nothing of the batch has landed."""
        (outcome,) = self.accept_together([push])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def accept_together(self, pushes: Iterable[Push]) -> list[Accepted | Exception]:
        """Land batches of one table in their order, in as few commits as memory allows. Returns the answer to each, or
        what `accept` would raise. A refused batch does not stop the others."""
        outcomes: list[Accepted | Exception] = []
        begun: list[Ticket] = []
        base: Base | None = None
        held = 0
        for push in pushes:
            begun.append(ticket := self._begin(push, base))
            if ticket.prepared is not None:
                base, held = ticket.base, held + ticket.prepared.batch.nbytes
            if held > limits.PUSH_HELD_BYTES:
                outcomes += self._land_begun(begun)
                begun, base, held = [], None, 0
        return outcomes + self._land_begun(begun)

    def _land_begun(self, tickets: Sequence[Ticket]) -> list[Accepted | Exception]:
        if waiting := [ticket for ticket in tickets if not ticket.ended]:
            self._wait_or_lead(self._queue(waiting[0].push.target.table), Waiter(waiting))
            crash_point("ingest.before_answer")
        return [ticket.outcome for ticket in tickets]

    def _queue(self, table: str) -> BatchQueue:
        """The number of table names is unbounded, since clients choose them, so idle queues are dropped. Dropping a
        queue while a thread enters it is safe: the ledger decides between two queues of a table, as it does between
        processes."""
        with self._lock:
            if len(self._queues) >= limits.PUSH_QUEUES and table not in self._queues:
                self._queues = {name: queue for name, queue in self._queues.items() if not queue.is_idle}
            return self._queues.setdefault(table, BatchQueue())

    def _begin(self, push: Push, base: Base | None) -> Ticket:
        """A batch that may land, or has ended with an error. A large batch is prepared here, for the table as the batch
        before it found it, so that small batches need not wait for that. One whose files take long to write lands here,
        in a commit of its own."""
        ticket = Ticket(push, fingerprint(push) if push.key is not None else "")
        try:
            _check(push)
            if push.write is not None:
                self._land([ticket])
            elif not _is_small(push):
                _prepare([ticket], base) if base is not None else self._ready([ticket])
        except Exception as error:
            ticket.error = error
        return ticket

    def _wait_or_lead(self, queue: BatchQueue, waiter: Waiter) -> None:
        """Returns when all batches of the waiter have ended."""
        try:
            queue.join(waiter)
            while not waiter.ended:
                queue.gather()
                group = queue.take()
                try:
                    self._land(group)
                finally:
                    queue.wake(group)
        finally:
            if waiter.leads:
                queue.hand_over()
            for ticket in waiter.tickets:
                ticket.waiter = None  # breaks the reference cycle, which would keep the sent bytes

    def close(self) -> None:
        self._writer.close()

    def _land(self, group: Sequence[Ticket]) -> None:
        """Every batch of the group gets an answer or an error."""
        try:
            table = group[0].push.target.table
            until_landed(table, lambda _number: self._try([t for t in group if not t.ended]), hint=SEND_AGAIN)
        except BaseException as error:
            for ticket in group:
                if not ticket.ended:
                    ticket.error = error
            if not isinstance(error, Exception):
                raise

    def _try(self, group: Sequence[Ticket]) -> bool | None:
        """One commit for the rest of the group; None if the writer's lease was lost. Raises HW-T02 if the table
        changed; then nothing was written."""
        base = self._ready(group) if group else None
        tickets = [ticket for ticket in group if not ticket.ended]
        if base is None or not tickets:
            return True
        actor = ", ".join(dict.fromkeys(ticket.push.actor for ticket in tickets))
        crash_point("ingest.before_write")
        is_long = tickets[0].push.write is not None
        writing = kept_files(self._store.catalog) if is_long else nullcontext(self._writer.files())
        with writing as files, Landing(self._store, actor) as landing:
            landed = land_pushes(landing, files, base, [(ticket.push, ticket.prepared) for ticket in tickets])
            keys = [(ticket.sent, each) for ticket, each in zip(tickets, landed) if ticket.push.key is not None]
            add_keys(landing, keys, ttl_seconds=self._ttl_seconds)
            try:
                seq = landing.commit(requires=(files.writer,)) if landing.changes else self._seq()
            except LeaseLost:
                self._writer.forget(files.writer)
                return None
        for ticket, each in zip(tickets, landed):
            ticket.answer = each.answer(seq)
        for each in landed:
            self._on_landed(each.push, each.prepared)
        self._sweep(tickets[0].push.actor)
        return True

    def _seq(self) -> int:
        """The newest commit: the answer to a push that changes nothing."""
        with self._store.catalog.snapshot() as connection:
            return current_seq(connection)

    def _ready(self, group: Sequence[Ticket]) -> Base | None:
        """Answers the batches whose keys are in the ledger, before any body is read. Prepares the others for the table
        as it is now, and returns that table. Afterwards each batch has ended, is prepared, or has yet to be written."""
        target = group[0].push.target
        keys = [ticket.push.key for ticket in group if ticket.push.key is not None]
        with self._store.catalog.snapshot() as connection:
            taken = taken_keys(connection, target.table, keys, now_us=now_us()) if keys else {}
            for ticket in group:
                if ticket.push.key is not None and ticket.push.key in taken:
                    self._answer_again(ticket, taken[ticket.push.key])
            left = [ticket for ticket in group if not ticket.ended]
            if not left:
                return None
            base = base_of(connection, target)
        check_base(self._store, target, base, actor=left[0].push.actor)
        new = [ticket for ticket in left if ticket.push.write is None and not ticket.is_prepared_for(base)]
        if new:
            crash_point("ingest.after_key")
            _prepare(new, base)
        return base

    def _answer_again(self, ticket: Ticket, found: LedgerKey) -> None:
        try:
            answer = replay(found, ticket.sent)
            if not self._store.layout.log_record(found.seq).exists():  # its writer was killed earlier
                heal_log(self._store.catalog, self._store.layout, tidy=False)
            ticket.answer = answer
        except Exception as error:
            ticket.error = error

    def _sweep(self, actor: str) -> None:
        """Sweeps the ledger from time to time, after a push."""
        with self._lock:
            now = time.monotonic()
            if self._swept_at is not None and now - self._swept_at < limits.LEDGER_SWEEP_SECONDS:
                return
            self._swept_at = now
        sweep(self._store, actor=actor)


def _check(push: Push) -> None:
    if not is_table_name(push.target.table):
        raise HeadwaterError("HW-I03", "that is not a name that a table can have", hint=TABLE_NAME_HINT)
    if push.target.table == LETTERS:
        message = f"`{LETTERS}` keeps bad rows, and takes no pushes"
        raise HeadwaterError("HW-I03", message, hint="push to a table of another name")
    if push.key is not None:
        check_key(push.key)


def _is_small(push: Push) -> bool:
    return push.reader is None and len(push.body) <= limits.PUSH_SMALL_BYTES


def _prepare(tickets: Sequence[Ticket], base: Base) -> None:
    """Make rows of the batches: small good ones all at once, the others one by one. A refused batch has ended."""
    together = [ticket for ticket in tickets if _is_small(ticket.push)]
    schema = tickets[0].push.target.coerced(base.schema)
    quickly = dict(zip(together, prepare_together([ticket.push.body for ticket in together], schema)))
    for ticket in tickets:
        try:
            ticket.prepared, ticket.base = quickly.get(ticket) or _prepared(ticket.push, base), base
        except Exception as error:
            ticket.error = error


def _prepared(push: Push, base: Base) -> Prepared:
    most = {"refuse": 0, "leave_out": None, "dead_letter": push.target.max_bad_rows}[push.on_bad_row]
    schema = push.target.coerced(base.schema)
    if push.reader is not None:
        return push.reader(schema, most)
    return prepare(push.body, schema, table=push.target.table, evolve=push.evolve, most_bad=most)

"""Batches of one table that wait for a commit.

Each batch is brought by a thread. One of these threads at a time is the leader: it lands the waiting batches, also
those of other threads, until its own batches have ended. Then it hands over to a thread that still waits. The others
sleep until they have their answers, so a commit that a hundred threads share wakes each of them once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.base import limits
from headwater.ingest.group_commit import Base
from headwater.ingest.prepare import Prepared
from headwater.ingest.push_records import Accepted, Push


@dataclass(eq=False)
class Ticket:
    """A batch in the queue, and its outcome. `prepared` has its rows for the table `base`."""

    push: Push
    sent: str
    base: Base | None = None
    prepared: Prepared | None = None
    answer: Accepted | None = None
    error: BaseException | None = None
    waiter: Waiter | None = None

    @property
    def ended(self) -> bool:
        return self.answer is not None or self.error is not None

    @property
    def outcome(self) -> Accepted | Exception:
        if isinstance(self.error, Exception):
            return self.error
        if self.answer is None:  # its leader was interrupted
            assert self.error is not None
            raise self.error
        return self.answer

    def is_prepared_for(self, base: Base) -> bool:
        return self.prepared is not None and self.base is not None and self.base.schema == base.schema


@dataclass(eq=False)
class Waiter:
    """The batches of one thread. The thread sleeps until they have all ended, or until it `leads`. `gone` if it was
    interrupted: then it can do neither."""

    tickets: Sequence[Ticket]
    woken: threading.Event = field(default_factory=threading.Event)
    leads: bool = False
    gone: bool = False

    @property
    def ended(self) -> bool:
        return all(ticket.ended for ticket in self.tickets)


class BatchQueue:
    """The batches of one table. There is a leader whenever a batch waits whose thread has not gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._led = False
        self._waiting: list[Ticket] = []
        self._expected = self._wanted = 0
        self._enough = threading.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._led and not self._waiting

    def join(self, waiter: Waiter) -> None:
        """Returns when all batches of the waiter have ended, or when its thread leads. A thread that `leads` must call
        `hand_over`, also if it was interrupted here."""
        for ticket in waiter.tickets:
            ticket.waiter = waiter
        with self._lock:
            self._waiting.extend(waiter.tickets)
            if 0 < self._wanted <= len(self._waiting):
                self._enough.set()
            if not self._led:
                self._led = waiter.leads = True
                return
        try:
            waiter.woken.wait()
        except BaseException:
            with self._lock:
                waiter.gone = True
            raise

    def gather(self) -> None:
        """For the leader: waits a moment for the clients that were just answered, since they are likely to send again.
        One commit for all of them is faster than two for half of them each."""
        with self._lock:
            if len(self._waiting) >= self._expected:
                return
            self._wanted = self._expected
        self._enough.wait(limits.PUSH_GATHER_SECONDS)
        with self._lock:
            self._wanted = 0
            self._enough.clear()

    def take(self) -> list[Ticket]:
        """For the leader: the batches that can share a commit with the first that waits. If two have the same key, the
        second is left for later: it will find the answer of the first."""
        with self._lock:
            group: list[Ticket] = []
            left: list[Ticket] = []
            keys: set[str] = set()
            room = limits.PUSH_GROUP_BYTES
            for ticket in self._waiting:
                push = ticket.push
                fits = (
                    (not group or push.target == group[0].push.target)
                    and push.key not in keys
                    and len(group) < limits.PUSH_GROUP_BATCHES
                    and (room >= len(push.body) or not group)
                )
                (group if fits else left).append(ticket)
                if fits:
                    room -= len(push.body)
                    keys |= {push.key} if push.key is not None else set()
            self._waiting = left
            return group

    def wake(self, group: Sequence[Ticket]) -> None:
        """For the leader, when the batches that it took have ended: wakes the threads that have all their answers."""
        self._expected = min(len(group) + len(self._waiting), limits.PUSH_GROUP_BATCHES)
        for waiter in {ticket.waiter for ticket in group}:
            if waiter is not None and not waiter.leads and waiter.ended:
                waiter.woken.set()

    def hand_over(self) -> None:
        """For the leader: makes the first thread whose batch waits the leader. A batch whose thread is gone waits for
        the next thread that joins."""
        with self._lock:
            waiters = (ticket.waiter for ticket in self._waiting)
            following = next((waiter for waiter in waiters if waiter is not None and not waiter.gone), None)
            self._led = following is not None
            if following is not None:
                following.leads = True
                following.woken.set()

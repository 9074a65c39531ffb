"""Who lands the batches of a table: one thread at a time, for all, and never nobody."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.base import limits
from headwater.ingest.batch_queue import BatchQueue, Ticket, Waiter
from headwater.ingest.push_records import Accepted, Push, PushTable

PATIENCE_SECONDS = 60.0
WAIT_SECONDS = 0.001


def waiter(*keys: str) -> Waiter:
    return Waiter([Ticket(Push(PushTable("t", "t"), b"", "somebody", key=key), "") for key in keys])


def end(group: list[Ticket]) -> list[str | None]:
    for ticket in group:
        ticket.answer = Accepted("1", 0, 0)
    return [ticket.push.key for ticket in group]


def wait_for(queue: BatchQueue, waiting: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while queue.waiting < waiting:
        assert time.monotonic() < deadline
        time.sleep(WAIT_SECONDS)


def test_the_first_leads_and_hands_over_to_the_next() -> None:
    queue, first, second, third = BatchQueue(), waiter("a"), waiter("b", "c"), waiter("d")
    queue.join(first)
    assert first.leads
    group = queue.take()
    with ThreadPoolExecutor(2) as threads:
        following = threads.submit(queue.join, second)
        wait_for(queue, 2)
        last = threads.submit(queue.join, third)
        wait_for(queue, 3)
        assert end(group) == ["a"]
        queue.wake(group)
        queue.hand_over()
        following.result()
        assert (second.leads, third.leads) == (True, False)
        group = queue.take()
        assert end(group) == ["b", "c", "d"]
        assert not last.done()
        queue.wake(group)
        last.result()
    assert not third.leads, "it was landed by another"


def test_of_two_with_one_key_the_second_comes_later() -> None:
    queue = BatchQueue()
    queue.join(waiter("a", "b", "a"))
    assert [end(queue.take()), end(queue.take())] == [["a", "b"], ["a"]]


class Interrupted(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_one_that_is_interrupted_does_not_lead_and_its_batch_is_landed_by_the_next() -> None:
    queue, first, gone = BatchQueue(), waiter("a"), waiter("b")
    gone.woken = Interrupted()
    queue.join(first)
    with pytest.raises(KeyboardInterrupt):
        queue.join(gone)
    assert queue.take() == [*first.tickets, *gone.tickets]
    queue._waiting.extend(gone.tickets)
    queue.hand_over()
    assert not gone.leads
    following = waiter("c")
    queue.join(following)
    assert following.leads
    assert end(queue.take()) == ["b", "c"]


class Watched(threading.Event):
    """Tells that somebody waits for it, and whether it came."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()
        self.came: bool | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.awaited.set()
        self.came = super().wait(timeout)
        return self.came


@pytest.mark.parametrize("landed_together", [2, 1], ids=["both were answered", "one was answered and one waits"])
def test_a_commit_waits_for_as_many_as_came_to_the_last_one(
    landed_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUSH_GATHER_SECONDS", PATIENCE_SECONDS)
    queue, enough = BatchQueue(), Watched()
    queue._enough = enough
    first, second, third = waiter("a"), waiter("b"), waiter("c")
    with ThreadPoolExecutor(3) as threads:
        queue.join(first)
        group = queue.take() if landed_together == 1 else []
        following = threads.submit(queue.join, second)
        wait_for(queue, landed_together)
        group = group or queue.take()
        end(group)
        queue.wake(group)
        queue.hand_over()
        following.result()
        leader = second if landed_together == 1 else third
        if leader is third:
            queue.join(third)
        assert leader.leads
        gathering = threads.submit(queue.gather)
        assert enough.awaited.wait(PATIENCE_SECONDS)
        last = threads.submit(queue.join, waiter("d"))
        gathering.result()
        assert enough.came
        group = queue.take()
        assert end(group) == [leader.tickets[0].push.key, "d"]
        queue.wake(group)
        last.result()


def test_who_is_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUSH_GATHER_SECONDS", PATIENCE_SECONDS)
    queue = BatchQueue()
    for key in ("a", "b", "c"):
        alone = waiter(key)
        queue.join(alone)
        queue.gather()
        group = queue.take()
        assert end(group) == [key]
        queue.wake(group)
        queue.hand_over()

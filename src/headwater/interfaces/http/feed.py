"""Events of the engine, as they happen: one thread watches the catalog for all listeners, and counts events."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headwater.app.engine_events import EventWatch, StoredEvent
from headwater.app.telemetry import Counters
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.clock import to_text
from headwater.base.errors import HeadwaterError
from headwater.interfaces.answers import answer_text
from headwater.interfaces.http.paths import json_without_paths
from headwater.interfaces.http.problems import NO_STORE

_RUN_STATES = {
    "run_completed": "success",
    "run_passed": "passed",
    "run_failed": "failed",
    "run_superseded": "superseded",
}
_LOG = logging.getLogger("headwater.http")


class Feed:
    """The newest event's id, and a way to wait for a newer one. `stop` may be called from any thread, more than once;
    it ends all listeners."""

    def __init__(self, workspace: Callable[[], Workspace], counters: Counters):
        self.listeners = 0
        self._watch = EventWatch(workspace)
        self._counters = counters
        self._last: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater http feed", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        """Call it in the event loop of the listeners."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._watch.wake()
        self._tell()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(limits.HTTP_STOP_SECONDS)

    def join_listeners(self) -> None:
        """Adds a listener, until `leave_listeners`. Raises HW-H05 at the limit. Call it in the event loop."""
        if self.listeners >= limits.LISTENERS:
            message = f"{limits.LISTENERS} clients listen already"
            raise HeadwaterError("HW-H05", message, hint="try again later", retryable=True)
        self.listeners += 1

    def leave_listeners(self) -> None:
        self.listeners -= 1

    async def newer(self, after: int, *, within_seconds: float) -> bool:
        """Waits until there may be an event after that one, or the feed ends; False if neither happened in time."""
        deadline = asyncio.get_running_loop().time() + within_seconds
        while not self.stopped and (self._last is None or self._last <= after):
            changed = self._changed
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)
        return True

    def _run(self) -> None:
        try:
            while not self.stopped:
                try:
                    self._look()
                except HeadwaterError:  # the catalog is unreachable: requests report it; this thread tries again
                    self._stopping.wait(limits.WAKE_RETRY_SECONDS)
                except Exception:  # this thread must not end: listeners would get no more events
                    _LOG.exception("the feed of events failed; it tries again")
                    self._stopping.wait(limits.WAKE_RETRY_SECONDS)
        finally:
            self._watch.close()

    def _look(self) -> None:
        events = self._watch.read()
        for event in events:
            self._count(event)
        self._last = self._watch.last
        if events:
            self._tell()
        pause = limits.FEED_PAUSE_SECONDS if self.listeners else limits.FEED_COUNT_SECONDS
        if len(events) < limits.EVENTS_PAGE and not self._stopping.wait(pause):
            self._watch.wait(limits.WAKE_RETRY_SECONDS, self._stopping)

    def _count(self, event: StoredEvent) -> None:
        match event.kind:
            case kind if kind in _RUN_STATES:
                self._counters.add("runs", event.pond, _RUN_STATES[kind])
            case "ripple_failed":
                self._counters.add("ripple_failures", event.pond, str(event.body.get("ripple", "")))
            case "demand_refused":
                self._counters.add("demands_refused", event.pond)

    def _tell(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there are no listeners
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def stream(
    feed: Feed, read: Callable[[int], list[StoredEvent]], *, after: int, heartbeat_seconds: float
) -> AsyncIterator[str]:
    """Server-sent events after that id, until the feed ends. If the catalog is unreachable the stream ends: the client
    connects again, with the id of the last event."""
    yield f"retry: {limits.HTTP_RETRY_SECONDS * 1000}\n\n"
    while not feed.stopped:
        try:
            events = await run_in_threadpool(read, after)
        except HeadwaterError:
            return
        for event in events:
            after = event.id
            yield _sent(event)
        while not events and not await feed.newer(after, within_seconds=heartbeat_seconds):
            yield ": nothing new\n\n"


class EventStream(StreamingResponse):
    """An answer to a listener that has joined. It leaves when the answer ends, even if the answer never began."""

    def __init__(self, feed: Feed, events: AsyncIterator[str]):
        headers = {**NO_STORE, "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave_listeners()


def _sent(event: StoredEvent) -> str:
    data = json_without_paths(answer_text(event_json(event), indent=None))
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"


def event_json(event: StoredEvent) -> dict[str, Any]:
    """An event, as listeners get it."""
    return {
        "id": event.id,
        "at": to_text(event.at_us),
        "kind": event.kind,
        "pipeline": event.pond,
        "run_id": event.run_id,
        "detail": event.body,
    }

"""Checks each request before its path is called: host, origin, token, and the size and speed of the body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import nullcontext
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.app.access import Access, host_of
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.memory import MemoryBudget, Reservation
from headwater.interfaces.http.problems import RequestError, problem

OPEN = frozenset({"/health"})
"""Paths that need no token: a monitor of the server has none."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_WEBHOOK = re.compile(r"/v1/pipelines/[^/]+/events")
_INGEST = re.compile(r"/v1/ingest/[^/]+")
_OWN_SITES = frozenset({"none", "same-origin"})
_PORTS = {"http": 80, "https": 443}


def is_own_page(headers: Headers, host: str) -> bool:
    """Whether a request that changes something has an allowed origin: none, as from a program, or a page of this very
    server, port included. `host` is the request's own `Host`."""
    if headers.get("sec-fetch-site", "none").strip().lower() not in _OWN_SITES:
        return False
    origins = headers.getlist("origin")
    return not origins or (len(origins) == 1 and _origin_of(origins[0]) in _origins_of(host))


def _origin_of(origin: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; an empty host if it is not an origin."""
    try:
        found = urlsplit(origin)
        return found.scheme, host_of(found.netloc), found.port or _PORTS.get(found.scheme)
    except ValueError:
        return "", "", None


def _origins_of(host: str) -> set[tuple[str, str, int | None]]:
    """The origins of pages that were loaded with this `Host`: a proxy in front of the server may have added TLS."""
    port = urlsplit(f"//{host}").port
    return {(scheme, host_of(host), port or usual) for scheme, usual in _PORTS.items()}


def _problem(error: HeadwaterError, _scope: Scope) -> ASGIApp:
    return problem(error)


class Guard:
    """Checks every request before its path: host, origin, token, and the size and speed of the body. `counts` is true
    if the guard counts the memory of the body; `refusal` renders an error as the application does."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        most_bytes: Callable[[Scope], int] | None = None,
        counts: Callable[[Scope], bool] | None = None,
        refusal: Callable[[HeadwaterError, Scope], ASGIApp] = _problem,
    ):
        self._bodies = MemoryBudget(batches=0, size=limits.HTTP_REQUEST_MEMORY_BYTES)
        self.app = app
        self.access = access
        self.most_bytes = most_bytes or _most_bytes
        self.counts = counts or _is_json
        self.refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.most_bytes(scope)
        try:
            self._check(scope, most)
        except HeadwaterError as error:
            await self.refusal(error, scope)(scope, receive, send)
            return
        with self._bodies.hold() if self.counts(scope) else nullcontext() as place:
            await self.app(scope, _Body(receive, most, place), send)

    def _check(self, scope: Scope, most: int) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        names = headers.getlist("host")
        if len(names) != 1 or host_of(names[0]) not in self.access.hosts:
            hint = "use a host name of the server; `[serve] hosts` adds more"
            raise HeadwaterError("HW-H03", "the request is for another host than this server", hint=hint)
        if scope["method"] not in READING and not is_own_page(headers, names[0]):
            message = "the request comes from a page of another server"
            raise RequestError(403, message, "send it from a program, or from a page of this server", code="HW-H03")
        signed = self.access.webhook_secret is not None and _is_webhook(scope)
        if path not in OPEN and not signed:
            self.access.check_token(headers.get("authorization"))
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)


class _Body:
    """A body, with limits on its size and on its time; its memory is counted if the server holds it."""

    def __init__(self, receive: Receive, most: int, place: Reservation | None):
        self._receive, self._most, self._place = receive, most, place
        self._seen = 0
        self._begun = 0.0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()  # waits for the client to disconnect
        loop = asyncio.get_running_loop()
        self._begun = self._begun or loop.time()
        try:
            async with asyncio.timeout_at(self._begun + body_seconds(self._seen)):
                message = await self._receive()
        except TimeoutError as error:
            text = f"the body is too slow: {self._seen} bytes in {loop.time() - self._begun:.0f} seconds"
            raise RequestError(408, text, "send it faster, or in smaller parts") from error
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            self._is_whole = not message.get("more_body", False)
        return message

    def _count(self, size: int) -> None:
        self._seen += size
        if self._seen > self._most:
            raise _too_large(self._most)
        if self._place is not None:
            self._place.grow(size)


def body_seconds(received: int) -> float:
    """How long a body may take that has this many bytes so far."""
    earned = limits.HTTP_BODY_SECONDS + received / limits.HTTP_BODY_BYTES_PER_SECOND
    return min(earned, limits.HTTP_BODY_MAX_SECONDS)


def _too_large(most: int) -> HeadwaterError:
    return RequestError(413, f"the body is larger than {most >> 20} MiB", "send less at a time")


def _is_json(scope: Scope) -> bool:
    """Whether the guard must count the body: pushes count their own, webhooks hold none."""
    return scope["method"] not in READING and not _is_webhook(scope) and not _is_push(scope)


def _most_bytes(scope: Scope) -> int:
    if _is_webhook(scope):
        return limits.WEBHOOK_BODY_BYTES
    return limits.MAX_BODY_BYTES if _is_push(scope) else limits.REQUEST_BODY_BYTES


def _is_push(scope: Scope) -> bool:
    return scope["method"] == "POST" and _INGEST.fullmatch(scope["path"]) is not None


def _is_webhook(scope: Scope) -> bool:
    return scope["method"] == "POST" and _WEBHOOK.fullmatch(scope["path"]) is not None

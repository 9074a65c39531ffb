"""Who may ask: the names of this server, its token, and the signature of a webhook."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.faces.http.problems import RequestError, problem
from headwater.manifest.load import Project
from headwater.manifest.references import resolve_reference
from headwater.manifest.vocabulary import is_host, is_loopback

SIGNATURE = "X-Headwater-Signature"
OPEN = frozenset({"/health"})
"""What needs no token: somebody who watches over the server has none."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_WEBHOOK = re.compile(r"/v1/pipelines/[^/]+/events")
_INGEST = re.compile(r"/v1/ingest/[^/]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True)
class Access:
    """`hosts` are the names by which the server may be asked. Without a `token` everybody who reaches it may ask."""

    hosts: frozenset[str] = _LOOPBACK
    token: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)

    def knows_host(self, header: str | None) -> bool:
        return header is not None and host_of(header) in self.hosts

    def knows_page(self, origin: str | None) -> bool:
        """Whether a page from there may send something. No page says so of programs: they name no origin."""
        return origin is None or host_of(urlsplit(origin).netloc) in self.hosts

    def knows_token(self, authorization: str | None) -> bool:
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and _same(given.strip(), self.token)

    def check_token(self, authorization: str | None) -> None:
        """Raises HW-H02 unless the sender knows the token, where there is one."""
        if not self.knows_token(authorization):
            what = "no token" if authorization is None else "the wrong token"
            hint = "send `Authorization: Bearer ...` with the token of `[serve] token`"
            raise HeadwaterError("HW-H02", f"the request has {what}", hint=hint)

    def check_signature(self, body: bytes, header: str | None) -> None:
        """Raises HW-H02 unless the sender knows the secret, where there is one."""
        if self.webhook_secret is None:
            return
        right = "sha256=" + hmac.new(self.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
        if header is None or not _same(header.strip().lower(), right):
            what = "has no signature" if header is None else "has the wrong signature"
            hint = f"send `{SIGNATURE}: sha256=...`: the HMAC of the body with the secret of `[serve] webhook_secret`"
            raise HeadwaterError("HW-H02", f"the webhook {what}", hint=hint)


def access_of(project: Project, *, host: str | None = None, environ: Mapping[str, str] = os.environ) -> Access:
    """What `[serve]` says; `host` is the address to listen on if it is another one. Raises HW-M08 if others can reach
    that address and there is no token, and if a secret is not set."""
    section = project.spec.serve
    host = host or section.host
    token = _secret(project, "token", section.token, environ)
    if token is None and not is_loopback(host):
        raise HeadwaterError(
            "HW-M08",
            f"`{host}` can be reached by others, and there is no token",
            hint='add `token = "env:HEADWATER_TOKEN"` to `[serve]`, or listen on `127.0.0.1`',
        )
    own = frozenset() if host in _EVERYWHERE else frozenset({host.lower()})
    return Access(
        hosts=_LOOPBACK | own | {name.lower() for name in section.hosts},
        token=token,
        webhook_secret=_secret(project, "webhook_secret", section.webhook_secret, environ),
    )


def host_of(header: str) -> str:
    """The host of `host:port`, in small letters and without brackets; empty if it is none."""
    try:
        found = urlsplit(f"//{header}")
        name, _port = (found.hostname or "").rstrip("."), found.port
    except ValueError:
        return ""
    alone = not (found.username or found.password or found.path or found.query or found.fragment)
    return name if alone and is_host(name) else ""


def _problem(error: HeadwaterError, _scope: Scope) -> ASGIApp:
    return problem(error)


class Guard:
    """Stands before all paths: the host, the page it comes from, the token, the size of the body. `refusal` is how the
    application tells an error."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        most_bytes: Callable[[Scope], int] | None = None,
        refusal: Callable[[HeadwaterError, Scope], ASGIApp] = _problem,
    ):
        self.app = app
        self.access = access
        self.most_bytes = most_bytes or _most_bytes
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
        await self.app(scope, _Counted(receive, most), send)

    def _check(self, scope: Scope, most: int) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        names = headers.getlist("host")
        if len(names) != 1 or not self.access.knows_host(names[0]):
            hint = "ask it by a name that it knows; `[serve] hosts` lists more of them"
            raise HeadwaterError("HW-H03", "the request is for another host than this server", hint=hint)
        if scope["method"] not in READING and not self.access.knows_page(headers.get("origin")):
            message = "the request comes from a page of another server"
            raise RequestError(403, message, "send it from a program, or from a page of this server", code="HW-H03")
        signed = self.access.webhook_secret is not None and _is_webhook(scope)
        if path not in OPEN and not signed:
            self.access.check_token(headers.get("authorization"))
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)


class _Counted:
    """A body whose length nobody has told is counted as it comes."""

    def __init__(self, receive: Receive, most: int):
        self._receive = receive
        self._most = most
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._most:
                raise _too_large(self._most)
        return message


def _too_large(most: int) -> HeadwaterError:
    return RequestError(413, f"the body is larger than {most >> 20} MiB", "send less at a time")


def _most_bytes(scope: Scope) -> int:
    if _is_webhook(scope):
        return limits.WEBHOOK_BODY_BYTES
    is_push = scope["method"] == "POST" and _INGEST.fullmatch(scope["path"]) is not None
    return limits.MAX_BODY_BYTES if is_push else limits.REQUEST_BODY_BYTES


def _is_webhook(scope: Scope) -> bool:
    return scope["method"] == "POST" and _WEBHOOK.fullmatch(scope["path"]) is not None


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), right.encode())


def _secret(project: Project, key: str, text: str | None, environ: Mapping[str, str]) -> str | None:
    if text is None:
        return None
    value = resolve_reference(text, None, environ, project.root)
    if not value.strip():
        raise HeadwaterError("HW-M08", f"`serve.{key}` is empty", hint="give it a long random value")
    return value.strip()

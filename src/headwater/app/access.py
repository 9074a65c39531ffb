"""Access to a server: the host names that it answers to, and its token."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headwater.base.errors import HeadwaterError
from headwater.manifest.load import Project
from headwater.manifest.references import resolve_reference
from headwater.manifest.vocabulary import is_host, is_loopback

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Access:
    """`hosts` are the names by which clients may call the server. Without a `token` every client has access."""

    hosts: frozenset[str] = _LOOPBACK
    token: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)

    def check_token(self, authorization: str | None) -> None:
        """Raises HW-H02 if there is a token and the sender did not send it."""
        if self.token is None:
            return
        scheme, _, given = (authorization or "").partition(" ")
        sent = given.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent, self.token.encode()):
            what = "no token" if authorization is None else "the wrong token"
            hint = "send `Authorization: Bearer ...` with the token of `[serve] token`"
            raise HeadwaterError("HW-H02", f"the request has {what}", hint=hint)


def access_of(project: Project, *, host: str | None = None, environ: Mapping[str, str] = os.environ) -> Access:
    """What `[serve]` says; `host` replaces its address to listen on. Raises HW-M08 if others can reach that address and
    there is no token, or if a secret is not set."""
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
    """The host of `host:port`, in lower case and without brackets; empty if the header is not valid."""
    try:
        found = urlsplit(f"//{header}")
        name, _port = (found.hostname or "").rstrip("."), found.port
    except ValueError:
        return ""
    alone = not (found.username or found.password or found.path or found.query or found.fragment)
    return name if alone and is_host(name) else ""


def _secret(project: Project, key: str, text: str | None, environ: Mapping[str, str]) -> str | None:
    if text is None:
        return None
    value = resolve_reference(text, None, environ, project.root)
    if not value.strip():
        raise HeadwaterError("HW-M08", f"`serve.{key}` is empty", hint="give it a long random value")
    return value.strip()

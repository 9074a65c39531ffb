"""The signature of a webhook.

The sender signs, with HMAC-SHA256 and the secret of `[serve] webhook_secret`, these bytes:

    timestamp "\\n" pipeline "\\n" demand "\\n" body

`timestamp` is the text of `X-Headwater-Timestamp` (seconds since 1970, decimal digits), `pipeline` the id in the path,
`demand` is `tap` or `pulse`. None of the three can hold a newline, so two requests never have the same bytes. The
digest is compared before anything is asked for; the body is digested as it comes and never held.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.problems import RequestError

SIGNATURE = "X-Headwater-Signature"
TIMESTAMP = "X-Headwater-Timestamp"
_SCHEME = "sha256="
_TIMESTAMP_DIGITS = 12
_HOW = (
    f"send `{TIMESTAMP}` with the seconds since 1970, and `{SIGNATURE}: sha256=...`: the HMAC, with the secret of "
    "`[serve] webhook_secret`, of timestamp, pipeline, demand and body with newlines between them"
)


class Signatures:
    """Accepted signatures. Each is remembered until its timestamp is too old, so it is accepted only once."""

    def __init__(self) -> None:
        self._expires: dict[bytes, float] = {}

    def begin(self, secret: str, headers: Headers, pipeline: str, demand: str, *, now: float) -> Signing:
        """Checks the headers, before the body: raises HW-H02 if one is missing, malformed, or too far from `now`."""
        given, timestamp = headers.get(SIGNATURE), headers.get(TIMESTAMP)
        if given is None:
            raise _refused("the webhook has no signature")
        if timestamp is None:
            hint = f"a signature of the body alone is not accepted: {_HOW}"
            raise _refused(f"the webhook has no `{TIMESTAMP}`", hint)
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _TIMESTAMP_DIGITS):
            raise _refused(f"`{TIMESTAMP}` is not a number of seconds")
        if abs(now - int(timestamp)) > limits.WEBHOOK_SECONDS:
            hint = f"sign each request when it is sent, and check the clock of the sender; {_HOW}"
            message = f"`{TIMESTAMP}` is more than {limits.WEBHOOK_SECONDS} seconds from the server's clock"
            raise _refused(message, hint)
        signed = hmac.new(secret.encode(), f"{timestamp}\n{pipeline}\n{demand}\n".encode(), hashlib.sha256)
        return Signing(self, signed, given.strip().lower(), int(timestamp) + limits.WEBHOOK_SECONDS)

    def remember(self, digest: bytes, expires: float, now: float) -> None:
        """Raises 409 if it was accepted before."""
        while self._expires and next(iter(self._expires.values())) < now:
            del self._expires[next(iter(self._expires))]
        if digest in self._expires:
            hint = "its demand was taken; a new request needs a new timestamp"
            raise RequestError(409, "a webhook with this signature was accepted before", hint, code="HW-H02")
        if len(self._expires) >= limits.WEBHOOK_SIGNATURES:
            message = "too many webhooks in a few minutes"
            raise RequestError(429, message, "try again later", code="HW-H05", retryable=True)
        self._expires[digest] = expires

    def forget(self, digest: bytes) -> None:
        self._expires.pop(digest, None)


class Signing:
    """One request whose body is being digested."""

    def __init__(self, signatures: Signatures, signed: hmac.HMAC, given: str, expires: float):
        self._signatures, self._signed, self._given, self._expires = signatures, signed, given, expires

    def update(self, part: bytes) -> None:
        self._signed.update(part)

    @contextmanager
    def accepted(self, now: float) -> Iterator[None]:
        """Raises HW-H02 unless the signature is right and new. If the block fails, the request may be sent again."""
        digest = self._signed.digest()
        right = _SCHEME + digest.hex()
        if not hmac.compare_digest(self._given.encode("utf-8", "surrogateescape"), right.encode()):
            raise _refused("the webhook has the wrong signature")
        self._signatures.remember(digest, self._expires, now)
        try:
            yield
        except BaseException:
            self._signatures.forget(digest)
            raise


def _refused(message: str, hint: str = _HOW) -> HeadwaterError:
    return HeadwaterError("HW-H02", message, hint=hint)

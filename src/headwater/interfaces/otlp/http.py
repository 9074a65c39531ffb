"""OTLP over HTTP: `POST /v1/logs`, `/v1/traces` and `/v1/metrics`, in protobuf or JSON."""

from __future__ import annotations

import logging
from functools import partial
from typing import get_args

from anyio import CapacityLimiter, to_thread
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from headwater.app.otlp import Form, Signal, written
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.guard import Guard
from headwater.interfaces.http.ingest import actor_of, body_of, encoding_of, key_of
from headwater.interfaces.http.problems import NO_STORE, RequestError, unforeseen
from headwater.interfaces.otlp.receive import RETRIED, Receiver, error_line, http_status

_FORMS: dict[str, Form] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_TYPES = {form: name for name, form in _FORMS.items()}
_LOG = logging.getLogger("headwater.otlp")


def otlp_app(receiver: Receiver) -> Starlette:
    """The application, for `HttpServer`. The creator of the receiver closes what it holds, after the server."""
    threads = CapacityLimiter(limits.INGEST_THREADS)

    def route(signal: Signal) -> Route:
        async def export(request: Request) -> Response:
            return await _export(receiver, threads, signal, request)

        return Route(f"/v1/{signal}", export, methods=["POST"])

    guard = Middleware(
        Guard,
        access=receiver.access,
        most_bytes=lambda _scope: limits.MAX_BODY_BYTES,
        counts=lambda _scope: False,  # each request is counted in the memory of pushes
        refusal=_refusal,
    )
    app = Starlette(
        routes=[route(signal) for signal in get_args(Signal)],
        middleware=[guard],
        exception_handlers={HeadwaterError: _known, HTTPException: _http, Exception: _unknown},
    )
    app.state.closing = lambda: None
    return app


async def _export(receiver: Receiver, threads: CapacityLimiter, signal: Signal, request: Request) -> Response:
    form = _form(request.scope)
    if form is None:
        known = " or ".join(f"`{name}`" for name in _FORMS)
        raise RequestError(415, "the request has no known `Content-Type`", f"send `Content-Type:` {known}")
    key, encoding = key_of(request.headers), encoding_of(request.headers)
    receiver.memory.check()
    with receiver.memory.hold() as place:
        body = await body_of(request, place)
        actor = actor_of(request, "otlp")
        receive = partial(receiver.receive, signal, body, place, encoding=encoding, form=form, key=key, actor=actor)
        # If the sender disconnects, its batch lands all the same: the thread goes on, and the key finds the answer.
        with receiver.memory.batch():
            found = await to_thread.run_sync(receive, limiter=threads)
    return Response(written(found, form), 200, dict(NO_STORE), _TYPES[form])


def _form(scope: Scope) -> Form | None:
    """The format of the request, which is also that of the answer."""
    header = Request(scope).headers.get("content-type", "")
    return _FORMS.get(header.partition(";")[0].strip().lower())


def _refusal(error: HeadwaterError, scope: Scope) -> Response:
    """An error in OTLP's form: a `Status` of gRPC, in the format of the request."""
    form = _form(scope) or "json"
    status = http_status(error)
    headers = dict(NO_STORE)
    if status in RETRIED:
        headers["Retry-After"] = str(limits.HTTP_RETRY_SECONDS)
    elif status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(written(Status(message=error_line(error)), form), status, headers, _TYPES[form])


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwaterError)
    return _refusal(error, request.scope)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "an exporter sends to `/v1/logs`, `/v1/traces` and `/v1/metrics`, with POST"
    return _refusal(RequestError(error.status_code, str(error.detail), hint), request.scope)


async def _unknown(request: Request, error: Exception) -> Response:
    # Starlette raises it again after the answer, and uvicorn logs it.
    _LOG.error("%s failed: %s", request.url.path, type(error).__name__)
    return _refusal(unforeseen(error), request.scope)

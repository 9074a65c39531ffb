"""The path for pushed rows: reads them with limits, lands them by the one write path, answers when they are durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from headwater.app.ingest import Accepted, Encoding, TooLarge, decoded
from headwater.interfaces.answers import batch_json
from headwater.interfaces.http.memory import Reservation
from headwater.interfaces.http.problems import RequestError
from headwater.interfaces.http.request_context import Context, Given, answer, answers, shape

_KEYS = {"idempotency-key", "x-idempotency-key"}


class PushRoute(APIRoute):
    """Calls its function with the table and the request, unless FastAPI has to read and check a header: that takes longer
    than to land a small batch. The headers of the key are read by the function."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        general, push = super().get_route_handler(), self.endpoint
        checked = {header.alias for header in self.dependant.header_params} - _KEYS

        async def handle(request: Request) -> Response:
            if checked.isdisjoint(request.headers.keys()):
                found: Response = await push(request.path_params["table"], request, request.app.state.context)
                return found
            return await general(request)

        return handle


router = APIRouter(tags=["push"], route_class=PushRoute)

IngestAnswer = shape(
    "IngestAnswer", snapshot_id=str, rows_ingested=int, rows_refused=int, bytes_written=int, replayed=bool
)
BODY = {
    "required": True,
    "description": "one JSON object a line; with `Content-Encoding: gzip` or `zstd` it is decompressed",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
}
_ENCODINGS: dict[str, Encoding] = {"": "none", "identity": "none", "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


@router.post("/v1/ingest/{table}", responses=answers(IngestAnswer, what="durable"), openapi_extra={"requestBody": BODY})
async def ingest(
    table: Annotated[str, Path(description="where the rows go")],
    request: Request,
    context: Given,
    idempotency_key: Annotated[
        str | None, Header(description="a batch that is sent again with the same key lands once")
    ] = None,
    x_idempotency_key: Annotated[str | None, Header(description="the same, by another name")] = None,
    x_schema_evolve: Annotated[bool, Header(description="false: unknown keys add no columns")] = True,
    x_auto_create: Annotated[bool, Header(description="false: a missing table is not created")] = True,
) -> Response:
    """Push rows into a table: all of them land, once, or none does."""
    # The key's arguments are only for the description; a header may come twice.
    key, encoding = key_of(request.headers), encoding_of(request.headers)
    context.memory.check()
    with context.memory.hold() as place:
        body = await body_of(request, place)
        land = partial(
            _land,
            context,
            table,
            body,
            place,
            encoding=encoding,
            key=key,
            evolve=x_schema_evolve,
            auto_create=x_auto_create,
            actor=actor_of(request),
        )
        # If the sender disconnects, its batch lands all the same: the thread goes on, and the key finds the answer.
        with context.memory.batch():
            found = await to_thread.run_sync(land, limiter=context.pushes)
    return answer(batch_json(found))


def _land(context: Context, table: str, body: bytes, place: Reservation, *, encoding: Encoding, **how: Any) -> Accepted:
    workspace, ingestor = context.current(), context.ingestor
    try:
        rows = decoded(body, encoding, grow=place.grow)
        found = ingestor.ingest(workspace, table, rows, **how)
    except TooLarge as error:
        raise RequestError(413, error.message, error.hint, code=error.code) from error
    if not found.replayed:
        ingestor.show_soon(workspace)
    return found


def actor_of(request: Request, protocol: str = "http") -> str:
    """The actor: only the address is known."""
    return f"{protocol}:{request.client.host}" if request.client is not None else protocol


async def parts_of(request: Request) -> AsyncIterator[bytes]:
    """The body, in parts as they come."""
    try:
        async for part in request.stream():
            yield part
    except ClientDisconnect as error:
        raise RequestError(400, "the sender disconnected before all was sent") from error


async def body_of(request: Request, place: Reservation) -> bytes:
    """The whole body. Its memory counts until the reservation ends."""
    parts = []
    async for part in parts_of(request):
        place.grow(len(part))
        parts.append(part)
    return b"".join(parts)


def key_of(headers: Headers) -> str | None:
    """The key of a request, from either header."""
    found = {*headers.getlist("idempotency-key"), *headers.getlist("x-idempotency-key")}
    if len(found) > 1:
        message = "the request has several keys: `Idempotency-Key` and `X-Idempotency-Key` must be the same"
        raise RequestError(422, message, "send one of them")
    return _text(found.pop()) if found else None


def _text(header: str) -> str:
    """Header bytes are decoded as Latin-1. A key is UTF-8 wherever possible, so that it is the same for every entry
    point."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header


def encoding_of(headers: Headers) -> Encoding:
    header = ", ".join(headers.getlist("content-encoding"))
    found = _ENCODINGS.get(header.strip().lower())
    if found is None:
        message = f"`Content-Encoding: {header[:40]}` is not supported"
        raise RequestError(415, message, "send it as it is, or with gzip or zstd")
    return found

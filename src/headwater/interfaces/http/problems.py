"""Errors over HTTP: `application/problem+json` (RFC 9457) with the error object of every other interface."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError
from headwater.interfaces.answers import answer_text
from headwater.interfaces.http.paths import json_without_paths

PROBLEM = "application/problem+json"
NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_STATUS: dict[str, int] = {
    "HW-M08": 500,
    "HW-M11": 404,
    "HW-C05": 409,
    "HW-T02": 409,
    "HW-T03": 409,
    "HW-T06": 503,
    "HW-T07": 404,
    "HW-I01": 422,
    "HW-I02": 422,
    "HW-I03": 409,
    "HW-I04": 400,
    "HW-Q01": 400,
    "HW-Q02": 504,
    "HW-Q03": 400,
    "HW-U01": 422,
    "HW-U02": 404,
    "HW-R02": 409,
    "HW-H02": 401,
    "HW-H03": 421,
    "HW-H04": 400,
    "HW-H05": 503,
}
_OF_GROUP = {"M": 422, "S": 422, "C": 502}
"""The status by the letter of the code, if the code has none of its own; otherwise 500."""

_LOG = logging.getLogger("headwater.http")


class RequestError(HeadwaterError):
    """A refused request with an HTTP status of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        hint: str = "",
        *,
        code: str = "HW-H04",
        retryable: bool = False,
        **detail: object,
    ):
        self.status = status
        super().__init__(code, message, hint, retryable=retryable, detail=detail)


def status_of(error: HeadwaterError) -> int:
    if isinstance(error, RequestError):
        return error.status
    return _STATUS.get(error.code, _OF_GROUP.get(error.code[3], 500))


def unforeseen(error: Exception) -> HeadwaterError:
    """An error of Headwater itself, without its message: that may have values of rows in it."""
    message = f"an error of Headwater itself: {type(error).__name__}"
    return HeadwaterError("HW-X01", message, hint="the log of the server says more")


def problem(error: HeadwaterError) -> Response:
    """An error as an answer. `detail` is RFC 9457's: the message. `error` is what the command line shows with `--json`,
    without paths of this machine."""
    status = status_of(error)
    body: dict[str, object] = {
        "type": f"urn:headwater:error:{error.code}",
        "title": CODES[error.code][0],
        "status": status,
        "detail": error.message,
        "code": error.code,
        "error": error.as_json(),
    }
    headers = dict(NO_STORE)
    match status:
        case 401:
            headers["WWW-Authenticate"] = "Bearer"
        case 429 | 503:
            headers["Retry-After"] = str(limits.HTTP_RETRY_SECONDS)
        case 405:
            headers["Allow"] = str(error.detail.get("allow", ""))
    return Response(json_without_paths(answer_text(body, indent=None)), status, headers, PROBLEM)


def handle_errors(app: FastAPI) -> None:
    """Every error that a path raises becomes a problem; none shows a traceback."""

    @app.exception_handler(HeadwaterError)
    async def known(_request: Request, error: HeadwaterError) -> Response:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        return problem(_invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        # FastAPI wraps errors that are raised while a body is read.
        cause = error.__cause__
        return problem(cause if isinstance(cause, HeadwaterError) else _http_error(request, error))

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        # Starlette raises it again after the answer, and uvicorn logs it.
        _LOG.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
        return problem(unforeseen(error))


def _invalid(details: Sequence[Mapping[str, Any]]) -> HeadwaterError:
    """What is wrong with the values of a request, without the values."""
    shown = details[: limits.ERRORS_SHOWN]
    for detail in shown:
        if detail["type"] == "json_invalid":
            return RequestError(400, f"the body is not JSON: {detail['ctx']['error']}", place=detail["loc"][-1])
    faults = [{"where": ".".join(map(str, one["loc"]))[:200], "what": str(one["msg"])} for one in shown]
    first = faults[0]
    hint = "`/docs` and `/openapi.json` say what it may be"
    if first["where"] == "body":
        hint = "send a JSON object, with `Content-Type: application/json`"
    return RequestError(422, f"`{first['where']}`: {first['what']}", hint, faults=faults)


def _http_error(request: Request, error: HTTPException) -> HeadwaterError:
    hint = "`/docs` lists the paths, `/openapi.json` describes them"
    match error.status_code:
        case 404:
            return RequestError(404, f"there is nothing at `{request.url.path[:200]}`", hint)
        case 405:
            allow = (error.headers or {}).get("Allow", "")
            return RequestError(405, f"`{request.url.path[:200]}` takes no {request.method[:20]}", hint, allow=allow)
        case status:
            return RequestError(status, str(error.detail)[:200], hint)

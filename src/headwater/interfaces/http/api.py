"""The HTTP API as one application: paths, guard, errors, description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from headwater import __version__
from headwater.app.access import Access
from headwater.app.health import Health, gauges, health
from headwater.app.ingest import Ingestor
from headwater.app.telemetry import COUNTERS, Counters
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.interfaces.http import demand, ingest, read_routes
from headwater.interfaces.http.docs_page import POLICY, docs_page
from headwater.interfaces.http.feed import Feed
from headwater.interfaces.http.guard import OPEN, Guard
from headwater.interfaces.http.openmetrics import OPENMETRICS, openmetrics
from headwater.interfaces.http.problems import NO_STORE, PROBLEM, handle_errors
from headwater.interfaces.http.request_context import Context, Given, Opened, answer, answers, opened, shape

TITLE = "Headwater"
DESCRIPTION = "Demand for pipelines, their status, pushed rows, and queries over what has landed."
HealthAnswer = shape("HealthAnswer", health=Health)


class ErrorObject(BaseModel):
    """An error, as every interface shows it."""

    code: str
    message: str
    hint: str
    retryable: bool
    detail: dict[str, Any]


class Problem(BaseModel):
    """RFC 9457, with the error object in `error`."""

    type: str = Field(description="`urn:headwater:error:` and the code")
    title: str = Field(description="what the code means")
    status: int
    detail: str = Field(description="the message")
    code: str
    error: ErrorObject
    schema_version: Literal[1]


def api(
    workspace: Callable[[], Workspace],
    *,
    access: Access | None = None,
    counters: Counters = COUNTERS,
    ingestor: Ingestor | None = None,
    heartbeat_seconds: float = limits.HEARTBEAT_SECONDS,
) -> FastAPI:
    """The application. `workspace` returns the current workspace; its creator closes it, after the server. Pushed rows
    go to `ingestor`, which is closed with the server. Without `access` it answers to the names of this machine and
    needs no token. `app.state.closing()`, from any thread, ends the event streams and the running queries: call it
    before the server is stopped."""
    access = access or Access()
    current = opened(workspace)
    feed = Feed(current, counters)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        feed.start()
        context.queries.start()
        try:
            yield
        finally:
            context.close()
            await run_in_threadpool(feed.join)
            await run_in_threadpool(context.ingestor.close)

    app = FastAPI(
        title=TITLE,
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        # Spans are made where the work is done; spans of requests are not needed.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    context = app.state.context = Context(
        current, access, counters, feed, heartbeat_seconds, ingestor=ingestor or Ingestor(counters)
    )
    app.state.closing = context.close
    app.add_middleware(Guard, access=access)
    handle_errors(app)
    app.include_router(ingest.router)  # routes are tried in this order, and this one is asked most often
    app.include_router(demand.router)
    app.include_router(read_routes.router)
    _add_watching(app)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]
    return app


def _add_watching(app: FastAPI) -> None:
    @app.get("/health", tags=["watch"], responses={**answers(HealthAnswer), **answers(HealthAnswer, status=503)})
    def is_healthy(workspace: Opened) -> Response:
        """200 if the catalog answers and a process runs the engine, else 503. Needs no token."""
        found = health(workspace)
        return answer({"health": found}, status=200 if found.healthy else 503)

    @app.get("/metrics", tags=["watch"], responses={200: {"content": {OPENMETRICS: {"schema": {"type": "string"}}}}})
    def metrics(workspace: Opened, context: Given) -> Response:
        """Metrics as OpenMetrics."""
        return Response(openmetrics(gauges(workspace), context.counters), 200, dict(NO_STORE), OPENMETRICS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {**NO_STORE, "Content-Security-Policy": POLICY}
        return Response(docs_page(_description(app)), 200, headers, "text/html")


def _description(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. FastAPI's description of errors is replaced by that of the problems that are sent."""
    if app.openapi_schema is None:
        found = get_openapi(title=TITLE, version=__version__, description=DESCRIPTION, routes=app.routes)
        schemas = found["components"]["schemas"]
        for gone in ("HTTPValidationError", "ValidationError"):
            schemas.pop(gone, None)
        described = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= described.pop("$defs") | {"Problem": described}
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        refused = {
            "description": "an error",
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for path, operations in found["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = refused
                operation["security"] = [] if path in OPEN else [{"token": []}, {}]
        app.openapi_schema = found
    return app.openapi_schema

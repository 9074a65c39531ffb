"""Paths that only read: pipelines, runs, events, queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from headwater.app.client_query import Query as ClientQuery
from headwater.app.client_query import QueryPool, answer_query
from headwater.app.engine_events import events, newest_event
from headwater.app.status import PipelineStatus, RunStatus, status
from headwater.app.why_runs_logs import RunLog, Why, run_log, runs, why
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.interfaces.answers import SCHEMA_VERSION
from headwater.interfaces.http.feed import EventStream, stream
from headwater.interfaces.http.problems import NO_STORE
from headwater.interfaces.http.request_context import Given, Opened, RequestBody, answer, answers, shape

router = APIRouter(tags=["look"])

Pipelines = shape("Pipelines", pipelines=list[PipelineStatus])
OnePipeline = shape("OnePipeline", pipeline=PipelineStatus)
WhyAnswer = shape("WhyAnswer", why=Why)
Runs = shape("Runs", runs=list[RunStatus], next=str | None)
OneRun = shape("OneRun", run=RunLog)
QueryAnswer = shape("QueryAnswer", columns=list[str], types=list[str], rows=list[dict[str, Any]], truncated=bool)


class QueryBody(RequestBody):
    """A query in SQL."""

    sql: Annotated[str, Field(min_length=1, description="one statement that reads")]
    limit: Annotated[int, Field(ge=1, le=limits.QUERY_MAX_ROWS, description="most rows of the answer")] = (
        limits.QUERY_ROWS
    )
    timeout_seconds: Annotated[
        float, Field(gt=0, le=limits.QUERY_MAX_SECONDS, description="when the query is stopped")
    ] = limits.QUERY_SECONDS
    as_of: Annotated[int | None, Field(ge=1, description="read as of this commit")] = None


@router.get("/v1/pipelines", responses=answers(Pipelines))
def list_pipelines(workspace: Opened) -> Response:
    """All pipelines: state, freshness, staleness, tables, the last run."""
    return answer({"pipelines": status(workspace)})


@router.get("/v1/pipelines/{id}", responses=answers(OnePipeline))
def one_pipeline(id: str, workspace: Opened) -> Response:
    """One pipeline, with its last runs."""
    return answer({"pipeline": status(workspace, [id])[0]})


@router.get("/v1/pipelines/{id}/why", responses=answers(WhyAnswer))
def why_pipeline(id: str, workspace: Opened) -> Response:
    """Why a pipeline runs, waits, is blocked or is idle."""
    return answer({"why": why(workspace, id)})


@router.get("/v1/runs", responses=answers(Runs))
def list_runs(
    workspace: Opened,
    pipeline: Annotated[str | None, Query(description="of this pipeline only")] = None,
    limit: Annotated[int, Query(ge=1, le=limits.HTTP_RUNS_PAGE, description="how many")] = limits.JOBS_SHOWN,
    before: Annotated[str | None, Query(description="older than this run: the `next` of the page before")] = None,
) -> Response:
    """Runs, the newest first. `next` is the `before` of the next page, or null."""
    found = runs(workspace, pipeline=pipeline, limit=limit, before=before)
    return answer({"runs": found, "next": found[-1].run_id if len(found) == limit else None})


@router.get("/v1/runs/{run_id}", responses=answers(OneRun))
def one_run(run_id: str, workspace: Opened) -> Response:
    """One run: its jobs, their errors, and its events."""
    return answer({"run": run_log(workspace, run_id)})


@router.get("/v1/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def listen(
    context: Given,
    after: Annotated[
        int | None, Query(ge=0, description="later than this event; 0: all that are kept; default: from now on")
    ] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, description="the same, sent by browsers; it wins over `after`")
    ] = None,
) -> Response:
    """Events of the engine, as server-sent events with growing ids."""
    context.feed.join_listeners()  # before the first await: a burst of listeners is counted one by one
    try:
        asked = last_event_id if last_event_id is not None else after
        newest = await run_in_threadpool(newest_event, context.current())
    except BaseException:
        context.feed.leave_listeners()
        raise
    told = stream(
        context.feed,
        lambda after: events(context.current(), after=after, limit=limits.EVENTS_PAGE),
        # An id from before the catalog was rebuilt would wait for ever.
        after=newest if asked is None else min(asked, newest),
        heartbeat_seconds=context.heartbeat_seconds,
    )
    return EventStream(context.feed, told)


@router.post("/v1/query", responses=answers(QueryAnswer))
async def query(body: QueryBody, request: Request, workspace: Opened, context: Given) -> Response:
    """DuckDB over the tables, read-only: one statement, with limits on rows, bytes, memory and time. A client that
    closes its connection ends its query."""
    pool = context.queries
    with pool.reserve() as placed:
        async with _when_client_leaves(request, lambda: pool.cancel(placed)):
            return await to_thread.run_sync(_query, workspace, body, pool, placed, limiter=context.query_threads)


@asynccontextmanager
async def _when_client_leaves(request: Request, call: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `call` if the connection is closed before the block ends. The body must have been read."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        call()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def _query(workspace: Workspace, body: QueryBody, pool: QueryPool, placed: ClientQuery) -> Response:
    found = answer_query(
        workspace,
        pool,
        body.sql,
        limit=body.limit,
        timeout_seconds=body.timeout_seconds,
        as_of=body.as_of,
        query=placed,
    )
    # The rows are JSON already: the text is built around them.
    before = {"schema_version": SCHEMA_VERSION, "columns": found.columns, "types": found.types, "rows": []}
    text = json.dumps(before, ensure_ascii=False).removesuffix("]}").encode()
    end = b'], "truncated": true}' if found.truncated else b'], "truncated": false}'
    return Response(b"".join([text, b", ".join(found.rows), end]), 200, dict(NO_STORE), "application/json")

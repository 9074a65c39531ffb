"""Paths that only look: pipelines, runs, events, queries."""

from __future__ import annotations

import threading
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from headwater.app.answering import answer_query
from headwater.app.seeing import RunLog, Why, events, run_log, runs, why
from headwater.app.status import PipelineStatus, RunStatus, status
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.faces.answers import distinct, json_value
from headwater.faces.http.context import Given, Opened, answer, answers, shape
from headwater.faces.http.feed import Listening, stream
from headwater.store import history

router = APIRouter(tags=["look"])

Pipelines = shape("Pipelines", pipelines=list[PipelineStatus])
OnePipeline = shape("OnePipeline", pipeline=PipelineStatus)
WhyAnswer = shape("WhyAnswer", why=Why)
Runs = shape("Runs", runs=list[RunStatus], next=str | None)
OneRun = shape("OneRun", run=RunLog)
QueryAnswer = shape("QueryAnswer", columns=list[str], types=list[str], rows=list[dict[str, Any]], truncated=bool)


class QueryBody(BaseModel):
    """A question in SQL."""

    model_config = ConfigDict(extra="forbid")

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
    """One run: its jobs, their errors, and what the engine told of it."""
    return answer({"run": run_log(workspace, run_id)})


@router.get("/v1/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def listen(
    context: Given,
    after: Annotated[
        int | None, Query(ge=0, description="later than this event; 0: all that are kept; default: from now on")
    ] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, description="the same, and stronger: what a browser sends")
    ] = None,
) -> Response:
    """What the engine tells, as server-sent events with growing ids."""
    context.feed.join_listeners()  # before anything waits: a burst of listeners is counted one by one
    try:
        asked = last_event_id if last_event_id is not None else after
        newest = await run_in_threadpool(_newest, context.current())
    except BaseException:
        context.feed.leave_listeners()
        raise
    told = stream(
        context.feed,
        lambda after: events(context.current(), after=after, limit=limits.EVENTS_PAGE),
        # An id from before the catalog was made again would wait for ever.
        after=newest if asked is None else min(asked, newest),
        heartbeat_seconds=context.heartbeat_seconds,
    )
    return Listening(context.feed, told)


@router.post("/v1/query", responses=answers(QueryAnswer))
async def query(body: QueryBody, workspace: Opened, context: Given) -> Response:
    """DuckDB over the tables, read-only: one statement, with a bound on rows and on time."""
    return await to_thread.run_sync(_query, workspace, body, context.closing, limiter=context.queries)


def _query(workspace: Workspace, body: QueryBody, closing: threading.Event) -> Response:
    room = _Room(limits.QUERY_ANSWER_BYTES)
    found = answer_query(
        workspace,
        body.sql,
        limit=body.limit,
        timeout_seconds=body.timeout_seconds,
        as_of=body.as_of,
        room_for=room.takes,
        closing=closing,
    )
    names = distinct(list(found.columns))
    rows = [dict(zip(names, map(json_value, row))) for row in found.rows]
    return answer({"columns": names, "types": found.types, "rows": rows, "truncated": found.truncated}, has_rows=True)


class _Room:
    """What is left of an answer's size, about."""

    def __init__(self, size: int):
        self._left = size

    def takes(self, row: tuple[Any, ...]) -> bool:
        self._left -= _size(row)
        return self._left >= 0


def _size(value: Any) -> int:
    match value:
        case str() | bytes():
            return len(value) + 4
        case list() | tuple():
            return 2 + sum(map(_size, value))
        case dict():
            return 2 + sum(_size(key) + _size(part) for key, part in value.items())
        case _:
            return 16


def _newest(workspace: Workspace) -> int:
    store = workspace.existing_store()
    if store is None:
        return 0
    with store.catalog.snapshot() as connection:
        return history.last_event_id(connection)

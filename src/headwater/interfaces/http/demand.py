"""Paths that demand something: demand, standing demand, webhooks."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from headwater.app.demand import Asked, TriggerView, ask, clear, remove_trigger, set_trigger, triggers
from headwater.app.workspace import Workspace
from headwater.interfaces.http.ingest import actor_of, parts_of
from headwater.interfaces.http.problems import RequestError
from headwater.interfaces.http.request_context import Given, Opened, RequestBody, answer, answers, shape

router = APIRouter(tags=["ask"])

AskedAnswer = shape("AskedAnswer", asked=Asked)
Triggers = shape("Triggers", triggers=list[TriggerView])
OneTrigger = shape("OneTrigger", trigger=TriggerView)
Removed = shape("Removed", removed=int)


class TriggerBody(RequestBody):
    """Standing demand."""

    max_staleness: Annotated[str | None, Field(description="of a tide: the highest staleness, such as `15m`")] = None
    expires_in: Annotated[str | None, Field(description="the time after which it ends, such as `1h`")] = None
    id: Annotated[str | None, Field(description="its name; one with the same name is replaced")] = None


@router.post("/v1/pipelines/{id}/tap", status_code=202, responses=answers(AskedAnswer, status=202, what="taken"))
def tap(id: str, workspace: Opened, request: Request) -> Response:
    """Ask once for new data: run with the freshest data that the sources can give."""
    return answer({"asked": ask(workspace, id, "tap", actor=actor_of(request))}, status=202)


@router.post("/v1/pipelines/{id}/pulse", status_code=202, responses=answers(AskedAnswer, status=202, what="taken"))
def pulse(id: str, workspace: Opened, request: Request) -> Response:
    """Ask once for data at least as fresh as now."""
    return answer({"asked": ask(workspace, id, "pulse", actor=actor_of(request))}, status=202)


@router.post("/v1/pipelines/{id}/clear", responses=answers(AskedAnswer))
def clear_pipeline(id: str, workspace: Opened, request: Request) -> Response:
    """Report that the cause of a pipeline's failure is fixed: it continues."""
    return answer({"asked": clear(workspace, id, actor=actor_of(request))})


@router.post("/v1/pipelines/{id}/wave", responses=answers(OneTrigger))
def wave(id: str, workspace: Opened, request: Request, body: TriggerBody | None = None) -> Response:
    """Keep a pipeline as fresh as possible, until the wave is removed or expires."""
    return _set(workspace, id, "wave", body or TriggerBody(), actor_of(request))


@router.post("/v1/pipelines/{id}/tide", responses=answers(OneTrigger))
def tide(id: str, workspace: Opened, request: Request, body: TriggerBody) -> Response:
    """Keep the staleness of a pipeline below a limit, until the tide is removed or expires."""
    return _set(workspace, id, "tide", body, actor_of(request))


@router.get("/v1/triggers", responses=answers(Triggers))
def list_triggers(workspace: Opened) -> Response:
    """All standing demand, of the manifest and of users."""
    return answer({"triggers": triggers(workspace)})


@router.delete("/v1/pipelines/{id}/triggers/{trigger_id}", responses=answers(Removed))
def delete_trigger(id: str, trigger_id: str, workspace: Opened, request: Request) -> Response:
    """Remove standing demand that a user has set."""
    workspace.project.pipeline(id)
    if not any((view.pipeline, view.trigger_id) == (id, trigger_id) for view in triggers(workspace)):
        raise RequestError(404, f"`{id}` has no trigger `{trigger_id[:80]}`", "`GET /v1/triggers` lists them")
    return answer({"removed": remove_trigger(workspace, id, trigger_id, actor=actor_of(request))})


@router.post("/v1/pipelines/{id}/events", status_code=202, responses=answers(AskedAnswer, status=202, what="taken"))
async def webhook(
    id: str,
    request: Request,
    context: Given,
    demand: Annotated[Literal["tap", "pulse"], Query(description="the demand that it sends")] = "tap",
) -> Response:
    """The source has changed: send a tap or a pulse. The body may be anything; it is not kept."""
    secret, signing = context.access.webhook_secret, None
    if secret is not None:
        signing = context.signatures.begin(secret, request.headers, id, demand, now=time.time())
    async for part in parts_of(request):
        if signing is not None:
            signing.update(part)
    with nullcontext() if signing is None else signing.accepted(now=time.time()):
        asked = await run_in_threadpool(
            lambda: ask(context.current(), id, demand, cause="webhook", actor=actor_of(request))
        )
    return answer({"asked": asked}, status=202)


def _set(workspace: Workspace, id: str, kind: Literal["wave", "tide"], body: TriggerBody, actor: str) -> Response:
    settings = {"max_staleness": body.max_staleness, "expires_in": body.expires_in, "trigger_id": body.id}
    return answer({"trigger": set_trigger(workspace, id, kind, **settings, actor=actor)})

"""tap, pulse, wave, tide, clear: demand from users and programs. All of it goes through the inbox."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_trigger_id
from headwater.catalog.commit import Store
from headwater.catalog.inbox import message, send, send_all, waiting
from headwater.catalog.lease import engine_owner
from headwater.catalog.standing_triggers import Standing, remove_standing, set_standing, standing
from headwater.catalog.wakeups import changes
from headwater.freshness.events import Cleared, Delivered
from headwater.manifest.checks import LoadedPipeline
from headwater.manifest.durations import given_duration_us
from headwater.runtime.compile import OWNER, triggers_of
from headwater.runtime.send_demand import send_demand


@dataclass(frozen=True)
class Asked:
    """Demand that was sent. `taken`: the engine has accepted it; otherwise it waits in the inbox, and `served` says
    whether a process runs the engine. `target` is the freshness that a pulse asks for."""

    pipeline: str
    kind: str
    taken: bool
    served: bool
    target: str | None = None


@dataclass(frozen=True)
class TriggerView:
    """A trigger. `source` is `manifest` or `user`; a command can remove only those of users."""

    pipeline: str
    trigger_id: str
    kind: str
    source: Literal["manifest", "user"]
    actor: str
    max_staleness_seconds: float | None = None
    at: str | None = None
    expires_at: str | None = None


def ask(
    workspace: Workspace,
    pipeline: str,
    kind: Literal["tap", "pulse"],
    *,
    cause: str | None = None,
    actor: str | None = None,
) -> Asked:
    """A Tap or a Pulse. Raises HW-R02 if the pipeline is blocked, and names the pipeline that failed."""
    _known(workspace, pipeline)
    store = workspace.store()
    request = send_demand(store.catalog, [pipeline], kind, cause=cause or kind, actor=actor or this_actor())
    served = is_served(store)
    if not served or not _until(store, lambda: request.listen(store.catalog)):
        return Asked(pipeline, kind, taken=False, served=served)
    if request.answers[pipeline].get("unknown"):
        raise HeadwaterError(
            "HW-R02",
            f"the running engine does not know `{pipeline}`",
            hint="it may not have read the changed manifest yet; try again in a moment",
            retryable=True,
        )
    because = request.refused(pipeline)
    if because is not None:
        own = because == pipeline
        raise HeadwaterError(
            "HW-R02",
            f"`{pipeline}` takes no demand: " + ("it has failed" if own else f"`{because}` has failed"),
            hint=f"see `headwater why {because}`; once it is fixed, `headwater clear {because}`",
            detail={"pipeline": pipeline, "because": because},
        )
    target = request.target(pipeline)
    return Asked(pipeline, kind, taken=True, served=True, target=to_text(target) if target is not None else None)


def clear(workspace: Workspace, pipeline: str, *, actor: str | None = None) -> Asked:
    """Restore the demand of a failed pipeline, after its cause was fixed."""
    _known(workspace, pipeline)
    store = workspace.store()
    event_id = send(store.catalog, message(Cleared(pipeline), actor=actor or this_actor()))

    def is_taken() -> bool:
        with store.catalog.snapshot() as connection:
            return not waiting(connection, [event_id])

    served = is_served(store)
    return Asked(pipeline, "clear", taken=served and _until(store, is_taken), served=served)


def set_trigger(
    workspace: Workspace,
    pipeline: str,
    kind: Literal["wave", "tide"],
    *,
    max_staleness: str | None = None,
    expires_in: str | None = None,
    trigger_id: str | None = None,
    actor: str | None = None,
) -> TriggerView:
    """Set a trigger until it is removed or expires, in place of one with the same id. It needs a running `serve`."""
    _known(workspace, pipeline)
    if (kind == "tide") != (max_staleness is not None):
        what = "a tide needs the staleness that it allows" if kind == "tide" else "a wave takes no staleness"
        raise HeadwaterError("HW-U01", what, hint='for example `headwater tide orders --max-staleness "15m"`')
    if trigger_id is not None:
        _check_trigger_id(trigger_id)
    now = now_us()
    trigger = Standing(
        pond=pipeline,
        trigger_id=trigger_id or f"{kind}-{secrets.token_hex(3)}",
        kind=kind,
        limit_us=given_duration_us(max_staleness) if max_staleness is not None else 0,
        actor=actor or this_actor(),
        set_us=now,
        expires_us=now + given_duration_us(expires_in) if expires_in is not None else None,
    )
    set_standing(workspace.store().catalog, trigger)
    return _view(trigger)


def triggers(workspace: Workspace) -> list[TriggerView]:
    """All triggers: those that the manifest declares, then those that users set."""
    found = [view for loaded in workspace.project.pipelines for view in _declared(loaded)]
    return [*found, *map(_view, workspace.read(standing) or ())]


def remove_trigger(workspace: Workspace, pipeline: str, trigger_id: str | None, *, actor: str | None = None) -> int:
    """Remove one trigger that a user set, or all of them; returns how many. The demand that it made stays."""
    loaded = _known(workspace, pipeline)
    if trigger_id is not None and any(view.trigger_id == trigger_id for view in _declared(loaded)):
        raise HeadwaterError(
            "HW-U01", f"`{trigger_id}` is set in the manifest", hint="remove it there", places=(loaded.position,)
        )
    store = workspace.existing_store()
    gone = remove_standing(store.catalog, pipeline, trigger_id, actor=actor or this_actor()) if store else 0
    if trigger_id is not None and not gone:
        message = f"`{pipeline}` has no trigger `{trigger_id}`"
        raise HeadwaterError("HW-U01", message, hint="`headwater trigger list` shows them")
    return gone


def _check_trigger_id(trigger_id: str) -> None:
    if not is_trigger_id(trigger_id):
        message = f"a trigger id has 1 to {limits.TRIGGER_ID_BYTES} letters (a-z, A-Z), digits, `_`, `.`, `:` and `-`"
        hint = "it begins with a letter, a digit or `_`; for example `daily-report`"
        raise HeadwaterError("HW-U01", message, hint=hint)
    if trigger_id.startswith(OWNER + ":"):
        raise HeadwaterError("HW-U01", f"`{trigger_id}` is the name of a trigger of the manifest")


def is_served(store: Store) -> bool:
    """Whether a process runs the engine now."""
    with store.catalog.snapshot() as connection:
        return engine_owner(connection) is not None


def notify_delivered(store: Store, pipelines: Sequence[str]) -> None:
    """Notify the running engine, if there is one, that rows were pushed to these pipelines."""
    if pipelines and is_served(store):
        send_all(store.catalog, [message(Delivered(name), actor=this_actor()) for name in pipelines])


def _known(workspace: Workspace, pipeline: str) -> LoadedPipeline:
    loaded = workspace.project.pipeline(pipeline)
    workspace.project.refuse_unsupported([pipeline])
    return loaded


def _until(store: Store, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limits.DEMAND_PATIENCE_SECONDS
    with closing(changes(store.catalog)) as waker:
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            waker.wait(left)
    return True


def _declared(loaded: LoadedPipeline) -> list[TriggerView]:
    standing_, crons = triggers_of(loaded.spec)
    found = []
    for trigger in standing_:
        limit = trigger.limit / 1e6 if trigger.kind == "tide" else None
        found.append(TriggerView(loaded.spec.id, trigger.id, trigger.kind, "manifest", OWNER, limit))
    for cron in crons:
        at = f"{cron.at} {cron.timezone}"
        found.append(TriggerView(loaded.spec.id, cron.id, "cron", "manifest", OWNER, at=at))
    return found


def _view(trigger: Standing) -> TriggerView:
    limit = trigger.limit_us / 1e6 if trigger.kind == "tide" else None
    expires_at = to_text(trigger.expires_us) if trigger.expires_us is not None else None
    return TriggerView(
        trigger.pond, trigger.trigger_id, trigger.kind, "user", trigger.actor, limit, expires_at=expires_at
    )

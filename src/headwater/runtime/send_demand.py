"""Demand from outside goes through the inbox, whichever process runs the engine; and how to see that it is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwater.base.clock import now_us
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import InboxEvent
from headwater.catalog.inbox import Arrived, event_of, message, read_answers, send_all
from headwater.freshness.events import Cleared, Demand
from headwater.freshness.explain import explain
from headwater.freshness.state import NEVER, State
from headwater.runtime.engine import CAUSE, WAITS


@dataclass
class Request:
    """Demand that was sent: the event of each pipeline, and the engine's answers so far."""

    sent: dict[str, int]
    answers: dict[str, Mapping[str, Any]]

    def listen(self, catalog: Catalog) -> bool:
        """Read the answers that have come; True once all have."""
        open_ = {event_id: name for name, event_id in self.sent.items() if name not in self.answers}
        if open_:
            for event_id, answer in read_answers(catalog, list(open_)).items():
                self.answers[open_[event_id]] = answer
        return len(self.answers) == len(self.sent)

    def refused(self, name: str) -> str | None:
        """The failed pipeline because of which this one took no demand."""
        answer = self.answers.get(name, {})
        return str(answer["because"]) if answer.get("refused") else None

    def target(self, name: str) -> int | None:
        found = self.answers.get(name, {}).get("target")
        return int(found) if found is not None else None


def send_demand(
    catalog: Catalog,
    pipelines: Sequence[str],
    kind: Literal["tap", "pulse"],
    *,
    cause: str,
    actor: str,
    clear: bool = False,
    target_us: int | None = None,
) -> Request:
    """Ask for pipelines, all in one transaction; with `clear`, failed ones are cleared first. A pulse asks for data as
    fresh as now, or as `target_us`."""
    asked = [Demand(name, kind, target_us) for name in pipelines]
    sent = send_all(catalog, _events(asked, cause=cause, actor=actor, clear=clear))
    return Request(dict(zip(pipelines, sent[len(sent) - len(pipelines) :], strict=True)), {})


def direct_demand(pipelines: Sequence[str], *, cause: str, actor: str) -> list[Arrived]:
    """The events that `send_demand` would put into the inbox (clear and pulse), for an engine of this process. Their
    ids are negative, because they were never in the inbox."""
    events = _events([Demand(name, "pulse") for name in pipelines], cause=cause, actor=actor, clear=True)
    return [
        Arrived(
            id=number - len(events),
            at_us=now_us(),
            kind=event.kind,
            body=event.body,
            actor=actor,
            ids=event.ids,
            event=event_of(event.kind, event.body),
        )
        for number, event in enumerate(events)
    ]


def answered_request(pipelines: Sequence[str], answers: Mapping[int, Mapping[str, Any]]) -> Request:
    """The request for which an engine has answered the events of `direct_demand`."""
    sent = {name: number - len(pipelines) for number, name in enumerate(pipelines)}
    return Request(sent, {name: answers[event_id] for name, event_id in sent.items()})


def _events(asked: Sequence[Demand], *, cause: str, actor: str, clear: bool) -> list[InboxEvent]:
    events = [message(Cleared(each.pond), actor=actor) for each in asked] if clear else []
    ids = {CAUSE: cause, WAITS: "yes"}
    return events + [message(each, actor=actor, ids=ids) for each in asked]


def is_under_way(state: State, name: str, target: int | None) -> bool:
    """Whether demand for a pipeline may still be met: with the target of a pulse, or None for a tap."""
    pond = state.ponds.get(name)
    if pond is None or pond.failed or pond.blocked:
        return False
    is_needed = pond.needed_freshness is not None or pond.is_running
    if target is None:
        return is_needed
    # A pond that was changed since then is due, and stays so until new demand comes.
    return pond.end_freshness == NEVER or pond.end_freshness < target or (pond.is_due and is_needed)


def window_of(state: State, name: str) -> tuple[str, int | None] | None:
    """The Inlet upstream (or itself) whose closed window a pipeline waits for, and when it opens; None if it waits for
    something else."""
    seen, reached = {name}, [name]
    found: list[tuple[str, int | None]] = []
    for each in reached:
        pond = state.ponds[each]
        if pond.is_running:
            return None
        if not pond.sources and pond.needed_freshness is not None:
            why = explain(state, each)
            if why.rule != "window-closed":
                return None
            wake = why.values["wake"]
            found.append((each, wake if isinstance(wake, int) else None))
        for source in pond.sources:
            if source.name not in seen:
                seen.add(source.name)
                reached.append(source.name)
    return max(found, key=lambda one: (one[1] is None, one[1] or 0), default=None)

"""What every path needs, and how it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

from anyio import CapacityLimiter
from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, create_model, model_validator
from starlette.responses import Response

from headwater.app.access import Access
from headwater.app.client_query import QueryPool
from headwater.app.ingest import Ingestor
from headwater.app.telemetry import Counters
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.answers import answer_text
from headwater.interfaces.http.feed import Feed
from headwater.interfaces.http.memory import MemoryBudget
from headwater.interfaces.http.paths import json_without_paths
from headwater.interfaces.http.problems import NO_STORE
from headwater.interfaces.http.webhooks import Signatures


@dataclass(frozen=True)
class Context:
    """`current` returns the workspace: its project may change while the server runs. Nothing here closes it."""

    current: Callable[[], Workspace]
    access: Access
    counters: Counters
    feed: Feed
    heartbeat_seconds: float
    queries: QueryPool = field(default_factory=QueryPool)
    ingestor: Ingestor = field(default_factory=Ingestor)
    memory: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(limits.INGESTS_AT_ONCE, limits.INGEST_MEMORY_BYTES)
    )
    signatures: Signatures = field(default_factory=Signatures)
    pushes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(limits.INGEST_THREADS))
    query_threads: CapacityLimiter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_threads", CapacityLimiter(self.queries.capacity))

    def close(self) -> None:
        """End event streams and queries. May be called from any thread, more than once."""
        self.queries.close()
        self.feed.stop()


def opened(workspace: Callable[[], Workspace]) -> Callable[[], Workspace]:
    """The same, with its store open: several threads must not open it at once."""
    lock = threading.Lock()

    def current() -> Workspace:
        with lock:
            found = workspace()
            with suppress(HeadwaterError):  # it is unreachable: requests that need it report that
                found.store()
            return found

    return current


async def _context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


def _workspace(request: Request) -> Workspace:
    found: Context = request.app.state.context
    return found.current()


Given = Annotated[Context, Depends(_context)]
Opened = Annotated[Workspace, Depends(_workspace)]


class RequestBody(BaseModel):
    """A JSON object that a client sends. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _cut_unknown_keys(cls, body: object) -> object:
        """Keep the first unknown keys only: each makes an error, and a body may have 100,000 of them."""
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields):
            return body
        known = {key: body[key] for key in cls.model_fields if key in body}
        unknown = (key for key in body if key not in known)
        return known | {key: body[key] for key in islice(unknown, limits.ERRORS_SHOWN)}


def answer(value: Mapping[str, Any], *, status: int = 200) -> Response:
    """One JSON object, as the command line gives it with `--json`. Paths of this machine are shortened."""
    text = json_without_paths(answer_text(value, indent=None))
    return Response(text, status, dict(NO_STORE), "application/json")


def shape(name: str, **fields: Any) -> type[BaseModel]:
    """Describes an answer: the version of its form, and these keys."""
    keys: dict[str, Any] = {key: (type_, ...) for key, type_ in fields.items()}
    made: type[BaseModel] = create_model(name, schema_version=(int, ...), **keys)
    return made


def answers(model: type[BaseModel], *, status: int = 200, what: str = "done") -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": what}}

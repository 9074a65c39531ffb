"""Pushed rows of a command: through the server of the project where one runs here, else by a door of their own.

It makes no difference to the answer. A server that is busy, that goes away in the middle or that knows another manifest
decides nothing: the same batch goes the direct way, with the key that the server was given.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from headwater.app.ingest import Ingestor, mark_of, show
from headwater.app.server_address import served_at
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError, Position
from headwater.base.ids import is_table_name
from headwater.ingest.push_records import Accepted
from headwater.manifest.load import Project
from headwater.manifest.references import resolve_reference

MARK = "X-Headwater-Table"
"""What the sender knows of the table: a server that knows something else answers 412."""
_WAITS = frozenset({429, 503})


class Unanswered(Exception):
    """The server has not said what becomes of the batch; perhaps it has landed, perhaps not."""


class Sender:
    """Sends the batches of one command."""

    def __init__(self, workspace: Workspace):
        self._workspace, self._door = workspace, Ingestor()
        self._server = reach(workspace.project)
        self._landed_here = False
        self.warning: HeadwaterError | None = None
        """After `close`: why the views do not show yet what has landed."""

    def ingest(
        self, table: str, body: bytes, *, key: str | None = None, evolve: bool = True, auto_create: bool = True
    ) -> Accepted:
        """One batch of NDJSON. The answer comes when it is durable."""
        batch = _Batch(table, body, key, evolve, auto_create)
        if self._server is None or not batch.can_be_sent:
            return self._directly(batch)
        # With a key of its own a batch can always be sent again; who gave none need not hear of it.
        keyed = batch if key is not None else replace(batch, key=f"ingest-{uuid.uuid4()}")
        mark = mark_of(self._door.target(self._workspace, table, auto_create=auto_create))
        try:
            found = self._server.push(keyed, mark)
        except Unanswered:
            self._server = None
            found = self._directly(keyed)
        return found if key is not None else replace(found, replayed=False)

    def close(self) -> None:
        """The views show what has landed here; what a server landed it shows itself."""
        self._door.close()
        if self._landed_here:
            self.warning = show(self._workspace)

    def _directly(self, batch: _Batch) -> Accepted:
        found = self._door.ingest(
            self._workspace,
            batch.table,
            batch.body,
            key=batch.key,
            evolve=batch.evolve,
            auto_create=batch.auto_create,
        )
        self._landed_here = True
        return found


@dataclass(frozen=True)
class _Batch:
    table: str
    body: bytes
    key: str | None
    evolve: bool
    auto_create: bool

    @property
    def can_be_sent(self) -> bool:
        """Whether HTTP carries it as it is: a header loses the spaces around a key. A batch of nothing without a key
        leaves nothing behind, and must not get one."""
        if self.key is None:
            return is_table_name(self.table) and self.body != b"" and not self.body.isspace()
        return is_table_name(self.table) and self.key.isprintable() and self.key == self.key.strip()


class Server:
    """A server of the project, asked over a connection for each request."""

    def __init__(self, url: str, token: str | None):
        self._url, self._token = urlsplit(url), token

    def serves(self, project: str) -> bool:
        """Whether somebody answers there who serves the project, in whatever health. One that hangs is not waited for
        as long as one that has a batch."""
        try:
            _status, _wait, told = self._ask("GET", "/health", timeout=limits.SERVER_HEALTH_SECONDS)
            return bool(told["health"]["project"] == project)
        except (Unanswered, KeyError, TypeError):
            return False

    def push(self, batch: _Batch, mark: str) -> Accepted:
        """The server's answer, or its error. Raises `Unanswered` for whatever says nothing of the batch."""
        headers = {
            "Idempotency-Key": batch.key or "",
            "X-Schema-Evolve": str(batch.evolve).lower(),
            "X-Auto-Create": str(batch.auto_create).lower(),
            "Content-Type": "application/x-ndjson",
            MARK: mark,
        }
        for _ in range(limits.SERVER_TRIES):
            status, wait_seconds, told = self._ask("POST", f"/v1/ingest/{batch.table}", batch.body, headers)
            if status not in _WAITS:
                return _answer(status, told)
            time.sleep(wait_seconds)
        raise Unanswered

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = limits.SERVER_ANSWER_SECONDS,
    ) -> tuple[int, float, Any]:
        """The status, for how long to wait if it asks for that, and what it says."""
        from http.client import HTTPConnection, HTTPException

        sent = dict(headers or {})
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        encoded: Any = {name: value.encode() for name, value in sent.items()}  # a key may be any printable text
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=timeout)
        try:
            connection.request(method, path, body, encoded)
            response = connection.getresponse()
            return response.status, _wait_seconds(response.getheader("Retry-After")), json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise Unanswered from error
        finally:
            connection.close()


def reach(project: Project) -> Server | None:
    """The server of this project on this machine, if it is there, answers and can be asked."""
    url = served_at(project)
    if url is None:
        return None
    text = project.spec.serve.token
    try:
        token = resolve_reference(text, None, os.environ, project.root).strip() if text is not None else None
    except HeadwaterError:  # who has the project's directory needs no server
        return None
    server = Server(url, token)
    return server if server.serves(project.name) else None


def _answer(status: int, told: Any) -> Accepted:
    """What the server says of the batch. What it cannot do is left to the direct way, which may say why."""
    try:
        if status == 200:
            return Accepted(
                told["snapshot_id"],
                told["rows_ingested"],
                told["bytes_written"],
                replayed=told["replayed"],
                rows_refused=told["rows_refused"],
            )
        error = told["error"]
        code, detail = error["code"], dict(error["detail"])
        if status == 412 or status >= 500 or code.startswith("HW-H") or code not in CODES:
            raise Unanswered
        places = tuple(Position(p["file"], p["line"], p["column"]) for p in detail.pop("places", ()))
        refused = HeadwaterError(code, error["message"], error["hint"], error["retryable"], detail, places)
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise Unanswered from wrong
    raise refused


def _wait_seconds(retry_after: str | None) -> float:
    """As long as the server asks for, within bounds."""
    given = float(retry_after) if retry_after is not None and retry_after.isdecimal() else limits.RETRY_FIRST_SECONDS
    return min(given, limits.RETRY_MAX_SECONDS)

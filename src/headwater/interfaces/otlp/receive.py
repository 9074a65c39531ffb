"""What both protocols do with a request: land it, with limits on memory, and turn errors into those that senders know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.app import otlp
from headwater.app.access import Access
from headwater.app.ingest import Encoding, Ingestor
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.memory import MemoryBudget, Reservation
from headwater.interfaces.http.paths import without_paths
from headwater.interfaces.http.problems import RequestError, status_of

RETRIED = frozenset({429, 502, 503, 504})
"""Statuses after which an OTLP sender may send again; after any other it drops the data."""


@dataclass(frozen=True)
class Receiver:
    """`current` returns the workspace. Any thread may call it."""

    current: Callable[[], Workspace]
    access: Access
    ingestor: Ingestor
    memory: MemoryBudget

    def receive(
        self,
        signal: otlp.Signal,
        body: bytes,
        place: Reservation,
        *,
        encoding: Encoding,
        form: otlp.Form,
        key: str | None,
        actor: str,
    ) -> otlp.Message:
        """Land a request, and answer when it is durable."""
        try:
            rows = otlp.read_rows(signal, body, encoding=encoding, form=form, grow=place.grow)
        except otlp.TooLarge as error:
            hint = "send less at a time: exporters have a setting for the size of their batches"
            raise RequestError(413, error.message, hint, code=error.code) from error
        return otlp.land(self.current(), self.ingestor, signal, rows, key=key, actor=actor)


def http_status(error: HeadwaterError) -> int:
    """As for every request, but a retryable error has a status after which OTLP senders retry."""
    status = status_of(error)
    return 503 if error.retryable and status not in RETRIED else status


def error_line(error: HeadwaterError) -> str:
    text = f"{error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
    return without_paths(text)[: limits.OTLP_MESSAGE_CHARACTERS]

"""What both protocols do with a request: rows of it, landed by the one write path, and the answer to the sender."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.app.ingest import Door
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog.evolution import DeclaredColumn
from headwater.coerce.errors import RowError
from headwater.ingest.decode import Encoding, TooLarge, decoded
from headwater.ingest.otlp.json_form import Message
from headwater.ingest.otlp.lines import lines
from headwater.ingest.otlp.requests import Form, response, rows_of
from headwater.ingest.otlp.tables import COLUMNS, TABLES, Signal
from headwater.ingest.push import Accepted
from headwater.interfaces.http.access import Access
from headwater.interfaces.http.memory import Place, Room
from headwater.interfaces.http.paths import without_paths
from headwater.interfaces.http.problems import RequestError, status_of

RETRIED = frozenset({429, 502, 503, 504})
"""What an OTLP sender may send again; all else it drops."""
MESSAGE_CHARACTERS = 1_000
_MADE_WITH: Mapping[Signal, Mapping[str, DeclaredColumn]] = {
    signal: {name: DeclaredColumn(type_) for name, type_ in columns.items()} for signal, columns in COLUMNS.items()
}


@dataclass(frozen=True)
class Receiver:
    """`current` gives the workspace as it is now. Any thread may come in."""

    current: Callable[[], Workspace]
    access: Access
    door: Door
    room: Room

    def receive(
        self, signal: Signal, body: bytes, place: Place, *, encoding: Encoding, form: Form, key: str | None, actor: str
    ) -> Message:
        """Land a request, and answer when it is durable. Rows that do not fit their columns are told to the sender, and
        the others land without them."""
        try:
            request = decoded(body, encoding, grow=place.grow)
            rows = lines(rows_of(signal, request, form, grow=place.grow), grow=place.grow)
        except TooLarge as error:
            hint = "send less at a time: exporters have a setting for the size of their batches"
            raise RequestError(413, error.message, hint, code=error.code) from error
        workspace = self.current()
        found = self.door.ingest(
            workspace,
            TABLES[signal],
            rows,
            key=key,
            evolve=False,
            on_bad_row="leave_out",
            source=actor,
            actor=actor,
            columns=_MADE_WITH[signal],
        )
        if not found.replayed:
            self.door.show_soon(workspace)
        return response(signal, refused=found.rows_refused, message=_refusals(found))


def http_status(error: HeadwaterError) -> int:
    """As for every request, but what may be tried again is told in the one way that senders know."""
    status = status_of(error)
    return 503 if error.retryable and status not in RETRIED else status


def told(error: HeadwaterError) -> str:
    """An error in a line."""
    text = f"{error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
    return without_paths(text)[:MESSAGE_CHARACTERS]


def _refusals(found: Accepted) -> str:
    """Which rows were refused, and why; never their values."""
    if not found.rows_refused:
        return ""
    sent = found.rows_refused + found.rows_ingested
    reasons = "; ".join(map(_reason, found.errors[: limits.ERRORS_SHOWN]))
    text = f"{found.rows_refused} of {sent} rows were refused" + (f": {reasons}" if reasons else "")
    return text[:MESSAGE_CHARACTERS]


def _reason(error: RowError) -> str:
    column = f", column `{error.column}`" if error.column else ""
    return f"row {error.line}{column}: {error.text}"

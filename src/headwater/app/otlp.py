"""Lands OTLP requests: their rows go through the one write path, and the answer says which were rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.app.ingest import Accepted, DeclaredColumn, Encoding, Ingestor, TooLarge, decoded
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.coerce.row_errors import RowError
from headwater.ingest.otlp.parse_json import Message
from headwater.ingest.otlp.requests import Form, lines, response, rows_of, written
from headwater.ingest.otlp.tables import COLUMNS, TABLES, Signal

__all__ = ["Form", "Message", "Signal", "TooLarge", "written"]

_MADE_WITH: Mapping[Signal, Mapping[str, DeclaredColumn]] = {
    signal: {name: DeclaredColumn(type_) for name, type_ in columns.items()} for signal, columns in COLUMNS.items()
}


def read_rows(signal: Signal, body: bytes, *, encoding: Encoding, form: Form, grow: Callable[[int], None]) -> bytes:
    """The rows of a request, as NDJSON. `grow` is called with the number of bytes that are held, and may raise. Raises
    `TooLarge`, and HW-I04 if the body is not such a request."""
    request = decoded(body, encoding, grow=grow)
    return lines(rows_of(signal, request, form, grow=grow), grow=grow)


def land(
    workspace: Workspace, ingestor: Ingestor, signal: Signal, rows: bytes, *, key: str | None, actor: str
) -> Message:
    """Land the rows of a request and return the answer when they are durable. The answer names rows that do not fit
    their columns; the others land without them."""
    found = ingestor.ingest(
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
        ingestor.show_soon(workspace)
    return response(signal, refused=found.rows_refused, message=_refusals(found))


def _refusals(found: Accepted) -> str:
    """Which rows were rejected, and why; never their values."""
    if not found.rows_refused:
        return ""
    sent = found.rows_refused + found.rows_ingested
    reasons = "; ".join(map(_reason, found.errors[: limits.ERRORS_SHOWN]))
    text = f"{found.rows_refused} of {sent} rows were refused" + (f": {reasons}" if reasons else "")
    return text[: limits.OTLP_MESSAGE_CHARACTERS]


def _reason(error: RowError) -> str:
    column = f", column `{error.column}`" if error.column else ""
    return f"row {error.line}{column}: {error.text}"

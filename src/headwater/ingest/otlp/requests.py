"""OTLP requests from bytes, as NDJSON for the one write path, and the answers to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.ingest.otlp.any_values import present
from headwater.ingest.otlp.parse_json import Message, Misfit, parse_json
from headwater.ingest.otlp.pieces import Levels, RequestPiece, TooMuch, in_whole, json_pieces, protobuf_pieces
from headwater.ingest.otlp.signal_rows import POINTS, SharedRows, log_rows, point_rows, span_rows
from headwater.ingest.otlp.tables import Signal

Form = Literal["protobuf", "json"]

_HINT = "send what an OTLP exporter sends; nothing was written"
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class _SignalService:
    request: Message
    response: Message
    rejected: str
    levels: Levels
    rows: Callable[[Any], SharedRows]


_SERVICES: Mapping[Signal, _SignalService] = {
    "logs": _SignalService(
        logs.ExportLogsServiceRequest,
        logs.ExportLogsServiceResponse,
        "rejected_log_records",
        ({"resource_logs"}, {"scope_logs"}, {"log_records"}),
        log_rows,
    ),
    "traces": _SignalService(
        traces.ExportTraceServiceRequest,
        traces.ExportTraceServiceResponse,
        "rejected_spans",
        ({"resource_spans"}, {"scope_spans"}, {"spans"}),
        span_rows,
    ),
    "metrics": _SignalService(
        metrics.ExportMetricsServiceRequest,
        metrics.ExportMetricsServiceResponse,
        "rejected_data_points",
        ({"resource_metrics"}, {"scope_metrics"}, {"metrics"}, POINTS.keys(), {"data_points"}),
        point_rows,
    ),
}
_LISTS = 3
"""How many levels are lists. The others are cut only in protobuf, where one message is encoded like a list of one."""


def rows_of(signal: Signal, body: bytes, form: Form, *, grow: Callable[[int], None] = lambda _size: None) -> SharedRows:
    """The rows of a request, for `lines`, decoded piece by piece. Raises HW-I04 if the body is no such request, or has
    too many parts. `grow` is called with the memory that a large record will take, before it is decoded, and may
    raise."""
    service = _SERVICES[signal]
    kind, held = service.request.DESCRIPTOR, 0
    if form == "protobuf":
        pieces = protobuf_pieces(kind, body, service.levels)
    else:
        pieces = json_pieces(kind, body, service.levels[:_LISTS])
    try:
        for piece in pieces:
            size = piece.parts * limits.OTLP_PART_BYTES
            if size > held:
                grow(size - held)
                held = size
            yield from service.rows(_read(service.request, piece, form))
    except DecodeError as error:
        raise HeadwaterError("HW-I04", "the body is not an OTLP request in protobuf", hint=_HINT) from error
    except Misfit as misfit:
        where = f", at `{misfit.path}`" if misfit.path else ""
        raise HeadwaterError("HW-I04", f"the body is not an OTLP request in JSON{where}", hint=_HINT) from misfit


def lines(
    found: SharedRows, *, most: int = limits.MAX_BODY_BYTES, grow: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Rows as NDJSON, in the order in which they were sent: equal requests give equal bytes. Each row repeats what the
    rows of its scope share, so a small request can become large: raises `TooMuch` before it holds more than `most`
    bytes. `grow` is called with the size of each line, and may raise."""
    parts: list[bytes] = []
    size = 0
    for shared, rows in found:
        end = b"," + _encode(present(shared))[1:] + b"\n"
        before = len(parts)
        for row in rows:
            line = _encode(present(row))[:-1] + end
            size = _bounded(size + len(line), most)
            grow(len(line))
            parts.append(line)
        if len(parts) == before:  # a scope without rows counts too: millions of them would take minutes
            size = _bounded(size + len(end), most)
    return b"".join(parts)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise TooMuch(f"the rows of the request are larger than {most} bytes: each repeats its resource and its scope")
    return size


def response(signal: Signal, *, refused: int, message: str) -> Message:
    """The answer to a request, with the number of refused rows; without any it is empty, which means success."""
    service = _SERVICES[signal]
    answer = service.response()
    if refused:
        setattr(answer.partial_success, service.rejected, refused)
        answer.partial_success.error_message = message
    return answer


def written(message: Message, form: Form) -> bytes:
    """A message as bytes."""
    if form == "protobuf":
        found: bytes = message.SerializeToString()
        return found
    return json.dumps(json_format.MessageToDict(message), separators=(",", ":")).encode()


def _read(kind: Message, piece: RequestPiece, form: Form) -> Message:
    if form == "protobuf":
        return kind.FromString(piece.body)
    try:
        return parse_json(kind, piece.body)
    except Misfit as misfit:
        raise Misfit(in_whole(misfit.path, piece.first)) from misfit

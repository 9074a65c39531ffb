"""A collector for tests: takes OTLP over HTTP on this machine, and keeps the spans that it was sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True)
class Received:
    """A span as it came in. Ids are in hex; `parent` is empty for the first of a trace."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool
    says: str
    events: int
    service: str

    @property
    def place(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


@dataclass
class Receiver:
    endpoint: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def spans(self) -> list[Received]:
        found = []
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = str(_values(resource.resource.attributes)["service.name"])
                found += [_received(span, service) for scope in resource.scope_spans for span in scope.spans]
        return found

    def named(self, name: str) -> Received:
        """The one span of that name."""
        (found,) = [span for span in self.spans() if span.name == name]
        return found


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == "/v1/traces"
            if known:
                received.headers.append({name.lower(): value for name, value in self.headers.items()})
                zipped = self.headers.get("Content-Encoding") == "gzip"
                received.bodies.append(gzip.decompress(body) if zipped else body)
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _received(span: Span, service: str) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        says=span.status.message,
        events=len(span.events),
        service=service,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in attributes}


def _value(pair: KeyValue) -> Any:
    kind = pair.value.WhichOneof("value")
    assert kind is not None
    value = getattr(pair.value, kind)
    return [each.string_value for each in value.values] if kind == "array_value" else value

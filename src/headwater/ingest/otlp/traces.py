"""Spans as rows of `otel_traces`, with their events and links."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headwater.ingest.otlp.any_values import Json, Row, attributes, identifier, present, sender, time, word

KINDS = (None, "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")


def span_rows(request: ExportTraceServiceRequest) -> Iterator[tuple[Row, Iterator[Row]]]:
    """For each scope: what its rows share, and the rows."""
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            shared = sender(of_resource.resource, of_resource.schema_url, of_scope.scope, of_scope.schema_url)
            yield shared, map(_row, of_scope.spans)


def _row(span: Span) -> Row:
    start, end = time(span.start_time_unix_nano), time(span.end_time_unix_nano)
    return {
        "ts": start,
        "end_ts": end,
        "duration_ns": end - start if start is not None and end is not None else None,
        "trace_id": identifier(span.trace_id),
        "span_id": identifier(span.span_id),
        "parent_span_id": identifier(span.parent_span_id),
        "trace_state": span.trace_state or None,
        "flags": span.flags,
        "name": span.name or None,
        "kind": word(span.kind, KINDS),
        "status_code": word(span.status.code, STATUSES),
        "status_message": span.status.message or None,
        "attributes": attributes(span.attributes),
        "dropped_attributes_count": span.dropped_attributes_count,
        "events": [_event(event) for event in span.events] or None,
        "dropped_events_count": span.dropped_events_count,
        "links": [_link(link) for link in span.links] or None,
        "dropped_links_count": span.dropped_links_count,
    }


def _event(event: Span.Event) -> Json:
    return present(
        {
            "ts_ns": time(event.time_unix_nano),
            "name": event.name,
            "attributes": attributes(event.attributes),
            "dropped_attributes_count": event.dropped_attributes_count or None,
        }
    )


def _link(link: Span.Link) -> Json:
    return present(
        {
            "trace_id": identifier(link.trace_id),
            "span_id": identifier(link.span_id),
            "trace_state": link.trace_state or None,
            "flags": link.flags or None,
            "attributes": attributes(link.attributes),
            "dropped_attributes_count": link.dropped_attributes_count or None,
        }
    )

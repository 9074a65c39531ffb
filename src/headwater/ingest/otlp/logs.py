"""Log records as rows of `otel_logs`."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from headwater.ingest.otlp.any_values import Row, attributes, identifier, plain, sender, time


def log_rows(request: ExportLogsServiceRequest) -> Iterator[tuple[Row, Iterator[Row]]]:
    """For each scope: what its rows share, and the rows."""
    for of_resource in request.resource_logs:
        for of_scope in of_resource.scope_logs:
            shared = sender(of_resource.resource, of_resource.schema_url, of_scope.scope, of_scope.schema_url)
            yield shared, map(_row, of_scope.log_records)


def _row(record: LogRecord) -> Row:
    is_text = record.body.WhichOneof("value") == "string_value"
    return {
        # A record may lack the time of its event: OpenTelemetry then uses the time at which it was observed.
        "ts": time(record.time_unix_nano) or time(record.observed_time_unix_nano),
        "observed_ts": time(record.observed_time_unix_nano),
        "trace_id": identifier(record.trace_id),
        "span_id": identifier(record.span_id),
        "flags": record.flags,
        "severity_number": record.severity_number or None,
        "severity_text": record.severity_text or None,
        "event_name": record.event_name or None,
        "body": record.body.string_value if is_text else None,
        "body_json": None if is_text else plain(record.body),
        "attributes": attributes(record.attributes),
        "dropped_attributes_count": record.dropped_attributes_count,
    }

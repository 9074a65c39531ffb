"""Log records, spans with their events and links, and data points of metrics of any kind, each as a row of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headwater.ingest.otlp.any_values import Json, Row, attributes, identifier, number, plain, present, sender, word

SharedRows = Iterator[tuple[Row, Iterator[Row]]]
"""For each scope, or each metric: what its rows share, and the rows."""

SPAN_KINDS = (None, "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
TEMPORALITIES = (None, "delta", "cumulative")

_Histogram = HistogramDataPoint | ExponentialHistogramDataPoint
_Point = NumberDataPoint | _Histogram | SummaryDataPoint


def log_rows(request: ExportLogsServiceRequest) -> SharedRows:
    for shared, scope in _scopes(request.resource_logs, "scope_logs"):
        yield shared, map(_log, scope.log_records)


def span_rows(request: ExportTraceServiceRequest) -> SharedRows:
    for shared, scope in _scopes(request.resource_spans, "scope_spans"):
        yield shared, map(_span, scope.spans)


def point_rows(request: ExportMetricsServiceRequest) -> SharedRows:
    for sent_by, scope in _scopes(request.resource_metrics, "scope_metrics"):
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            points = map(POINTS[kind], getattr(metric, kind).data_points) if kind is not None else iter(())
            yield {**_described(metric, kind), **sent_by}, points


def _scopes(resources: Iterable[Any], field: str) -> Iterator[tuple[Row, Any]]:
    """Every scope, with the columns that its rows share."""
    for resource in resources:
        for scope in getattr(resource, field):
            yield sender(resource.resource, resource.schema_url, scope.scope, scope.schema_url), scope


def _log(record: LogRecord) -> Row:
    is_text = record.body.WhichOneof("value") == "string_value"
    return {
        # A record may lack the time of its event: OpenTelemetry then uses the time at which it was observed.
        "ts": record.time_unix_nano or record.observed_time_unix_nano or None,
        "observed_ts": record.observed_time_unix_nano or None,
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


def _span(span: Span) -> Row:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    return {
        "ts": start or None,
        "end_ts": end or None,
        "duration_ns": end - start if start and end else None,
        "trace_id": identifier(span.trace_id),
        "span_id": identifier(span.span_id),
        "parent_span_id": identifier(span.parent_span_id),
        "trace_state": span.trace_state or None,
        "flags": span.flags,
        "name": span.name or None,
        "kind": word(span.kind, SPAN_KINDS),
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
            "ts_ns": event.time_unix_nano or None,
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


def _described(metric: Metric, kind: str | None) -> Row:
    temporality = getattr(getattr(metric, kind), "aggregation_temporality", 0) if kind is not None else 0
    return {
        "name": metric.name or None,
        "kind": kind,
        "unit": metric.unit or None,
        "description": metric.description or None,
        "metadata": attributes(metric.metadata),
        "temporality": word(temporality, TEMPORALITIES),
        "is_monotonic": metric.sum.is_monotonic if kind == "sum" else None,
    }


def _number(point: NumberDataPoint) -> Row:
    row = {**_point(point), "exemplars": _exemplars(point.exemplars)}
    match point.WhichOneof("value"):
        case "as_int":
            return {**row, "value": point.as_int, "value_int": point.as_int}
        case "as_double":
            return {**row, **_reals({"value": point.as_double})}
        case _:
            return row


def _histogram(point: HistogramDataPoint) -> Row:
    return {
        **_point(point),
        "count": point.count,
        "bucket_counts": list(point.bucket_counts) or None,
        "explicit_bounds": [number(bound) for bound in point.explicit_bounds] or None,
        "exemplars": _exemplars(point.exemplars),
        **_reals(_summed(point)),
    }


def _exponential(point: ExponentialHistogramDataPoint) -> Row:
    row: Row = {
        **_point(point),
        "count": point.count,
        "scale": point.scale,
        "zero_count": point.zero_count,
        "exemplars": _exemplars(point.exemplars),
        **_reals({**_summed(point), "zero_threshold": point.zero_threshold}),
    }
    if point.HasField("positive"):
        row |= {"positive_offset": point.positive.offset, "positive_counts": list(point.positive.bucket_counts)}
    if point.HasField("negative"):
        row |= {"negative_offset": point.negative.offset, "negative_counts": list(point.negative.bucket_counts)}
    return row


def _summary(point: SummaryDataPoint) -> Row:
    quantiles: list[Json] = [
        {"quantile": number(each.quantile), "value": number(each.value)} for each in point.quantile_values
    ]
    return {**_point(point), "count": point.count, "quantiles": quantiles or None, **_reals({"sum": point.sum})}


POINTS: Mapping[str, Callable[[Any], Row]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
"""The kinds of metrics, and what makes rows of their points."""


def _point(point: _Point) -> Row:
    return {
        "ts": point.time_unix_nano or None,
        "start_ts": point.start_time_unix_nano or None,
        "attributes": attributes(point.attributes),
        "flags": point.flags,
    }


def _summed(point: _Histogram) -> dict[str, float]:
    return {name: getattr(point, name) for name in ("sum", "min", "max") if point.HasField(name)}


def _reals(numbers: Mapping[str, float]) -> Row:
    """Columns of numbers. They cannot hold non-finite numbers: those go to `non_finite`, by name."""
    row: Row = {name: value for name, value in numbers.items() if math.isfinite(value)}
    if len(row) < len(numbers):
        row["non_finite"] = {name: number(value) for name, value in numbers.items() if not math.isfinite(value)}
    return row


def _exemplars(found: Iterable[Exemplar]) -> Json:
    return [_exemplar(each) for each in found] or None


def _exemplar(found: Exemplar) -> Json:
    kind = found.WhichOneof("value")
    return present(
        {
            "ts_ns": found.time_unix_nano or None,
            "value": None if kind is None else found.as_int if kind == "as_int" else number(found.as_double),
            "trace_id": identifier(found.trace_id),
            "span_id": identifier(found.span_id),
            "attributes": attributes(found.filtered_attributes),
        }
    )

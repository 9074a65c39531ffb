"""Data points of metrics as rows of `otel_metrics`: one row for each point of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)

from headwater.ingest.otlp.any_values import Json, Row, attributes, identifier, number, present, sender, time, word

KINDS = frozenset({"gauge", "sum", "histogram", "exponential_histogram", "summary"})
TEMPORALITIES = (None, "delta", "cumulative")

_Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint


def point_rows(request: ExportMetricsServiceRequest) -> Iterator[tuple[Row, Iterator[Row]]]:
    """For each metric: what its rows share, and the rows."""
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            sent_by = sender(of_resource.resource, of_resource.schema_url, of_scope.scope, of_scope.schema_url)
            for metric in of_scope.metrics:
                yield {**_described(metric), **sent_by}, _rows(metric)


def _described(metric: Metric) -> Row:
    kind = metric.WhichOneof("data")
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


def _rows(metric: Metric) -> Iterator[Row]:
    match metric.WhichOneof("data"):
        case "gauge":
            yield from map(_of_number, metric.gauge.data_points)
        case "sum":
            yield from map(_of_number, metric.sum.data_points)
        case "histogram":
            yield from map(_of_histogram, metric.histogram.data_points)
        case "exponential_histogram":
            yield from map(_of_exponential, metric.exponential_histogram.data_points)
        case "summary":
            yield from map(_of_summary, metric.summary.data_points)


def _of_number(point: NumberDataPoint) -> Row:
    row = {**_of_any(point), "exemplars": _exemplars(point.exemplars)}
    match point.WhichOneof("value"):
        case "as_int":
            return {**row, "value": point.as_int, "value_int": point.as_int}
        case "as_double":
            return {**row, **_reals(value=point.as_double)}
        case _:
            return row


def _of_histogram(point: HistogramDataPoint) -> Row:
    return {
        **_of_any(point),
        "count": point.count,
        "bucket_counts": list(point.bucket_counts) or None,
        "explicit_bounds": [number(bound) for bound in point.explicit_bounds] or None,
        "exemplars": _exemplars(point.exemplars),
        **_reals(
            sum=point.sum if point.HasField("sum") else None,
            min=point.min if point.HasField("min") else None,
            max=point.max if point.HasField("max") else None,
        ),
    }


def _of_exponential(point: ExponentialHistogramDataPoint) -> Row:
    row: Row = {
        **_of_any(point),
        "count": point.count,
        "scale": point.scale,
        "zero_count": point.zero_count,
        "exemplars": _exemplars(point.exemplars),
        **_reals(
            sum=point.sum if point.HasField("sum") else None,
            min=point.min if point.HasField("min") else None,
            max=point.max if point.HasField("max") else None,
            zero_threshold=point.zero_threshold,
        ),
    }
    if point.HasField("positive"):
        row |= {"positive_offset": point.positive.offset, "positive_counts": list(point.positive.bucket_counts)}
    if point.HasField("negative"):
        row |= {"negative_offset": point.negative.offset, "negative_counts": list(point.negative.bucket_counts)}
    return row


def _of_summary(point: SummaryDataPoint) -> Row:
    quantiles: list[Json] = [
        {"quantile": number(each.quantile), "value": number(each.value)} for each in point.quantile_values
    ]
    return {**_of_any(point), "count": point.count, "quantiles": quantiles or None, **_reals(sum=point.sum)}


def _of_any(point: _Point) -> Row:
    return {
        "ts": time(point.time_unix_nano),
        "start_ts": time(point.start_time_unix_nano),
        "attributes": attributes(point.attributes),
        "flags": point.flags,
    }


def _reals(**numbers: float | None) -> Row:
    """Columns of numbers. They cannot hold non-finite numbers: those go to `non_finite`, by name."""
    sent = {name: value for name, value in numbers.items() if value is not None}
    row: Row = {name: value for name, value in sent.items() if math.isfinite(value)}
    if len(row) < len(sent):
        row["non_finite"] = {name: number(value) for name, value in sent.items() if not math.isfinite(value)}
    return row


def _exemplars(found: Iterable[Exemplar]) -> Json:
    return [_exemplar(each) for each in found] or None


def _exemplar(found: Exemplar) -> Json:
    value: Json = None
    match found.WhichOneof("value"):
        case "as_int":
            value = found.as_int
        case "as_double":
            value = number(found.as_double)
    return present(
        {
            "ts_ns": time(found.time_unix_nano),
            "value": value,
            "trace_id": identifier(found.trace_id),
            "span_id": identifier(found.span_id),
            "attributes": attributes(found.filtered_attributes),
        }
    )

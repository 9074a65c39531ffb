"""Requests of OTLP for tests, with every field of them set, and what they are as rows."""

from __future__ import annotations

import math
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

NOON = 1_767_268_800_123_456_789
TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"

RESOURCE: dict[str, Any] = {
    "resource": {
        "attributes": [{"key": "service.name", "value": {"string_value": "shop"}}],
        "dropped_attributes_count": 1,
        "entity_refs": [{"type": "service", "id_keys": ["service.name"]}],
    },
    "schema_url": "https://example.com/resource",
}
SCOPE: dict[str, Any] = {
    "scope": {
        "name": "lib",
        "version": "1.2",
        "attributes": [{"key": "a", "value": {"bool_value": True}}],
        "dropped_attributes_count": 2,
    },
    "schema_url": "https://example.com/scope",
}
SENT_BY = {
    "service_name": "shop",
    "resource_attributes": {"service.name": "shop"},
    "resource_dropped_attributes_count": 1,
    "resource_entity_refs": [
        {"type": "service", "id_keys": ["service.name"], "description_keys": [], "schema_url": ""}
    ],
    "resource_schema_url": "https://example.com/resource",
    "scope_name": "lib",
    "scope_version": "1.2",
    "scope_attributes": {"a": True},
    "scope_dropped_attributes_count": 2,
    "scope_schema_url": "https://example.com/scope",
}


def pair(key: str, **value: Any) -> KeyValue:
    return KeyValue(key=key, value=value)


def logs(*records: dict[str, Any]) -> ExportLogsServiceRequest:
    return ExportLogsServiceRequest(resource_logs=[{**RESOURCE, "scope_logs": [{**SCOPE, "log_records": records}]}])


def traces(*spans: dict[str, Any]) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest(resource_spans=[{**RESOURCE, "scope_spans": [{**SCOPE, "spans": spans}]}])


def metrics(*found: dict[str, Any]) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest(resource_metrics=[{**RESOURCE, "scope_metrics": [{**SCOPE, "metrics": found}]}])


def field(number: int, body: bytes) -> bytes:
    """A message or a text as it is written."""
    size, length = len(body), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((number << 3 | 2, *length, size)) + body


def under(body: bytes, *numbers: int) -> bytes:
    """A message within others."""
    for number in reversed(numbers):
        body = field(number, body)
    return body


LOG: dict[str, Any] = {
    "time_unix_nano": NOON,
    "observed_time_unix_nano": NOON + 1,
    "severity_number": 9,
    "severity_text": "INFO",
    "body": {"string_value": "paid\nin full"},
    "attributes": [{"key": "order", "value": {"int_value": 2**63 - 1}}],
    "dropped_attributes_count": 3,
    "flags": 2**32 - 1,
    "trace_id": bytes.fromhex(TRACE),
    "span_id": bytes.fromhex(SPAN),
    "event_name": "order.paid",
}
LOG_ROW = {
    "ts": NOON,
    "observed_ts": NOON + 1,
    "trace_id": TRACE,
    "span_id": SPAN,
    "flags": 2**32 - 1,
    "severity_number": 9,
    "severity_text": "INFO",
    "event_name": "order.paid",
    "body": "paid\nin full",
    "attributes": {"order": 2**63 - 1},
    "dropped_attributes_count": 3,
    **SENT_BY,
}

SPAN_SENT: dict[str, Any] = {
    "trace_id": bytes.fromhex(TRACE),
    "span_id": bytes.fromhex(SPAN),
    "parent_span_id": bytes.fromhex(PARENT),
    "trace_state": "a=1",
    "flags": 257,
    "name": "GET /",
    "kind": 2,
    "start_time_unix_nano": NOON,
    "end_time_unix_nano": NOON + 1_000_000_007,
    "attributes": [{"key": "http.status", "value": {"int_value": 200}}],
    "dropped_attributes_count": 1,
    "events": [
        {
            "time_unix_nano": NOON + 5,
            "name": "cache.miss",
            "attributes": [{"key": "k", "value": {"string_value": "v"}}],
            "dropped_attributes_count": 2,
        },
        {"time_unix_nano": NOON + 6, "name": "bare"},
    ],
    "dropped_events_count": 3,
    "links": [
        {
            "trace_id": bytes.fromhex(TRACE),
            "span_id": bytes.fromhex(PARENT),
            "trace_state": "b=2",
            "attributes": [{"key": "why", "value": {"string_value": "retry"}}],
            "dropped_attributes_count": 4,
            "flags": 1,
        }
    ],
    "dropped_links_count": 5,
    "status": {"code": 2, "message": "too slow"},
}
SPAN_ROW = {
    "ts": NOON,
    "end_ts": NOON + 1_000_000_007,
    "duration_ns": 1_000_000_007,
    "trace_id": TRACE,
    "span_id": SPAN,
    "parent_span_id": PARENT,
    "trace_state": "a=1",
    "flags": 257,
    "name": "GET /",
    "kind": "server",
    "status_code": "error",
    "status_message": "too slow",
    "attributes": {"http.status": 200},
    "dropped_attributes_count": 1,
    "events": [
        {"ts_ns": NOON + 5, "name": "cache.miss", "attributes": {"k": "v"}, "dropped_attributes_count": 2},
        {"ts_ns": NOON + 6, "name": "bare"},
    ],
    "dropped_events_count": 3,
    "links": [
        {
            "trace_id": TRACE,
            "span_id": PARENT,
            "trace_state": "b=2",
            "flags": 1,
            "attributes": {"why": "retry"},
            "dropped_attributes_count": 4,
        }
    ],
    "dropped_links_count": 5,
    **SENT_BY,
}

POINT: dict[str, Any] = {
    "attributes": [{"key": "host", "value": {"string_value": "a"}}],
    "start_time_unix_nano": NOON - 1,
    "time_unix_nano": NOON,
    "flags": 1,
}
EXEMPLARS: list[dict[str, Any]] = [
    {
        "time_unix_nano": NOON,
        "as_int": 7,
        "trace_id": bytes.fromhex(TRACE),
        "span_id": bytes.fromhex(SPAN),
        "filtered_attributes": [{"key": "user", "value": {"string_value": "ada"}}],
    },
    {"time_unix_nano": NOON, "as_double": math.inf},
]
EXEMPLARS_READ = [
    {"ts_ns": NOON, "value": 7, "trace_id": TRACE, "span_id": SPAN, "attributes": {"user": "ada"}},
    {"ts_ns": NOON, "value": "Infinity"},
]
ABOUT = {
    "unit": "ms",
    "description": "how long",
    "metadata": [{"key": "from", "value": {"string_value": "prometheus"}}],
}
POINT_ROW = {
    "ts": NOON,
    "start_ts": NOON - 1,
    "attributes": {"host": "a"},
    "flags": 1,
    "unit": "ms",
    "description": "how long",
    "metadata": {"from": "prometheus"},
    **SENT_BY,
}

METRICS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"name": "g", "gauge": {"data_points": [{**POINT, "as_double": 1.5}]}},
        {"name": "g", "kind": "gauge", "value": 1.5},
    ),
    (
        {
            "name": "s",
            "sum": {
                "data_points": [{**POINT, "as_int": 2**53 + 1, "exemplars": EXEMPLARS}],
                "aggregation_temporality": 2,
                "is_monotonic": True,
            },
        },
        {
            "name": "s",
            "kind": "sum",
            "temporality": "cumulative",
            "is_monotonic": True,
            "value": 2**53 + 1,
            "value_int": 2**53 + 1,
            "exemplars": EXEMPLARS_READ,
        },
    ),
    (
        {
            "name": "h",
            "histogram": {
                "data_points": [
                    {
                        **POINT,
                        "count": 3,
                        "sum": 6.0,
                        "min": 1.0,
                        "max": 3.0,
                        "bucket_counts": [1, 2],
                        "explicit_bounds": [2.0],
                        "exemplars": EXEMPLARS,
                    }
                ],
                "aggregation_temporality": 1,
            },
        },
        {
            "name": "h",
            "kind": "histogram",
            "temporality": "delta",
            "count": 3,
            "sum": 6.0,
            "min": 1.0,
            "max": 3.0,
            "bucket_counts": [1, 2],
            "explicit_bounds": [2.0],
            "exemplars": EXEMPLARS_READ,
        },
    ),
    (
        {
            "name": "e",
            "exponential_histogram": {
                "data_points": [
                    {
                        **POINT,
                        "count": 4,
                        "sum": 0.5,
                        "min": -1.0,
                        "max": 1.0,
                        "scale": -2,
                        "zero_count": 1,
                        "zero_threshold": 0.25,
                        "positive": {"offset": -3, "bucket_counts": [1, 1]},
                        "negative": {"offset": 4, "bucket_counts": [1]},
                        "exemplars": EXEMPLARS,
                    }
                ],
                "aggregation_temporality": 2,
            },
        },
        {
            "name": "e",
            "kind": "exponential_histogram",
            "temporality": "cumulative",
            "count": 4,
            "sum": 0.5,
            "min": -1.0,
            "max": 1.0,
            "scale": -2,
            "zero_count": 1,
            "zero_threshold": 0.25,
            "positive_offset": -3,
            "positive_counts": [1, 1],
            "negative_offset": 4,
            "negative_counts": [1],
            "exemplars": EXEMPLARS_READ,
        },
    ),
    (
        {
            "name": "q",
            "summary": {
                "data_points": [
                    {
                        **POINT,
                        "count": 2,
                        "sum": math.nan,
                        "quantile_values": [
                            {"quantile": 0.5, "value": 1.0},
                            {"quantile": 0.9, "value": math.nan},
                        ],
                    }
                ]
            },
        },
        {
            "name": "q",
            "kind": "summary",
            "count": 2,
            "quantiles": [{"quantile": 0.5, "value": 1.0}, {"quantile": 0.9, "value": "NaN"}],
            "non_finite": {"sum": "NaN"},
        },
    ),
]
"""Each kind of metric, and what is special in its row."""

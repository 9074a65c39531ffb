"""The tables of OTLP, and the columns that they get if the manifest declares none.

This is the only definition; a test compares `docs/reference/otlp.md` with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from headwater.base.types import BOOL, DYNAMIC, INT, LONG, REAL, STRING, TIMESTAMP, Type, list_of

Signal = Literal["logs", "traces", "metrics"]

TABLES: Mapping[Signal, str] = {"logs": "otel_logs", "traces": "otel_traces", "metrics": "otel_metrics"}

SENDER: Mapping[str, Type] = {
    "service_name": STRING,
    "resource_attributes": DYNAMIC,
    "resource_dropped_attributes_count": LONG,
    "resource_entity_refs": DYNAMIC,
    "resource_schema_url": STRING,
    "scope_name": STRING,
    "scope_version": STRING,
    "scope_attributes": DYNAMIC,
    "scope_dropped_attributes_count": LONG,
    "scope_schema_url": STRING,
}
"""The sender of a row: the last columns of each table."""

COLUMNS: Mapping[Signal, Mapping[str, Type]] = {
    "logs": {
        "ts": TIMESTAMP,
        "observed_ts": TIMESTAMP,
        "trace_id": STRING,
        "span_id": STRING,
        "flags": LONG,
        "severity_number": INT,
        "severity_text": STRING,
        "event_name": STRING,
        "body": STRING,
        "body_json": DYNAMIC,
        "attributes": DYNAMIC,
        "dropped_attributes_count": LONG,
        **SENDER,
    },
    "traces": {
        "ts": TIMESTAMP,
        "end_ts": TIMESTAMP,
        "duration_ns": LONG,
        "trace_id": STRING,
        "span_id": STRING,
        "parent_span_id": STRING,
        "trace_state": STRING,
        "flags": LONG,
        "name": STRING,
        "kind": STRING,
        "status_code": STRING,
        "status_message": STRING,
        "attributes": DYNAMIC,
        "dropped_attributes_count": LONG,
        "events": DYNAMIC,
        "dropped_events_count": LONG,
        "links": DYNAMIC,
        "dropped_links_count": LONG,
        **SENDER,
    },
    "metrics": {
        "ts": TIMESTAMP,
        "start_ts": TIMESTAMP,
        "name": STRING,
        "kind": STRING,
        "unit": STRING,
        "description": STRING,
        "metadata": DYNAMIC,
        "temporality": STRING,
        "is_monotonic": BOOL,
        "attributes": DYNAMIC,
        "flags": LONG,
        "value": REAL,
        "value_int": LONG,
        "count": LONG,
        "sum": REAL,
        "min": REAL,
        "max": REAL,
        "bucket_counts": list_of(LONG),
        "explicit_bounds": list_of(REAL),
        "scale": INT,
        "zero_count": LONG,
        "zero_threshold": REAL,
        "positive_offset": INT,
        "positive_counts": list_of(LONG),
        "negative_offset": INT,
        "negative_counts": list_of(LONG),
        "quantiles": DYNAMIC,
        "non_finite": DYNAMIC,
        "exemplars": DYNAMIC,
        **SENDER,
    },
}
"""All may be null."""

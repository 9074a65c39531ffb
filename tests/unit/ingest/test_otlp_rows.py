"""Requests of OTLP as rows: every field has a column, nothing is rounded, and what was not sent is null."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from headwater.base.table_schema import TableSchema
from headwater.ingest.decode import TooLarge
from headwater.ingest.otlp.any_values import plain
from headwater.ingest.otlp.requests import lines, response, rows_of, written
from headwater.ingest.otlp.tables import COLUMNS, TABLES, Signal
from headwater.ingest.prepare import prepare
from headwater.manifest.vocabulary import needs_quotes
from schemas import schema_of
from unit.ingest.otlp_requests import (
    ABOUT,
    LOG,
    LOG_ROW,
    METRICS,
    NOON,
    POINT,
    POINT_ROW,
    SENT_BY,
    SPAN_ROW,
    SPAN_SENT,
    logs,
    metrics,
    pair,
    traces,
)

U64 = 2**64 - 1


def schema(signal: Signal) -> TableSchema:
    return schema_of({name: str(type_) for name, type_ in COLUMNS[signal].items()})


def text_of(signal: Signal, request: Any) -> bytes:
    return lines(rows_of(signal, request.SerializeToString(), "protobuf"))


def read(signal: Signal, request: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(signal, request).splitlines()]


def refused(signal: Signal, request: Any) -> list[tuple[int, str | None, str]]:
    """The rows that do not fit the columns that the table is made with."""
    found = prepare(text_of(signal, request), schema(signal), table="t", evolve=False, most_bad=None)
    assert not found.rescues
    return [(bad.error.line, bad.error.column, bad.error.reason) for bad in found.bad]


def test_a_log_record_is_a_row() -> None:
    assert read("logs", logs(LOG)) == [LOG_ROW]
    assert refused("logs", logs(LOG)) == []


def test_a_span_is_a_row_with_its_events_and_links() -> None:
    assert read("traces", traces(SPAN_SENT)) == [SPAN_ROW]
    assert refused("traces", traces(SPAN_SENT)) == []


@pytest.mark.parametrize(("sent", "row"), METRICS, ids=lambda each: each["name"])
def test_each_point_of_a_metric_is_a_row(sent: dict[str, Any], row: dict[str, Any]) -> None:
    request = metrics({**sent, **ABOUT})
    assert read("metrics", request) == [{**POINT_ROW, **row}]
    assert refused("metrics", request) == []


def test_every_column_is_filled_by_something() -> None:
    structured = {**LOG, "body": {"kvlist_value": {"values": [pair("a", int_value=1)]}}}
    found = {
        "logs": [*read("logs", logs(LOG)), *read("logs", logs(structured))],
        "traces": read("traces", traces(SPAN_SENT)),
        "metrics": read("metrics", metrics(*({**sent, **ABOUT} for sent, _ in METRICS))),
    }
    for signal in get_args(Signal):
        assert set().union(*found[signal]) == COLUMNS[signal].keys()
        assert not any(map(needs_quotes, COLUMNS[signal]))
    assert TABLES.keys() == found.keys()


def test_what_was_not_sent_is_not_in_the_row() -> None:
    nothing = {"resource_dropped_attributes_count": 0, "scope_dropped_attributes_count": 0, "flags": 0}
    found = rows_of("logs", b"\x0a\x04\x12\x02\x12\x00", "protobuf")
    assert json.loads(lines(found)) == {**nothing, "dropped_attributes_count": 0}
    (span,) = read("traces", traces({}))
    counts = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count", "flags")
    assert span == {**SENT_BY, "status_code": "unset", **dict.fromkeys(counts, 0)}
    (point,) = read("metrics", metrics({"gauge": {"data_points": [{}]}}))
    assert point == {**SENT_BY, "kind": "gauge", "flags": 0}


def test_a_request_without_rows_is_empty() -> None:
    assert text_of("logs", logs()) == b""
    assert text_of("metrics", metrics({"name": "no data"}, {"name": "no points", "gauge": {}})) == b""


def test_a_record_without_a_time_has_the_time_at_which_it_was_seen() -> None:
    (row,) = read("logs", logs({"observed_time_unix_nano": NOON}))
    assert (row["ts"], row["observed_ts"]) == (NOON, NOON)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AnyValue(string_value=""), ""),
        (AnyValue(bool_value=False), False),
        (AnyValue(int_value=-(2**63)), -(2**63)),
        (AnyValue(double_value=0.1), 0.1),
        (AnyValue(double_value=math.nan), "NaN"),
        (AnyValue(double_value=-math.inf), "-Infinity"),
        (AnyValue(bytes_value=b"\xff\x00"), "/wA="),
        (AnyValue(array_value={"values": [AnyValue(int_value=1), AnyValue()]}), [1, None]),
        (AnyValue(kvlist_value={"values": [pair("a", int_value=1), pair("a", int_value=2)]}), {"a": 2}),
        (AnyValue(), None),
    ],
)
def test_a_value_of_any_kind_is_a_value_of_json(value: AnyValue, expected: object) -> None:
    assert plain(value) == expected


def test_a_body_that_is_no_text_is_kept_as_what_it_is() -> None:
    bodies = [{"int_value": 5}, {"string_value": "5"}, {"array_value": {"values": [{"string_value": "5"}]}}, {}]
    found = read("logs", logs(*({"body": body} for body in bodies)))
    assert [(row.get("body"), row.get("body_json")) for row in found] == [
        (None, 5),
        ("5", None),
        (None, ["5"]),
        (None, None),
    ]


def test_an_id_of_zeros_is_none_and_one_of_another_length_is_kept() -> None:
    (row,) = read("logs", logs({"trace_id": bytes(16), "span_id": b"\x00\x01"}))
    assert ("trace_id" in row, row["span_id"]) == (False, "0001")


def test_a_kind_that_is_newer_than_the_list_is_its_number() -> None:
    (row,) = read("traces", traces({"kind": 77, "status": {"code": 9}}))
    assert (row["kind"], row["status_code"]) == ("77", "9")


def test_a_span_that_ends_before_it_begins_lasts_less_than_nothing() -> None:
    (row,) = read("traces", traces({"start_time_unix_nano": NOON, "end_time_unix_nano": NOON - 3}))
    assert row["duration_ns"] == -3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_told_beside_its_column(value: float) -> None:
    request = metrics({"gauge": {"data_points": [{**POINT, "as_double": value}]}})
    (row,) = read("metrics", request)
    assert "value" not in row and float(row["non_finite"]["value"]) is not None
    assert refused("metrics", request) == []


def test_what_no_column_can_hold_is_refused_row_by_row() -> None:
    assert refused("logs", logs({"time_unix_nano": U64}, {"time_unix_nano": NOON})) == [
        (1, "ts", "timestamp_out_of_range")
    ]
    assert refused("metrics", metrics({"summary": {"data_points": [{"count": 1}, {"count": U64}]}})) == [
        (2, "count", "int64_out_of_range")
    ]
    bounds = {"data_points": [{"explicit_bounds": [1.0, math.inf]}]}
    assert refused("metrics", metrics({"histogram": bounds})) == [(1, "explicit_bounds", "not_finite")]


def test_equal_requests_are_equal_bytes() -> None:
    request = traces(SPAN_SENT, SPAN_SENT)
    assert text_of("traces", request) == text_of("traces", type(request).FromString(request.SerializeToString()))


def test_rows_that_repeat_what_they_share_have_a_bound() -> None:
    request = logs(*[{}] * 100)
    request.resource_logs[0].resource.attributes.add(key="large", value={"string_value": "x" * 1000})
    body, grown = request.SerializeToString(), list[int]()
    with pytest.raises(TooLarge):
        lines(rows_of("logs", body, "protobuf"), most=50_000, grow=grown.append)
    assert len(body) < 5_000 and 40_000 < sum(grown) <= 50_000


@pytest.mark.parametrize(("signal", "key"), [("logs", "LogRecords"), ("traces", "Spans"), ("metrics", "DataPoints")])
def test_an_answer_counts_what_was_refused(signal: Signal, key: str) -> None:
    assert written(response(signal, refused=0, message=""), "protobuf") == b""
    assert json.loads(written(response(signal, refused=2, message="why"), "json")) == {
        "partialSuccess": {f"rejected{key}": "2", "errorMessage": "why"}
    }

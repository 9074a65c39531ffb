"""OTLP in JSON: the same messages as in protobuf, and every other body is refused with its place and without its values."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from headwater.base.errors import HeadwaterError
from headwater.ingest.otlp.parse_json import Misfit, parse_json
from headwater.ingest.otlp.requests import lines, rows_of
from headwater.ingest.otlp.tables import Signal
from unit.ingest.otlp_requests import ABOUT, LOG, METRICS, NOON, SPAN, SPAN_SENT, TRACE, logs, metrics, traces

IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def in_hex(value: Any) -> Any:
    """Protobuf's own JSON with ids as OTLP has them."""
    match value:
        case dict():
            return {k: b64decode(v).hex() if k in IDS else in_hex(v) for k, v in value.items()}
        case list():
            return [in_hex(each) for each in value]
        case _:
            return value


@pytest.mark.parametrize(
    ("signal", "request_"),
    [
        ("logs", logs(LOG, {"body": {"bytes_value": b"\xfb\xff"}})),
        ("traces", traces(SPAN_SENT)),
        ("metrics", metrics(*({**sent, **ABOUT} for sent, _ in METRICS))),
    ],
    ids=["logs", "traces", "metrics"],
)
@pytest.mark.parametrize("own_names", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
def test_json_and_protobuf_are_the_same_rows(signal: Signal, request_: Any, own_names: bool, numbers: bool) -> None:
    """In JSON's names and in protobuf's; enumerations as numbers, as they must be, and as words."""
    data = json_format.MessageToDict(request_, preserving_proto_field_name=own_names, use_integers_for_enums=numbers)
    in_json = lines(rows_of(signal, json.dumps(in_hex(data)).encode(), "json"))
    assert in_json == lines(rows_of(signal, request_.SerializeToString(), "protobuf"))
    assert in_json


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    found: dict[str, Any] = json.loads(lines(rows_of("logs", body, "json")))
    return found


@pytest.mark.parametrize("time", [NOON, str(NOON)])
def test_a_time_is_exact_as_a_number_and_as_a_text(time: object) -> None:
    assert row_of({"timeUnixNano": time})["ts"] == NOON


def test_ids_are_hex_digits_of_either_case() -> None:
    row = row_of({"traceId": TRACE.upper(), "spanId": SPAN})
    assert (row["trace_id"], row["span_id"]) == (TRACE, SPAN)


def test_keys_that_are_not_known_and_nulls_are_passed_over() -> None:
    row = row_of({"traceId": None, "new": {"traceId": "no hex"}, "severityNumber": 99, "flags": 1.0})
    assert (row.get("trace_id"), row["severity_number"], row["flags"]) == (None, 99, 1)


NUMBERS = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity", "1.5": 1.5, "-1e3": -1000.0, "7": 7.0}


def test_numbers_that_are_not_finite_come_as_texts() -> None:
    attributes = [{"key": text, "value": {"doubleValue": text}} for text in NUMBERS]
    assert row_of({"attributes": attributes})["attributes"] == NUMBERS


RECORD = "resourceLogs[0].scopeLogs[0].logRecords[0]"


@pytest.mark.parametrize(
    ("record", "place"),
    [
        ('{"traceId": "secret"}', "traceId"),
        ('{"traceId": 5}', "traceId"),
        ('{"timeUnixNano": "secret"}', "timeUnixNano"),
        ('{"timeUnixNano": "1_000"}', "timeUnixNano"),
        ('{"timeUnixNano": 1.5}', "timeUnixNano"),
        ('{"timeUnixNano": true}', "timeUnixNano"),
        ('{"severityNumber": "secret"}', "severityNumber"),
        ('{"severityText": 1}', "severityText"),
        ('{"attributes": {"secret": 1}}', "attributes"),
        ('{"attributes": [1]}', "attributes[0]"),
        ('{"attributes": [{"key": "a", "value": {"boolValue": "true"}}]}', "attributes[0].value.boolValue"),
        ('{"body": {"bytesValue": "!"}}', "body.bytesValue"),
        ('{"body": {"doubleValue": "secret"}}', "body.doubleValue"),
        ('{"body": {"doubleValue": 1' + "0" * 400 + "}}", "body.doubleValue"),
        ('{"body": {"doubleValue": 1e400}}', "body.doubleValue"),
        ('{"body": {"doubleValue": "1e400"}}', "body.doubleValue"),
        ('{"body": {"doubleValue": "1_0"}}', "body.doubleValue"),
        ('{"body": {"doubleValue": " 1"}}', "body.doubleValue"),
        ('{"body": {"doubleValue": "inf"}}', "body.doubleValue"),
        ('{"body": []}', "body"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(record: str, place: str) -> None:
    body = '{"resourceLogs": [{"scopeLogs": [{"logRecords": [' + record + "]}]}]}"
    with pytest.raises(HeadwaterError) as caught:
        lines(rows_of("logs", body.encode(), "json"))
    assert caught.value.code == "HW-I04"
    assert f"`{RECORD}.{place}`" in caught.value.message and "secret" not in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"secret",
        b"null",
        b"[]",
        b"[" * 200_000,
        b'{"a": NaN}',
        b"\xff",
        b'{"resourceLogs": [' + b'{"resource": {}},' * 10,
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": -1}]}]}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "%s"}]}]}]}' % (b"9" * 5_000),
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"severityText": "\\ud800"}]}]}]}',
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    for form in ("json", "protobuf") if body else ("json",):
        with pytest.raises(HeadwaterError, match="HW-I04") as caught:
            lines(rows_of("logs", body, form))  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)


def nested(levels: int) -> bytes:
    deep = b'{"arrayValue":{"values":[' * levels + b"{}" + b"]}}" * levels
    return b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":' + deep + b"}]}]}]}"


def test_a_value_that_is_nested_deep_is_left_to_the_coercion_unless_it_is_absurd() -> None:
    assert lines(rows_of("logs", nested(150), "json")).count(b"[") == 150
    with pytest.raises(Misfit):
        parse_json(ExportLogsServiceRequest, nested(20_000))

"""Large requests are read in pieces: the rows are the same, and what would fill the memory is refused before it is read."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from google.protobuf import json_format

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.ingest.decode import TooLarge
from headwater.ingest.otlp.pieces import json_pieces, protobuf_pieces
from headwater.ingest.otlp.requests import Form, lines, rows_of
from headwater.ingest.otlp.tables import Signal
from unit.ingest.otlp_requests import ABOUT, LOG, METRICS, SPAN_SENT, field, logs, metrics, traces, under
from unit.ingest.test_otlp_parse_json import in_hex

EACH = (LOG, {"body": {"string_value": "x" * 400}}, {}, LOG, LOG)
POINTS: dict[str, Any] = {"sum": {"data_points": [{"as_int": n} for n in range(40)], "aggregation_temporality": 2}}


def twice(request: Any) -> Any:
    """The same resource again, with a scope that has nothing, and one more."""
    request.MergeFrom(type(request).FromString(request.SerializeToString()))
    (name,) = (field.name for field in request.DESCRIPTOR.fields)
    first = getattr(request, name)[0]
    scopes = next(getattr(first, field.name) for field in first.DESCRIPTOR.fields if "scope" in field.name)
    scopes.add()
    scopes.add().CopyFrom(scopes[0])
    return request


REQUESTS: list[tuple[Signal, Any]] = [
    ("logs", twice(logs(*EACH))),
    ("traces", twice(traces(*[SPAN_SENT] * 4, {"name": "bare"}))),
    (
        "metrics",
        twice(metrics(*({**sent, **ABOUT} for sent, _ in METRICS), {"name": "many", **POINTS}, {"name": "no"})),
    ),
]


def in_form(request: Any, form: Form) -> bytes:
    if form == "protobuf":
        return bytes(request.SerializeToString())
    return json.dumps(in_hex(json_format.MessageToDict(request, use_integers_for_enums=True))).encode()


@pytest.mark.parametrize("form", ["protobuf", "json"])
@pytest.mark.parametrize(("signal", "request_"), REQUESTS, ids=[signal for signal, _ in REQUESTS])
def test_the_rows_of_the_pieces_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, signal: Signal, request_: Any, form: Form
) -> None:
    body = in_form(request_, form)
    whole = lines(rows_of(signal, body, form))
    for size in (0, 1, 60, 300, 1_000, 3_000, len(body) - 1):
        monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", size)
        assert lines(rows_of(signal, body, form)) == whole
        if form == "json":
            assert lines(rows_of(signal, b"\xef\xbb\xbf" + body, form)) == whole


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_no_piece_is_much_larger_than_it_should_be(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 3_000)
    request, levels = logs(*[LOG] * 200), ({"resource_logs"}, {"scope_logs"}, {"log_records"})
    cut = protobuf_pieces if form == "protobuf" else json_pieces
    sizes = [len(piece.body) for piece in cut(request.DESCRIPTOR, in_form(request, form), levels)]
    assert len(sizes) > 5 and max(sizes) <= 2 * 3_000


def test_fields_may_stand_in_any_order_and_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As protobuf allows it: what all records share may come behind them, and in two halves."""
    record = under(b"one", 2, 5, 1)
    resource = under(b"\x0a\x01a\x12\x03\x0a\x01b", 1, 1), under(b"\x0a\x01c\x12\x03\x0a\x01d", 1, 1)
    unknown = b"\x98\x06\x01" + b"\xa5\x06\x00\x00\x00\x00" + field(15, b"what is it?")
    body = field(1, resource[0] + field(2, record + unknown + record) + resource[1] + unknown) + unknown
    whole = lines(rows_of("logs", body, "protobuf"))
    assert json.loads(whole.splitlines()[0])["resource_attributes"] == {"a": "b", "c": "d"}
    for size in (1, 20, 40):
        monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", size)
        assert lines(rows_of("logs", body, "protobuf")) == whole


@pytest.mark.parametrize("size", range(1, 60))
def test_a_torn_message_is_refused_in_pieces_too(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    body = logs(*EACH).SerializeToString()
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 20)
    with pytest.raises(HeadwaterError, match="HW-I04"):
        lines(rows_of("logs", body[: -size * 7], "protobuf"))


def test_a_place_is_one_in_the_whole_request(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"severityText": "x" * 50}] * 20 + [{"traceId": "secret"}]
    body = json.dumps({"resourceLogs": [{}, {"scopeLogs": [{}, {}, {"logRecords": records}]}]}).encode()
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 200)
    with pytest.raises(HeadwaterError) as caught:
        lines(rows_of("logs", body, "json"))
    assert "`resourceLogs[1].scopeLogs[2].logRecords[20].traceId`" in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceLogs": [{"scopeLogs": 5, "schemaUrl": "%s"}]}' % (b"x" * 300),
        b'{"resourceLogs": ["%s"]}' % (b"x" * 300),
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [' + b"{}," * 100,
        b"[%s]" % (b" " * 300),
        b'{"resourceLogs": ' + b"[" * 100_000,
        b'{"resourceLogs": [{"scopeLogs": [{"scope": {"name": "\xff"}, "logRecords": [{}%s]}]}]}' % (b",{}" * 100),
    ],
)
def test_what_is_no_request_is_refused_in_pieces_too(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 100)
    with pytest.raises(HeadwaterError, match="HW-I04"):
        lines(rows_of("logs", body, "json"))


COUNT = 2_000
EMPTY = {
    "resources": ("logs", b"\x0a\x00" * COUNT),
    "scopes": ("logs", under(b"\x12\x00" * COUNT, 1)),
    "records": ("logs", under(b"\x12\x00" * COUNT, 1, 2)),
    "attributes": ("logs", under(b"\x32\x00" * COUNT, 1, 2, 2)),
    "entities": ("logs", field(1, under(b"\x1a\x00" * COUNT, 1) + under(b"\x12\x00", 2))),
    "values": ("logs", under(b"\x0a\x00" * COUNT, 1, 2, 2, 5, 5)),
    "controls": ("logs", under(b"\x01" * 16 * COUNT, 1, 2, 2, 5, 1)),
    "deep": ("logs", under(b"", 1, 2, 2, *[5, 1] * (COUNT // 2))),
    "events": ("traces", under(b"\x5a\x00" * COUNT, 1, 2, 2)),
    "metrics": ("metrics", under(b"\x12\x00" * COUNT, 1, 2)),
    "points": ("metrics", under(b"\x0a\x00" * COUNT, 1, 2, 2, 7)),
    "quantiles": ("metrics", under(b"\x32\x00" * COUNT, 1, 2, 2, 11, 1)),
    "counts": ("metrics", under(b"\x00" * 16 * COUNT, 1, 2, 2, 10, 1, 8, 2)),
    "json": ("logs", b'{"resourceLogs": [%s]}' % (b"1," * 8 * COUNT)),
    "json record": ("logs", b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"a": [%s{}]}]}]}]}' % (b"{}," * COUNT)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_many_small_values_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 500)
    monkeypatch.setattr(limits, "OTLP_PARTS", COUNT // 2)
    signal, body = EMPTY[name]
    grown: list[int] = []
    tracemalloc.start()
    with pytest.raises(HeadwaterError, match="HW-I04"):
        form: Form = "json" if name.startswith("json") else "protobuf"
        lines(rows_of(signal, body, form, grow=grown.append))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000 + 3 * len(body)
    assert sum(grown) <= limits.OTLP_PARTS * limits.OTLP_PART_BYTES


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_the_largest_record_is_told_before_it_is_read(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    many = {"attributes": [{"key": str(n), "value": {"int_value": n}} for n in range(300)]}
    monkeypatch.setattr(limits, "OTLP_PIECE_BYTES", 1_000)
    grown: list[int] = []
    body = in_form(logs(LOG, many, LOG, many), form)
    assert len(lines(rows_of("logs", body, form, grow=grown.append)).splitlines()) == 4
    assert 600 * limits.OTLP_PART_BYTES <= sum(grown) < 1_000 * limits.OTLP_PART_BYTES
    with pytest.raises(InterruptedError):
        lines(rows_of("logs", body, form, grow=no_room))


def no_room(_size: int) -> None:
    raise InterruptedError


def test_what_becomes_no_rows_has_a_bound() -> None:
    """Else some kilobytes, compressed, would keep a server busy for minutes."""
    for body, signal in ((under(b"\x12\x00" * 1000, 1), "logs"), (under(b"\x12\x00" * 1000, 1, 2), "metrics")):
        with pytest.raises(TooLarge):
            lines(rows_of(signal, body, "protobuf"), most=50_000)  # type: ignore[arg-type]

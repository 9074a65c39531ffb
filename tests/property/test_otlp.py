"""Whatever is sent as OTLP, it is rows or it is refused."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.ingest.otlp.lines import lines
from headwater.ingest.otlp.requests import Form, rows_of
from headwater.ingest.otlp.tables import Signal

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=5) | st.sampled_from(["NaN", "-Infinity", "12", "ab", "1e400"])
NAMES = st.sampled_from(
    ["resourceLogs", "scopeLogs", "logRecords", "attributes", "key", "value", "body", "traceId", "stringValue"]
    + ["intValue", "doubleValue", "bytesValue", "arrayValue", "kvlistValue", "values", "timeUnixNano", "flags", "scope"]
)
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)


def must_be_rows_or_refused(signal: Signal, body: bytes, form: Form) -> None:
    try:
        found = lines(rows_of(signal, body, form))
    except HeadwaterError as error:
        assert error.code == "HW-I04"
    else:
        assert all(isinstance(json.loads(line), dict) for line in found.splitlines())


@given(VALUES)
def test_json(data: object) -> None:
    record = json.dumps(data)
    for body in (record, '{"resourceLogs": [{"scopeLogs": [{"logRecords": [' + record + "]}]}]}"):
        must_be_rows_or_refused("logs", body.encode(), "json")


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x0a\x40\x12\x3e\x12\x3c"]))
def test_protobuf(body: bytes, begin: bytes) -> None:
    for signal in ("logs", "traces", "metrics"):
        must_be_rows_or_refused(signal, begin + body, "protobuf")

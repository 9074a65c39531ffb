"""The exporters of the OpenTelemetry SDK, over gRPC and HTTP: what a program records is in the tables, exactly."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcTraces
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpTraces
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from headwater.base import limits
from unit.interfaces.otlp.taking import HOST, Taking, taking

NOON = 1_767_268_800_123_456_789
PROTOCOLS = ("grpc", "grpc-gzip", "http", "http-gzip")
RESOURCE = {"service.name": "shop", "host.name": "a"}


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taking]:
    with taking(tmp_path_factory.mktemp("otlp") / "shop") as found:
        yield found


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def exporter(taken: Taking, protocol: str, signal: str) -> Any:
    """An exporter as a program makes it."""
    kind, _, gzip = protocol.partition("-")
    if kind == "grpc":
        over_grpc: Any = {"logs": GrpcLogs, "traces": GrpcTraces, "metrics": GrpcMetrics}[signal]
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        endpoint = f"http://{HOST}:{taken.listening.grpc_port}"
        return over_grpc(endpoint=endpoint, insecure=True, compression=compression)
    over_http: Any = {"logs": HttpLogs, "traces": HttpTraces, "metrics": HttpMetrics}[signal]
    endpoint = f"http://{HOST}:{taken.listening.http_port}/v1/{signal}"
    return over_http(endpoint=endpoint, compression=Compression.Gzip if gzip else Compression.NoCompression)


def resource(protocol: str) -> Resource:
    return Resource({**RESOURCE, "protocol": protocol}, schema_url="https://example.com/1")


def rows(taken: Taking, protocol: str, table: str, *, order: str) -> list[dict[str, Any]]:
    """Those that came this way."""
    found = taken.rows(table, order=order)
    assert found
    return [row for row in found if json.loads(row["resource_attributes"])["protocol"] == protocol]


def test_logs(taken: Taking, protocol: str) -> None:
    provider = LoggerProvider(resource=resource(protocol), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter(taken, protocol, "logs")))
    logger = provider.get_logger("shop.checkout", "2.1")
    bodies: list[Any] = ["paid", {"amount": 12.5, "tags": ["a", "b"]}, 7, "last"]
    for number, body in enumerate(bodies):
        logger.emit(
            LogRecord(
                timestamp=NOON + number,
                observed_timestamp=NOON + 100,
                severity_text="WARN",
                severity_number=SeverityNumber.WARN,
                body=body,
                attributes={"n": number, "big": 2**62 + 1},
                event_name="order.paid",
            )
        )
    provider.shutdown()
    found = rows(taken, protocol, "otel_logs", order="ts_ns")
    assert [row["ts_ns"] for row in found] == [NOON + number for number in range(len(bodies))]
    assert [row["body"] for row in found] == ["paid", None, None, "last"]
    assert [row["body_json"] and json.loads(row["body_json"]) for row in found] == [None, bodies[1], 7, None]
    first = found[0]
    assert (first["severity_number"], first["severity_text"], first["event_name"]) == (13, "WARN", "order.paid")
    assert (first["observed_ts_ns"], json.loads(first["attributes"])["big"]) == (NOON + 100, 2**62 + 1)
    assert (first["service_name"], first["scope_name"], first["scope_version"]) == ("shop", "shop.checkout", "2.1")
    assert first["resource_schema_url"] == "https://example.com/1"


def test_traces(taken: Taking, protocol: str) -> None:
    provider = TracerProvider(resource=resource(protocol), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter(taken, protocol, "traces")))
    tracer = provider.get_tracer("shop")
    with tracer.start_as_current_span("outer", kind=SpanKind.SERVER, start_time=NOON, end_on_exit=False) as outer:
        inner = tracer.start_span(
            "inner", links=[Link(outer.get_span_context(), {"why": "batch"})], start_time=NOON + 1
        )
        inner.add_event("cache.miss", {"key": "k"}, timestamp=NOON + 2)
        inner.set_status(Status(StatusCode.ERROR, "too slow"))
        inner.end(NOON + 3)
        outer.end(NOON + 5)
    provider.shutdown()
    first, second = rows(taken, protocol, "otel_traces", order="ts_ns")
    assert isinstance(outer, Span) and isinstance(inner, Span)
    trace_id, outer_id = f"{outer.context.trace_id:032x}", f"{outer.context.span_id:016x}"
    assert (first["name"], first["kind"], first["status_code"]) == ("outer", "server", "unset")
    assert (first["trace_id"], first["span_id"], first["parent_span_id"]) == (trace_id, outer_id, None)
    assert (first["ts_ns"], first["end_ts_ns"], first["duration_ns"]) == (NOON, NOON + 5, 5)
    assert (second["parent_span_id"], second["kind"]) == (outer_id, "internal")
    assert (second["status_code"], second["status_message"]) == ("error", "too slow")
    (event,) = json.loads(second["events"])
    assert event == {"ts_ns": NOON + 2, "name": "cache.miss", "attributes": {"key": "k"}}
    (link,) = json.loads(second["links"])
    assert (link["trace_id"], link["span_id"], link["attributes"]) == (trace_id, outer_id, {"why": "batch"})


def test_metrics(taken: Taking, protocol: str) -> None:
    view = View(instrument_name="latency.exp", aggregation=ExponentialBucketHistogramAggregation())
    reader = PeriodicExportingMetricReader(exporter(taken, protocol, "metrics"), export_interval_millis=float("inf"))
    provider = MeterProvider(
        [reader],
        resource=resource(protocol),
        views=[view],
        exemplar_filter=AlwaysOnExemplarFilter(),
        shutdown_on_exit=False,
    )
    meter = provider.get_meter("shop")
    meter.create_counter("orders", unit="1", description="paid").add(2**53 + 1, {"country": "de"})
    meter.create_gauge("temperature").set(21.5)
    histogram = meter.create_histogram("latency", explicit_bucket_boundaries_advisory=[1.0, 10.0])
    exponential = meter.create_histogram("latency.exp")
    for value in (0.5, 5.0, 50.0):
        histogram.record(value)
        exponential.record(value)
    assert provider.force_flush()
    provider.shutdown()
    found = {row["name"]: row for row in rows(taken, protocol, "otel_metrics", order="name")}
    assert found.keys() == {"orders", "temperature", "latency", "latency.exp"}
    orders = found["orders"]
    assert (orders["kind"], orders["temporality"], orders["is_monotonic"]) == ("sum", "cumulative", True)
    assert (orders["value_int"], orders["value"], orders["unit"]) == (2**53 + 1, 2.0**53, "1")
    assert json.loads(orders["attributes"]) == {"country": "de"}
    assert json.loads(orders["exemplars"])[0]["value"] == 2**53 + 1
    assert (found["temperature"]["kind"], found["temperature"]["value"]) == ("gauge", 21.5)
    latency = found["latency"]
    assert (latency["count"], latency["sum"], latency["min"], latency["max"]) == (3, 55.5, 0.5, 50.0)
    assert (latency["bucket_counts"], latency["explicit_bounds"]) == ([1, 1, 1], [1.0, 10.0])
    assert latency["start_ts_ns"] <= latency["ts_ns"]
    spread = found["latency.exp"]
    assert (spread["kind"], spread["count"], sum(spread["positive_counts"])) == ("exponential_histogram", 3, 3)
    assert spread["scale"] is not None and spread["positive_offset"] is not None


def test_a_large_batch_is_there_in_its_order(tmp_path: Path, protocol: str) -> None:
    """It is read in pieces: the records, the spans, and the points of one metric."""
    texts = [f"{number:04}" + "x" * 200 for number in range(500)]
    with taking(tmp_path / "shop") as taken:
        loggers, tracers = LoggerProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
        loggers.add_log_record_processor(BatchLogRecordProcessor(exporter(taken, protocol, "logs")))
        tracers.add_span_processor(BatchSpanProcessor(exporter(taken, protocol, "traces")))
        metrics = exporter(taken, protocol, "metrics")
        meters = MeterProvider(
            [PeriodicExportingMetricReader(metrics, export_interval_millis=float("inf"))], shutdown_on_exit=False
        )
        logger, tracer = loggers.get_logger("shop"), tracers.get_tracer("shop")
        counter = meters.get_meter("shop").create_counter("orders")
        for number, text in enumerate(texts):
            logger.emit(LogRecord(timestamp=NOON + number, body=text))
            tracer.start_span(text, start_time=NOON + number).end(NOON + number + 1)
            counter.add(number, {"text": text})
        loggers.shutdown()
        tracers.shutdown()
        assert meters.force_flush()
        meters.shutdown()
        assert [row["body"] for row in taken.rows("otel_logs", "body", order="ts_ns")] == texts
        assert [row["name"] for row in taken.rows("otel_traces", "name", order="ts_ns")] == texts
        points = taken.rows("otel_metrics", "attributes->>'text' as text, temporality", order="value_int")
        assert points == [{"text": text, "temporality": "cumulative"} for text in texts]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_exporter_that_finds_no_room_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """It waits for as long as it is told, and its span is there once."""
    monkeypatch.setattr(limits, "HTTP_RETRY_SECONDS", 1)
    with taking(tmp_path / "shop") as taken, ExitStack() as others:
        for _ in range(limits.INGESTS_AT_ONCE):
            others.enter_context(taken.receiver.memory.reserve())
        tried = Retried(others)
        logging.getLogger("opentelemetry.exporter.otlp.proto").addHandler(tried)
        provider = TracerProvider(shutdown_on_exit=False)
        span = provider.get_tracer("t").start_span("once")
        span.end()
        assert isinstance(span, Span)
        sender = exporter(taken, protocol, "traces")
        with caplog.at_level(logging.WARNING):
            assert sender.export([span]) is SpanExportResult.SUCCESS
        sender.shutdown()
        logging.getLogger("opentelemetry.exporter.otlp.proto").removeHandler(tried)
        assert tried.count
        assert [row["name"] for row in taken.rows("otel_traces")] == ["once"]


class Retried(logging.Handler):
    """Hears that an exporter was sent away, and makes room."""

    def __init__(self, others: ExitStack):
        super().__init__(logging.WARNING)
        self.others, self.count = others, 0

    def emit(self, record: logging.LogRecord) -> None:
        if "retry" in record.getMessage().lower():
            self.count += 1
            self.others.close()

"""Spans by the OpenTelemetry SDK, which reads the rest of the OTEL_* variables itself: endpoint, headers, sampler,
resource, sizes of batches. Importing this module is slow: only `tracing` does it, when spans are asked for.

The provider is not the global one of the process: Headwater does not send the spans of libraries, which may hold the
query strings of requests, for example.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headwater import __version__
from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError
from headwater.observe.spans import Attribute, Span, Tracing

_PROTOCOLS = {"": "otlp_proto_http", "http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_W3C = TraceContextTextMapPropagator()
_logger = logging.getLogger(__name__)


def open_tracing(names: Sequence[str], environ: Mapping[str, str]) -> OtelTracing:
    """Tracing to these exporters. Raises HW-U01 if one is not installed, or if the SDK rejects a variable."""
    if not environ.get("HEADWATER_DEBUG"):
        _listen_to_the_sdk()
    try:
        return OtelTracing([_exporter(_full_name(name, environ)) for name in names])
    except (ValueError, RuntimeError) as error:
        # The SDK's message may hold the value of a variable, and one of them holds a token.
        raise HeadwaterError(
            "HW-U01",
            "OpenTelemetry refuses a value of the OTEL_* environment",
            hint="HEADWATER_DEBUG=1 shows which; OTEL_SDK_DISABLED=true goes on without spans",
        ) from error


class RecordedSpan(Span):
    def __init__(self, span: trace.Span):
        self._span, self.traceparent = span, _traceparent(span)

    def add(self, attributes: Mapping[str, Attribute]) -> None:
        self._span.set_attributes(attributes)

    def fail(self, error: BaseException) -> None:
        _mark_failed(self._span, error)


class OtelTracing(Tracing):
    """Owns the provider, the thread that sends, and the spans of runs under way."""

    def __init__(self, exporters: Sequence[SpanExporter]):
        self._exporters = tuple(exporters)
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        for exporter in self._exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("headwater", __version__)
        self._runs: dict[str, trace.Span] = {}
        self._lock = threading.Lock()
        # The thread starts now, because Python starts no threads while a process ends.
        self._ending = threading.Event()
        self._flusher = threading.Thread(target=self._flush_at_the_end, name="headwater-spans", daemon=True)
        self._flusher.start()

    def begin_run(self, pipeline: str, run_id: str) -> str | None:
        about = {"headwater.pipeline": pipeline, "headwater.run_id": run_id}
        span = self._tracer.start_span("run", context=Context(), attributes=about)
        forgotten = []
        with self._lock:
            while len(self._runs) >= limits.TRACED_RUNS:
                forgotten.append(self._runs.pop(next(iter(self._runs))))
            self._runs[run_id] = span
        for old in forgotten:
            _end_run(old, "unknown")
        return _traceparent(span)

    def end_run(self, run_id: str, state: str | None) -> None:
        with self._lock:
            span = self._runs.pop(run_id, None)
        if span is not None:
            _end_run(span, state or "passed")

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, parent: str | None = None
    ) -> Iterator[RecordedSpan]:
        context = _W3C.extract({"traceparent": parent}) if parent else None
        span = self._tracer.start_span(name, context=context, attributes=attributes)
        # The SDK would record messages and tracebacks, which may hold values of rows.
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield RecordedSpan(span)
            except BaseException as error:
                _mark_failed(span, error)
                raise

    def shutdown(self) -> None:
        with self._lock:
            left, self._runs = self._runs, {}
        for span in left.values():
            _end_run(span, "unfinished")
        self._ending.set()
        self._flusher.join(limits.TRACE_FLUSH_SECONDS)
        if self._flusher.is_alive():
            _logger.warning("tracing: the last spans could not be sent within %g seconds", limits.TRACE_FLUSH_SECONDS)
            for exporter in self._exporters:
                exporter.shutdown()  # stops its retries

    def _flush_at_the_end(self) -> None:
        self._ending.wait()
        self._provider.shutdown()


class _StderrExporter(SpanExporter):
    """One line of JSON per span. Never on stdout, which is for data. It looks up stderr for each span, because stderr
    may have been replaced since the start."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        sys.stderr.write("".join(f"{span.to_json(indent=None)}\n" for span in spans))
        sys.stderr.flush()
        return SpanExportResult.SUCCESS


class _SayOnce(logging.Handler):
    """Replaces the SDK's log messages by one warning that spans are lost. A message of the SDK may hold a header with a
    token, and would be repeated while a collector is unreachable."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            _logger.warning("tracing: spans could not be sent and are lost; HEADWATER_DEBUG=1 shows why")


def _listen_to_the_sdk() -> None:
    sdk = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _SayOnce) for handler in sdk.handlers):
        sdk.addHandler(_SayOnce())
        sdk.propagate = False


def _full_name(name: str, environ: Mapping[str, str]) -> str:
    """The protocol decides which exporter `otlp` means; the one for HTTP is installed with the extra."""
    if name != "otlp":
        return name
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    return _PROTOCOLS.get(protocol.strip().lower(), f"otlp over {protocol.strip()}")


def _exporter(name: str) -> SpanExporter:
    match name:
        case "otlp_proto_http":
            return OTLPSpanExporter()
        case "console":
            return _StderrExporter()
    for found in entry_points(group="opentelemetry_traces_exporter", name=name):
        exporter = found.load()()
        assert isinstance(exporter, SpanExporter)
        return exporter
    raise HeadwaterError(
        "HW-U01",
        f"the OTEL_* environment asks for the trace exporter `{name}`, which is not installed",
        hint="`otlp` (over http/protobuf) and `console` are there; others come with packages of their own",
    )


def _resource() -> Resource:
    """The resource that the environment describes; the service name is ours if it gives none."""
    given = OTELResourceDetector().detect().attributes
    ours: dict[str, str] = {"service.name": "headwater", "service.version": __version__}
    return Resource.create({name: value for name, value in ours.items() if name not in given})


def _traceparent(span: trace.Span) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _end_run(span: trace.Span, state: str) -> None:
    span.set_attribute("headwater.state", state)
    if state == "failed":
        span.set_status(trace.StatusCode.ERROR)
    span.end()


def _mark_failed(span: trace.Span, error: BaseException) -> None:
    if isinstance(error, HeadwaterError):
        kind, meaning = error.code, CODES[error.code][0]
    else:
        kind, meaning = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."), ""
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, meaning or None)

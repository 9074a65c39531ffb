"""Tracing as the environment configures it: off, unless the OTEL_* variables say where spans go.

While it is off nothing of OpenTelemetry is imported, and a span costs no more than a call.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Mapping

from headwater.base.errors import HeadwaterError
from headwater.observe.spans import Tracing

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_lock = threading.Lock()
_shared: Tracing | None = None


def tracing() -> Tracing:
    """The tracing of this process, decided at the first call and kept until `shutdown`. Raises HW-U01 if the
    environment asks for something that is not possible: call it once before the work begins."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = _decide(os.environ)
        return _shared


def shutdown() -> None:
    """Send the spans that are left, for a bounded time. This also happens when the process ends by itself."""
    global _shared
    with _lock:
        ended, _shared = _shared, None
    if ended is not None:
        atexit.unregister(shutdown)
        ended.shutdown()


def asked_exporters(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The exporters that the environment asks for; none if tracing is off. An empty variable counts as not set."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if not named and any(environ.get(name, "").strip() for name in _ENDPOINTS):
        named = "otlp"
    names = (name.strip().lower() for name in named.split(","))
    return tuple(dict.fromkeys(name for name in names if name not in ("", "none")))


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id in a W3C `traceparent`, as tracing tools show it. Any other text is returned unchanged."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return found[1] if found else traceparent


def _decide(environ: Mapping[str, str]) -> Tracing:
    names = asked_exporters(environ)
    if not names:
        return Tracing()
    try:
        from headwater.observe.otel import open_tracing
    except ImportError as missing:
        raise HeadwaterError(
            "HW-U01",
            "the OTEL_* environment asks for tracing, and OpenTelemetry is not installed",
            hint="install it with `pip install 'headwater[otel]'`, or set OTEL_SDK_DISABLED=true",
        ) from missing
    opened = open_tracing(names, environ)
    atexit.register(shutdown)
    return opened

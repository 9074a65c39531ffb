"""OTLP over gRPC.

Messages are received as they are sent, and decompressed here: gRPC's own decompression has no limit before the whole
message is there. A request is checked before its message is read, so a sender without access cannot fill the memory.

No host is checked: that check protects from web pages that make a browser send requests, and a browser speaks no gRPC
without TLS.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from starlette.datastructures import Headers

from headwater.app.access import joined
from headwater.app.otlp import Signal, written
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.http.connections import connection_limit, raise_file_limit
from headwater.interfaces.http.ingest import key_of
from headwater.interfaces.http.problems import unforeseen
from headwater.interfaces.http.server import listen
from headwater.interfaces.otlp.receive import RETRIED, Receiver, error_line, http_status

SERVICES: dict[Signal, str] = {
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_SETTING = "[serve.otlp] grpc_port"
_GZIP = b"\x1f\x8b"
"""No message begins with these bytes: they would be a field of a type that protobuf does not have."""
_NO_COMPRESSION, _WITH_GZIP = 1 << 0, 1 << 2
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else two servers would share a port without an error
    ("grpc.max_receive_message_length", limits.OTLP_MESSAGE_BYTES),
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION | _WITH_GZIP),
    ("grpc.server_handshake_timeout_ms", int(limits.HTTP_HEADER_SECONDS * 1000)),
    ("grpc.max_connection_idle_ms", int(limits.OTLP_IDLE_SECONDS * 1000)),
)
_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_LOG = logging.getLogger("headwater.otlp")


class GrpcServer:
    """One server, started once and stopped once."""

    def __init__(self) -> None:
        # Otherwise a program that a ripple forks can wait for ever, for gRPC's threads.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
        self._threads = ThreadPoolExecutor(limits.INGEST_THREADS, thread_name_prefix="headwater otlp")
        most = ("grpc.max_allowed_incoming_connections", connection_limit(raise_file_limit()))
        self._server = grpc.server(self._threads, options=(*_OPTIONS, most))

    def start(self, receiver: Receiver, host: str, port: int) -> int:
        """Start to listen; returns the port, which is a free one if 0 was asked for. Raises HW-H01 if it cannot listen
        on that address."""
        self._server.add_generic_rpc_handlers(
            tuple(_handler(receiver, signal, service) for signal, service in SERVICES.items())
        )
        listen(host, port, _SETTING).close()  # gRPC does not report the reason
        where = joined(host, port)
        try:
            bound = int(self._server.add_insecure_port(where))
        except RuntimeError as error:
            hint = f"choose another port: `{_SETTING}`, `0` for any free one"
            raise HeadwaterError("HW-H01", f"cannot listen on `{where}` for gRPC", hint=hint) from error
        self._server.start()
        return bound

    def stop(self) -> None:
        """Accept no more requests, give those in progress time to finish, and end."""
        self._server.stop(limits.HTTP_STOP_SECONDS).wait()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _handler(receiver: Receiver, signal: Signal, service: str) -> grpc.GenericRpcHandler:
    def export(messages: Iterator[bytes], call: grpc.ServicerContext) -> bytes:
        try:
            return _export(receiver, signal, messages, call)
        except HeadwaterError as error:
            failure = error
        except grpc.RpcError:
            raise  # the sender is gone, or its message is too large: gRPC has answered it
        except Exception as error:
            _LOG.exception("a request of %s failed", signal)
            failure = unforeseen(error)
        _abort(call, failure)

    # Only one message comes. A stream handler reads it when the handler asks for it, not before.
    method = grpc.stream_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(service, {"Export": method})


def _export(receiver: Receiver, signal: Signal, messages: Iterator[bytes], call: grpc.ServicerContext) -> bytes:
    texts = [(name, value) for name, value in call.invocation_metadata() if isinstance(value, str)]
    sent = Headers(raw=[(name.encode(), value.encode()) for name, value in texts])
    receiver.access.check_token(sent.get("authorization"))
    with receiver.memory.reserve() as place:
        body = _read(messages, call)
        place.grow(len(body))
        answer = receiver.receive(
            signal,
            body,
            place,
            encoding="gzip" if body.startswith(_GZIP) else "none",
            form="protobuf",
            key=key_of(sent),
            actor=f"otlp:{_host(call.peer())}",
        )
    return written(answer, "protobuf")


def _read(messages: Iterator[bytes], call: grpc.ServicerContext) -> bytes:
    """The message. The call is cancelled if it takes too long to come."""
    late = threading.Timer(limits.OTLP_READ_SECONDS, call.cancel)
    late.daemon = True
    late.start()
    try:
        body = next(messages, None)
    finally:
        late.cancel()
    if body is None:
        raise HeadwaterError("HW-I04", "the request has no message", hint="nothing was written; send it again")
    return body


def _abort(call: grpc.ServicerContext, error: HeadwaterError) -> NoReturn:
    status, text = http_status(error), error_line(error)
    if status in RETRIED:
        code = grpc.StatusCode.UNAVAILABLE
        again = RetryInfo()
        again.retry_delay.seconds = limits.HTTP_RETRY_SECONDS
        detail = AnyMessage()
        detail.Pack(again)
        full = Status(code=code.value[0], message=text, details=[detail])
        call.set_trailing_metadata(
            (
                ("grpc-status-details-bin", full.SerializeToString()),
                ("google.rpc.retryinfo-bin", again.SerializeToString()),  # the Python exporter reads this one
            )
        )
    else:
        code = _CODES.get(status, grpc.StatusCode.INVALID_ARGUMENT if status < 500 else grpc.StatusCode.INTERNAL)
    call.abort(code, text)
    raise AssertionError("abort raises")


def _host(peer: str) -> str:
    """The address in `ipv4:127.0.0.1:4711` and similar."""
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") or "unknown"

"""Both OTLP servers, while a `serve` runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from headwater.app.access import joined
from headwater.interfaces.http.server import HttpServer
from headwater.interfaces.otlp.grpc_server import GrpcServer
from headwater.interfaces.otlp.http import otlp_app
from headwater.interfaces.otlp.receive import Receiver


@dataclass(frozen=True)
class OtlpAddresses:
    """The addresses for exporters."""

    host: str
    grpc_port: int
    http_port: int

    def __str__(self) -> str:
        return f"{joined(self.host, self.grpc_port)} (gRPC) and http://{joined(self.host, self.http_port)}"


@contextmanager
def taking_otlp(receiver: Receiver, host: str, grpc_port: int, http_port: int) -> Iterator[OtlpAddresses]:
    """Raises HW-H01 if a server cannot listen. After the block no rows arrive, and the ingestor can be closed."""
    with ExitStack() as stack:
        grpc_server, http_server = GrpcServer(), HttpServer()
        stack.callback(grpc_server.stop)
        stack.callback(http_server.stop)
        yield OtlpAddresses(
            host,
            grpc_server.start(receiver, host, grpc_port),
            http_server.start(otlp_app(receiver), host, http_port, setting="[serve.otlp] http_port"),
        )

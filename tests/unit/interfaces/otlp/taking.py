"""A project that takes OTLP: a real store, both servers on free ports, and a client of each that sends what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from headwater.app.access import Access
from headwater.app.ingest import Ingestor
from headwater.app.query import reader
from headwater.app.workspace import Workspace, workspace
from headwater.base import limits
from headwater.duck.sandbox import run_query
from headwater.ingest.otlp.tables import Signal
from headwater.interfaces.http.memory import MemoryBudget
from headwater.interfaces.otlp.grpc_server import SERVICES
from headwater.interfaces.otlp.receive import Receiver
from headwater.interfaces.otlp.servers import OtlpAddresses, taking_otlp
from headwater.observe.counters import Counters

HOST = "127.0.0.1"
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass(frozen=True)
class Told:
    """What a call over gRPC was answered."""

    code: grpc.StatusCode
    answer: bytes = b""
    says: str = ""
    retry_seconds: int | None = None


@dataclass
class Taking:
    workspace: Workspace
    receiver: Receiver
    listening: OtlpAddresses
    counters: Counters
    http: httpx.Client
    channel: grpc.Channel = field(repr=False)

    def call(self, signal: Signal, body: bytes, *, gzip: bool = False, **metadata: str) -> Told:
        """Send bytes as a message over gRPC."""
        method = self.channel.unary_unary(f"/{SERVICES[signal]}/Export")
        sent = tuple((key.replace("_", "-"), value) for key, value in metadata.items())
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        try:
            return Told(grpc.StatusCode.OK, method(body, metadata=sent, compression=compression))
        except grpc.RpcError as error:
            return _told(error)

    def post(self, signal: Signal, body: bytes, *, form: str = PROTOBUF, **headers: str) -> httpx.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.http.post(f"/v1/{signal}", content=body, headers={"Content-Type": form, **named})

    def rows(self, table: str, columns: str = "*", *, order: str = "1") -> list[dict[str, Any]]:
        sql = f"select {columns} from meta.{table} order by {order}"
        with reader(self.workspace, sql=sql) as session:
            found = run_query(session, sql)
            return [dict(zip(found.columns, row)) for row in found.rows()]


@contextmanager
def taking(root: Path, manifest: str = "", *, access: Access | None = None) -> Iterator[Taking]:
    root.mkdir(parents=True, exist_ok=True)
    (root / "headwater.toml").write_text(manifest)
    counters = Counters()
    with workspace(root) as opened:
        ingestor = Ingestor(counters)
        room = MemoryBudget(limits.INGESTS_AT_ONCE, limits.INGEST_MEMORY_BYTES)
        opened.store()
        receiver = Receiver(lambda: opened, access or Access(), ingestor, room)
        options = [("grpc.max_send_message_length", -1)]
        with (
            taking_otlp(receiver, HOST, 0, 0) as found,
            httpx.Client(base_url=f"http://{HOST}:{found.http_port}", trust_env=False, timeout=60) as client,
            grpc.insecure_channel(f"{HOST}:{found.grpc_port}", options=options) as channel,
        ):
            yield Taking(opened, receiver, found, counters, client, channel)
        ingestor.close()


def said(response: httpx.Response, status: int) -> str:
    """The message of a refusal over HTTP, in the form of the request."""
    assert response.status_code == status, response.text
    is_json = response.headers["content-type"] == JSON
    text = str(response.json()["message"]) if is_json else Status.FromString(response.content).message
    assert "Traceback" not in text
    return text


def _told(error: Any) -> Told:
    trailing = dict(error.trailing_metadata() or ())
    seconds = None
    if "grpc-status-details-bin" in trailing:
        status, again = Status.FromString(trailing["grpc-status-details-bin"]), RetryInfo()
        assert (status.code, status.message) == (error.code().value[0], error.details())
        assert status.details[0].Unpack(again)
        assert again.SerializeToString() == trailing["google.rpc.retryinfo-bin"]
        seconds = again.retry_delay.seconds
    return Told(error.code(), says=error.details(), retry_seconds=seconds)

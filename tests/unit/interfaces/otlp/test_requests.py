"""OTLP over gRPC and HTTP: what is answered, what is refused and how, and that an answer comes after the rows."""

from __future__ import annotations

import gzip
import json
import math
import socket
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from headwater.app.access import Access
from headwater.base import limits
from headwater.ingest.otlp.tables import COLUMNS
from headwater.interfaces.otlp.grpc_server import GrpcServer
from unit.ingest.otlp_requests import LOG, METRICS, NOON, SPAN_SENT, TRACE, logs, metrics, traces, under
from unit.interfaces.http.test_paths import eventually
from unit.interfaces.otlp.taking import HOST, JSON, PROTOBUF, Taking, said, taking

OK = grpc.StatusCode.OK
GOOD = logs(LOG).SerializeToString()
TOO_LATE = {"time_unix_nano": 2**64 - 1}
MIXED = logs(LOG, TOO_LATE, LOG, TOO_LATE).SerializeToString()
TOKEN = "a-long-random-token"
MANIFEST = """\
[[pipeline]]
id = "own"
source = { connector = "push" }
[[pipeline.tables]]
name = "otel_logs"
[[pipeline.tables]]
name = "otel_traces"
columns = { name = "string", duration_ns = { type = "long", nullable = false } }

[[pipeline]]
id = "read"
source = { connector = "files", config = { path = "data/*.ndjson" } }
tables = ["otel_metrics"]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taking]:
    """For tests that leave no rows."""
    with taking(tmp_path_factory.mktemp("shared") / "shop") as found:
        yield found


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taking]:
    with taking(tmp_path_factory.mktemp("declared") / "shop", MANIFEST) as found:
        yield found


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Taking]:
    with taking(tmp_path / "shop") as found:
        yield found


def test_a_table_is_made_with_the_columns_of_its_signal(taken: Taking) -> None:
    assert taken.call("logs", GOOD) == taken.call("logs", b"")
    (row,) = taken.rows("otel_logs")
    assert [name for name in row if name in COLUMNS["logs"]] == list(COLUMNS["logs"])
    assert (row["trace_id"], row["ts_ns"], "_rescued" in row) == (TRACE, NOON, False)
    for sent, _ in METRICS:
        assert taken.call("metrics", metrics(sent).SerializeToString()).code is OK
    kinds = [row["kind"] for row in taken.rows("otel_metrics", "kind")]
    assert kinds == ["exponential_histogram", "gauge", "histogram", "sum", "summary"]
    (summary,) = taken.rows("otel_metrics where kind = 'summary'")
    assert json.loads(summary["quantiles"])[1] == {"quantile": 0.9, "value": "NaN"}
    assert (summary["sum"], json.loads(summary["non_finite"])) == (None, {"sum": "NaN"})
    assert taken.counters.counts("rows_pushed") == {("otel_logs",): 1, ("otel_metrics",): 5}


def test_rows_that_do_not_fit_are_counted_and_the_others_land(taken: Taking) -> None:
    over_grpc = ExportLogsServiceResponse.FromString(taken.call("logs", MIXED).answer).partial_success
    over_http = ExportLogsServiceResponse.FromString(taken.post("logs", MIXED).content).partial_success
    assert over_grpc == over_http
    assert over_grpc.rejected_log_records == 2
    assert "2 of 4 rows" in over_grpc.error_message
    assert "row 2, column `ts`: timestamp_out_of_range (number); row 4" in over_grpc.error_message
    assert str(2**64 - 1) not in over_grpc.error_message
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": str(2**64 - 1)}]}]}]})
    answer = taken.post("logs", body.encode(), form=JSON)
    assert (answer.headers["content-type"], answer.json()["partialSuccess"]["rejectedLogRecords"]) == (JSON, "1")
    assert len(taken.rows("otel_logs")) == 4
    bounds = metrics({"histogram": {"data_points": [{"explicit_bounds": [math.nan]}, {}]}}).SerializeToString()
    points = ExportMetricsServiceResponse.FromString(taken.call("metrics", bounds).answer)
    assert points.partial_success.rejected_data_points == 1


def test_a_key_makes_a_request_land_once_whatever_way_it_comes(taken: Taking) -> None:
    first = taken.call("logs", MIXED, idempotency_key="k")
    assert len(taken.rows("otel_logs")) == 2
    again = taken.call("logs", MIXED, gzip=True, idempotency_key="k")
    over_http = taken.post("logs", MIXED, idempotency_key="k")
    for answer in (first.answer, again.answer, over_http.content):
        assert ExportLogsServiceResponse.FromString(answer).partial_success.rejected_log_records == 2
    assert len(taken.rows("otel_logs")) == 2
    assert taken.call("traces", traces(SPAN_SENT).SerializeToString(), idempotency_key="k").code is OK
    assert len(taken.rows("otel_traces")) == 1


def test_a_key_that_was_used_for_something_else_is_refused_for_good(taken: Taking) -> None:
    taken.call("logs", GOOD, idempotency_key="k")
    told = taken.call("logs", MIXED, idempotency_key="k")
    assert (told.code, told.retry_seconds) == (grpc.StatusCode.INVALID_ARGUMENT, None)
    assert "HW-I01" in told.says
    assert "HW-I01" in said(taken.post("logs", MIXED, idempotency_key="k"), 422)
    assert len(taken.rows("otel_logs")) == 1


def test_two_keys_are_none(shared: Taking) -> None:
    two = {"idempotency_key": "a", "x_idempotency_key": "b"}
    told = shared.call("logs", GOOD, **two)
    assert (told.code, "several keys" in told.says) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert "several keys" in said(shared.post("logs", GOOD, **two), 422)


def test_many_senders_at_once_land_each_request_once(taken: Taking) -> None:
    """Half of them over HTTP; each is sent twice, with one key."""

    def send(number: int) -> None:
        body = logs({"body": {"string_value": str(number // 2)}}).SerializeToString()
        key = f"k{number // 2}"
        if number % 4 < 2:
            assert taken.call("logs", body, idempotency_key=key).code is OK
        else:
            assert taken.post("logs", body, idempotency_key=key).status_code == 200

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(24)))
    assert sorted(int(row["body"]) for row in taken.rows("otel_logs", "body")) == list(range(12))


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
def test_a_compressed_body_is_the_request_in_it(taken: Taking, encoding: str) -> None:
    pack = {"gzip": gzip.compress, "zstd": lambda body: pa.compress(body, "zstd", asbytes=True), "identity": bytes}
    assert taken.post("logs", pack[encoding](GOOD), content_encoding=encoding).content == b""
    assert taken.call("logs", GOOD, gzip=True).code is OK
    assert len(taken.rows("otel_logs")) == 2


def test_the_columns_of_the_manifest_win_and_the_rest_is_rescued(declared: Taking) -> None:
    request = traces(SPAN_SENT, {"name": "has no end"})
    told = declared.call("traces", request.SerializeToString())
    assert b"null_in_non_null" in told.answer
    (row,) = declared.rows("otel_traces")
    assert (row["name"], row["duration_ns"], "trace_id" in row) == ("GET /", 1_000_000_007, False)
    rescued = json.loads(row["_rescued"])
    assert (rescued["trace_id"], rescued["ts"], "links" in rescued) == (TRACE, NOON, True)


def test_a_table_that_is_declared_without_columns_has_the_usual_ones(declared: Taking) -> None:
    assert declared.call("logs", GOOD).code is OK
    (row,) = declared.rows("otel_logs")
    assert [name for name in row if name in COLUMNS["logs"]] == list(COLUMNS["logs"])
    assert "_rescued" not in row


def test_a_table_that_takes_no_pushes_is_told(declared: Taking) -> None:
    body = metrics(METRICS[0][0]).SerializeToString()
    told = declared.call("metrics", body)
    assert (told.code, told.retry_seconds, "HW-I03" in told.says) == (grpc.StatusCode.FAILED_PRECONDITION, None, True)
    assert "HW-I03" in said(declared.post("metrics", body), 409)


@contextmanager
def no_directory(found: Taking) -> Iterator[None]:
    """Where the files of the table would be there is a file."""
    place = found.workspace.store().root / "tables" / "otel_logs"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"")
    yield
    place.unlink()


@contextmanager
def locked_catalog(found: Taking) -> Iterator[None]:
    (path,) = found.workspace.store().root.glob("meta.sqlite")
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    connection.close()


@pytest.mark.parametrize("trouble", [no_directory, locked_catalog])
def test_a_store_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    monkeypatch.setattr(limits, "CATALOG_BUSY_SECONDS", 0.05)
    with taking(tmp_path / "shop") as found:
        with trouble(found):
            told = found.call("logs", GOOD, idempotency_key="k")
            assert (told.code, told.retry_seconds) == (grpc.StatusCode.UNAVAILABLE, limits.HTTP_RETRY_SECONDS)
            answer = found.post("logs", GOOD, idempotency_key="k")
            assert said(answer, 503).startswith("HW-T0")
            assert answer.headers["retry-after"] == str(limits.HTTP_RETRY_SECONDS)
        assert found.call("logs", GOOD, idempotency_key="k").code is OK
        assert len(found.rows("otel_logs")) == 1


def test_a_request_that_finds_no_room_is_told_to_come_again(shared: Taking) -> None:
    with ExitStack() as others:
        for _ in range(limits.INGESTS_AT_ONCE):
            others.enter_context(shared.receiver.memory.reserve())
        told = shared.call("logs", GOOD)
        assert (told.code, told.retry_seconds) == (grpc.StatusCode.UNAVAILABLE, limits.HTTP_RETRY_SECONDS)
        answer = shared.post("logs", GOOD)
        assert "HW-H05" in said(answer, 429) and answer.headers["retry-after"]
    with shared.receiver.memory.reserve() as large:
        large.grow(limits.INGEST_MEMORY_BYTES)
        assert shared.call("logs", GOOD).code is grpc.StatusCode.UNAVAILABLE
    assert shared.receiver.memory.batches_left == limits.INGESTS_AT_ONCE


@pytest.mark.parametrize(
    "body", [b"\xff\xff", b"not a message", b"\x1f\x8b not gzip", gzip.compress(GOOD, mtime=0)[:-9]]
)
def test_what_is_no_request_is_refused_for_good(shared: Taking, body: bytes) -> None:
    told = shared.call("logs", body)
    assert (told.code, told.retry_seconds) == (grpc.StatusCode.INVALID_ARGUMENT, None)
    assert "HW-I04" in told.says
    assert "HW-I04" in said(shared.post("logs", body), 400)
    assert "HW-I04" in said(shared.post("logs", body, content_encoding="gzip"), 400)
    assert "HW-I04" in said(shared.post("logs", body, form=JSON), 400)


def test_a_small_request_that_becomes_too_large_is_refused(shared: Taking) -> None:
    bomb = gzip.compress(bytes(limits.MAX_BODY_BYTES + 1), compresslevel=1)
    assert len(bomb) < 1_000_000
    assert shared.call("logs", bomb).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "HW-I04" in said(shared.post("logs", bomb, content_encoding="gzip"), 413)
    wide = logs(*[{}] * 1000)
    wide.resource_logs[0].resource.attributes.add(key="a", value={"string_value": "x" * 100_000})
    told = shared.call("logs", wide.SerializeToString())
    assert (told.code, "HW-I04" in told.says) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    assert "HW-I04" in said(shared.post("logs", wide.SerializeToString()), 413)


@pytest.mark.parametrize("body", [under(b"\x5a\x00" * 2_000_000, 1, 2, 2), under(b"\x12\x00" * 2_000_000, 1)])
def test_a_small_request_that_would_fill_the_memory_is_refused(shared: Taking, body: bytes) -> None:
    """Each of these takes the memory of a hundred of its kind, or minutes."""
    told = shared.call("traces", body, gzip=True)
    assert (told.code, "records" in told.says) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    small = gzip.compress(body, compresslevel=1)
    assert len(small) < 100_000
    assert "HW-I04" in said(shared.post("traces", small, content_encoding="gzip"), 413)


def test_a_large_record_needs_room(shared: Taking) -> None:
    """As much as it takes when it is read, which is more than it has bytes."""
    body = under(b"\x5a\x00" * 100_000, 1, 2, 2)
    with shared.receiver.memory.reserve() as large:
        large.grow(limits.INGEST_MEMORY_BYTES - 100_000 * limits.OTLP_PART_BYTES)
        told = shared.call("traces", body)
        assert (told.code, told.retry_seconds) == (grpc.StatusCode.UNAVAILABLE, limits.HTTP_RETRY_SECONDS)
        assert "HW-H05" in said(shared.post("traces", body), 429)


def test_a_request_that_is_too_large_is_not_read(shared: Taking) -> None:
    body = bytes(limits.MAX_BODY_BYTES + 1)
    assert shared.call("logs", body[: limits.OTLP_MESSAGE_BYTES + 1]).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    connection = HTTPConnection(HOST, shared.listening.http_port)
    connection.putrequest("POST", "/v1/logs")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()  # and nothing is sent
    assert connection.getresponse().status == 413
    connection.close()


def test_only_who_knows_the_token_may_send(tmp_path: Path) -> None:
    with taking(tmp_path / "shop", access=Access(token=TOKEN)) as found:
        for header in (None, "Bearer", "Bearer wrong", f"Basic {TOKEN}"):
            sent = {} if header is None else {"authorization": header}
            assert found.call("logs", GOOD, **sent).code is grpc.StatusCode.UNAUTHENTICATED
            answer = found.post("logs", GOOD, **sent)
            assert "HW-H02" in said(answer, 401) and answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text
        assert found.call("logs", GOOD, authorization=f"Bearer {TOKEN}").code is OK
        assert found.post("logs", GOOD, authorization=f"bearer {TOKEN}").status_code == 200
        assert len(found.rows("otel_logs")) == 2


def test_a_page_cannot_send(shared: Taking) -> None:
    assert "HW-H03" in said(shared.post("logs", GOOD, host="evil.example"), 421)
    assert "HW-H03" in said(shared.post("logs", GOOD, origin="http://evil.example"), 403)


def test_http_takes_what_otlp_sends_and_nothing_else(shared: Taking) -> None:
    said(shared.post("logs", GOOD, form="text/plain"), 415)
    said(shared.post("logs", GOOD, content_encoding="br"), 415)
    said(shared.http.get("/v1/logs"), 405)
    said(shared.http.post("/v1/profiles"), 404)
    assert shared.post("logs", b"{}", form="Application/JSON; charset=utf-8").json() == {}
    unknown = shared.channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Import")
    with pytest.raises(grpc.RpcError) as caught:
        unknown(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_call_without_a_message_is_refused(shared: Taking) -> None:
    method = shared.channel.stream_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
    with pytest.raises(grpc.RpcError) as caught:
        method(iter(()))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_a_sender_that_never_sends_holds_no_room_for_long(
    shared: Taking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "OTLP_READ_SECONDS", 0.05)

    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait()
        yield b""

    method = shared.channel.stream_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
    with pytest.raises(grpc.RpcError) as caught:
        method(never())
    over.set()
    assert caught.value.code() is grpc.StatusCode.CANCELLED  # type: ignore[attr-defined]
    # The sender hears of it first.
    eventually(lambda: shared.receiver.memory.batches_left == limits.INGESTS_AT_ONCE)
    assert "Traceback" not in caplog.text


def test_a_body_that_does_not_come_is_not_waited_for(shared: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_BODY_SECONDS", 0.05)
    with socket.create_connection((HOST, shared.http.base_url.port or 0), 60) as connection:
        head = f"POST /v1/logs HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


def test_grpc_has_a_bound_on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS", 2)
    server = GrpcServer()
    receiver: Any = None  # no call is made
    address = (HOST, server.start(receiver, HOST, 0))
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(6)]
        for connection in found:
            connection.setblocking(False)
        eventually(lambda: sum(map(_is_closed, found)) == 4)
    server.stop()


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(1 << 16):  # gRPC speaks first
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("name", ["grpc_port", "http_port"])
def test_a_port_that_is_taken_is_told_by_the_setting_that_changes_it(tmp_path: Path, say: Any, name: str) -> None:
    with socket.create_server((HOST, 0)) as taken_socket:
        port = taken_socket.getsockname()[1]
        ports = {"grpc_port": 0, "http_port": 0, name: port}
        text = "\n".join(f"{key} = {value}" for key, value in ports.items())
        (tmp_path / "headwater.toml").write_text(f"[serve.otlp]\n{text}\n")
        found = say("--project", tmp_path, "serve", "--port", "0")
    assert found.code == 1
    assert "HW-H01" in found.err and f"{HOST}:{port}" in found.err and f"`[serve.otlp] {name}`" in found.err


def test_an_option_turns_it_on_at_its_usual_ports(tmp_path: Path, say: Any) -> None:
    (tmp_path / "headwater.toml").write_text("")
    with ExitStack() as stack:
        with suppress(OSError):  # somebody else may be there already
            stack.enter_context(socket.create_server((HOST, 4317)))
        found = say("--project", tmp_path, "serve", "--otlp", "--port", "0")
    assert (found.code, f"{HOST}:4317" in found.err) == (1, True)

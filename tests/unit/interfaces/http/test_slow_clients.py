"""Clients that send slowly, send nothing, or do not read: others are served, and the log stays short."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from headwater.base import limits
from headwater.interfaces.http.api import api
from headwater.interfaces.http.connections import connection_limit
from headwater.interfaces.http.guard import body_seconds
from headwater.interfaces.http.server import HttpServer
from unit.interfaces.http.served import HOST, Running, serving
from unit.interfaces.http.test_paths import eventually

HALF_HEADER = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
ANSWER_SECONDS = 60
SLOW_CLIENTS = """
import contextlib, resource, socket, sys
port, count, sent = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
found = []
for _ in range(count):
    found.append(socket.create_connection(("127.0.0.1", port)))
    with contextlib.suppress(OSError):
        found[-1].sendall(sent)
print("connected", flush=True)
sys.stdin.read()
"""


@contextmanager
def slow_clients(port: int, count: int, sent: bytes) -> Iterator[None]:
    """So many connections of another process that send this and then nothing."""
    command = [sys.executable, "-S", "-c", SLOW_CLIENTS, str(port), str(count), sent.hex()]
    clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert clients.stdin is not None and clients.stdout is not None
    with clients.stdout, closing(clients.stdin):
        assert clients.stdout.readline() == b"connected\n"
        yield
    clients.wait()


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """This process may open 300 more files."""
    open_files = len(list(Path("/proc/self/fd").iterdir())) + 300
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    monkeypatch.setattr(limits, "OPEN_FILES", open_files)
    yield open_files
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("sent", "count"),
    [(HALF_HEADER, 600), (HALF_BODY % b"/v1/query", 200), (HALF_BODY % b"/v1/ingest/seen", 200)],
    ids=["header", "query", "push"],
)
def test_slow_clients_keep_nobody_out(
    engine: Running,
    few_files: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
    count: int,
) -> None:
    monkeypatch.setattr(limits, "HTTP_STALLED_SECONDS", 0.0)
    with serving(engine.workspace) as client, slow_clients(client.base_url.port or 0, count, sent):
        for _ in range(2):
            pushed = httpx.post(f"{client.base_url}/v1/ingest/seen", content=b'{"a": 1}', trust_env=False, timeout=60)
            assert pushed.status_code == 200, pushed.text
            assert httpx.get(f"{client.base_url}/health", trust_env=False, timeout=60).status_code == 200
    assert len(caplog.text.splitlines()) <= 5


def test_a_server_without_a_free_descriptor_says_so_once_and_goes_on(
    engine: Running, few_files: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_FILES_SHARE", 1)
    with serving(engine.workspace) as client, slow_clients(client.base_url.port or 0, 600, HALF_HEADER):
        assert client.get("/docs").status_code == 200
    assert caplog.text.count("cannot accept connections: Too many open files") == 1
    assert len(caplog.text.splitlines()) <= 5


def test_connections_take_a_part_of_the_files_that_a_process_may_open() -> None:
    assert [connection_limit(files) for files in (1, 256, 1024, 1_000_000)] == [1, 64, 256, limits.HTTP_CONNECTIONS]


def connected(client: httpx.Client, sent: bytes) -> socket.socket:
    found = socket.create_connection((HOST, client.base_url.port or 0), ANSWER_SECONDS)
    found.sendall(sent)
    return found


def all_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    parts = []
    with connection, suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", HALF_HEADER], ids=["nothing", "half"])
def test_a_header_that_does_not_come_is_not_waited_for(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "HTTP_HEADER_SECONDS", 0.05)
    assert all_of(connected(client, sent)).startswith(b"HTTP/1.1 408 ")


def test_a_second_header_is_waited_for_no_longer(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_HEADER_SECONDS", 0.05)
    connection = connected(client, b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
    connection.sendall(HALF_HEADER)
    assert b"HTTP/1.1 408 " in all_of(connection)


@pytest.mark.parametrize(
    "path",
    [b"/v1/query", b"/v1/pipelines/orders/tide", b"/v1/pipelines/orders/events", b"/v1/ingest/slow"],
)
def test_a_body_that_does_not_come_is_not_waited_for(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    monkeypatch.setattr(limits, "HTTP_BODY_SECONDS", 0.05)
    monkeypatch.setattr(limits, "HTTP_IDLE_SECONDS", 0.05)
    answer = all_of(connected(client, HALF_BODY % path))
    assert answer.startswith(b"HTTP/1.1 408 ") and b"the body is too slow: 1 bytes" in answer


def test_a_body_that_nothing_reads_does_not_keep_its_connection(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_IDLE_SECONDS", 0.05)
    with connected(client, HALF_BODY % b"/nowhere") as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404 ")

        def is_closed() -> bool:
            with suppress(OSError):
                connection.sendall(b"x")  # it would go on for ever
                return False
            return True

        eventually(is_closed)


def test_an_answer_that_is_not_read_does_not_stay_in_memory(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "HTTP_SEND_SECONDS", 0.05)
    monkeypatch.setattr(limits, "HTTP_REPORT_SECONDS", 0.0)
    sql = b'{"sql": "select repeat(\'x\', 12000000) as x"}'
    head = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with connected(client, head % len(sql) + sql) as connection:
        eventually(lambda: "an answer that the client does not read" in caplog.text)
        assert len(all_of(connection)) < 12_000_000


@pytest.mark.parametrize(
    ("received", "seconds"), [(0, 20.0), (16 * 1024, 21.0), (80 * 16 * 1024, 100.0), (1 << 30, 120.0)]
)
def test_a_body_earns_its_time(received: int, seconds: float) -> None:
    assert body_seconds(received) == seconds


def test_a_server_that_stops_does_not_wait_for_bodies(
    engine: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "HTTP_STOP_SECONDS", 0.2)
    app, server = api(lambda: engine.workspace), HttpServer()
    with socket.create_connection((HOST, server.start(app, HOST, 0)), ANSWER_SECONDS) as connection:
        connection.sendall(HALF_BODY % b"/v1/ingest/slow")
        eventually(lambda: app.state.context.memory.bytes_left < limits.INGEST_MEMORY_BYTES)
        server.stop()
        assert all_of(connection) == b""
    assert caplog.text == ""


def test_a_server_whose_connections_all_work_says_503(engine: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS", 2)
    with serving(engine.workspace) as client, ExitStack() as streams:
        for _ in range(2):
            streams.enter_context(client.stream("GET", "/v1/events"))
        refused = httpx.get(f"{client.base_url}/health", trust_env=False, timeout=60)
        assert (refused.status_code, refused.json()["code"]) == (503, "HW-H05")
        assert int(refused.headers["retry-after"]) > 0
        streams.close()
        assert httpx.get(f"{client.base_url}/health", trust_env=False, timeout=60).status_code == 200

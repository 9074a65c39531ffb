"""The server in its thread: it binds, it tells what is in the way, it stops."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from headwater.app.workspace import workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.duck.query_pool import QueryPool
from headwater.interfaces.http.api import api
from headwater.interfaces.http.server import HttpServer
from headwater.observe.counters import Counters
from unit.duck.test_query_pool import ENDLESS, eventually, exists, pid_of, ticks
from unit.interfaces.http.served import HOST
from unit.interfaces.landed import landed_project


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("")
    with socket.create_server((HOST, 0)) as taken, workspace(tmp_path) as opened:
        port = taken.getsockname()[1]
        with pytest.raises(HeadwaterError) as caught:
            HttpServer().start(api(lambda: opened), HOST, port)
    assert caught.value.code == "HW-H01"
    assert f"{HOST}:{port}" in caught.value.message and "port" in caught.value.hint


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("")
    with workspace(tmp_path) as opened:
        for host in ("192.0.2.1", "no-such-host.invalid"):
            with pytest.raises(HeadwaterError, match="HW-H01"):
                HttpServer().start(api(lambda: opened), host, 0)


@pytest.mark.parametrize("catalog", ["sqlite", "postgresql"])
def test_stopping_ends_the_streams_and_leaves_nothing_behind(
    tmp_path: Path,
    catalog: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if catalog == "postgresql":
        monkeypatch.setenv("HEADWATER_CONTEXT__CATALOG", request.getfixturevalue("postgres_url"))
    before = set(threading.enumerate())
    with workspace(landed_project(tmp_path / "shop")) as opened:
        server = HttpServer()
        port = server.start(api(lambda: opened, counters=Counters()), HOST, 0)
        with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=60) as client:
            with client.stream("GET", "/v1/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 2000"
                stopping = threading.Thread(target=server.stop)
                stopping.start()
                assert list(lines) == [""]  # an end, not an error
                stopping.join()
            with pytest.raises(httpx.ConnectError):
                client.get("/health")
        left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("headwater")]
        assert left == []
        server.stop()  # once more does no harm
    assert capfd.readouterr() == ("", "")


def test_a_query_too_many_is_refused_with_a_time_to_retry(tmp_path: Path) -> None:
    with workspace(landed_project(tmp_path / "shop")) as opened, ExitStack() as held:
        app = api(lambda: opened, counters=Counters())
        server = HttpServer()
        port = server.start(app, HOST, 0)
        held.callback(server.stop)
        pool = app.state.context.queries
        for _ in range(pool.capacity):
            held.enter_context(pool.reserve())
        found = httpx.post(f"http://{HOST}:{port}/v1/query", json={"sql": "select 1"}, trust_env=False, timeout=60)
    assert (found.status_code, found.json()["code"]) == (503, "HW-H05")
    assert found.headers["retry-after"] == str(limits.HTTP_RETRY_SECONDS)


def test_stopping_ends_the_queries(tmp_path: Path) -> None:
    with workspace(landed_project(tmp_path / "shop")) as opened:
        server = HttpServer()
        app = api(lambda: opened, counters=Counters())
        port = server.start(app, HOST, 0)
        sql = "select count(*) from range(100000000000) t(i) where i * i % 7 = 3"
        answers: list[httpx.Response] = []

        def ask() -> None:
            address = f"http://{HOST}:{port}/v1/query"
            answers.append(httpx.post(address, json={"sql": sql}, trust_env=False, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive() and not app.state.context.queries.running:
            asking.join(0.01)
        server.stop()
        asking.join()
    assert (answers[0].status_code, answers[0].json()["code"]) == (504, "HW-Q02")
    assert "the server ends" in answers[0].json()["detail"]


@contextmanager
def served_with(pool: QueryPool, root: Path) -> Iterator[int]:
    """The port of a server whose queries run in this pool."""
    with workspace(landed_project(root)) as opened, ExitStack() as ending:
        app = api(lambda: opened, counters=Counters())
        app.state.context = replace(app.state.context, queries=pool)
        server = HttpServer()
        ending.callback(server.stop)
        ending.callback(pool.close)
        yield server.start(app, HOST, 0)


def endless_query(port: int) -> socket.socket:
    """The connection of a client that has asked, and has no answer yet."""
    body = json.dumps({"sql": ENDLESS, "timeout_seconds": limits.QUERY_MAX_SECONDS}).encode()
    head = "POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    found = socket.create_connection((HOST, port), timeout=60)
    found.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


def test_a_client_that_leaves_ends_its_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_WAIT_SECONDS", 60.0)
    pool = QueryPool(1, 1)
    with served_with(pool, tmp_path / "shop") as port:
        with pool.process(60) as process:
            begun = ticks(pid_of(process))
        with endless_query(port):
            eventually(lambda: ticks(pid_of(process)) > begun + 5)
        eventually(lambda: not exists(pid_of(process)) and pool.running == 0)
        found = httpx.post(f"http://{HOST}:{port}/v1/query", json={"sql": "select 1 as a"}, trust_env=False, timeout=60)
        assert (found.status_code, found.json().get("rows")) == (200, [{"a": 1}])


def test_a_client_that_leaves_waits_for_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_WAIT_SECONDS", 60.0)
    pool = QueryPool(1, 1)
    with served_with(pool, tmp_path / "shop") as port, pool.process(60) as process:
        with endless_query(port):
            eventually(lambda: pool.running == 1)
        eventually(lambda: pool.running == 0)
        assert process.is_usable()

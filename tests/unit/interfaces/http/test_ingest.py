"""Rows pushed over HTTP: what the headers mean, what is refused, and that an answer comes after the rows."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headwater.base import limits
from headwater.interfaces.http.api import api
from headwater.interfaces.http.memory import MemoryBudget
from headwater.interfaces.http.problems import RequestError
from headwater.interfaces.http.server import HttpServer
from unit.interfaces.http.served import HOST, Running
from unit.interfaces.http.test_paths import eventually, problem_of

ROW = b'{"label": "a", "user": "ada"}\n'


def push(client: httpx.Client, table: str, body: Any, **headers: str) -> httpx.Response:
    return client.post(
        f"/v1/ingest/{table}", content=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def rows_of(client: httpx.Client, table: str, columns: str = "*") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.post("/v1/query", json={"sql": f"select {columns} from {table}"}).json()[
        "rows"
    ]
    return found


def test_an_answer_tells_where_the_rows_are_and_they_are_there(client: httpx.Client) -> None:
    answer = push(client, "seen", ROW * 3)
    body = answer.json()
    assert answer.status_code == 200
    assert body.keys() == {
        "schema_version",
        "snapshot_id",
        "rows_ingested",
        "rows_refused",
        "bytes_written",
        "replayed",
    }
    assert (body["rows_ingested"], body["replayed"]) == (3, False)
    (seq,) = {row["_commit_seq"] for row in rows_of(client, "meta.seen")}
    assert body["snapshot_id"] == str(seq)
    assert rows_of(client, "seen", 'label, "user"') == [{"label": "a", "user": "ada"}] * 3


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Idempotency-Key"])
def test_a_batch_with_a_key_lands_once(client: httpx.Client, header: str) -> None:
    table = f"once_{header[0].lower()}"
    first, second = (push(client, table, ROW, **{header: "k"}).json() for _ in range(2))
    assert (first["replayed"], second) == (False, {**first, "replayed": True})
    assert len(rows_of(client, table)) == 1
    error = problem_of(push(client, table, ROW * 2, **{header: "k"}), 422, "HW-I01")
    assert error["detail"] == {"table": table, "snapshot_id": first["snapshot_id"]}
    assert len(rows_of(client, table)) == 1


def test_two_names_for_two_keys_are_refused(client: httpx.Client) -> None:
    problem_of(push(client, "unsure", ROW, Idempotency_Key="a", X_Idempotency_Key="b"), 422, "HW-H04")
    problem_of(twice(client, "Idempotency-Key", "a", "b"), 422, "HW-H04")
    assert twice(client, "Idempotency-Key", "a", "a").status_code == 200


def twice(client: httpx.Client, header: str, *values: str) -> httpx.Response:
    return client.post("/v1/ingest/unsure", content=ROW, headers=[(header, value) for value in values])


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(ROW, mtime=0)), ("zstd", pa.compress(ROW, "zstd", asbytes=True)), ("identity", ROW)],
    ids=["gzip", "zstd", "identity"],
)
def test_a_compressed_body_is_the_rows_in_it(client: httpx.Client, encoding: str, body: bytes) -> None:
    assert push(client, f"packed_{encoding}", body, Content_Encoding=encoding).json()["rows_ingested"] == 1


def test_the_same_rows_are_the_same_batch_however_they_are_packed(client: httpx.Client) -> None:
    first = push(client, "repacked", ROW, Idempotency_Key="k").json()
    second = push(client, "repacked", gzip.compress(ROW), Idempotency_Key="k", Content_Encoding="gzip").json()
    assert second == {**first, "replayed": True}


def test_a_body_that_is_not_what_it_says_is_refused(client: httpx.Client) -> None:
    problem_of(push(client, "torn", gzip.compress(ROW)[:-9], Content_Encoding="gzip"), 400, "HW-I04")
    problem_of(push(client, "torn", b"", Content_Encoding="gzip"), 400, "HW-I04")
    problem_of(push(client, "torn", ROW, Content_Encoding="br"), 415, "HW-H04")
    problem_of(twice(client, "Content-Encoding", "identity", "br"), 415, "HW-H04")


def test_a_small_body_that_becomes_too_large_is_refused(client: httpx.Client) -> None:
    bomb = gzip.compress(b"\n" * (limits.MAX_BODY_BYTES + 1), compresslevel=1)
    assert len(bomb) < 1_000_000
    problem_of(push(client, "bomb", bomb, Content_Encoding="gzip"), 413, "HW-I04")


@pytest.mark.parametrize(
    ("length", "status"), [(limits.REQUEST_BODY_BYTES + 1, None), (limits.MAX_BODY_BYTES + 1, 413)]
)
def test_a_batch_may_be_larger_than_a_question_but_not_too_large(
    client: httpx.Client, length: int, status: int | None
) -> None:
    """The length is told and nothing is sent: a server that would take it waits."""
    connection = HTTPConnection(client.base_url.host, client.base_url.port or 80)
    connection.putrequest("POST", "/v1/ingest/large")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    if status is None:
        connection.send(b"\n" * length)
        assert connection.getresponse().status == 200
    else:
        assert connection.getresponse().status == status
    connection.close()


def test_bad_rows_refuse_the_batch_with_line_column_and_reason(client: httpx.Client) -> None:
    error = problem_of(push(client, "bad", b'{"ts": 1}\n{"ts": "soon"}\n[]\n'), 422, "HW-I02")
    assert [(row["line"], row["column"], row["reason"]) for row in error["detail"]["rows"]] == [
        (2, "ts", "bad_timestamp"),
        (3, None, "expected_object"),
    ]
    assert "soon" not in str(error)
    problem_of(client.post("/v1/query", json={"sql": "select * from bad"}), 400, "HW-Q01")


def test_a_line_that_is_not_json_is_refused_with_its_position(client: httpx.Client) -> None:
    error = problem_of(push(client, "torn", b'{"ts": 1}\n{"body": "secret" 7}\n'), 422, "HW-I02")
    assert "line 2: invalid_json (column 19: expected `,` or `}`)" in error["message"]
    (row,) = error["detail"]["rows"]
    assert row["detail"] == {"line": 2, "column": 19, "reason": "expected `,` or `}`"}
    assert "secret" not in str(error)


def test_headers_turn_new_columns_and_new_tables_off(client: httpx.Client) -> None:
    problem_of(push(client, "absent", ROW, X_Auto_Create="false"), 404, "HW-T07")
    push(client, "narrow", ROW, X_Schema_Evolve="false")
    assert rows_of(client, "narrow", "label, _rescued") == [{"label": "a", "_rescued": '{"user":"ada"}'}]
    problem_of(push(client, "narrow", ROW, X_Schema_Evolve="perhaps"), 422, "HW-H04")


def test_the_views_on_disk_follow_soon_although_nobody_asks(client: httpx.Client, engine: Running) -> None:
    view = engine.workspace.store().root / "views" / "shown.sql"
    push(client, "shown", ROW)
    eventually(view.exists)
    push(client, "shown", ROW)
    eventually(lambda: view.read_text().count(".parquet") == 2)


def test_pushed_and_rescued_rows_are_counted(client: httpx.Client) -> None:
    push(client, "counted_rows", ROW * 3 + b'{"X-Id": 1}\n', Idempotency_Key="k")
    push(client, "counted_rows", ROW * 3 + b'{"X-Id": 1}\n', Idempotency_Key="k")
    figures = client.get("/metrics").text
    assert 'headwater_rows_pushed_total{table="counted_rows"} 4' in figures
    assert 'headwater_rows_rescued_total{table="counted_rows"} 1' in figures


def test_a_table_that_a_pipeline_fills_takes_no_pushes(client: httpx.Client) -> None:
    assert problem_of(push(client, "orders", ROW), 409, "HW-I03")["detail"]["pipeline"] == "orders"
    assert "name" in problem_of(push(client, "No-Table", ROW), 409, "HW-I03")["message"]


def test_many_senders_at_once_land_each_batch_once(client: httpx.Client) -> None:
    """Some share a key, and then an answer; batches that come together share commits."""

    def send(number: int) -> dict[str, Any]:
        key = f"shared-{number % 4}"
        body = b'{"label": "%d"}\n' % (number % 4)
        found: dict[str, Any] = push(client, "crowd", body, Idempotency_Key=key).json()
        return {**found, "key": key}

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(24)))
    assert sum(not answer["replayed"] for answer in answers) == 4
    assert len({(answer["key"], answer["snapshot_id"]) for answer in answers}) == 4
    assert sorted(row["label"] for row in rows_of(client, "crowd", "label")) == ["0", "1", "2", "3"]


def test_a_sender_that_finds_no_room_is_told_to_come_again() -> None:
    memory = MemoryBudget(batches=2, size=10)
    with memory.reserve() as one, memory.reserve() as two:
        one.grow(6)
        with pytest.raises(RequestError) as full:
            two.grow(5)
        assert (full.value.status, full.value.code, full.value.retryable) == (429, "HW-H05", True)
        with pytest.raises(RequestError), memory.reserve():
            raise AssertionError("there is no place")
    with memory.reserve() as alone:
        alone.grow(10)


@pytest.mark.parametrize("goes_away", [False, True])
def test_a_sender_that_sends_half_holds_no_room_for_long(
    engine: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, goes_away: bool
) -> None:
    """It is slower than a sender may be, or it is gone."""
    if not goes_away:
        monkeypatch.setattr(limits, "HTTP_BODY_SECONDS", 0.05)
    app = api(lambda: engine.workspace)
    server = HttpServer()
    connection = HTTPConnection(HOST, server.start(app, HOST, 0))
    connection.putrequest("POST", "/v1/ingest/half")
    connection.putheader("Content-Length", "100")
    connection.endheaders()
    connection.send(ROW)
    memory: MemoryBudget = app.state.context.memory
    if goes_away:
        eventually(lambda: memory.bytes_left < limits.INGEST_MEMORY_BYTES)
        connection.close()
    else:
        assert connection.getresponse().status == 408
        connection.close()
    eventually(lambda: (memory.bytes_left, memory.batches_left) == (limits.INGEST_MEMORY_BYTES, limits.INGESTS_AT_ONCE))
    server.stop()
    assert "Traceback" not in caplog.text


def test_a_batch_that_finds_no_room_gets_429_and_a_time_to_come_again(engine: Running) -> None:
    app = api(lambda: engine.workspace)
    server = HttpServer()
    address = f"http://{HOST}:{server.start(app, HOST, 0)}"
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as client, ExitStack() as others:
        for _ in range(limits.INGESTS_AT_ONCE):
            others.enter_context(app.state.context.memory.reserve())
        answer = push(client, "full", ROW)
        assert int(answer.headers["retry-after"]) > 0
        assert problem_of(answer, 429, "HW-H05")["retryable"]
        others.close()
        assert push(client, "full", ROW).status_code == 200
    server.stop()

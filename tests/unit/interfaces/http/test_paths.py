"""The paths of the HTTP API, asked over a real connection."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from headwater import __version__
from headwater.app.status import status
from headwater.base import limits
from headwater.interfaces.http.api import api
from headwater.interfaces.http.demand import TriggerBody
from headwater.interfaces.http.read_routes import QueryBody
from headwater.interfaces.http.request_context import RequestBody
from headwater.interfaces.http.server import HttpServer
from unit.interfaces.http.served import CHECK_SECONDS, CHECKS, HEARTBEAT_SECONDS, HOST, Running, told


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(CHECKS):
        if holds():
            return
        time.sleep(CHECK_SECONDS)
    raise AssertionError("it never came to that")


def state_of(client: httpx.Client, pipeline: str) -> str:
    return str(client.get(f"/v1/pipelines/{pipeline}").json()["pipeline"]["state"])


def problem_of(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """An error as RFC 9457 has it, with the error object that every face shows."""
    body: dict[str, Any] = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["error"].keys() == {"code", "message", "hint", "retryable", "detail"}
    assert (body["error"]["code"], body["error"]["message"]) == (code, body["detail"])
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error


def test_all_is_well_while_somebody_runs_the_engine(client: httpx.Client) -> None:
    response = client.get("/health")
    assert (response.status_code, response.json()["health"]["healthy"]) == (200, True)


def test_pipelines_are_what_status_says(client: httpx.Client, engine: Running) -> None:
    found = client.get("/v1/pipelines").json()
    said = status(engine.workspace)
    assert found["schema_version"] == 1
    assert [(p["pipeline"], p["state"], p["freshness"]) for p in found["pipelines"]] == [
        (p.pipeline, p.state, p.freshness) for p in said
    ]
    assert found["pipelines"][0]["tables"][0]["stored_rows"] == 2


def test_a_pulse_is_taken_run_and_told(client: httpx.Client, engine: Running) -> None:
    with client.stream("GET", "/v1/events", params={"after": 0}) as stream:
        asked = client.post("/v1/pipelines/totals/pulse")
        assert asked.status_code == 202
        assert asked.json()["asked"]["taken"] and asked.json()["asked"]["target"] is not None
        assert state_of(client, "pulsed") == "running"
        assert "pulsed" in client.get("/v1/pipelines/totals/why").json()["why"]["sentence"]
        engine.work("pulsed")
        engine.work("totals")
        eventually(lambda: state_of(client, "totals") == "idle")
        events = told(stream, until=("run_completed", "totals"))
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids))
    kinds = [(event["kind"], event["pipeline"]) for event in events]
    assert kinds.index(("demand", "totals")) < kinds.index(("run_completed", "pulsed"))
    runs = client.get("/v1/runs", params={"pipeline": "totals"}).json()["runs"]
    assert [(run["pipeline"], run["state"], run["trigger"], run["actor"]) for run in runs] == [
        ("totals", "success", "pulse", "http:127.0.0.1")
    ]
    log = client.get(f"/v1/runs/{runs[0]['run_id']}").json()["run"]
    assert log["jobs"][0]["rows"] == 2 and log["lines"]


def test_a_listener_goes_on_where_it_was(client: httpx.Client) -> None:
    client.post("/v1/pipelines/tapped/tap")
    with client.stream("GET", "/v1/events", params={"after": 0}) as stream:
        first, *others = told(stream, until=("demand", "tapped"))
    # A browser asks for the same address again, and says what it has seen: that is stronger.
    with client.stream("GET", "/v1/events", params={"after": 0}, headers={"Last-Event-ID": str(first["id"])}) as stream:
        assert told(stream, until=("demand", "tapped")) == others


def test_a_stream_with_nothing_to_tell_says_that_it_is_there(client: httpx.Client) -> None:
    with client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert [next(lines) for _ in range(6)] == ["retry: 2000", "", ": nothing new", "", ": nothing new", ""]


def test_a_burst_of_listeners_is_no_more_than_may_listen(engine: Running) -> None:
    app, server = api(lambda: engine.workspace, heartbeat_seconds=HEARTBEAT_SECONDS), HttpServer()
    address, feed = (HOST, server.start(app, HOST, 0)), app.state.context.feed
    with ExitStack() as stack:
        burst = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(300)]
        for connection in burst:
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answers = Counter(connection.recv(12) for connection in burst)
    assert answers == {b"HTTP/1.1 200": limits.LISTENERS, b"HTTP/1.1 503": 300 - limits.LISTENERS}
    eventually(lambda: feed.listeners == 0)  # those that left make space
    server.stop()


def test_runs_are_paged(client: httpx.Client, engine: Running) -> None:
    for pipeline in ("first", "second"):
        client.post(f"/v1/pipelines/{pipeline}/pulse")
        engine.work(pipeline, fails=True)
        eventually(lambda pipeline=pipeline: state_of(client, pipeline) == "failed")  # type: ignore[misc]
    everything = [run["run_id"] for run in client.get("/v1/runs").json()["runs"]]
    paged: list[str] = []
    before: str | None = "~"
    while before is not None:
        page = client.get("/v1/runs", params={"limit": 1, "before": before}).json()
        paged += [run["run_id"] for run in page["runs"]]
        before = page["next"]
    assert len(paged) >= 2 and paged == everything


def test_demand_for_what_is_blocked_is_refused_with_the_name_of_what_failed(
    client: httpx.Client, engine: Running
) -> None:
    client.post("/v1/pipelines/broken/pulse")
    engine.work("broken", fails=True)
    eventually(lambda: state_of(client, "broken") == "failed")
    error = problem_of(client.post("/v1/pipelines/reader/tap"), 409, "HW-R02")
    assert error["detail"]["because"] == "broken"
    problem_of(client.post("/v1/pipelines/broken/events"), 409, "HW-R02")
    assert client.get("/v1/pipelines/broken").json()["pipeline"]["error"] == "the source is gone"
    assert client.post("/v1/pipelines/broken/clear").json()["asked"]["taken"]
    assert client.post("/v1/pipelines/reader/tap").status_code == 202


def test_standing_demand_is_set_listed_and_removed(client: httpx.Client) -> None:
    made = client.post("/v1/pipelines/totals/tide", json={"max_staleness": "15m", "expires_in": "1h"}).json()["trigger"]
    assert (made["kind"], made["max_staleness_seconds"], made["actor"]) == ("tide", 900.0, "http:127.0.0.1")
    wave = client.post("/v1/pipelines/orders/wave", json={"id": "mine"}).json()["trigger"]
    assert wave["trigger_id"] == "mine"
    assert client.get("/v1/triggers").json()["triggers"] == [made, wave]
    for trigger in (made, wave):
        path = f"/v1/pipelines/{trigger['pipeline']}/triggers/{trigger['trigger_id']}"
        assert client.delete(path).json()["removed"] == 1
        problem_of(client.delete(path), 404, "HW-H04")
    assert client.get("/v1/triggers").json()["triggers"] == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("tide", {}),
        ("tide", {"max_staleness": "soon"}),
        ("wave", {"max_staleness": "15m"}),
        ("wave", {"expires_in": "0s"}),
        ("wave", {"id": ""}),
        ("wave", {"id": "x" * 64}),
        ("wave", {"id": "../x"}),
        ("wave", {"id": "a\0b"}),
        ("wave", {"id": "\u202egnp.exe"}),
        ("wave", {"id": "a\n"}),
        ("wave", {"id": "manifest:wave"}),
    ],
)
def test_standing_demand_that_makes_no_sense_is_refused(client: httpx.Client, kind: str, body: dict[str, str]) -> None:
    problem_of(client.post(f"/v1/pipelines/orders/{kind}", json=body), 422, "HW-U01")


def test_a_webhook_is_a_tap_unless_it_asks_for_a_pulse(client: httpx.Client) -> None:
    asked = [
        client.post("/v1/pipelines/tapped/events", params=params, content=b"\x00any bytes").json()["asked"]["kind"]
        for params in ({}, {"demand": "pulse"})
    ]
    assert asked == ["tap", "pulse"]


def test_a_query_answers_in_rows(client: httpx.Client) -> None:
    found = client.post(
        "/v1/query", json={"sql": "select id, id, amount, ts_ns, 'NaN'::double as x from meta.orders"}
    ).json()
    assert found["columns"] == ["id", "id_1", "amount", "ts_ns", "x"]
    assert found["types"][2] == "DECIMAL(8,2)"
    assert found["rows"][0] == {"id": 1, "id_1": 1, "amount": "1.50", "ts_ns": 1_700_000_000_123_456_789, "x": "NaN"}
    assert found["truncated"] is False


def test_an_answer_is_cut_after_the_rows_that_were_asked_for(client: httpx.Client) -> None:
    found = client.post("/v1/query", json={"sql": "from range(10000000000)", "limit": 2}).json()
    assert (found["rows"], found["truncated"]) == ([{"range": 0}, {"range": 1}], True)
    assert client.post("/v1/query", json={"sql": "from range(2)", "limit": 2}).json()["truncated"] is False


def test_a_query_that_takes_too_long_is_stopped(client: httpx.Client) -> None:
    sql = "select count(*) from range(100000000000) t(i) where i * i % 7 = 3"
    error = problem_of(client.post("/v1/query", json={"sql": sql, "timeout_seconds": 0.05}), 504, "HW-Q02")
    assert error["detail"] == {"timeout_seconds": 0.05}


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "from '/etc/passwd'",
        "attach '/tmp/x.db'",
        "set enable_external_access = true",
        "select 1; select 2",
        "create table t as select 1",
        "select * from nowhere",
    ],
)
def test_a_query_can_only_read_the_tables(client: httpx.Client, sql: str) -> None:
    problem_of(client.post("/v1/query", json={"sql": sql}), 400, "HW-Q01")


def test_a_query_that_needs_more_memory_than_it_may_have_fails(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUERY_MEMORY_BYTES", 1 << 20)
    greedy = "select count(*) from (select distinct md5(i::varchar) from range(1000000) as r(i))"
    error = problem_of(client.post("/v1/query", json={"sql": greedy}), 400, "HW-Q03")
    assert "memory" in error["message"].lower()


def test_metrics_are_openmetrics_and_count_what_happened(client: httpx.Client, engine: Running) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    def sample(name: str, **labels: str) -> float | None:
        response = client.get("/metrics")
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        samples = [s for family in text_string_to_metric_families(response.text) for s in family.samples]
        return next((s.value for s in samples if s.name == name and s.labels == labels), None)

    client.post("/v1/pipelines/counted/pulse")
    assert sum(sample("headwater_queue_depth", weight=weight) or 0 for weight in ("small", "big")) >= 1
    assert (sample("headwater_queue_oldest_wait_seconds") or 0) > 0
    engine.work("counted", fails=True)
    eventually(lambda: sample("headwater_runs_total", pipeline="counted", state="failed") == 1)
    assert sample("headwater_failures_total", pipeline="counted", ripple="counted") == 1
    assert (sample("headwater_pipelines", state="failed") or 0) >= 1
    assert (sample("headwater_staleness_seconds", pipeline="orders") or 0) > 0
    assert sample("headwater_staleness_seconds", pipeline="counted") is None
    assert sample("headwater_lease_takeovers_total") == 0
    assert sample("headwater_engine_owned") == 1


def test_what_is_unknown_is_told_with_the_nearest_name(client: httpx.Client) -> None:
    for path in ("/v1/pipelines/ordres", "/v1/pipelines/ordres/why", "/v1/runs?pipeline=ordres"):
        assert problem_of(client.get(path), 404, "HW-M11")["hint"] == "did you mean `orders`?"
    for path in ("/v1/pipelines/ordres/tap", "/v1/pipelines/ordres/events", "/v1/pipelines/ordres/wave"):
        problem_of(client.post(path), 404, "HW-M11")
    problem_of(client.get("/v1/runs/nothing"), 404, "HW-U02")
    problem_of(client.delete("/v1/pipelines/ordres/triggers/x"), 404, "HW-M11")
    problem_of(client.get("/nowhere"), 404, "HW-H04")
    refused = client.put("/v1/pipelines")
    problem_of(refused, 405, "HW-H04")
    assert refused.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        (b"{", 400, "JSON"),
        (b"[]", 422, "body"),
        (b'{"sql": 5}', 422, "body.sql"),
        (b'{"sql": "select 1", "limit": 0}', 422, "body.limit"),
        (b'{"sql": "select 1", "limits": 5}', 422, "body.limits"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(client: httpx.Client, body: bytes, status: int, where: str) -> None:
    response = client.post("/v1/query", content=body, headers={"content-type": "application/json"})
    assert where in problem_of(response, status, "HW-H04")["message"]


@pytest.mark.parametrize("body", [QueryBody, TriggerBody])
def test_many_unknown_keys_make_few_errors(body: type[RequestBody]) -> None:
    keys = {f"key{number}": 1 for number in range(100_000)}
    with pytest.raises(ValidationError) as raised:
        body.model_validate({**keys, "sql": "select 1"})
    assert raised.value.error_count() <= limits.ERRORS_SHOWN + len(body.model_fields)
    assert {"key0", "key1"} <= {str(error["loc"][0]) for error in raised.value.errors()}


@pytest.mark.parametrize("path", ["/v1/query", "/v1/pipelines/orders/tide", "/v1/pipelines/orders/wave"])
def test_the_refusal_of_unknown_keys_is_short(client: httpx.Client, path: str) -> None:
    keys = {f"{number}{'x' * 10_000}": 1 for number in range(100)}
    response = client.post(path, json=keys)
    faults = problem_of(response, 422, "HW-H04")["detail"]["faults"]
    assert len(faults) == limits.ERRORS_SHOWN
    assert any(fault["where"].startswith("body.0xxx") for fault in faults)
    assert len(response.content) < 10_000


def test_answers_are_as_the_description_says(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["info"]["version"] == __version__
    asked = {
        "/health": client.get("/health"),
        "/v1/pipelines": client.get("/v1/pipelines"),
        "/v1/pipelines/{id}": client.get("/v1/pipelines/orders"),
        "/v1/pipelines/{id}/why": client.get("/v1/pipelines/totals/why"),
        "/v1/runs": client.get("/v1/runs"),
        "/v1/triggers": client.get("/v1/triggers"),
        "/v1/query": client.post("/v1/query", json={"sql": "select 1 as one"}),
        "/v1/pipelines/{id}/clear": client.post("/v1/pipelines/tapped/clear"),
        "/v1/pipelines/{id}/tap": client.post("/v1/pipelines/tapped/tap"),
    }
    for path, response in asked.items():
        operation = document["paths"][path][response.request.method.lower()]
        described = operation["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
        Draft202012Validator({**described, "components": document["components"]}).validate(response.json())
    refused = document["paths"]["/v1/pipelines/{id}"]["get"]["responses"]["default"]["content"]
    schema = {**refused["application/problem+json"]["schema"], "components": document["components"]}
    Draft202012Validator(schema).validate(client.get("/v1/pipelines/nobody").json())


def test_the_page_for_people_lists_every_path_and_needs_no_other_server(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert all(f" {path}<" in page.text for path in client.get("/openapi.json").json()["paths"])
    assert "http://" not in page.text and "https://" not in page.text and "<script" not in page.text


def test_an_answer_is_not_kept_by_anybody(client: httpx.Client) -> None:
    for response in (client.get("/v1/pipelines"), client.get("/nowhere"), client.get("/metrics")):
        assert response.headers["cache-control"] == "no-store"
        assert "server" not in response.headers
    assert json.loads(client.get("/v1/pipelines").text)["schema_version"] == 1

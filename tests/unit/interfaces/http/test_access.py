"""Who may ask, and what happens where nothing can be answered."""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from headwater.app.access import Access, access_of, host_of
from headwater.app.workspace import Workspace, load, workspace
from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError
from headwater.interfaces.http.problems import RequestError, status_of
from headwater.interfaces.http.webhooks import Signatures
from unit.interfaces.http.served import serving
from unit.interfaces.http.test_paths import problem_of
from unit.interfaces.landed import landed_project

TOKEN, SECRET = "a-long-random-token", "the secret of the hook"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that asks for a token and for signed webhooks; nobody runs the engine."""
    access = Access(hosts=frozenset({"127.0.0.1", "data.example.com"}), token=TOKEN, webhook_secret=SECRET)
    with (
        workspace(landed_project(tmp_path_factory.mktemp("guarded") / "shop")) as opened,
        serving(opened, access) as client,
    ):
        yield client


def signature(
    body: bytes, secret: str = SECRET, *, at: float = 0, pipeline: str = "orders", demand: str = "tap"
) -> dict[str, str]:
    """The headers of a webhook that was signed now, or so many seconds from now."""
    timestamp = str(int(time.time() + at))
    signed = b"\n".join([timestamp.encode(), pipeline.encode(), demand.encode(), body])
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {"X-Headwater-Timestamp": timestamp, "X-Headwater-Signature": f"sha256={digest}"}


@pytest.mark.parametrize("path", ["/v1/pipelines", "/metrics", "/openapi.json", "/docs", "/v1/events", "/nowhere"])
def test_nothing_is_answered_without_the_token(guarded: httpx.Client, path: str) -> None:
    for header in (None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        response = guarded.get(path, headers=headers)
        problem_of(response, 401, "HW-H02")
        assert response.headers["www-authenticate"] == "Bearer"


def test_the_token_opens_and_is_never_shown(guarded: httpx.Client) -> None:
    answer = guarded.get("/v1/pipelines", headers=BEARER)
    assert answer.status_code == 200
    assert TOKEN not in answer.text + guarded.get("/v1/pipelines").text
    assert TOKEN not in repr(Access(token=TOKEN, webhook_secret=SECRET)) + str(Access(webhook_secret=SECRET))


def test_health_needs_no_token_and_tells_that_nobody_runs_the_engine(guarded: httpx.Client) -> None:
    response = guarded.get("/health")
    assert (response.status_code, response.json()["health"]["engine"]) == (503, "idle")


def test_a_webhook_is_signed_instead(guarded: httpx.Client) -> None:
    body = b'{"pushed": "\xc3\xa4"}'
    path = "/v1/pipelines/orders/events"
    assert guarded.post(path, content=body, headers=signature(body)).status_code == 202
    for headers in ({}, BEARER, signature(b"another body"), signature(body, "another secret")):
        problem_of(guarded.post(path, content=body, headers=headers), 401, "HW-H02")
    problem_of(guarded.post("/v1/pipelines/orders/tap", content=body, headers=signature(body)), 401, "HW-H02")


@pytest.mark.parametrize(
    ("headers", "says"),  # made when the test runs: a signature is valid for five minutes
    [
        (dict, "no signature"),
        (lambda: {"X-Headwater-Timestamp": "1700000000"}, "no signature"),
        (
            lambda: {"X-Headwater-Signature": "sha256=" + hmac.new(SECRET.encode(), b"old", "sha256").hexdigest()},
            "body alone",
        ),
        (lambda: {**signature(b"old"), "X-Headwater-Timestamp": "soon"}, "not a number of seconds"),
        (lambda: {**signature(b"old"), "X-Headwater-Timestamp": "9" * 5000}, "not a number of seconds"),
        (lambda: signature(b"old", at=-310), "more than 300 seconds"),
        (lambda: signature(b"old", at=3000), "more than 300 seconds"),
        (lambda: {**signature(b"old", at=-5), "X-Headwater-Timestamp": str(int(time.time()))}, "wrong signature"),
        (lambda: signature(b"old", pipeline="other"), "wrong signature"),
        (lambda: signature(b"old", demand="pulse"), "wrong signature"),
    ],
)
def test_a_signature_covers_time_pipeline_demand_and_body(
    guarded: httpx.Client, headers: Callable[[], dict[str, str]], says: str
) -> None:
    error = problem_of(guarded.post("/v1/pipelines/orders/events", content=b"old", headers=headers()), 401, "HW-H02")
    assert says in error["message"] + error["hint"] and "`[serve] webhook_secret`" in error["hint"]


def test_a_webhook_without_a_signature_is_refused_before_its_body(guarded: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", guarded.base_url.port or 0), 60) as connection:
        connection.sendall(
            b"POST /v1/pipelines/orders/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 30000000\r\n\r\n"
        )
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401 ")


def test_a_webhook_is_accepted_once(guarded: httpx.Client) -> None:
    path, headers = "/v1/pipelines/orders/events?demand=pulse", signature(b"once", demand="pulse")
    assert guarded.post(path, content=b"once", headers=headers).status_code == 202
    problem_of(guarded.post(path, content=b"once", headers=headers), 409, "HW-H02")


def test_a_webhook_that_was_not_taken_may_be_sent_again(guarded: httpx.Client) -> None:
    path, headers = "/v1/pipelines/nobody/events", signature(b"", pipeline="nobody")
    for _ in range(2):
        problem_of(guarded.post(path, headers=headers), 404, "HW-M11")


def test_signatures_are_remembered_until_they_are_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_SIGNATURES", 2)
    seen = Signatures()
    seen.remember(b"a", expires=300, now=0)
    seen.remember(b"b", expires=301, now=1)
    with pytest.raises(RequestError) as caught:
        seen.remember(b"c", expires=302, now=300)
    assert caught.value.status == 429 and caught.value.retryable
    seen.remember(b"c", expires=601, now=301)
    with pytest.raises(RequestError, match="accepted before"):
        seen.remember(b"b", expires=301, now=301)


def test_the_body_of_a_webhook_is_not_held(guarded: httpx.Client) -> None:
    part, parts = b"x" * (1 << 16), 30 << 4
    headers = signature(part * parts)
    tracemalloc.start()
    try:
        answer = guarded.post("/v1/pipelines/orders/events", content=iter([part] * parts), headers=headers)
        assert answer.status_code == 202
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:99", True),
        ("Data.Example.com.:443", True),
        ("localhost", False),
        ("evil.example.com", False),
        ("data.example.com.evil.com", False),
        ("data.example.com@evil.com", False),
        ("evil.com/data.example.com", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_the_host_must_be_one_of_this_server(guarded: httpx.Client, host: str, known: bool) -> None:
    response = guarded.get("/health", headers={"Host": host})
    if known:
        assert response.status_code == 503
    else:
        problem_of(response, 421, "HW-H03")


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": "http://HOST"}, True),
        ({"Origin": "http://HOST", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Host": "data.example.com", "Origin": "https://data.example.com"}, True),
        ({"Host": "data.example.com:443", "Origin": "https://data.example.com"}, True),
        ({"Host": "data.example.com", "Origin": "https://data.example.com:8443"}, False),
        ({"Host": "data.example.com", "Origin": "http://data.example.com:443"}, False),
        ({"Origin": "https://evil.com"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://127.0.0.1"}, False),
        ({"Origin": "http://127.0.0.1:5173"}, False),
        ({"Origin": "http://localhost:9999"}, False),
        ({"Origin": "http://127.0.0.1:99999"}, False),
        ({"Origin": "http://127.0.0.1.evil.com"}, False),
        ({"Origin": "ftp://HOST"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://HOST", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_a_page_of_another_server_can_send_nothing(
    guarded: httpx.Client, headers: dict[str, str], allowed: bool
) -> None:
    sent = {name: value.replace("HOST", guarded.base_url.netloc.decode()) for name, value in headers.items()}
    answer = guarded.post("/v1/pipelines/orders/tap", headers={**BEARER, **sent})
    if allowed:
        assert answer.status_code == 202
    else:
        problem_of(answer, 403, "HW-H03")
    assert guarded.get("/v1/triggers", headers={**BEARER, **sent}).status_code == 200


def test_a_body_is_not_larger_than_it_may_be(guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_BODY_BYTES", 100)
    monkeypatch.setattr(limits, "WEBHOOK_BODY_BYTES", 200)
    headers = {**BEARER, "content-type": "application/json"}
    for content in (b"x" * 101, iter([b"x" * 50] * 3)):  # with its length, and without
        problem_of(guarded.post("/v1/query", content=content, headers=headers), 413, "HW-H04")
    path = "/v1/pipelines/orders/events"
    assert guarded.post(path, content=b"x" * 150, headers=signature(b"x" * 150)).status_code == 202
    content = b"x" * 300
    problem_of(guarded.post(path, content=iter([content]), headers=signature(content)), 413, "HW-H04")


def test_a_catalog_that_is_away_is_told_with_when_to_come_again(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text('[context]\ncatalog = "postgresql://nobody@127.0.0.1:1/nowhere"\n')
    with workspace(tmp_path) as opened, serving(opened) as client:
        response = client.get("/v1/pipelines")
        assert problem_of(response, 503, "HW-T06")["retryable"]
        assert int(response.headers["retry-after"]) > 0
        assert client.get("/health").json()["health"]["catalog"] == "away"
        problem_of(client.get("/v1/events"), 503, "HW-T06")


def test_an_error_of_ours_shows_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(Workspace):
        def __init__(self) -> None:
            pass

    with serving(Broken()) as client:
        error = problem_of(client.get("/v1/pipelines"), 500, "HW-X01")
        assert "AttributeError" in error["message"]
    capfd.readouterr()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "data.example.com"])
def test_a_server_that_others_can_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    (tmp_path / "headwater.toml").write_text("")
    project = load(tmp_path)
    assert access_of(project, environ={}).token is None
    with pytest.raises(HeadwaterError) as caught:
        access_of(project, host=host, environ={})
    assert caught.value.code == "HW-M08"


def test_the_manifest_names_the_hosts_and_where_the_secrets_are(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[serve]\nhost = "10.0.0.5"\nhosts = ["Data.example.com"]\ntoken = "env:T"\nwebhook_secret = "file:hook"\n'
    )
    (tmp_path / "hook").write_text("from a file\n")
    found = access_of(load(tmp_path), environ={"T": "from the environment"})
    assert found.hosts == {"localhost", "127.0.0.1", "::1", "10.0.0.5", "data.example.com"}
    assert (found.token, found.webhook_secret) == ("from the environment", "from a file")
    for wrong in ({}, {"T": " "}):
        with pytest.raises(HeadwaterError, match="HW-M08"):
            access_of(load(tmp_path), environ=wrong)


@pytest.mark.parametrize(
    ("header", "host"), [("[::1]:8372", "::1"), ("LOCALHOST", "localhost"), ("a:b", ""), ("a b", ""), ("a:99999", "")]
)
def test_a_host_is_read_without_its_port(header: str, host: str) -> None:
    assert host_of(header) == host


def test_every_error_has_a_status() -> None:
    found = {code: status_of(HeadwaterError(code, "x")) for code in CODES}
    assert all(400 <= status <= 504 for status in found.values())
    assert {code for code, status in found.items() if status == 409} >= {"HW-R02", "HW-T02", "HW-T03"}

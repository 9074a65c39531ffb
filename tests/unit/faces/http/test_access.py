"""Who may ask, and what happens where nothing can be answered."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.app.workspace import Workspace, load, workspace
from headwater.base import limits
from headwater.base.errors import CODES, HeadwaterError
from headwater.faces.http.access import Access, access_of, host_of
from headwater.faces.http.problems import status_of
from unit.faces.http.served import serving
from unit.faces.http.test_paths import problem_of
from unit.faces.landed import landed_project

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


def signature(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Headwater-Signature": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


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


def test_a_page_of_another_server_can_send_nothing(guarded: httpx.Client) -> None:
    path = "/v1/pipelines/orders/tap"
    for origin in ("https://evil.com", "null", "http://127.0.0.1.evil.com"):
        problem_of(guarded.post(path, headers={**BEARER, "Origin": origin}), 403, "HW-H03")
    assert guarded.post(path, headers={**BEARER, "Origin": "http://127.0.0.1:5173"}).status_code == 202


def test_a_body_is_not_larger_than_it_may_be(guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_BODY_BYTES", 100)
    monkeypatch.setattr(limits, "WEBHOOK_BODY_BYTES", 200)
    headers = {**BEARER, "content-type": "application/json"}
    for content in (b"x" * 101, iter([b"x" * 50] * 3)):  # with its length, and without
        problem_of(guarded.post("/v1/query", content=content, headers=headers), 413, "HW-H04")
    path = "/v1/pipelines/orders/events"
    assert guarded.post(path, content=b"x" * 150, headers=signature(b"x" * 150)).status_code == 202
    problem_of(guarded.post(path, content=iter([b"x" * 150] * 2)), 413, "HW-H04")


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

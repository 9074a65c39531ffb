"""`headwater ingest` while a server runs: it goes through it, and nobody sees a difference. No JVM."""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from headwater.app.access import Access
from headwater.app.ingest_by_server import reach
from headwater.app.server_address import FILE, left, served_at, url_of
from headwater.app.workspace import load, workspace
from headwater.base import limits
from headwater.observe.counters import Counters
from serve.serving import Cold, Project
from unit.interfaces.http.served import serving

ROW = b'{"label": "a", "user": "ada"}\n'
DECLARED = """
[[pipeline]]
id = "web"
source = { connector = "push" }
[[pipeline.tables]]
name = "clicks"
columns = { id = "long", label = "string" }
"""


@contextmanager
def served(root: Path, access: Access | None = None) -> Iterator[Counters]:
    """A server of the project; what it counts tells what went through it."""
    counters = Counters()
    with workspace(root) as opened, serving(opened, access, counters) as client:
        opened.store()
        with left(opened.project, str(client.base_url)):
            yield counters


def pushed(counters: Counters, table: str = "events") -> int:
    return counters.counts("rows_pushed").get((table,), 0)


def rows(say: Any, root: Path, sql: str = "SELECT label FROM events") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = say("--project", root, "query", "--format", "json", sql).json()["rows"]
    return found


@pytest.fixture
def ingest(say: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(root: Path, *words: str | Path, body: bytes = ROW) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
        return say("--project", root, "ingest", *words)

    return call


@pytest.mark.parametrize("as_json", [False, True])
def test_the_answer_is_the_same_with_and_without_a_server(
    project: Path, tmp_path: Path, ingest: Any, as_json: bool
) -> None:
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write(DECLARED)
    other = Path(shutil.copytree(project, tmp_path / "other"))
    bad = b'{"id": 1}\n{"id": "x"}\n{"id": 1.5, "label": []}\n' * 20
    asked: list[tuple[tuple[str, ...], bytes]] = [
        (("events",), ROW),
        (("events", "--key", "k"), ROW),
        (("events", "--key", "k"), ROW),
        (("events", "--key", "k"), ROW * 2),
        (("events", "--key", "schlüssel ключ"), ROW),
        (("events", "--key", " spaced "), ROW),
        (("events", "--key", "a\nb"), ROW),
        (("events", "--key", "x" * 300), ROW),
        (("events",), b""),
        (("events", "--key", "nothing"), b"\n"),
        (("clicks", "--no-evolve"), b'{"id": 1, "new": [1, 2]}'),
        (("clicks",), bad),
        (("absent", "--no-create"), ROW),
        (("orders",), ROW),
        (("web",), ROW),
        (("No/Table",), ROW),
    ]
    with served(project) as counters:
        for words, body in asked:
            more = ("--json",) if as_json else ()
            here, there = (ingest(root, *words, *more, body=body) for root in (project, other))
            assert here.code == there.code, words
            assert _masked(here.err + here.out) == _masked(there.err + there.out), words
        assert pushed(counters) == 3 and pushed(counters, "clicks") == 1, (
            "all but one batch of `events` went through it"
        )


def _masked(text: str) -> str:
    """Without moments, and without sizes: zstd makes something else of the id of each run."""
    return re.sub(r'[0-9.]+ KB|"bytes_written": [0-9]+|[0-9-]{10}T[0-9:.]+Z', "*", text)


def test_a_key_is_the_same_key_either_way(project: Path, ingest: Any, say: Any) -> None:
    for key in ("k", "ключ"):
        assert ingest(project, "events", "--key", key).code == 0
        with served(project) as counters:
            assert "nothing was written" in ingest(project, "events", "--key", key).out
            assert ingest(project, "events", "--key", key, body=ROW * 2).code == 4
            assert "nothing was written" not in ingest(project, "events", "--key", f"{key}2").out
        assert "nothing was written" in ingest(project, "events", "--key", f"{key}2").out
        assert pushed(counters) == 1
    assert len(rows(say, project)) == 4


def test_files_without_a_key_go_through_and_land_each_time(
    project: Path, ingest: Any, say: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.ndjson").write_bytes(ROW)
    with served(project) as counters:
        for _ in range(2):
            found = ingest(project, "events", tmp_path / "a.ndjson", tmp_path / "a.ndjson", "--json").json()
            assert [batch["replayed"] for batch in found["batches"]] == [False, False]
    assert (pushed(counters), len(rows(say, project))) == (4, 4)


@pytest.mark.parametrize(
    ("point", "words", "told"),
    [
        ("ingest.before_write", ("--key", "k"), ""),
        ("commit.after", ("--key", "k"), " (landed before with this key; nothing was written)"),
        ("ingest.before_answer", (), ""),
    ],
)
def test_a_server_that_dies_in_the_middle_leaves_the_rows_once(
    project: Path, ingest: Any, say: Any, point: str, words: tuple[str, ...], told: str
) -> None:
    server = ApiServer(project, crash_at=point)
    said = ingest(project, "events", *words)
    assert (said.code, server.ended()) == (0, -9), said.err
    assert said.out.endswith(f"visible at 4{told}\n")
    assert len(rows(say, project)) == 1
    assert say("--project", project, "context", "verify").code == 0


def test_what_a_killed_server_left_is_not_believed(project: Path, ingest: Any, say: Any) -> None:
    server = ApiServer(project)
    assert served_at(load(project)) == server.url
    assert ingest(project, "events").code == 0
    server.kill()
    assert (project / FILE).exists() and served_at(load(project)) is None
    assert ingest(project, "events").code == 0
    (key,) = say("--project", project, "ledger", "list", "--json").json()["keys"]
    assert (key["snapshot_id"], len(rows(say, project))) == ("4", 2), "only a batch for a server has a key of its own"


def test_only_the_server_of_this_store_is_asked(project: Path, tmp_path: Path, ingest: Any) -> None:
    other = Path(shutil.copytree(project, tmp_path / "other"))
    (other / "headwater.toml").write_text((project / "headwater.toml").read_text().replace('"shop"', '"other"'))
    with served(other) as counters:
        found = json.loads((other / FILE).read_text())
        here = {**found, "store": str(load(project).store_root)}
        for wrong in (
            "no JSON",
            "[]",
            json.dumps(found),
            json.dumps({**here, "holder": "elsewhere/1/1/a"}),
            json.dumps({**here, "holder": "nobody"}),
            json.dumps({**here, "catalog": "env:OTHER"}),
            json.dumps({**here, "url": "http://127.0.0.1:1"}),
            json.dumps(here),
        ):
            (project / FILE).write_text(wrong)
            assert reach(load(project)) is None, wrong
        assert ingest(project, "events").code == 0
    assert pushed(counters) == 0


def test_a_server_that_wants_a_token_gets_it(project: Path, ingest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write('[serve]\ntoken = "env:SHOP_TOKEN"\n')
    with served(project, Access(token="secret")) as counters:
        for token, through in ((None, 0), ("wrong", 0), ("secret", 1)):
            if token is not None:
                monkeypatch.setenv("SHOP_TOKEN", token)
            assert ingest(project, "events").code == 0, "who has the project's directory needs no server"
            assert pushed(counters) == through


def test_a_busy_server_is_asked_again_and_then_left_alone(
    project: Path, ingest: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_RETRY_SECONDS", 0)
    monkeypatch.setattr(limits, "INGESTS_AT_ONCE", 0)
    with served(project) as counters:
        assert ingest(project, "events").code == 0
    assert (pushed(counters), len(rows(say, project))) == (0, 1)


def test_a_server_that_hangs_is_not_waited_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SERVER_HEALTH_SECONDS", 0.05)
    left_alone = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            left_alone.wait(1)
            with suppress(OSError):
                self.wfile.write(b'HTTP/1.0 200 OK\r\n\r\n{"health": {"project": "shop"}}')

    with HTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with left(load(project), url_of(*server.server_address[:2])):  # type: ignore[arg-type]
            assert reach(load(project)) is None
        left_alone.set()
        thread.join()


def test_a_table_that_the_server_does_not_know_yet_is_what_the_manifest_says(
    project: Path, ingest: Any, say: Any
) -> None:
    """The manifest was changed a moment ago, or in a way that the server refused."""
    with served(project) as counters:
        with (project / "headwater.toml").open("a") as manifest:
            manifest.write(DECLARED)
        assert ingest(project, "clicks", body=b'{"id": "7", "label": 1}\n').code == 0
        assert ingest(project, "events").code == 0
    assert rows(say, project, "SELECT id, label FROM clicks") == [{"id": 7, "label": "1"}]
    assert (pushed(counters), pushed(counters, "clicks")) == (1, 0)


def test_serve_is_found_by_commands_until_it_ends(tmp_path: Path) -> None:
    """A real `headwater serve`: as long as nothing is asked for it needs no Spark."""
    project = Project(tmp_path / "project", Cold())
    project.manifest("")
    project.write({"rows.ndjson": [{"label": "a"}]})
    file = str(project.root / "rows.ndjson")
    project.serve()
    assert project.server is not None
    assert json.loads((project.root / FILE).read_text())["url"] == project.server.address
    project.command("ingest", "events", file).ended()
    (key,) = project.command("ledger", "list", "--json").ended().json()["keys"]
    assert key["key"].startswith("ingest-"), "only a batch for a server has a key of its own"
    project.stop()
    assert not (project.root / FILE).exists()
    project.serve(crash_at="ingest.before_answer")
    project.command("ingest", "events", file).ended()
    assert project.server.ended() == -9
    assert project.rows("SELECT count(*) FROM events") == [[2]]
    project.close()


def test_an_address_is_gone_with_its_server_and_the_newest_one_stays(project: Path) -> None:
    found = load(project)
    with left(found, "http://127.0.0.1:1"):
        with left(found, "http://127.0.0.1:2"):
            assert served_at(found) == "http://127.0.0.1:2"
        assert served_at(found) is None
        with left(found, "http://127.0.0.1:3"):
            pass
    newer = left(found, "http://127.0.0.1:5")
    with left(found, "http://127.0.0.1:4"):
        newer.__enter__()
    assert served_at(found) == "http://127.0.0.1:5"
    newer.__exit__(None, None, None)
    assert not (project / FILE).exists()
    assert [url_of(host, 7) for host in ("127.0.0.1", "0.0.0.0", "::", "shop.example")] == [
        "http://127.0.0.1:7",
        "http://127.0.0.1:7",
        "http://[::1]:7",
        "http://shop.example:7",
    ]

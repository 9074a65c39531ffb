"""`headwater ingest` while a server runs: the same answers and keys, and the engine is woken. No JVM."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.app.workspace import workspace
from headwater.base.clock import now_us
from headwater.base.holder import new_holder
from headwater.catalog.inbox import take
from headwater.freshness.events import Delivered
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import open_engine
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
def served(root: Path) -> Iterator[httpx.Client]:
    with workspace(root) as opened, serving(opened) as client:
        opened.store()
        yield client


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
    with served(project):
        for words, body in asked:
            more = ("--json",) if as_json else ()
            here, there = (ingest(root, *words, *more, body=body) for root in (project, other))
            assert here.code == there.code, words
            assert _masked(here.err + here.out) == _masked(there.err + there.out), words


def _masked(text: str) -> str:
    """Without moments, and without sizes: zstd makes something else of the id of each run."""
    return re.sub(r'[0-9.]+ KB|"bytes_written": [0-9]+|[0-9-]{10}T[0-9:.]+Z', "*", text)


def test_a_key_is_the_same_key_either_way(project: Path, ingest: Any, say: Any) -> None:
    for key in ("k", "ключ"):
        assert ingest(project, "events", "--key", key).code == 0
        with served(project) as client:
            assert "nothing was written" in ingest(project, "events", "--key", key).out
            assert ingest(project, "events", "--key", key, body=ROW * 2).code == 4
            answer = client.post("/v1/ingest/events", content=ROW, headers={"Idempotency-Key": f"{key}2".encode()})
            assert answer.json()["replayed"] is False
        assert "nothing was written" in ingest(project, "events", "--key", f"{key}2").out
    assert len(rows(say, project)) == 4


def test_files_without_a_key_land_each_time(project: Path, ingest: Any, say: Any, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ROW)
    with served(project):
        for _ in range(2):
            found = ingest(project, "events", tmp_path / "a.ndjson", tmp_path / "a.ndjson", "--json").json()
            assert [batch["replayed"] for batch in found["batches"]] == [False, False]
    assert len(rows(say, project)) == 4


def test_a_table_that_the_server_does_not_know_yet_is_what_the_manifest_says(
    project: Path, ingest: Any, say: Any
) -> None:
    """The manifest was changed a moment ago, or in a way that the server refused."""
    with served(project):
        with (project / "headwater.toml").open("a") as manifest:
            manifest.write(DECLARED)
        assert ingest(project, "clicks", body=b'{"id": "7", "label": 1}\n').code == 0
    assert rows(say, project, "SELECT id, label FROM clicks") == [{"id": 7, "label": "1"}]


def test_a_running_engine_is_woken(project: Path, ingest: Any) -> None:
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write(DECLARED)
    with workspace(project) as opened:
        store = opened.store()

        def waiting() -> list[Any]:
            with store.catalog.snapshot() as connection:
                return [each.event for each in take(connection)]

        assert ingest(project, "clicks", body=b'{"id": 1}\n').code == 0
        assert waiting() == [], "no engine runs that could take it"
        compiled = compile_pipelines(opened.project, now_us=now_us())
        engine = open_engine(store, compiled, holder=new_holder(), runs_triggers=True)
        assert engine is not None
        engine.advance()
        assert not engine.state.ponds["web"].delivered
        assert ingest(project, "clicks", body=b'{"id": 2}\n').code == 0
        assert ingest(project, "events").code == 0, "a table that is not in the manifest has no pipeline to wake"
        assert waiting() == [Delivered("web")]
        engine.advance()
        assert engine.state.ponds["web"].delivered
        assert waiting() == []
        engine.release()


def test_a_real_server_shows_the_rows_of_a_command(tmp_path: Path) -> None:
    """A real `headwater serve`: as long as nothing is asked for it needs no Spark."""
    project = Project(tmp_path / "project", Cold())
    project.manifest("")
    project.write({"rows.ndjson": [{"label": "a"}]})
    project.serve()
    assert project.server is not None
    project.command("ingest", "events", str(project.root / "rows.ndjson")).ended()
    answer = httpx.post(f"{project.server.address}/v1/query", json={"sql": "SELECT label FROM events"})
    assert answer.json()["rows"] == [{"label": "a"}]
    project.close()

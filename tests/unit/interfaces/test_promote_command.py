"""`headwater schema promote`: a typed column from inside JSON, for old rows and new ones. No JVM."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.app.workspace import workspace
from headwater.catalog import records as r

Push = Callable[..., None]
OLD = [{"label": "a", "props": {"user": {"id": 7}}}, {"label": "b", "props": {"user": {"id": "8"}}}, {"label": "c"}]


@pytest.fixture
def push(project: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> Push:
    def call(*rows: dict[str, Any], table: str = "events") -> None:
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
        said = say("--project", project, "ingest", table)
        assert said.code == 0, said.err

    return call


def rows(say: Any, project: Path, sql: str, *more: str) -> list[Any]:
    said = say("--project", project, "query", "--format", "json", sql, *more)
    assert said.code == 0, said.err
    return [tuple(row.values()) for row in said.json()["rows"]]


def promote(say: Any, project: Path, path: str, as_: str, *, table: str = "events") -> Any:
    return say("--project", project, "schema", "promote", table, path, "--as", as_, "--json")


def test_old_and_new_rows_have_the_column(project: Path, say: Any, push: Push) -> None:
    push(*OLD)
    found = promote(say, project, "props.user.id", "user_id:long").json()["promoted"]
    assert (found["column"], found["type"], found["path"], found["schema_id"]) == (
        "user_id",
        "long",
        "props.user.id",
        2,
    )
    push({"label": "d", "user_id": 9, "props": {"user": {"id": 1}}}, {"label": "e", "props": {"user": {"id": 2}}})
    shown = [("a", 7), ("b", 8), ("c", None), ("d", 9), ("e", 2)]
    query = "SELECT label, user_id FROM events ORDER BY label"
    assert rows(say, project, query) == shown
    assert rows(say, project, "SELECT label FROM events WHERE user_id < 9 ORDER BY label") == [("a",), ("b",), ("e",)]
    described = "SELECT column_name FROM (DESCRIBE events)"
    assert ("user_id",) in rows(say, project, described)
    assert ("user_id",) not in rows(say, project, described, "--as-of", str(found["seq"] - 1))
    (event,) = [
        event
        for event in say("--project", project, "schema", "log", "events", "--json").json()["events"]
        if event["kind"] == "promote_column"
    ]
    assert (event["column"], event["after"], event["note"]) == ("user_id", "long", "from props.user.id")
    assert event["decided_by"] == found["decided_by"] != "auto"


def test_the_column_outlives_the_catalog_and_the_views(project: Path, say: Any, push: Push) -> None:
    push(*OLD)
    assert promote(say, project, "props.user.id", "user_id:long").code == 0
    query = "SELECT label, user_id FROM events ORDER BY label"
    before = rows(say, project, query)
    assert before == [("a", 7), ("b", 8), ("c", None)]
    assert say("--project", project, "context", "rebuild-catalog").code == 0
    assert rows(say, project, query) == before
    view = project / ".headwater/context/shop/views/events.sql"
    text = view.read_text()
    view.write_text("-- mine")
    assert say("--project", project, "schema", "regen-view", "events").code == 0
    assert view.read_text() == text
    assert promote(say, project, "props.user.id", "user_id:long").json()["promoted"]["seq"] is None
    assert say("--project", project, "context", "verify").code == 0


def test_the_same_promotion_again_writes_nothing(project: Path, say: Any, push: Push) -> None:
    push(*OLD)
    assert promote(say, project, "props.user.id", "user_id:long").code == 0
    records = sorted((project / ".headwater/context/shop/log").iterdir())
    said = say("--project", project, "schema", "promote", "events", "props['user'].id", "--as", "user_id:long")
    assert (said.code, said.out) == (0, "events: user_id long from props.user.id\n")
    assert "nothing was written" in said.err
    assert sorted((project / ".headwater/context/shop/log").iterdir()) == records


def test_what_was_rescued_can_be_promoted(project: Path, say: Any, push: Push) -> None:
    push({"label": "a", "Big Key": "1.50"})
    assert promote(say, project, "_rescued['Big Key']", "big_key:real").code == 0
    assert rows(say, project, "SELECT big_key FROM events") == [(1.5,)]


def test_a_declared_table_keeps_its_promoted_column(project: Path, say: Any, push: Push) -> None:
    manifest = project / "headwater.toml"
    declared = '[[pipeline]]\nid = "web"\nsource = { connector = "push" }\n[[pipeline.tables]]\nname = "clicks"\n'
    declared += 'primary_key = ["id"]\ncolumns = { id = "long", props = "dynamic" }\n'
    manifest.write_text(manifest.read_text() + declared)
    push({"id": 1, "props": {"user": {"id": 7}}}, {"id": 2, "props": {"user": {"id": 8}}}, table="clicks")
    assert promote(say, project, "props.user.id", "user_id:long", table="clicks").code == 0
    push({"id": 2, "user_id": "80"}, {"id": 3, "props": {"user": {"id": 9}}}, table="clicks")
    assert say("--project", project, "plan", "web", "--detailed-exitcode").code == 0
    query = "SELECT id, user_id FROM clicks ORDER BY id"
    assert rows(say, project, query) == [(1, 7), (2, 80), (3, 9)]
    manifest.write_text(manifest.read_text().replace('props = "dynamic"', 'props = "dynamic", user_id = "long"'))
    push({"id": 1, "props": {"user": {"id": 70}}}, table="clicks")
    assert rows(say, project, query) == [(1, 70), (2, 80), (3, 9)]
    kinds = [e["kind"] for e in say("--project", project, "schema", "log", "clicks", "--json").json()["events"]]
    assert kinds == ["created", "promote_column"]


def test_what_cannot_be_promoted_is_refused(project: Path, say: Any, push: Push) -> None:
    push(*OLD)
    with workspace(project) as opened:
        definition = r.ViewDefinition(sql="SELECT 1 AS a", shown="SELECT 1 AS a", reads=(), columns=(("a", "int"),))
        view = r.ViewSet(view="seen", pipeline="orders", definition=definition, reads={})
        opened.store().commit(r.Commit(changes=(view,), actor="operator:ada"))
    for table, path, as_, code, ended in [
        ("seen", "a.b", "x:long", "HW-S03", 3),
        ("event", "props.user.id", "x:long", "HW-T07", 3),
        ("events", "props.user.id", "x", "HW-U01", 2),
        ("events", "props.user.id", "x:lnog", "HW-S03", 3),
        ("events", "props.user.id", "label:long", "HW-S03", 3),
        ("events", "label.x", "x:long", "HW-S03", 3),
    ]:
        said = promote(say, project, path, as_, table=table)
        error = said.json()["error"]
        assert (said.code, error["code"], bool(error["hint"])) == (ended, code, True), (path, as_, error)

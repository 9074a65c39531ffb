"""Paths of this machine stay on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.app.workspace import workspace
from headwater.base.errors import HeadwaterError, Position
from headwater.interfaces.http.paths import without_paths
from headwater.interfaces.http.problems import problem
from headwater.interfaces.otlp.receive import error_line
from unit.interfaces.http.served import serving
from unit.interfaces.http.test_paths import problem_of
from unit.interfaces.landed import landed_project

STORE = "/home/me/My Project/.headwater/shop"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot write `{STORE}/tables/orders/data/x.parquet`: full", "cannot write `tables/orders/data/x.parquet`: full"),
        (f'no files match "{STORE}/duck.db"', 'no files match "duck.db"'),
        ("[Errno 13] Permission denied: '/etc/shadow'", "[Errno 13] Permission denied: 'shadow'"),
        ("/tmp/a.csv:3:1 is bad, /tmp/b.csv too", "a.csv:3:1 is bad, b.csv too"),
        ("see file:///etc/hosts, (/etc/hosts)", "see file://hosts, (hosts)"),
        ("there is nothing at `/v1/tables/x`", "there is nothing at `/v1/tables/x`"),
        ("`/docs` and `/openapi.json` say what it may be", "`/docs` and `/openapi.json` say what it may be"),
        ("60/min, read/tmp, https://example.com/etc/x", "60/min, read/tmp, https://example.com/etc/x"),
    ],
)  # fmt: skip
def test_a_path_is_shown_from_the_store_on_or_by_its_name(text: str, shown: str) -> None:
    assert without_paths(text) == shown
    assert error_line(HeadwaterError("HW-T05", text)) == f"HW-T05: {shown}"


def test_a_problem_has_no_path_in_any_of_its_parts() -> None:
    path = "/home/me/data.csv"
    error = HeadwaterError(
        "HW-T05", f"`{path}` is bad", f"see `{path}`", detail={"a": [path]}, places=(Position(path, 3),)
    )
    body = bytes(problem(error).body).decode()
    assert "/home" not in body and json.loads(body)["error"]["detail"]["places"][0]["file"] == "data.csv"


def test_a_damaged_store_is_told_without_where_it_is(tmp_path: Path) -> None:
    with workspace(landed_project(tmp_path / "shop")) as opened, serving(opened) as client:
        for file in (tmp_path / "shop").rglob("*.parquet"):
            file.unlink()
        answer = client.post("/v1/query", json={"sql": "select * from orders"})
        assert "tables/orders/" in problem_of(answer, 500, "HW-T04")["message"]
        assert str(tmp_path) not in answer.text

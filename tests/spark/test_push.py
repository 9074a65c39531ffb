"""Pushed tables as Inlets: what reads them runs when rows have come, and only then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.app.ingest import Ingestor
from headwater.app.workspace import workspace
from spark.scenario import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST = """
[[pipeline]]
id = "clicks"
source = { connector = "push" }
[[pipeline.tables]]
name = "clicks"
primary_key = ["id"]
columns = { id = "long", url = "string", extra = "dynamic" }
[[pipeline]]
id = "pages"
sources = ["clicks"]
[[pipeline.ripples]]
name = "by_url"
sql = "select url, count(*) as n, count(_rescued) as rescued from clicks group by 1"
"""
UNDECLARED = """
[[pipeline]]
id = "notes"
source = { connector = "push" }
[[pipeline.tables]]
name = "notes"
[[pipeline.tables]]
name = "otel_logs"
[[pipeline]]
id = "both"
sources = ["notes"]
[[pipeline.ripples]]
name = "said"
sql = "select label as what, ts from notes union all select severity_text, ts from otel_logs"
"""


def test_what_reads_a_pushed_table_runs_when_rows_have_come(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "headwater.toml").write_text(MANIFEST)
    push(tmp_path, {"id": 1, "url": "/a", "X-Id": 7}, {"id": 2, "url": "/a", "extra": {"deep": [1]}})
    assert states(tmp_path) == {"clicks": "unchanged", "pages": "success"}
    assert pages(tmp_path) == [("/a", 2, 1)]
    assert states(tmp_path) == {"clicks": "unchanged", "pages": "unchanged"}
    push(tmp_path, {"id": 2, "url": "/b"}, {"id": 3, "url": "/b"})
    assert states(tmp_path) == {"clicks": "unchanged", "pages": "success"}
    assert pages(tmp_path) == [("/a", 1, 1), ("/b", 2, 0)]


def test_what_reads_a_pushed_table_runs_before_its_first_row(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "headwater.toml").write_text(UNDECLARED)
    assert states(tmp_path) == {"notes": "unchanged", "both": "success"}
    assert command(tmp_path, "query", "--format", "csv", "SELECT count(*) AS n FROM said").out.split() == ["n", "0"]
    push(tmp_path, {"label": "a"}, table="notes")
    assert states(tmp_path) == {"notes": "unchanged", "both": "success"}
    assert command(tmp_path, "query", "--format", "csv", "SELECT what FROM said").out.split() == ["what", "a"]


def push(root: Path, *rows: dict[str, Any], table: str = "clicks") -> None:
    with workspace(root) as opened:
        ingestor = Ingestor()
        ingestor.ingest(opened, table, "".join(json.dumps(row) + "\n" for row in rows).encode())
        ingestor.close()


def states(root: Path) -> dict[str, str]:
    """What an apply has done."""
    found = command(root, "apply", "--json")
    return {each["pipeline"]: each["state"] for each in json.loads(found.out)["pipelines"]}


def pages(root: Path) -> list[tuple[Any, ...]]:
    found = command(root, "query", "--format", "json", "SELECT url, n, rescued FROM by_url ORDER BY url")
    return [tuple(row.values()) for row in json.loads(found.out)["rows"]]

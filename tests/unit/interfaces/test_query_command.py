"""`headwater query`: rows in every format, on stdout or in a file, of every table that is declared. No JVM."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from headwater.interfaces.cli.main import main


def test_csv_is_read_back_as_it_was(landed: Path, say: Any) -> None:
    said = say(
        "--project",
        landed,
        "query",
        "SELECT id, name, amount, ts_ns, j FROM meta.orders ORDER BY id",
        "--format",
        "csv",
    )
    assert said.err == ""
    assert list(csv.reader(io.StringIO(said.out))) == [
        ["id", "name", "amount", "ts_ns", "j"],
        ["1", "one, two", "1.50", "1700000000123456789", '{"a": [1, 2]}'],
        ["2", "", "", "", ""],
    ]


def test_a_control_character_is_data_in_csv_and_an_escape_in_a_table(landed: Path, say: Any) -> None:
    sql = "SELECT chr(27) || '[31m' || chr(0) || chr(8238) AS t"
    assert say("--project", landed, "query", sql, "--format", "csv").out == "t\n\x1b[31m\x00\u202e\n"
    assert "\\x1b[31m\\x00\\u202e" in say("--project", landed, "query", sql).out


def test_messages_name_files_and_pipelines_without_control_characters(project: Path, say: Any) -> None:
    (project / "data" / "a\x1b[2J\u202e.ndjson").write_text('{"id": 3}\n')
    assert "data/a\\x1b[2J\\u202e.ndjson" in say("--project", project, "plan").out
    assert "`\\x00\\x1b[2J`" in say("--project", project, "why", "\x00\x1b[2J").err


def test_csv_cells_that_have_parts_are_json(landed: Path, say: Any) -> None:
    sql = "SELECT true AS t, [1.5::DOUBLE, NULL] AS l, {'a': 'x', 'b': DATE '2026-01-02'} AS s, 0.1 AS n"
    said = say("--project", landed, "query", sql, "--format", "csv")
    _, row = csv.reader(io.StringIO(said.out))
    assert row == ["true", "[1.5, null]", '{"a": "x", "b": "2026-01-02"}', "0.1"]


def test_json_rows_have_the_columns_by_name(landed: Path, say: Any) -> None:
    sql = "SELECT id, name, amount, ts FROM orders ORDER BY id"
    for flags in (["--json"], ["--format", "json"]):
        answer = say("--project", landed, "query", sql, *flags).json()
        assert answer["columns"] == ["id", "name", "amount", "ts"]
        assert answer["rows"] == [
            {"id": 1, "name": "one, two", "amount": "1.50", "ts": "2023-11-14T22:13:20.123456Z"},
            {"id": 2, "name": None, "amount": None, "ts": None},
        ]


def test_json_rows_are_json_whatever_the_values_are(landed: Path, say: Any) -> None:
    values = "'NaN'::DOUBLE a, 'inf'::DOUBLE b, [1.5::DOUBLE, '-inf'::DOUBLE] c, {'x': 'NaN'::FLOAT} d, 'ab'::BLOB e, 1 f, 2 f"
    said = say("--project", landed, "query", f"SELECT {values}", "--json")

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    (row,) = json.loads(said.out, parse_constant=refuse)["rows"]
    assert list(row.values()) == ["NaN", "Infinity", [1.5, "-Infinity"], {"x": "NaN"}, "6162", 1, 2]


def test_parquet_goes_to_a_file(landed: Path, tmp_path: Path, say: Any) -> None:
    sql = "SELECT id, amount FROM orders ORDER BY id"
    path = tmp_path / "rows.parquet"
    said = say("--project", landed, "query", sql, "--format", "parquet", "--output", path)
    assert (said.code, said.out) == (0, "")
    assert pq.read_table(path).column("id").to_pylist() == [1, 2]


def test_parquet_goes_to_stdout(landed: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    sql = "SELECT id, amount FROM orders ORDER BY id"
    assert main(["--project", str(landed), "query", sql, "--format", "parquet"]) == 0
    assert pq.read_table(io.BytesIO(capsysbinary.readouterr().out)).column("id").to_pylist() == [1, 2]


def test_an_output_file_holds_what_stdout_would(landed: Path, tmp_path: Path, say: Any) -> None:
    for format_ in ("csv", "table", "json"):
        said = say("--project", landed, "query", "SELECT id FROM orders ORDER BY id", "--format", format_)
        path = tmp_path / format_
        again = say("--project", landed, "query", "SELECT id FROM orders ORDER BY id", "--format", format_, "-o", path)
        assert (again.code, again.out) == (0, "")
        assert path.read_text() == said.out


def test_an_output_that_cannot_be_written_is_said(landed: Path, tmp_path: Path, say: Any) -> None:
    for format_ in ("csv", "parquet"):
        said = say("--project", landed, "query", "SELECT 1", "--format", format_, "-o", tmp_path / "no" / "where")
        assert said.code == 2
        assert said.err.startswith("error[HW-U01]: ")


def test_sql_comes_from_stdin_where_there_is_no_terminal(
    landed: Path, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT count(*) AS n\nFROM orders;\n"))
    assert say("--project", landed, "query", "--format", "csv").out == "n\n2\n"


def test_the_tables_are_listed_with_what_is_in_them(landed: Path, say: Any) -> None:
    sql = "SELECT name, pipeline, mode, rows, files, bytes > 0, freshness FROM headwater.tables"
    (row,) = say("--project", landed, "query", sql, "--json").json()["rows"]
    assert list(row.values()) == ["orders", "orders", "append", 2, 1, True, "1970-01-01T00:00:00.000001Z"]


@pytest.mark.parametrize("command", [("plan",), ("status",), ("runs",), ("context", "verify")])
def test_a_catalog_that_is_gone_is_noticed_by_every_command(project: Path, say: Any, command: tuple[str, ...]) -> None:
    store = project / ".headwater/context/shop"
    for path in [*store.glob("meta.sqlite*"), store / "log/000000000001.json"]:
        path.unlink()
    said = say("--project", project, *command)
    assert said.code == 1
    assert "the catalog is gone" in said.err
    assert not (store / "meta.sqlite").exists()


def columns_of(say: Any, project: Path, table: str) -> list[str]:
    found = say("--project", project, "query", f"DESCRIBE {table}", "--json")
    assert found.code == 0, found.err
    return [row["column_name"] for row in found.json()["rows"]]


SYSTEM = ["_run_id", "_ingested_at", "_content_hash", "_source_id", "_commit_seq"]


def test_a_table_shows_the_users_columns_and_meta_shows_every_one(landed: Path, say: Any) -> None:
    own = ["id", "name", "amount", "ts", "j"]
    assert columns_of(say, landed, "orders") == own
    assert columns_of(say, landed, "meta.orders") == [*own, "ts_ns", *SYSTEM]


def test_a_declared_table_without_rows_is_there_and_empty(project: Path, say: Any) -> None:
    more = """
[[pipeline]]
id = "clicks"
source = { connector = "push" }
[[pipeline.tables]]
name = "clicks"
columns = { url = "string", at = "timestamp" }
"""
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write(more)
    assert columns_of(say, project, "clicks") == ["url", "at"]
    assert columns_of(say, project, "meta.clicks") == ["url", "at", "at_ns", *SYSTEM]
    for table, rows in (("clicks", 0), ("meta.clicks", 0), ("orders", 2)):
        found = say("--project", project, "query", f"SELECT count(*) AS n FROM {table}", "--json")
        assert found.json()["rows"] == [{"n": rows}]
    assert columns_in_duck_db(project, "clicks") == ["url", "at"]
    assert columns_in_duck_db(project, "meta.clicks") == ["url", "at", "at_ns", *SYSTEM]


def test_the_views_follow_what_the_manifest_declares(project: Path, say: Any) -> None:
    manifest = (project / "headwater.toml").read_text()
    views = project / ".headwater/context/shop/views"
    for columns, expected in (
        ('{ a = "long" }', ["a"]),
        ('{ a = "long", b = "date" }', ["a", "b"]),
        ("{}", ["_run_id"]),
    ):
        declared = f'[[pipeline.tables]]\nname = "later"\ncolumns = {columns}\n'
        more = '[[pipeline]]\nid = "later"\nsource = { connector = "files", config = { path = "later/*.csv" } }\n'
        (project / "headwater.toml").write_text(manifest + more + declared)
        assert columns_of(say, project, "later") == expected
        assert columns_in_duck_db(project, "later") == expected
        before = {path: path.stat().st_mtime_ns for path in views.iterdir()}
        assert say("--project", project, "query", "FROM later", "--json").json()["rows"] == []
        assert {path: path.stat().st_mtime_ns for path in views.iterdir()} == before, "nothing was written"
        assert say("--project", project, "schema", "regen-view", "later").code == 0
    (project / "headwater.toml").write_text(manifest)
    said = say("--project", project, "query", "FROM later")
    assert (said.code, "Table with name later does not exist" in said.err) == (1, True)
    assert not (views / "later.sql").exists()
    with duckdb.connect(project / ".headwater/context/shop/duck.db", read_only=True) as connection:
        assert connection.sql("SELECT name FROM headwater.tables").fetchall() == [("orders",)]


def test_declared_tables_can_be_queried_before_anything_has_landed(tmp_path: Path, say: Any) -> None:
    manifest = '[project]\nname = "shop"\n'
    (tmp_path / "headwater.toml").write_text(manifest)
    assert "HW-T07" in say("--project", tmp_path, "query", "SELECT 1").err
    declared = 'id = "clicks"\nsource = { connector = "push" }\n[[pipeline.tables]]\nname = "clicks"\n'
    (tmp_path / "headwater.toml").write_text(f'{manifest}[[pipeline]]\n{declared}columns = {{ url = "string" }}\n')
    assert columns_of(say, tmp_path, "clicks") == ["url"]
    assert columns_of(say, tmp_path, "meta.clicks") == ["url", *SYSTEM]
    listed = say("--project", tmp_path, "query", "SELECT name, rows FROM headwater.tables", "--json").json()["rows"]
    assert listed == [{"name": "clicks", "rows": 0}]
    assert "HW-T07" in say("--project", tmp_path, "query", "FROM clicks", "--as-of", "1").err
    assert not (tmp_path / ".headwater/context").exists(), "reading makes no store"


def columns_in_duck_db(project: Path, table: str) -> list[str]:
    with duckdb.connect(project / ".headwater/context/shop/duck.db", read_only=True) as connection:
        found = connection.sql(f"SELECT * FROM {table}")
        assert found.fetchall() == []
        return found.columns

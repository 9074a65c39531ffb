"""The command line: stdout is data, stderr is talk, and every end has its exit code. No JVM."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from headwater.base.errors import CODES
from headwater.interfaces.cli.main import main

HEADWATER = [sys.executable, "-c", "from headwater.interfaces.cli.main import run; run()"]
INTERRUPTS = 20
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


# ---- exit codes

EXITS: dict[str, tuple[Sequence[str], int, str | None]] = {
    "done": (["query", "SELECT 1"], 0, None),
    "a query that fails": (["query", "SELECT nothing"], 1, "HW-Q01"),
    "a query that writes": (["query", "DROP TABLE orders"], 1, "HW-Q01"),
    "an option that does not exist": (["plan", "--no-such-option"], 2, "HW-U01"),
    "a command that does not exist": (["plam"], 2, "HW-U01"),
    "an argument that is missing": (["run"], 2, "HW-U01"),
    "a format that does not exist": (["query", "SELECT 1", "--format", "xml"], 2, "HW-U01"),
    "a number that is none": (["query", "SELECT 1", "--as-of", "x"], 2, "HW-U01"),
    "a duration that is none": (["context", "gc", "--retention", "soon"], 2, "HW-U01"),
    "an assignment that is none": (["pipeline", "edit", "orders", "--set", "mode"], 2, "HW-U01"),
    "an edit without a change": (["pipeline", "edit", "orders"], 2, "HW-U01"),
    "a plan file that is not there": (["apply", "--plan", "nowhere.json"], 2, "HW-U01"),
    "a pipeline that does not exist": (["run", "ordres"], 3, "HW-M11"),
    "a table that does not exist": (["schema", "log", "ordres"], 3, "HW-T07"),
    "a sequence that does not exist": (["query", "SELECT 1", "--as-of", "99"], 3, "HW-T07"),
    "nothing to accept": (["schema", "accept", "orders"], 3, "HW-S03"),
    "nothing to do": (["plan", "--detailed-exitcode"], 0, None),
}


@pytest.mark.parametrize("case", EXITS)
def test_each_end_has_its_exit_code(case: str, landed: Path, say: Any) -> None:
    arguments, code, error = EXITS[case]
    said = say("--project", landed, *arguments)
    assert said.code == code, said.err
    if error is None:
        assert "error[" not in said.err
        return
    assert said.err.startswith(f"error[{error}]: ")
    assert said.out == "", "stdout is for data"
    assert CODES[error][1] == code
    in_json = say("--project", landed, *arguments, "--json")
    assert (in_json.code, in_json.json()["error"]["code"]) == (code, error)


def test_there_is_something_to_do_is_ten(project: Path, say: Any) -> None:
    (project / "data" / "a.ndjson").write_text('{"id": 1}\n')
    assert say("--project", project, "plan", "--detailed-exitcode").code == 10
    assert say("--project", project, "plan").code == 0


def test_a_plan_that_is_no_longer_the_plan_is_a_conflict(project: Path, say: Any) -> None:
    plan = project / "plan.json"
    plan.write_text(say("--project", project, "plan", "--json").out)
    assert say("--project", project, "apply", "--plan", plan).code == 0
    (project / "data" / "a.ndjson").write_text('{"id": 1}\n')
    said = say("--project", project, "apply", "--plan", plan, "--json")
    assert said.code == 4
    assert said.json()["error"]["code"] == "HW-T02"


def test_a_misspelt_name_is_answered_with_the_nearest(landed: Path, say: Any) -> None:
    assert "`orders`" in say("--project", landed, "run", "ordres", "--json").json()["error"]["hint"]
    assert "`orders`" in say("--project", landed, "query", "FROM ordres", "--json").json()["error"]["hint"]


def test_no_arguments_show_the_help_and_are_a_usage_error(say: Any) -> None:
    said = say()
    assert said.code == 2
    assert "Usage: " in said.err + said.out


def test_version_is_said(say: Any) -> None:
    said = say("--version")
    assert (said.code, said.out.split()[0]) == (0, "headwater")
    found = say("--version", "--json")
    assert (found.code, found.json()["version"]) == (0, said.out.split()[1])
    assert set(found.json()) == {"schema_version", "version", "python", "pyspark", "duckdb", "store_format"}
    assert all(found.json().values())
    assert say("--json", "--version").out == found.out
    assert say("--json", "status").code == 2, "`--json` belongs to a command"


def test_a_project_is_found_from_below(landed: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(landed / "data")
    assert say("query", "SELECT count(*) FROM orders", "--format", "csv").out == "count_star()\n2\n"


# ---- query


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


def test_a_reader_that_goes_away_is_no_error(landed: Path) -> None:
    child = subprocess.Popen(
        [*HEADWATER, "--project", landed, "query", "SELECT range FROM range(50000)", "--format", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline() == b"range\n"
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0


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


# ---- terminals


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str | Path, environment: dict[str, str] | None = None):
        self.master, slave = pty.openpty()
        plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        self.child = subprocess.Popen(
            [*HEADWATER, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**plain, "TERM": "xterm", **(environment or {})},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str, times: int = 1) -> None:
        while self.shown.count(text) < times:
            assert self._read(), f"ended without `{text}`: {self.shown}"

    def interrupt(self) -> int:
        """Ctrl-C, again and again as a person would: a signal between the prompt and the wait for a key is not
        noticed before the next one."""
        for _ in range(INTERRUPTS):
            self.child.send_signal(signal.SIGINT)
            while select.select([self.master], [], [], 3)[0]:
                if not self._read() or "interrupted" in self.shown:
                    return self.end()
        self.child.kill()
        raise AssertionError(f"goes on after {INTERRUPTS} interrupts: {self.shown}")

    def end(self) -> int:
        """The exit code, when all has been read."""
        while self._read():
            pass
        os.close(self.master)
        return self.child.wait()

    def _read(self) -> bool:
        select.select([self.master], [], [])
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # the other side is closed
            return False
        self.shown += data.decode()
        return bool(data)


def test_query_is_interactive_on_a_terminal(landed: Path) -> None:
    terminal = Terminal("--project", landed, "query")
    # What is typed before the prompt is there meets a terminal in another mode, so every prompt is waited for.
    terminal.read_until("headwater> ")
    terminal.type("SELECT sum(id) AS total\n")
    terminal.read_until("        -> ")
    terminal.type("FROM orders;\n")
    terminal.read_until("headwater> ", times=2)
    terminal.type("SELECT nothing;\n")
    terminal.read_until("headwater> ", times=3)
    terminal.type("FROM headwater.tables SELECT name;\n")
    terminal.read_until("headwater> ", times=4)
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "error[HW-Q01]" in terminal.shown
    assert "------" in terminal.shown
    assert "3" in terminal.shown.split("total", 2)[2]


def test_ctrl_c_ends_with_130(landed: Path) -> None:
    terminal = Terminal("--project", landed, "query")
    terminal.read_until("headwater> ")
    assert terminal.interrupt() == 130
    assert "interrupted" in terminal.shown


def test_colour_is_for_terminals_that_want_it() -> None:
    for environment, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal("plam", environment=environment)
        assert terminal.end() == 2
        assert "error[HW-U01]" in terminal.shown
        assert (COLOUR.search(terminal.shown) is not None) is is_coloured


# ---- projects and pipelines


def test_init_writes_a_project_that_is_valid_and_never_writes_over_one(tmp_path: Path, say: Any) -> None:
    directory = tmp_path / "My Shop"
    written = say("init", directory, "--json").json()["written"]
    assert str(directory / "headwater.toml") in written
    assert say("--project", directory, "validate").code == 0
    assert say("--project", directory, "plan", "--detailed-exitcode").code == 10
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    said = say("init", directory, "--json")
    assert said.code == 3
    assert said.json()["error"]["code"] == "HW-M12"
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_validate_lists_what_is_not_supported_with_its_position(tmp_path: Path, say: Any) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[[pipeline]]\nid = "p"\nsource = { connector = "files", config = { path = "*.csv" } }\n'
        'always_run = true\n[[pipeline.tables]]\nname = "t"\npartition_by = "day"\n'
        '[pipeline.backfill]\nwindow = "7d"\n'
    )
    said = say("--project", tmp_path, "validate")
    assert said.code == 0
    places = [line.partition(": ")[0] for line in said.out.splitlines()]
    assert "headwater.toml:7:1" in places
    assert any(place.startswith("headwater.toml:8:") for place in places)
    listed = say("--project", tmp_path, "validate", "--json").json()["unsupported"]
    assert [part["place"] for part in listed] == places
    assert {part["pipeline"] for part in listed} == {"p"}


def test_validate_says_every_error_of_every_file(tmp_path: Path, say: Any) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "headwater.toml").write_text('[[pipeline]]\nid = "p"\nsorce = { connector = "files" }\n')
    (tmp_path / "pipelines" / "q.json").write_text('{"id": "q", "source": {"connector": "fils"}, "tables": ["t"]}')
    said = say("--project", tmp_path, "validate", "--json")
    assert said.code == 3
    assert "headwater.toml:3:1" in said.err and "pipelines/q.json:1:" in said.err
    codes = {error["code"] for error in said.json()["error"]["detail"]["errors"]}
    assert {"HW-M05", "HW-M06"} <= codes


def test_a_pipeline_is_created_edited_and_converted_and_stays_what_it_is(project: Path, say: Any) -> None:
    def listed() -> dict[str, Any]:
        pipelines = say("--project", project, "pipeline", "list", "--json").json()["pipelines"]
        return {line["pipeline"]: line for line in pipelines}

    create = (
        "pipeline",
        "create",
        "people",
        "--connector",
        "files",
        "--config",
        "path=people/*.csv",
        "--table",
        "people",
    )
    assert say("--project", project, *create).out == "wrote pipelines/people.json\n"
    assert listed()["people"]["tables"] == ["people"]
    assert say("--project", project, *create).code == 3

    edit = ("pipeline", "edit", "people", "--set", "tables.people.mode=replace", "--set", "poll=10s")
    assert say("--project", project, *edit).code == 0
    spec = json.loads((project / "pipelines" / "people.json").read_text())
    assert (spec["poll"], spec["tables"][0]["mode"]) == ("10s", "replace")
    before = say("--project", project, "plan", "orders", "--json").json()["hash"]

    assert say("--project", project, "pipeline", "convert", "orders", "--to", "json").code == 0
    assert listed()["orders"]["place"].startswith("pipelines/orders.json")
    assert say("--project", project, "plan", "orders", "--json").json()["hash"] == before
    assert say("--project", project, "pipeline", "convert", "orders", "--to", "toml").code == 0
    assert say("--project", project, "plan", "orders", "--json").json()["hash"] == before

    bad = say("--project", project, "pipeline", "edit", "people", "--set", "tables.people.mode=sideways", "--json")
    assert bad.code == 3
    assert json.loads((project / "pipelines" / "people.json").read_text()) == spec


def test_a_pipeline_is_created_from_json_on_stdin(project: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = {"source": {"connector": "flaky", "config": {"rows": 3}}, "tables": ["rows"]}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(definition)))
    assert say("--project", project, "pipeline", "create", "f", "--from", "-", "--format", "toml").code == 0
    assert 'id = "f"' in (project / "headwater.toml").read_text()
    assert "# no file matches" in (project / "headwater.toml").read_text(), "comments stay"
    assert say("--project", project, "validate").code == 0


@pytest.mark.parametrize("name", ["../x", "x" * 64, "a\u202eb", "a b", ""])
def test_a_trigger_has_a_short_printable_name(say: Any, project: Path, name: str) -> None:
    said = say("--project", project, "wave", "orders", "--name", name)
    assert said.code == 2 and "HW-U01" in said.err and "1 to 63" in said.err
    assert say("--project", project, "trigger", "list", "--json").json()["triggers"] == []

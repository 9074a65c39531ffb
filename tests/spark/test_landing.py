"""From sources to answers, on real Spark: the scenarios of `tests/scenarios/landing`, and what needs more than one
process to show."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.base import limits
from spark.children import finished, python
from spark.scenario import Project, check_store, command, scenarios, tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serve.serving import Warm

SCENARIOS = dict(scenarios())
ORDERS = """
[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "data/*.ndjson" } }
tables = ["orders"]
"""


@pytest.mark.parametrize("claim", SCENARIOS)
def test_scenario(claim: str, tmp_path: Path, spark: SparkSession, warm: Warm) -> None:
    scenario: Any = SCENARIOS[claim]
    root = tmp_path / scenario.get("folder", "project")
    root.mkdir()
    project = Project(root, warm)
    project.play(scenario)
    if (root / ".headwater").exists():
        check_store(root, spark)


SECOND_APPLY = """
import os, sys
from pathlib import Path
from headwater.interfaces.cli.main import main

code = main(["--project", sys.argv[1], "apply", "--json"])
parents = {}
for entry in Path("/proc").iterdir():
    if entry.name.isdigit():
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
children = [pid for pid, parent in parents.items() if parent == os.getpid()]
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j", "pandas"})
print(code, children, heavy, file=sys.stderr)
"""


def test_second_apply_writes_nothing_and_starts_no_jvm(tmp_path: Path, spark: SparkSession) -> None:
    project = Project(tmp_path)
    project.write_manifest(
        ORDERS + '[[pipeline]]\nid = "f"\nsource = { connector = "flaky", config = { rows = 4 } }\ntables = ["rows"]\n'
    )
    project.write("data/a.ndjson", ['{"id": 1}'])
    assert project.command("apply").exit == 0
    assert project.query("SELECT name FROM headwater.tables ORDER BY 1") == [["orders"], ["rows"]]
    before = tree(tmp_path)
    java_is_nowhere = {"PATH": "", "JAVA_HOME": str(tmp_path / "nowhere")}
    out, err = finished(python(SECOND_APPLY, str(tmp_path), environment=java_is_nowhere))
    assert err.split("\n")[-2] == "0 [] []"
    assert json.loads(out)["changed"] is False
    assert tree(tmp_path) == before


def test_a_changed_file_retires_its_rows_from_files_that_list_no_source_ids(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = Project(tmp_path)
    project.write_manifest(ORDERS)
    for name, ids in (("a", [1]), ("b", [2, 3])):
        project.write(f"data/{name}.ndjson", [f'{{"id": {id_}, "v": 0}}' for id_ in ids])
    assert project.command("apply").exit == 0
    project.write("data/c.ndjson", ['{"id": 4, "v": 0}'])
    assert project.command("apply").exit == 0
    with sqlite3.connect(next((tmp_path / ".headwater").rglob("meta.sqlite"))) as catalog:  # as if there were more
        catalog.execute("UPDATE file_entry SET sources = NULL, source_count = 1001")
    project.write("data/b.ndjson", ['{"id": 2, "v": 1}'])
    assert project.command("apply").exit == 0
    assert project.query("SELECT id, v FROM orders ORDER BY id") == [[1, 0], [2, 1], [4, 0]]
    query = "SELECT rows, merged, source_count FROM file_entry WHERE removed_seq IS NULL ORDER BY added_seq, merged"
    found = [(1, 0, 1001), (1, 0, 0), (1, 1, 0)]
    assert catalog.execute(query).fetchall() == found, "the file with `c` was read, and stayed"
    catalog.close()


def test_a_file_that_is_written_twice_in_one_tick_of_the_clock_lands_twice(tmp_path: Path, spark: SparkSession) -> None:
    project = Project(tmp_path)
    project.write_manifest(ORDERS)
    project.write("data/a.ndjson", ['{"id": 1}'])
    now = time.time_ns() + 3600 * 10**9  # later than any look at it, however slow this machine is
    os.utime(tmp_path / "data" / "a.ndjson", ns=(now, now))
    assert project.command("apply").exit == 0
    project.write("data/a.ndjson", ['{"id": 2}'])
    os.utime(tmp_path / "data" / "a.ndjson", ns=(now, now))
    assert project.command("apply").exit == 0
    assert project.query("SELECT id FROM orders") == [[2]]


def test_many_files_land_in_several_slices_and_each_file_once(tmp_path: Path, spark: SparkSession) -> None:
    project = Project(tmp_path)
    project.write_manifest(ORDERS)
    files = limits.SLICE_FILES + 5
    for number in range(files):
        project.write(f"data/{number:05d}.ndjson", f'{{"id": {number}}}\n')
    (result,) = project.command("apply", "--json").json()["pipelines"]
    assert (result["state"], result["rows"], result["slices"]) == ("success", files, 2)
    assert project.query("SELECT count(*), count(DISTINCT id), count(DISTINCT _source_id) FROM meta.orders") == [
        [files] * 3
    ]
    check_store(tmp_path, spark)


def test_a_replace_run_that_failed_leaves_no_file_behind_that_counts_as_landed(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The first of two slices is staged, the second fails; then what failed goes away. The table must still become
    what the source shows."""
    project = Project(tmp_path)
    project.write_manifest(
        '[[pipeline]]\nid = "r"\nsource = { connector = "files", config = { path = "data/*.ndjson" } }\n'
        'on_bad_row = "refuse"\n[[pipeline.tables]]\nname = "r"\nmode = "replace"\ncolumns = { id = "long" }\n'
    )
    for number in range(limits.SLICE_FILES):
        project.write(f"data/{number:05d}.ndjson", f'{{"id": {number}}}\n')
    project.write("data/bad.ndjson", '{"id": "bad"}')
    answer = project.command("apply", "--json")
    assert answer.json()["pipelines"][0]["error"]["code"] == "HW-C04"
    (tmp_path / "data" / "bad.ndjson").unlink()
    assert project.command("apply").exit == 0
    assert project.query("SELECT count(*) FROM r") == [[limits.SLICE_FILES]]


def test_the_project_that_init_writes_lands_as_it_is(tmp_path: Path, spark: SparkSession) -> None:
    assert command(tmp_path, "init", str(tmp_path / "shop")).exit == 0
    answer = command(tmp_path / "shop", "apply", "--json")
    assert answer.exit == 0, answer.err
    (result,) = answer.json()["pipelines"]
    assert result["rows"] > 0
    assert command(tmp_path / "shop", "query", "FROM orders").exit == 0

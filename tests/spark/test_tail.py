"""Merged tails as Spark sees them: the same rows, the same last writes, and nothing that arrived again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.app.ingest import Ingestor
from headwater.app.workspace import workspace
from headwater.base import limits
from headwater.catalog.commit import Store
from headwater.catalog.gc import collect
from headwater.catalog.lookup import table_states
from headwater.runtime.cut_inputs import CutInput, read_inputs
from headwater.spark.frames import table_frame
from headwater.spark.ripples import RippleContext
from spark.scenario import command
from unit.duck.tables import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST = """
[project]
name = "shop"
[[pipeline]]
id = "clicks"
source = { connector = "push" }
[[pipeline.tables]]
name = "clicks"
primary_key = ["id"]
columns = { id = "long", url = "string" }
[[pipeline]]
id = "pages"
sources = ["clicks"]
[[pipeline.ripples]]
name = "by_url"
sql = "select url, count(*) as n from clicks group by 1"
"""
FULL = limits.TAIL_CLASS_FILES


def test_a_merge_makes_nothing_run_and_hides_nothing(tmp_path: Path, spark: SparkSession) -> None:
    """Also after gc has taken the files that were replaced."""
    (tmp_path / "headwater.toml").write_text(MANIFEST)
    with workspace(tmp_path) as opened:
        store, ingestor = opened.store(), Ingestor()
        seqs = [push(ingestor, opened, [n % 3, 100 + n, n % 3], f"/{n}") for n in range(FULL)]
        assert states(tmp_path) == {"clicks": "unchanged", "pages": "success"}
        ingestor.close()  # merges
        (state,) = read_states(store)
        assert [file.merged for file in state.files] == [True]
        assert states(tmp_path) == {"clicks": "unchanged", "pages": "unchanged"}
        collect(store, actor="test", retention_seconds=-1)
    with (tmp_path / "headwater.toml").open("a") as manifest:
        manifest.write('[[pipeline.ripples]]\nname = "urls"\nsql = "select distinct url from clicks"\n')
    assert states(tmp_path) == {"clicks": "unchanged", "pages": "success"}, "it reads the table as of its last push"
    with workspace(tmp_path) as opened:
        push(ingestor, opened, [0, 500], "/later")
        must_be_the_same(opened.store(), spark)
        must_have_arrived(opened.store(), spark, since=seqs[4])


def push(ingestor: Ingestor, opened: Any, ids: list[int], url: str) -> int:
    body = "".join(json.dumps({"id": id_, "url": f"{url}-{place}"}) + "\n" for place, id_ in enumerate(ids))
    return int(ingestor.ingest(opened, "clicks", body.encode()).snapshot_id)


def read_states(store: Store) -> list[Any]:
    with store.catalog.snapshot() as connection:
        return table_states(connection, ["clicks"])


def must_be_the_same(store: Store, spark: SparkSession) -> None:
    """Spark and the view show the same rows, with the same commits."""
    (state,) = read_states(store)
    expected = ask(store.root, state, "SELECT id, url, _commit_seq FROM t ORDER BY id")
    found = table_frame(spark, store.root, state).selectExpr("id", "url", "_commit_seq").orderBy("id").collect()
    assert [tuple(row) for row in found] == expected


def must_have_arrived(store: Store, spark: SparkSession, since: int) -> None:
    """`changed_rows` are the rows that a later commit wrote last: some are in the merged file, some are not."""
    (state,) = read_states(store)
    assert [file.merged for file in state.files] == [True, False]
    expected = ask(store.root, state, f"SELECT id, url FROM t WHERE _commit_seq > {since} ORDER BY id")
    inputs = read_inputs(store, "test", [CutInput("clicks", state.changed_seq, since)])
    found = RippleContext(0, None, spark, inputs).changed_rows("clicks").orderBy("id").collect()
    assert [tuple(row) for row in found] == expected


def states(root: Path) -> dict[str, str]:
    found = command(root, "apply", "--json")
    return {each["pipeline"]: each["state"] for each in json.loads(found.out)["pipelines"]}

"""Tables as DataFrames, and DataFrames as tables: what `table_frame` shows is what the view shows (every scenario of
`test_landing` ends with that too), and what `write_frame` writes has the types of the table."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.app.workspace import workspace
from headwater.base.errors import HeadwaterError
from headwater.catalog.lookup import table_states
from headwater.spark.frames import table_frame
from headwater.spark.write_frame import WriteTarget, write_frame
from schemas import schema_of
from spark.children import finished, python
from spark.scenario import Project, check_store
from unit.duck.tables import HandMade

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NESTED = pa.struct([("name", pa.string()), ("seen", pa.list_(pa.timestamp("ns", tz="UTC"))), ("n", pa.int64())])


def frame_of(project: Path, spark: SparkSession, *, as_of: int | None = None) -> DataFrame:
    """The only table of a project."""
    with workspace(project) as opened:
        store = opened.landed_store()
        with store.catalog.snapshot() as connection:
            (state,) = table_states(connection, as_of=as_of)
        return table_frame(spark, store.root, state)


def files_project(root: Path, format_: str, *settings: str) -> Project:
    project = Project(root)
    source = f'source = {{ connector = "files", config = {{ path = "data/*.{format_}" }} }}'
    project.write_manifest(["[[pipeline]]", 'id = "t"', source, "[[pipeline.tables]]", 'name = "t"', *settings])
    (root / "data").mkdir()
    return project


def test_a_source_position_is_shown_where_a_file_has_one(tmp_path: Path, spark: SparkSession) -> None:
    table = HandMade(tmp_path, schema_of({"id": "long"}, ("id",)), mode="upsert")
    table.commit([{"id": 1}, {"id": 2}], unique_keys=True)
    assert "_source_pos" not in table_frame(spark, tmp_path, table.state()).columns
    placed = pa.record_batch({"id": pa.array([2, 3]), "_source_pos": pa.array([7, 2**40])})
    table.commit(placed, unique_keys=True)
    for commit_seq in (True, False):
        frame = table_frame(spark, tmp_path, table.state(), commit_seq=commit_seq)
        found = frame.orderBy("id").select("id", "_source_pos").collect()
        assert [tuple(row) for row in found] == [(1, None), (2, 7), (3, 2**40)]


def test_a_frame_has_sparks_own_types(tmp_path: Path, spark: SparkSession) -> None:
    columns = 'id = "int", big = "long", x = "real", d = "decimal(9,3)", ts = "timestamp", day = "date", j = "dynamic"'
    project = files_project(tmp_path, "ndjson", f'columns = {{ {columns}, v = "vector(2)", ok = "bool" }}')
    project.write("data/a.ndjson", '{"id": 1, "d": 1.5, "ts": "1969-12-31T23:59:59.999999999Z", "v": [1, 2]}')
    assert project.command("apply").exit == 0
    shown = {field.name: field.dataType.simpleString() for field in frame_of(tmp_path, spark).schema}
    assert shown == {
        "id": "int",
        "big": "bigint",
        "x": "double",
        "d": "decimal(9,3)",
        "ts": "timestamp",
        "day": "date",
        "j": "string",
        "v": "array<float>",
        "ok": "boolean",
        "ts_ns": "bigint",
        "_run_id": "string",
        "_ingested_at": "timestamp",
        "_content_hash": "binary",
        "_source_id": "string",
        "_commit_seq": "bigint",
    }
    row = frame_of(tmp_path, spark).selectExpr("unix_micros(ts)", "ts_ns", "d", "v").first()
    assert row is not None
    assert list(row) == [-1, -1, decimal.Decimal("1.500"), [1.0, 2.0]]


def test_a_table_without_rows_is_an_empty_frame_with_its_columns(tmp_path: Path, spark: SparkSession) -> None:
    project = files_project(tmp_path, "ndjson", 'columns = { id = "long", ts = "timestamp" }', 'mode = "replace"')
    project.write("data/a.ndjson", '{"id": 1}')
    assert project.command("apply").exit == 0
    project.write("data/a.ndjson", "")
    assert project.command("apply").exit == 0
    frame = frame_of(tmp_path, spark)
    assert frame.columns[:3] == ["id", "ts", "ts_ns"]
    assert frame.count() == 0
    check_store(tmp_path, spark)


def test_nested_values_and_times_inside_them_are_what_the_view_shows(tmp_path: Path, spark: SparkSession) -> None:
    project = files_project(tmp_path, "parquet")
    values = [
        {"name": "a", "seen": [-1, 1_700_000_000_123_456_789, None], "n": 1},
        {"name": None, "seen": None, "n": None},
        None,
    ]
    table = pa.table({"id": pa.array([1, 2, 3]), "who": pa.array(values, NESTED)})
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    assert project.command("apply").exit == 0
    micros = "transform(who.seen, x -> unix_micros(x))"
    rows = frame_of(tmp_path, spark).orderBy("id").selectExpr("who is null", "who.name", micros, "who.n").collect()
    assert [list(row) for row in rows] == [
        [False, "a", [-1, 1_700_000_000_123_456, None], 1],
        [False, None, None, None],
        [True, None, None, None],
    ]
    check_store(tmp_path, spark)


def test_a_frame_as_of_a_commit_is_the_table_of_then(tmp_path: Path, spark: SparkSession) -> None:
    project = files_project(tmp_path, "ndjson", 'primary_key = ["id"]')
    project.write("data/a.ndjson", ['{"id": 1, "v": "old"}', '{"id": 2, "v": "old"}'])
    assert project.command("apply").exit == 0
    then = frame_of(tmp_path, spark).agg({"_commit_seq": "max"}).first()
    assert then is not None
    project.write("data/b.ndjson", ['{"id": 2, "v": "new", "more": 1}'])
    assert project.command("apply").exit == 0
    past = frame_of(tmp_path, spark, as_of=then[0])
    assert "more" not in past.columns
    assert [list(row) for row in past.select("id", "v").orderBy("id").collect()] == [[1, "old"], [2, "old"]]
    now = frame_of(tmp_path, spark)
    assert [list(row) for row in now.select("id", "v", "more").orderBy("id").collect()] == [
        [1, "old", None],
        [2, "new", 1],
    ]


def target(root: Path, columns: dict[str, str]) -> WriteTarget:
    return WriteTarget(root, "tables/t/data", schema_of(columns), run_id="run", ingested_at_us=1_000_000)


def test_a_frame_is_written_with_the_types_of_the_table(tmp_path: Path, spark: SparkSession) -> None:
    columns = {"id": "long", "name": "string", "d": "decimal(12,2)", "ts": "timestamp", "day": "date", "x": "real"}
    frame = spark.range(0, 100, 1, 4).selectExpr(
        "cast(id as int) as id",
        "concat('n', id) as name",
        "cast(id as decimal(10,2)) as d",
        "timestamp_micros(id - 50) as ts",
        "date_from_unix_date(cast(id as int)) as day",
        "cast(id as float) as x",
    )
    written = write_frame(frame, target(tmp_path, columns))
    assert written.rows == 100
    assert [file.ordinal for file in written.files] == sorted(file.ordinal for file in written.files)
    assert len(written.files) == 4
    rows: list[dict[str, Any]] = []
    for file in written.files:
        table = pq.read_table(tmp_path / file.path)
        assert table.select(list(columns)).schema.types == schema_of(columns).to_arrow().types
        rows += table.select(list(columns)).to_pylist()
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert [row["id"] for row in rows] == list(range(100))
    assert rows[0] | {"ts": rows[0]["ts"].to_pydatetime()} == {
        "id": 0,
        "name": "n0",
        "d": decimal.Decimal("0.00"),
        "ts": epoch - datetime.timedelta(microseconds=50),
        "day": datetime.date(1970, 1, 1),
        "x": 0.0,
    }


def test_a_frame_with_a_column_that_the_table_lacks_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(HeadwaterError, match="is not in the table's schema") as caught:
        write_frame(spark.range(3).selectExpr("id", "id as stranger"), target(tmp_path, {"id": "long"}))
    assert caught.value.code == "HW-S03"
    assert not list(tmp_path.rglob("*.parquet"))


RETRIED = """
import json, sys
from pathlib import Path
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG
from headwater.spark.session import SparkSettings, spark_session, stop_session
from headwater.spark.write_frame import WriteTarget, write_frame

root, tries = Path(sys.argv[1]), Path(sys.argv[2])

def dies_once(batches):
    from pyspark import TaskContext
    context = TaskContext.get()
    yield from batches
    (tries / f"{context.partitionId()}-{context.attemptNumber()}").touch()
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("told to die after the last row")

spark = spark_session(SparkSettings(master="local[2, 4]"))
frame = spark.range(0, 400, 1, 4).mapInArrow(dies_once, "id long")
target = WriteTarget(root, "tables/t/data", TableSchema().added("id", LONG), run_id="run", ingested_at_us=0)
written = write_frame(frame, target)
stop_session()
print(json.dumps([file.path for file in written.files]))
"""


def test_only_files_of_tasks_that_succeeded_are_named(tmp_path: Path) -> None:
    root, tries = tmp_path / "store", tmp_path / "tries"
    root.mkdir()
    tries.mkdir()
    named = json.loads(finished(python(RETRIED, str(root), str(tries)))[0])
    assert {path.name for path in tries.iterdir()} == {"0-0", "1-0", "1-1", "2-0", "3-0"}
    assert len(named) == 4
    ids = [value for path in named for value in pq.read_table(root / path).column("id").to_pylist()]
    assert sorted(ids) == list(range(400))

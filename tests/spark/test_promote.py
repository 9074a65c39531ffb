"""Promoted columns in frames: what Spark finds inside JSON is what the store's view finds there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.catalog.table_state import TableState
from headwater.spark.frames import table_frame
from schemas import schema_of
from unit.duck.tables import HandMade, ask
from unit.storage.awkward import DOCUMENTS, promoting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_a_frame(spark: SparkSession, root: Path, state: TableState, *columns: str) -> list[tuple[Any, ...]]:
    frame = table_frame(spark, root, state).selectExpr("n", *columns)
    return sorted(tuple(row) for row in frame.collect())


def test_a_frame_finds_what_the_view_finds(tmp_path: Path, spark: SparkSession) -> None:
    """In files that are older than the columns, and in files that have values of their own for some rows."""
    table = HandMade(tmp_path, schema_of({"n": "long", "props": "dynamic"}))
    table.commit([{"n": n, "props": text} for n, text in enumerate([*DOCUMENTS, None])])
    table.evolve(promoting())
    table.commit(
        [{"n": 1000, "props": DOCUMENTS[0], "as_long": 7, "as_string": ""}, {"n": 1001, "props": DOCUMENTS[0]}]
    )
    shown = ["as_bool", "as_int", "as_long", "as_real", "as_string", "as_date", "as_timestamp_ns"]
    in_spark = in_a_frame(spark, tmp_path, table.state(), *shown, "unix_micros(as_timestamp) as us")
    view = ask(tmp_path, table.state(), f"SELECT n, {', '.join(shown)}, epoch_us(as_timestamp) FROM t ORDER BY n")
    assert list(map(repr, in_spark)) == list(map(repr, view))
    assert sum(value is not None for row in view for value in row[1:]) > 200


def test_a_filter_on_a_promoted_column_sees_every_row(tmp_path: Path, spark: SparkSession) -> None:
    """Bounds of the stored values say nothing of rows that are found inside JSON. Of a key the last write counts."""
    schema = replace(promoting("long"), primary_key=("n",))
    table = HandMade(tmp_path, schema, mode="upsert")
    inside = '{"user": {"id": 3}}'
    table.commit([{"n": 1, "as_long": 500}, {"n": 2, "props": inside}, {"n": 3, "props": inside}])
    table.commit([{"n": 3, "as_long": 400, "props": inside}])
    found = table_frame(spark, tmp_path, table.state())
    assert [row.n for row in found.where("as_long < 400").collect()] == [2]
    assert "ArrowEvalPython" not in found.select("n", "props")._jdf.queryExecution().toString()  # only who asks pays

"""Runs over small inputs: their plans, and results that are brought to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG
from headwater.spark.frame_schema import TYPE_KEY
from headwater.spark.ripples import TableInput, running
from headwater.spark.small_runs import DECLARED_KEYS, is_small, small_result
from headwater.spark.user_code import SqlCode
from headwater.spark.write_frame import WriteTarget, write_frame
from spark.models import Models

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    opened = Models(tmp_path, spark)
    opened.put("orders", {"id": "long"}, [(n,) for n in range(10)])
    yield opened
    opened.close()


def adaptive(models: Models, inputs: dict[str, TableInput]) -> str | None:
    """What the session of a run says of adaptive execution."""
    code = SqlCode("select id from orders")
    with running(models.spark, "out", code, inputs=inputs, freshness_us=1, previous_freshness_us=None) as frame:
        return frame.sparkSession.conf.get("spark.sql.adaptive.enabled")


def test_only_a_run_over_small_inputs_is_planned_for_them(models: Models) -> None:
    given = models.input("orders")
    state = given["orders"].state
    large = replace(state, files=tuple(replace(file, rows=limits.SMALL_INPUT_ROWS + 1) for file in state.files))
    assert (is_small([state]), is_small([large])) == (True, False)
    assert adaptive(models, given) == "false"
    assert adaptive(models, {"orders": replace(given["orders"], state=large)}) == "true"


@pytest.mark.parametrize("rows", [0, 7, 8], ids=["empty", "at-the-limit", "over-the-limit"])
def test_a_result_lands_whole_whether_it_turns_out_small_or_not(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(limits, "SMALL_RESULT_ROWS", 7)
    frame = spark.range(0, rows, 1, 2)
    found = small_result(frame)
    assert (found.num_rows if found is not None else None) == (rows if rows <= 7 else None)
    target = WriteTarget(
        root=tmp_path,
        directory="tables/t/data/runs/r/n/chunk-c/attempt-1",
        schema=TableSchema().added("id", LONG),
        run_id="r",
        ingested_at_us=1,
    )
    written = write_frame(frame, target, is_small=True)
    assert written.rows == rows
    assert all((tmp_path / file.path).exists() for file in written.files)


PLAIN = {
    "b": "bool", "i": "int", "l": "long", "r": "real", "s": "string", "t": "timestamp", "d": "date",
    "m": "decimal(20,3)", "x": "binary", "j": "dynamic", "v": "vector(2)", "a.b`c": "string",
}  # fmt: skip
PLAIN_ROWS = [
    (True, -1, 2**62, float("nan"), "ü\n", 1_700_000_000_123_456_000, -1, Decimal("12345678901234567.125"), b"\0a",
     {"k": [1, None]}, [1.5, -0.0], "q"),
    (None,) * 12,
    (False, 2**31 - 1, -(2**63), -0.0, "", -1000, 2_932_896, Decimal("-0.001"), b"", "text", [0.0, 3e38], ""),
]  # fmt: skip


def shown(models: Models, sql: str) -> tuple[object, list[str], bool]:
    """The columns and rows of a query over `plain`, and whether the table was sent as rows of the plan."""
    code, inputs = SqlCode(sql), models.input("plain")
    with running(models.spark, "out", code, inputs=inputs, freshness_us=1, previous_freshness_us=None) as frame:
        plan = frame._jdf.queryExecution().analyzed().toString()
        columns = [(each.name, each.dataType, each.nullable, each.metadata.get(TYPE_KEY)) for each in frame.schema]
        return columns, sorted(map(repr, frame.collect())), "LocalRelation" in plan


@pytest.mark.parametrize("sql", ["select * from plain", "select count(*) from plain", "select a.* from plain a, plain"])
def test_a_small_table_is_sent_as_spark_would_read_it(
    models: Models, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    models.put("plain", PLAIN, PLAIN_ROWS)
    sent = shown(models, sql)
    monkeypatch.setattr(limits, "SENT_INPUT_ROWS", -1)
    read = shown(models, sql)
    assert (sent[2], read[2]) == (True, False)
    assert sent[:2] == read[:2]


def test_a_table_with_nanoseconds_is_read_by_spark(models: Models) -> None:
    models.put("plain", {"t": "timestamp"}, [(1_000,), (1_001,)])
    assert not shown(models, "select t from plain")[2]


def test_a_query_is_remembered_only_if_it_passed(models: Models) -> None:
    models.put("plain", {"x": "string"}, [("a",)])
    for _ in range(2):
        refused = models.refused("select reflect('java.lang.System', 'getenv', x) from plain", "plain")
        assert refused.code == "HW-R01"
    for sql in ("select x from plain", "select x from plain", "select upper(x) as x from plain"):
        models.sql(sql, "plain")
    assert models.shown("x") == [("A",)]


def test_a_table_with_rows_and_no_columns_keeps_its_count(models: Models) -> None:
    state = models.input("orders")["orders"]
    bare = {"plain": replace(state, state=replace(state.state, name="plain", schema=TableSchema()))}
    code = SqlCode("select count(*) as n from plain")
    with running(models.spark, "out", code, inputs=bare, freshness_us=1, previous_freshness_us=None) as frame:
        assert [row.n for row in frame.collect()] == [10]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
        ("spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.LikeSimplification"),
    ],
)
def test_settings_of_the_manifest_do_not_change_what_is_sent(models: Models, key: str, value: str) -> None:
    models.put("plain", PLAIN, PLAIN_ROWS)
    before = {name: models.spark.conf.get(name, None) for name in (key, DECLARED_KEYS)}
    try:
        models.spark.conf.set(key, value)
        models.spark.conf.set(DECLARED_KEYS, key)
        sent = shown(models, "select * from plain")
    finally:
        for name, old in before.items():
            models.spark.conf.unset(name) if old is None else models.spark.conf.set(name, old)
    assert sent == shown(models, "select * from plain")


def test_a_small_table_beside_a_large_one_is_read_by_spark(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    models.put("plain", {"x": "long"}, [(1,), (0,)])
    monkeypatch.setattr(limits, "SMALL_INPUT_ROWS", 1)
    assert not shown(models, "select x from plain")[2]


def test_a_dropped_column_keeps_its_place_in_both_ways(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    models.put("plain", {"id": "long", "a": "string", "b": "string"}, [(1, "A", "B")])
    given = models.input("plain")["plain"]
    column = given.state.schema.column("a")
    assert column is not None
    schema = given.state.schema.with_column(replace(column, dropped=True))
    inputs = {"plain": replace(given, state=replace(given.state, schema=schema))}
    code = SqlCode("select * from plain")
    for rows in (limits.SENT_INPUT_ROWS, -1):
        monkeypatch.setattr(limits, "SENT_INPUT_ROWS", rows)
        with running(models.spark, "out", code, inputs=inputs, freshness_us=1, previous_freshness_us=None) as frame:
            assert [tuple(row) for row in frame.collect()] == [(1, "A", "B")]


def test_python_code_that_can_cache_never_gets_rows_of_the_plan(models: Models) -> None:
    code = models.code("m.py", "def out(orders):\n    return orders\n")
    given = models.input("orders")
    with running(models.spark, "out", code, inputs=given, freshness_us=1, previous_freshness_us=None) as frame:
        assert "LocalRelation" not in frame._jdf.queryExecution().analyzed().toString()

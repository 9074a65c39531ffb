"""Runs over small inputs: their plans, and results that are brought to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG
from headwater.spark.ripples import TableInput, running
from headwater.spark.small_runs import is_small, small_result
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

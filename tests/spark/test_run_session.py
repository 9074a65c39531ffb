"""Sessions of runs: lent again after SQL that ended well, with nothing of the run left in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.spark import run_session
from headwater.spark.nanoseconds import WITH_REMAINDERS
from headwater.spark.run_session import java_of, new_session, show_as, sql_session
from spark.models import orders_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_is_lent_again_and_shows_no_table_of_the_run_before(spark: SparkSession) -> None:
    with sql_session(spark, small=True) as first:
        show_as(first.range(3).toDF("n"), "numbers")
        WITH_REMAINDERS.add(first)
        assert first.sql("select count(*) from numbers").first() == (3,)
        with sql_session(spark, small=True) as beside, sql_session(spark, small=False) as large:
            assert len({first, beside, large}) == 3, "two runs at once have two sessions, and a large run has its own"
    with sql_session(spark, small=True) as second, sql_session(spark, small=True) as third:
        assert first in (second, third)
        assert not first.catalog.tableExists("numbers")
        assert first not in WITH_REMAINDERS


def test_a_session_whose_run_failed_is_not_lent_again(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), sql_session(spark, small=True) as failed:
        raise ZeroDivisionError
    with sql_session(spark, small=True) as first, sql_session(spark, small=True) as second:
        assert failed not in (first, second)


def test_what_a_run_has_done_is_done_if_spark_ends_right_after_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended:
        def __getattr__(self, name: str) -> object:
            raise ConnectionError

    with sql_session(spark, small=True) as lost:
        monkeypatch.setitem(run_session._found, lost, replace(java_of(lost), catalog=Ended()))
    with sql_session(spark, small=True) as first, sql_session(spark, small=True) as second:
        assert lost not in (first, second)


def test_a_table_that_is_shown_again_has_its_new_rows_and_its_new_columns(spark: SparkSession) -> None:
    session = new_session(spark, small=True)
    for count in (1, 2, 3):
        show_as(session.range(count).toDF("n"), "numbers")
        assert session.sql("select count(*), max(n) from numbers").first() == (count, count - 1)
    show_as(session.range(2).selectExpr("cast(id as string) n", "id m"), "numbers")
    assert [tuple(row) for row in session.sql("select * from numbers").collect()] == [("0", 0), ("1", 1)]


def test_a_model_cannot_read_what_another_model_read_before(tmp_path: Path, spark: SparkSession) -> None:
    with orders_landed(tmp_path, spark) as models:
        models.put("secrets", {"id": "long"}, [(7,)])
        models.sql("select id from secrets", "secrets")
        assert models.shown() == [(7,)]
        assert "secrets" in str(models.refused("select id from secrets", "orders"))

"""The checks of a model's SQL beside Spark itself. `tables_read`: a query can be analysed when exactly those tables are
there, and not without one of them. `checked_sql`: a query that leaves its inputs is refused by Spark's plans alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.base.errors import HeadwaterError
from headwater.spark.sql_functions import ALLOWED_FUNCTIONS, OPERATORS, REFUSED_FUNCTIONS
from headwater.spark.sql_plan import checked_sql
from unit.runtime.sql_cases import sql_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id int, day date, amount double, name string, list array<int>, pair struct<a: int, b: string>"


def misses_a_table(empty: DataFrame, sql: str, tables: list[str]) -> bool:
    """Whether Spark misses a table of the query when only these are there. Any other error is the test's."""
    from pyspark.errors import AnalysisException

    spark = empty.sparkSession
    for table in tables:
        empty.createOrReplaceTempView(table)
    try:
        checked_sql(spark, sql, dict.fromkeys(tables), subject="`out`")
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        return True
    finally:
        for table in tables:
            spark.catalog.dropTempView(table)
    return False


def test_spark_reads_the_tables_that_the_text_was_found_to_read(spark: SparkSession) -> None:
    empty = spark.newSession().createDataFrame([], COLUMNS)
    for case in sql_cases("queries"):
        sql, tables = case["sql"], case["tables"]
        assert not misses_a_table(empty, sql, tables), case["claim"]
        for left_out in tables:
            assert misses_a_table(empty, sql, [table for table in tables if table != left_out]), (
                case["claim"],
                left_out,
            )


def test_no_attack_gets_past_sparks_plans(spark: SparkSession) -> None:
    """The check of the text is left out, and what the attacks ask for is there: a function, a table, files."""
    from pyspark.errors import AnalysisException, ParseException

    session = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "false")
    session.udf.register("my_udf", lambda value: value, "int")
    session.range(1).createOrReplaceGlobalTempView("secrets")
    session.range(1).createOrReplaceTempView("private")
    session.createDataFrame([], COLUMNS).createOrReplaceTempView("orders")
    session.sparkContext.setJobGroup("attacks", "attacks")
    reads_more = [*sql_cases("attacks"), {"claim": "a view that is no input", "sql": "select * from private"}]
    try:
        for case in reads_more:
            with pytest.raises((HeadwaterError, AnalysisException, ParseException)) as caught:
                checked_sql(session, case["sql"], {"orders": None}, subject="`out`")
                pytest.fail(case["claim"])
            if isinstance(caught.value, HeadwaterError):
                assert (caught.value.code, bool(caught.value.hint)) == ("HW-R01", True)
        assert session.sparkContext.statusTracker().getJobIdsForGroup("attacks") == []
        text = checked_sql(session, "select '${env:PATH}' as text", {}, subject="`out`")
        assert [tuple(row) for row in text.collect()] == [("${env:PATH}",)]
    finally:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        session.catalog.dropGlobalTempView("secrets")


def test_every_function_of_spark_is_allowed_or_refused(spark: SparkSession) -> None:
    state = spark.newSession()._jsparkSession.sessionState()
    registries = (state.functionRegistry(), state.tableFunctionRegistry())
    names = {name for registry in registries for name in registry.listFunction().mkString(" ").split()}
    assert names == ALLOWED_FUNCTIONS | OPERATORS | REFUSED_FUNCTIONS.keys()

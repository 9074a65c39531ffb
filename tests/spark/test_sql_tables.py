"""`tables_read` beside Spark itself: a query can be analysed when exactly those tables are there, and not without one
of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        spark.sql(sql).schema  # noqa: B018
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

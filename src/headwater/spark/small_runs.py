"""Plans for small inputs, and small results.

A small run spends most of its time on what helps a large one: code generation, adaptive execution, several tasks for a
shuffle, Python workers that write. A run with small inputs does without them, and its result is brought to the driver
as Arrow. The settings change how a result is computed, never the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.catalog.table_state import TableState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DECLARED_KEYS = "spark.headwater.declared"
"""The setting that names the settings of the manifest: those are never replaced."""
_SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_COMPUTES_EARLY = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""A rule that would compute while it plans, where a run cannot be stopped."""


def is_small(tables: Iterable[TableState]) -> bool:
    """Whether the tables that a run reads are small together."""
    files = [file for table in tables for file in table.files]
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return (
        len(files) <= limits.SMALL_INPUT_FILES and rows <= limits.SMALL_INPUT_ROWS and size <= limits.SMALL_INPUT_BYTES
    )


def plan_for_small(session: SparkSession) -> None:
    """Make a session plan its queries for small inputs; settings of the manifest stay. A small table may be sent to such a
    session as Arrow."""
    declared = session.conf.get(DECLARED_KEYS, "") or ""
    kept = set(declared.split(",")) if declared else set()
    for key, value in _SMALL_CONF.items():
        if key not in kept:
            session.conf.set(key, value)
    others = session.conf.get(_EXCLUDED, "") if _EXCLUDED in kept else ""
    session.conf.set(_EXCLUDED, f"{others},{_COMPUTES_EARLY}" if others else _COMPUTES_EARLY)


def small_result(frame: DataFrame) -> pa.Table | None:
    """All rows of a frame; None if they are too many, or too large for the driver."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        most = frame._jdf.queryExecution().optimizedPlan().maxRows()
        is_bounded = most.isDefined() and most.get() <= limits.SMALL_RESULT_ROWS
        table = (frame if is_bounded else frame.limit(limits.SMALL_RESULT_ROWS + 1)).toArrow()
    except (Py4JJavaError, PySparkException) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise
    return table if table.num_rows <= limits.SMALL_RESULT_ROWS else None

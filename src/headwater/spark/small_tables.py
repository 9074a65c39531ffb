"""A small table as a DataFrame whose rows are in its plan: they are read here and sent to Spark as Arrow.

That takes a third of the time of a scan. The frame has the columns and values that `frames.py` and `ripples.py` would
show. It is made only if that is simple: no column needs a conversion between two schemas, no row has to be ranked, and
every time has whole microseconds. Everything else is read by Spark. Such frames are for SQL only: two of them with the
same rows are equal to Spark's cache, which all runs share, and only Python code can use the cache.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.table_schema import Column, TableSchema
from headwater.catalog.table_state import TableState
from headwater.duck.table_select import column_names
from headwater.spark.frame_schema import column_metadata
from headwater.spark.frames import is_ranked, spark_type
from headwater.spark.run_session import java_of
from headwater.storage.part_writer import stored_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_FIELD_ID = b"PARQUET:field_id"


def small_frame(session: SparkSession, root: Path, state: TableState) -> DataFrame | None:
    """The table's own columns; None if Spark has to read its files."""
    import pyarrow as pa
    from pyspark.sql import DataFrame

    rows, size = sum(file.rows for file in state.files), sum(file.bytes for file in state.files)
    if rows > limits.SENT_INPUT_ROWS or size > limits.SENT_INPUT_BYTES or is_ranked(state) or not _is_plain(state):
        return None
    java = java_of(session)
    shown, arrow = _shown(state.schema, java.large_types)
    batches = _batches(root, state, arrow)
    if batches is None:
        return None
    whole = pa.concat_batches([pa.RecordBatch.from_pylist([], arrow), *batches])
    sent = java.iterator.single(bytearray(whole.serialize()))
    return DataFrame(java.utils.toDataFrame(sent, shown, session._jsparkSession), session)


def _is_plain(state: TableState) -> bool:
    """Whether every file holds the columns of the table as they are shown, or lacks them."""
    written = [state.schemas[schema_id] for schema_id in {file.schema_id for file in state.files}]
    columns = state.schema.columns
    return bool(columns) and all(_is_plain_in(column, schema) for column in columns for schema in written)


def _is_plain_in(column: Column, written: TableSchema) -> bool:
    old = written.by_id(column.id)
    same = column.default is None if old is None else old.type == column.type
    return same and column.type.kind not in ("list", "struct") and column.source_in(written) is None


def _batches(root: Path, state: TableState, schema: pa.Schema) -> list[pa.RecordBatch] | None:
    """The rows, in the form that Spark takes; None if they are too large, or a time has nanoseconds."""
    import pyarrow as pa

    ids, found, size = [column.id for column in state.schema.columns], [], 0
    for batch in chain.from_iterable(
        stored_rows(root, file, batch_rows=limits.SENT_BATCH_ROWS) for file in state.files
    ):
        by_id = {
            int((field.metadata or {}).get(_FIELD_ID, -1)): batch.column(i) for i, field in enumerate(batch.schema)
        }
        try:
            columns = [_sent(by_id.get(id_), field.type, batch.num_rows) for id_, field in zip(ids, schema)]
        except pa.ArrowInvalid:  # a time with nanoseconds
            return None
        found.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        size += found[-1].nbytes
        if size > limits.SENT_INPUT_BYTES:
            return None
    return found


def _sent(values: pa.Array | None, type_: pa.DataType, rows: int) -> pa.Array:
    import pyarrow as pa

    if values is None:
        return pa.nulls(rows, type_)
    return (values.storage if isinstance(values, pa.ExtensionArray) else values).cast(type_)


@lru_cache(limits.CHECKED_QUERIES)
def _shown(schema: TableSchema, large_types: bool) -> tuple[str, pa.Schema]:
    """The columns as Spark has them, in its JSON, and as Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    names, _ = column_names(schema)
    fields = [
        StructField(names[column.id], spark_type(column.type), metadata=column_metadata(column.type))
        for column in schema.columns
    ]
    struct = StructType(fields)
    return struct.json(), to_arrow_schema(struct, prefers_large_types=large_types)

"""A table at a cut as a DataFrame: the same rows and columns that the store's views show.

Files are read in groups of one schema, each with exactly the schema it was written with (a wider read schema would
give wrong values without a word), converted column by column, and united. Times are nanoseconds in the files:
Spark reads them as bigint, and shows microseconds under the name and the exact value as `<name>_ns`.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base.schema import Column, TableSchema
from headwater.base.types import Type
from headwater.store.state import LiveFile, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SYSTEM = "`_run_id` string, `_ingested_at` timestamp, `_content_hash` binary, `_source_id` string"


def table_frame(spark: SparkSession, root: Path, state: TableState) -> DataFrame:
    """All rows of the table at its cut; in an upsert table the last write of each key."""
    from pyspark.sql import functions as F

    if not state.files:
        return spark.createDataFrame([], _shown_schema(state.schema))
    groups = [
        _group_frame(spark, root, state, schema_id, list(files))
        for schema_id, files in groupby(sorted(state.files, key=_by_schema), key=lambda file: file.schema_id)
    ]
    frame = groups[0]
    for other in groups[1:]:
        frame = frame.unionByName(other)
    if state.mode == "upsert":
        keys = ", ".join(_quote(name) for name in state.schema.primary_key)
        order = "`_commit_seq` desc, `_hw_ordinal` desc, `_hw_row` desc"
        frame = frame.withColumn("_hw_rank", F.expr(f"row_number() over (partition by {keys} order by {order})"))
        frame = frame.where("`_hw_rank` = 1").drop("_hw_rank")
    return frame.drop("_hw_ordinal", "_hw_row")


def _by_schema(file: LiveFile) -> tuple[int, int, int]:
    return file.schema_id, file.added_seq, file.ordinal


def _group_frame(
    spark: SparkSession, root: Path, state: TableState, schema_id: int, files: list[LiveFile]
) -> DataFrame:
    from pyspark.sql import functions as F

    written = state.schemas[schema_id]
    merged = any(file.merged for file in files)
    columns = [f"{_quote(c.name)} {_file_type(c.type)}" for c in written.columns]
    schema = ", ".join([*columns, _SYSTEM, *(["`_commit_seq` bigint"] if merged else [])])
    paths = [str(root / file.path) for file in files]
    raw = spark.read.schema(schema).parquet(*paths)
    prefix = root.resolve().as_uri().replace("///", "/", 1)
    place = F.expr(f"substr(replace(`_metadata`.`file_path`, '///', '/'), {len(prefix) + 2})")
    raw = raw.withColumn("_hw_path", place).withColumn("_hw_row", F.expr("`_metadata`.`row_index`"))
    order = spark.createDataFrame(
        [(file.path, file.added_seq, file.ordinal) for file in files],
        "`_hw_path` string, `_hw_seq` bigint, `_hw_ordinal` int",
    )
    raw = raw.join(F.broadcast(order), "_hw_path")
    seq = "coalesce(`_commit_seq`, `_hw_seq`)" if merged else "`_hw_seq`"
    shown: list[str] = []
    for column in state.schema.columns:
        shown += _shown_columns(column, written)
    system = ["`_run_id`", "`_ingested_at`", "`_content_hash`", "`_source_id`", f"{seq} as `_commit_seq`"]
    return raw.selectExpr(*shown, *system, "`_hw_ordinal`", "`_hw_row`")


def _shown_columns(column: Column, written: TableSchema) -> list[str]:
    """The expressions that show one column of the table from files of the schema `written`."""
    old = written.by_id(column.id)
    name = _quote(column.name)
    if old is None:
        value = _literal(column.default, column.type)
    else:
        value = _converted(_quote(old.name), old.type, column.type)
    if column.type.kind == "timestamp":
        return [f"timestamp_micros({_floor_micros(value)}) as {name}", f"{value} as {_quote(column.name + '_ns')}"]
    return [f"{_as_shown(value, column.type)} as {name}"]


def _converted(value: str, old: Type, new: Type) -> str:
    """A value of a file's type as the file form of the table's type (a timestamp is its nanoseconds)."""
    if old == new:
        return value
    match old.kind, new.kind:
        case "date", "timestamp":
            return f"(unix_date({value}) * 86400000000000)"
        case "timestamp", "date":
            return f"date_from_unix_date(cast(floor({value} / 86400000000000) as int))"
        case "timestamp", "string":
            return f"cast(timestamp_micros({_floor_micros(value)}) as string)"
        case (("list" | "struct" | "vector"), "string"):
            return f"to_json({value})"
        case "binary", "string":
            return f"base64({value})"
        case _:
            return f"try_cast({value} as {_file_type(new)})"


def _as_shown(value: str, type_: Type) -> str:
    """Nested times become Spark timestamps; everything else is shown as it is."""
    if not _has_time(type_):
        return value
    match type_.kind:
        case "timestamp":
            return f"timestamp_micros({_floor_micros(value)})"
        case "list":
            return f"transform({value}, x -> {_as_shown('x', type_.fields[0][1])})"
        case "struct":
            parts = [f"'{n}', {_as_shown(f'{value}.{_quote(n)}', part)}" for n, part in type_.fields]
            return f"if({value} is null, null, named_struct({', '.join(parts)}))"
        case kind:
            raise AssertionError(kind)


def _floor_micros(nanos: str) -> str:
    """Floor, not truncation: a time before 1970 must not move forward."""
    return f"(({nanos} div 1000) - if({nanos} % 1000 < 0, 1, 0))"


def _has_time(type_: Type) -> bool:
    return type_.kind == "timestamp" or any(_has_time(part) for _, part in type_.fields)


def _literal(default: str | None, type_: Type) -> str:
    if default is None:
        return f"cast(null as {_file_type(type_)})"
    value = json.loads(default)
    text = (
        "'" + (value if isinstance(value, str) else json.dumps(value)).replace("\\", "\\\\").replace("'", "\\'") + "'"
    )
    match type_.kind:
        case "timestamp" if isinstance(value, str):
            return f"(unix_micros(cast({text} as timestamp)) * 1000)"
        case "list" | "struct" | "vector":
            return f"from_json({text}, '{_file_type(type_)}')"
        case _:
            return f"cast({text} as {_file_type(type_)})"


def _shown_schema(schema: TableSchema) -> str:
    parts: list[str] = []
    for column in schema.columns:
        shown = _file_type(column.type, times="timestamp")
        parts.append(f"{_quote(column.name)} {shown}")
        if column.type.kind == "timestamp":
            parts.append(f"{_quote(column.name + '_ns')} bigint")
    return ", ".join([*parts, _SYSTEM, "`_commit_seq` bigint"])


def _file_type(type_: Type, *, times: str = "bigint") -> str:
    """Spark's name for a type as the files hold it."""
    match type_.kind:
        case "bool":
            return "boolean"
        case "int" | "string" | "date" | "binary":
            return type_.kind
        case "long":
            return "bigint"
        case "real":
            return "double"
        case "timestamp":
            return times
        case "dynamic":
            return "string"
        case "decimal":
            return f"decimal({type_.numbers[0]},{type_.numbers[1]})"
        case "vector":
            return "array<float>"
        case "list":
            return f"array<{_file_type(type_.fields[0][1], times=times)}>"
        case "struct":
            return f"struct<{', '.join(f'{_quote(n)}: {_file_type(p, times=times)}' for n, p in type_.fields)}>"
        case kind:
            raise AssertionError(kind)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

"""A table at a cut as a DataFrame: the same rows and columns that the store's views show.

Files are read in groups of one schema, by their columns' permanent ids, with exactly the types they were written with
(a wider read schema would silently give wrong values); then they are converted column by column, and united. Times are
nanoseconds in the files: Spark reads them as bigint, and shows microseconds under the name and the exact value as
`<name>_ns`. If a user has accepted that reals or nested values become texts, these have Spark's own form.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.base.table_schema import Column, TableSchema
from headwater.base.types import Type, converts
from headwater.catalog.table_state import TableState
from headwater.duck.duck_types import default_value
from headwater.duck.table_select import column_names
from headwater.spark.promoted import promoted_value
from headwater.storage.file_record import LiveFile
from headwater.storage.system_columns import COMMIT_SEQ, CONTENT_HASH, INGESTED_AT, RUN_ID, SOURCE_ID, SOURCE_POS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_SYSTEM_TYPES = {
    RUN_ID: "string",
    INGESTED_AT: "timestamp",
    CONTENT_HASH: "binary",
    SOURCE_ID: "string",
    COMMIT_SEQ: "bigint",
}
_TIME = "timestamp_ltz"
"""What `timestamp` means can be set; this cannot."""
_BETWEEN = "\x1f"
_NS_PER_DAY = 86_400_000_000_000
_NS_PER_SECOND = 1_000_000_000


def table_frame(spark: SparkSession, root: Path, state: TableState, *, commit_seq: bool = True) -> DataFrame:
    """All rows of the table at its cut; in an upsert table the last write of each key. Without `commit_seq` that column
    is left out: then a row's file is looked up only to find the last write, which halves the time for a small table."""
    if not state.files:
        frame = spark.createDataFrame([], _shown_schema(state.schema))
        return frame if commit_seq else frame.drop(COMMIT_SEQ.name)
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    ranked = is_ranked(state)
    groups = [
        _group_frame(spark, root.absolute(), state, schema_id, list(files), placed=ranked or commit_seq)
        for schema_id, files in groupby(sorted(state.files, key=_by_schema), key=lambda file: file.schema_id)
    ]
    frame = groups[0]
    for other in groups[1:]:
        frame = frame.union(other)
    if ranked:
        frame = _last_writes(frame, state.schema)
    elif not commit_seq:
        return frame
    return frame.drop("_hw_ordinal", "_hw_row", *([] if commit_seq else [COMMIT_SEQ.name]))


def is_ranked(state: TableState) -> bool:
    """Whether several rows of a key may be in the table's files."""
    return state.mode == "upsert" and bool(state.schema.primary_key) and not all(file.level for file in state.files)


def _last_writes(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """For each key the row that was written last; times are compared by their nanoseconds."""
    from pyspark.sql import functions as F

    names, exacts = column_names(schema)
    ids = [column.id for name in schema.primary_key if (column := schema.column(name)) is not None]
    keys = ", ".join(_quote(exacts.get(id_, names[id_])) for id_ in ids)
    order = "`_commit_seq` desc, `_hw_ordinal` desc, `_hw_row` desc"
    ranked = frame.withColumn("_hw_rank", F.expr(f"row_number() over (partition by {keys} order by {order})"))
    return ranked.where("`_hw_rank` = 1").drop("_hw_rank")


def _by_schema(file: LiveFile) -> tuple[int, int, int]:
    return file.schema_id, file.added_seq, file.ordinal


def _group_frame(
    spark: SparkSession, root: Path, state: TableState, schema_id: int, files: list[LiveFile], *, placed: bool
) -> DataFrame:
    """The rows of files of one schema; with `placed` also their order: commit, file of the commit, row of the file."""
    written = state.schemas[schema_id]
    merged = any(file.merged for file in files)
    reader = spark.read.schema(_read_schema(written, merged=merged))
    # Spark's sessions share one cache, keyed by equal plans: with this option plans of two sessions are never equal.
    reader = reader.option("headwater.session", spark._jsparkSession.sessionUUID())
    raw = reader.parquet(*[str(root / file.path) for file in files])
    system = [_quote(column.name) for column in _SYSTEM_TYPES if column is not COMMIT_SEQ]
    shown = [*_shown_columns(state.schema, written), *system]
    if placed:
        raw = _with_places(spark, raw, root, files)
    raw = _with_promoted(raw, state.schema, written)
    if placed:
        seq = "coalesce(`_commit_seq`, `_hw_seq`)" if merged else "`_hw_seq`"
        shown.append(f"{seq} as `_commit_seq`")
    shown += [*_position(state), *(["`_hw_ordinal`", "`_hw_row`"] if placed else [])]
    return select_expressions(raw, shown)


def select_expressions(frame: DataFrame, expressions: list[str]) -> DataFrame:
    """`frame.selectExpr(*expressions)` in two calls to the JVM; PySpark's own makes several for each expression."""
    from pyspark.sql import DataFrame

    if any(_BETWEEN in each for each in expressions):
        return frame.selectExpr(*expressions)
    split = _splitter(frame.sparkSession._jvm)
    return DataFrame(frame._jdf.selectExpr(split(_BETWEEN.join(expressions), _BETWEEN)), frame.sparkSession)


@cache
def _splitter(jvm: Any) -> Any:
    return jvm.org.apache.commons.lang3.StringUtils.splitByWholeSeparator


def _with_places(spark: SparkSession, raw: DataFrame, root: Path, files: list[LiveFile]) -> DataFrame:
    """Each row with what the catalog knows of its file."""
    from pyspark.sql import functions as F

    raw = raw.withColumn("_hw_row", F.expr("`_metadata`.`row_index`"))
    if len(files) == 1:
        (file,) = files
        seq = F.lit(file.added_seq).cast("bigint")
        return raw.withColumn("_hw_seq", seq).withColumn("_hw_ordinal", F.lit(file.ordinal).cast("int"))
    # Spark gives a file's path as a URI, with its own encoding; the catalog's path is its last parts.
    parts = "split(regexp_replace(`_metadata`.`file_path`, '^file:/+', '/'), '/')"
    place = F.expr(f"array_join(slice({parts}, {len(root.parts) + 1}, size({parts})), '/')")
    order = spark.createDataFrame(
        [(file.path, file.added_seq, file.ordinal) for file in files],
        "`_hw_path` string, `_hw_seq` bigint, `_hw_ordinal` int",
    )
    return raw.withColumn("_hw_path", place).join(F.broadcast(order), "_hw_path")


def _with_promoted(raw: DataFrame, schema: TableSchema, written: TableSchema) -> DataFrame:
    """Adds the value of each promoted column inside its `dynamic` one, beside what is stored. Spark computes only
    columns that are read."""
    from pyspark.sql import functions as F

    for column in schema.columns:
        source = column.source_in(written)
        if source is not None and column.promoted is not None:
            found = promoted_value(column.promoted.steps, column.type, _file_type(column.type))
            raw = raw.withColumn(_promoted_name(column), found(F.col(_raw_name(source))))
    return raw


def _read_schema(written: TableSchema, *, merged: bool) -> StructType:
    """What the files hold, under names that are made from ids alone: a rename, a reused name, or two names that differ
    only in case cannot mislead a reader."""
    from pyspark.sql.types import StructField, StructType

    fields = [(column.id, _raw_name(column), _file_type(column.type)) for column in written.columns]
    fields += [(c.id, c.name, type_) for c, type_ in _SYSTEM_TYPES.items() if merged or c is not COMMIT_SEQ]
    fields.append((SOURCE_POS.id, SOURCE_POS.name, "bigint"))  # null where a file has no such column
    return StructType(
        [StructField(name, _parsed(type_), metadata={"parquet.field.id": id_}) for id_, name, type_ in fields]
    )


def spark_type(type_: Type) -> DataType:
    """The type that a column shows; without the type of its table for `dynamic` and `vector`."""
    return _parsed(_file_type(type_, times=_TIME))


@cache
def _parsed(type_: str) -> DataType:
    from pyspark.sql.types import DataType

    return DataType.fromDDL(type_)


def _raw_name(column: Column) -> str:
    return f"c{column.id}"


def _promoted_name(column: Column) -> str:
    return f"p{column.id}"


def _shown_columns(schema: TableSchema, written: TableSchema) -> list[str]:
    """The expressions that show the columns of the table from files of the schema `written`: all columns, then the
    exact nanoseconds of the times."""
    names, exacts = column_names(schema)
    columns, nanos = [], []
    for column in schema.columns:
        old = written.by_id(column.id)
        value = _default(column) if old is None else _converted(_raw_name(old), old.type, column.type)
        if column.source_in(written) is not None:
            # A row's own value comes first; a default, which no row wrote, last.
            both = [value, _promoted_name(column)] if old is not None else [_promoted_name(column), value]
            value = f"coalesce({', '.join(both)})"
        columns.append(f"{_as_shown(value, column.type)} as {_quote(names[column.id])}")
        if column.id in exacts:
            nanos.append(f"{value} as {_quote(exacts[column.id])}")
    return [*columns, *nanos]


def _converted(value: str, old: Type, new: Type) -> str:
    """A value of a file's type in the file form of the table's type (a timestamp is its nanoseconds). Numbers are
    rounded as DuckDB rounds them; a value that cannot be converted is null."""
    if old == new:
        return value
    if not converts(old, new):
        return f"cast(null as {_file_type(new)})"
    match old.kind, new.kind:
        case "date", "timestamp":
            return f"(unix_date({value}) * {_NS_PER_DAY})"
        case "timestamp", "date":
            return f"date_from_unix_date(cast(({value} - pmod({value}, {_NS_PER_DAY})) div {_NS_PER_DAY} as int))"
        case "timestamp", "string":
            second = f"timestamp_seconds(({value} - pmod({value}, {_NS_PER_SECOND})) div {_NS_PER_SECOND})"
            rest = f"lpad(cast(pmod({value}, {_NS_PER_SECOND}) as string), 9, '0')"
            return f"concat(date_format({second}, \"yyyy-MM-dd'T'HH:mm:ss\"), '.', {rest}, 'Z')"
        case (("list" | "struct" | "vector"), "string"):
            return f"to_json({_as_shown(value, old)}, map('ignoreNullFields', 'false'))"
        case "binary", "string":
            return _bytes_as_text(value)
        case "real", ("int" | "long"):
            return f"try_cast(rint({value}) as {_file_type(new)})"
        case "decimal", ("int" | "long"):
            return f"try_cast(round({value}) as {_file_type(new)})"
        case _:
            return f"try_cast({value} as {_file_type(new)})"


def _bytes_as_text(value: str) -> str:
    """As DuckDB writes a BLOB: printable characters as they are, every other byte as `\\xFF`."""
    byte = f"substr({value}, i, 1)"
    plain = f"hex({byte}) between '20' and '7E' and hex({byte}) not in ('22', '27', '5C')"
    shown = f"if({plain}, cast({byte} as string), concat('\\\\x', hex({byte})))"
    text = f"array_join(transform(sequence(1, octet_length({value})), i -> {shown}), '')"
    return f"if(octet_length({value}) = 0, '', {text})"


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


def _default(column: Column) -> str:
    """The value for rows older than the column, in the file form of its type."""
    if column.default is None:
        return f"cast(null as {_file_type(column.type)})"
    _, ns = default_value(column)
    if ns is not None:
        return f"cast({ns} as bigint)"
    value = json.loads(column.default)
    text = value if isinstance(value, str) and column.type.kind != "dynamic" else column.default
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if column.type.kind in ("list", "struct", "vector"):
        return f"from_json({quoted}, '{_file_type(column.type)}')"
    return f"cast({quoted} as {_file_type(column.type)})"


def further_columns(state: TableState) -> list[str]:
    """The columns of `table_frame` beyond the table's own: exact nanoseconds, and Headwater's."""
    return [*column_names(state.schema)[1].values(), *[column.name for column in _SYSTEM_TYPES], *_position(state)]


def _position(state: TableState) -> list[str]:
    return [SOURCE_POS.name] if any(file.positions for file in state.files) else []


def _shown_schema(schema: TableSchema) -> str:
    names, exacts = column_names(schema)
    parts = [f"{_quote(names[c.id])} {_file_type(c.type, times=_TIME)}" for c in schema.columns]
    parts += [f"{_quote(name)} bigint" for name in exacts.values()]
    parts += [f"{_quote(column.name)} {type_}" for column, type_ in _SYSTEM_TYPES.items()]
    return ", ".join(parts)


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

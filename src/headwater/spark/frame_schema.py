"""A DataFrame in the form for schema evolution and the one writer: its columns in Headwater's types.

| Spark                                  | here                                                              |
|----------------------------------------|-------------------------------------------------------------------|
| boolean, date, string, binary          | bool, date, string, binary                                        |
| byte, short, int / long                | int / long                                                        |
| float, double                          | real                                                              |
| decimal(p,s)                           | decimal(p,s)                                                      |
| timestamp, timestamp_ntz               | timestamp: Spark's microseconds; without a zone they are UTC      |
| array, struct                          | list, struct                                                      |
| map, variant, or anything with one     | dynamic: its JSON                                                 |
| void                                   | what the column is in the table or the manifest, else string      |
| an input's `dynamic` or `vector(n)`    | the same, if the column is passed on unchanged                    |
| interval, time, user-defined types     | refused: HW-S03                                                   |

Spark computes with microseconds. A time that is passed on unchanged keeps its nanoseconds (`carried_times.py`). The
exact nanoseconds of an input are its `<name>_ns`; a column that the manifest declares as `timestamp` takes such a bigint
as nanoseconds. A text that is declared `dynamic` must be JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_column_name, is_reserved_column
from headwater.base.types import (
    BINARY,
    BOOL,
    DATE,
    DYNAMIC,
    INT,
    LONG,
    REAL,
    STRING,
    TIMESTAMP,
    Type,
    decimal,
    list_of,
    parse_type,
    struct_of,
)
from headwater.coerce.at_path import is_json
from headwater.spark.arrow_function import arrow_function
from headwater.spark.nanoseconds import REMAINDER

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

TYPE_KEY = "headwater_type"
"""Spark passes a column's metadata on with the column: this key has its type in its table."""
_REFUSED = "headwater refuses"
"""The beginning of the message of a job that was stopped because its rows cannot be landed."""

_SIMPLE = {
    "boolean": BOOL,
    "byte": INT,
    "short": INT,
    "integer": INT,
    "long": LONG,
    "float": REAL,
    "double": REAL,
    "string": STRING,
    "char": STRING,
    "varchar": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP,
    "variant": DYNAMIC,
}
_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def frame_columns(schema: StructType, *, subject: str, known: Mapping[str, Type]) -> dict[str, Type]:
    """The columns of a result, in its order. `known` are the types that its columns have in the table or the manifest,
    for columns that are all null. Raises HW-S03 for names and types that cannot be landed."""
    _check_names([field.name for field in schema.fields], subject)
    return {field.name: _column_type(field, subject, known) for field in schema.fields}


def landing_frame(frame: DataFrame, types: Mapping[str, Type], *, unique_key: tuple[str, ...] = ()) -> DataFrame:
    """The same rows in the form that the writer takes for columns of these types: JSON as text, the rest as it is. The
    remainders of times (`exact_frame`) are kept. The job that computes it fails with a message for `refusal_in` if a
    text of a `dynamic` column is not JSON, or if two rows have the same `unique_key`."""
    from pyspark.sql import functions as F

    shown = [field for field in frame.schema.fields if not field.name.startswith(REMAINDER)]
    remainders = [REMAINDER + field.name for field in shown if types[field.name] == TIMESTAMP]
    remainders = [name for name in remainders if name in frame.columns]
    made = {field.name: column for field in shown if (column := _landing_column(field, types[field.name])) is not None}
    if unique_key:
        first = made.get(unique_key[0], F.col(quoted(unique_key[0])))
        key = (*unique_key, *[name for name in remainders if name.removeprefix(REMAINDER) in unique_key])
        made[unique_key[0]] = _once(first, key, shown=unique_key)
    names = [*[field.name for field in shown], *remainders]
    if not made and names == frame.columns:
        return frame  # saves a call to the JVM, which matters for a small run
    return frame.select(*[made.get(name, F.col(quoted(name))).alias(name) for name in names])


def refusal_in(message: str) -> tuple[str, str] | None:
    """The problem of the rows and a hint, if a job was stopped because of them."""
    if not message.startswith(_REFUSED):
        return None
    text, hint = json.loads(message.removeprefix(_REFUSED))
    return text, hint


def column_metadata(type_: Type) -> dict[str, str]:
    """Metadata for an input's column whose type Spark's own type does not determine."""
    return {TYPE_KEY: str(type_)} if type_.kind in ("dynamic", "vector") else {}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check_names(names: list[str], subject: str) -> None:
    if not names:
        raise HeadwaterError("HW-S03", f"the result of `{subject}` has no columns", hint="select at least one")
    seen: dict[str, str] = {}
    for name in names:
        if is_reserved_column(name):
            hint = f"give it another name (`{name} AS ...`), or leave it out: `SELECT * EXCEPT ({name})`"
            message = f"the result of `{subject}` has a column `{name}`, a name that Headwater keeps for itself"
            raise HeadwaterError("HW-S03", message, hint=hint)
        if not is_column_name(name):
            message = f"the result of `{subject}` has a column whose name cannot be landed: {name!r}"
            raise HeadwaterError("HW-S03", message, hint="names are printable and at most 255 bytes long")
        first = seen.get(name.lower())
        seen[name.lower()] = name
        if first is not None:
            what = f"`{name}` twice" if first == name else f"`{first}` and `{name}`, which differ only in case"
            message = f"the result of `{subject}` has the columns {what}"
            raise HeadwaterError("HW-S03", message, hint="name one of them differently, or leave it out")


def _column_type(field: StructField, subject: str, known: Mapping[str, Type]) -> Type:
    if field.dataType.typeName() == "void":
        return known.get(field.name, STRING)
    carried = _carried(field)
    if carried is not None:
        return carried
    try:
        return _type_of(field.dataType)
    except _NoType as error:
        raise HeadwaterError(
            "HW-S03",
            f"column `{field.name}` of `{subject}` has Spark's type `{error}`, which no column here can have",
            hint=f"cast it, for instance `CAST({field.name} AS STRING) AS {field.name}`",
        ) from None


def _carried(field: StructField) -> Type | None:
    """The type that a column has from an input, if it still has that form."""
    text = (field.metadata or {}).get(TYPE_KEY)
    if not isinstance(text, str):
        return None
    type_ = parse_type(text)
    form = "string" if type_ == DYNAMIC else "array<float>"
    return type_ if field.dataType.simpleString() == form else None


class _NoType(Exception):
    """Headwater has no type for one of Spark's."""


def _type_of(spark_type: DataType) -> Type:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType, UserDefinedType

    if _needs_json(spark_type):
        return DYNAMIC
    match spark_type:
        case DecimalType():
            return decimal(spark_type.precision, spark_type.scale)
        case ArrayType():
            return list_of(_type_of(spark_type.elementType))
        case StructType():
            names = [part.name for part in spark_type.fields]
            if not names or len(set(names)) < len(names):
                raise _NoType(spark_type.simpleString())
            return struct_of(tuple((part.name, _type_of(part.dataType)) for part in spark_type.fields))
        case MapType():
            return DYNAMIC
        case UserDefinedType():
            raise _NoType(spark_type.simpleString())
    if spark_type.typeName() == "void":
        return STRING
    try:
        return _SIMPLE[spark_type.typeName()]
    except KeyError:
        raise _NoType(spark_type.simpleString()) from None


def _needs_json(spark_type: DataType) -> bool:
    """True if only JSON can hold it: a map or a variant, or something that contains one."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    match spark_type:
        case MapType() | VariantType():
            return True
        case ArrayType():
            return _needs_json(spark_type.elementType)
        case StructType():
            return any(_needs_json(part.dataType) for part in spark_type.fields)
        case _:
            return False


def _landing_column(field: StructField, type_: Type) -> Column | None:
    """A column in the form that the writer takes; None if it already has that form."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if type_ == DYNAMIC:
        column = F.col(quoted(field.name))
        match field.dataType:
            case ArrayType() | MapType() | StructType() | VariantType():
                return F.to_json(column, _JSON_OPTIONS)
            case _ if field.dataType.typeName() in ("string", "char", "varchar"):
                text = f"a text of column `{field.name}` is not JSON, and the column is `dynamic`"
                return _unless(
                    _no_json()(column), column, text, "make it with `to_json(...)`, or declare the column as `string`"
                )
    return None


def _no_json() -> Callable[[Column], Column]:
    """Whether a text is not JSON, by the rule for pushed rows. Spark's own rule would accept texts that DuckDB cannot
    read, and refuse a pushed object that has a key twice."""
    import pyarrow as pa

    def wrong(texts: pa.Array) -> pa.Array:
        return pa.array([text is not None and not is_json(text) for text in texts.to_pylist()], pa.bool_())

    return arrow_function(wrong, "boolean")


def _once(column: Column, key: tuple[str, ...], *, shown: tuple[str, ...]) -> Column:
    """A column of the key that stops the job if a key appears twice. The writer refuses rows without a key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    parts = [F.col(quoted(name)) for name in key]
    twice = F.count(F.lit(1)).over(Window.partitionBy(*parts)) > 1
    for part in parts:
        twice = twice & part.isNotNull()
    text = f"several rows have the same primary key ({', '.join(shown)})"
    hint = f"keep one row of each: `row_number() OVER (PARTITION BY {', '.join(shown)} ORDER BY ...) = 1`"
    return _unless(twice, column, text, hint)


def _unless(wrong: Column, column: Column, text: str, hint: str) -> Column:
    from pyspark.sql import functions as F

    return F.when(wrong, F.raise_error(F.lit(_REFUSED + json.dumps([text, hint])))).otherwise(column)

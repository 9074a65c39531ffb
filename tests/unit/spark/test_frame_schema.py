"""Spark's types as the house's: without a JVM."""

from __future__ import annotations

import pytest
from pyspark.sql import types as st

from headwater.base.errors import HeadwaterError
from headwater.base.types import Type, parse_type
from headwater.spark.frame_schema import TYPE_KEY, column_metadata, frame_columns, refusal_in

TYPES = [
    (st.BooleanType(), "bool"),
    (st.ByteType(), "int"),
    (st.ShortType(), "int"),
    (st.IntegerType(), "int"),
    (st.LongType(), "long"),
    (st.FloatType(), "real"),
    (st.DoubleType(), "real"),
    (st.StringType(), "string"),
    (st.StringType("UTF8_LCASE"), "string"),
    (st.CharType(3), "string"),
    (st.VarcharType(3), "string"),
    (st.BinaryType(), "binary"),
    (st.DateType(), "date"),
    (st.TimestampType(), "timestamp"),
    (st.TimestampNTZType(), "timestamp"),
    (st.DecimalType(38, 10), "decimal(38,10)"),
    (st.ArrayType(st.ShortType()), "list<int>"),
    (st.ArrayType(st.ArrayType(st.TimestampType())), "list<list<timestamp>>"),
    (
        st.StructType([st.StructField("a b", st.FloatType()), st.StructField("c", st.DateType())]),
        'struct<"a b":real,c:date>',
    ),
    (st.StructType([st.StructField("nothing", st.NullType())]), "struct<nothing:string>"),
    (st.MapType(st.StringType(), st.LongType()), "dynamic"),
    (st.VariantType(), "dynamic"),
    (st.ArrayType(st.MapType(st.StringType(), st.LongType())), "dynamic"),
    (st.StructType([st.StructField("v", st.VariantType())]), "dynamic"),
]
NO_TYPES = [
    st.DayTimeIntervalType(),
    st.YearMonthIntervalType(),
    st.CalendarIntervalType(),
    st.TimeType(),
    st.StructType([]),
    st.StructType([st.StructField("a", st.LongType()), st.StructField("a", st.LongType())]),
    st.ArrayType(st.DayTimeIntervalType()),
]


def columns(*fields: st.StructField, known: dict[str, Type] | None = None) -> dict[str, str]:
    found = frame_columns(st.StructType(list(fields)), subject="out", known=known or {})
    return {name: str(type_) for name, type_ in found.items()}


@pytest.mark.parametrize(("spark_type", "type_"), TYPES, ids=lambda value: str(value))
def test_a_type_of_spark_is_one_of_ours(spark_type: st.DataType, type_: str) -> None:
    assert columns(st.StructField("x", spark_type)) == {"x": type_}


@pytest.mark.parametrize("spark_type", NO_TYPES, ids=lambda value: value.simpleString())
def test_a_type_that_no_column_can_have_is_refused_with_its_column(spark_type: st.DataType) -> None:
    with pytest.raises(HeadwaterError, match="column `x` of `out`") as caught:
        columns(st.StructField("x", spark_type))
    assert caught.value.code == "HW-S03"
    assert "CAST(x AS STRING)" in caught.value.hint


def test_a_column_of_nulls_is_what_it_is_in_the_table_else_a_string() -> None:
    void = st.StructField("x", st.NullType())
    assert columns(void) == {"x": "string"}
    assert columns(void, known={"x": parse_type("decimal(9,2)")}) == {"x": "decimal(9,2)"}


@pytest.mark.parametrize(("type_", "form"), [("dynamic", st.StringType()), ("vector(3)", st.ArrayType(st.FloatType()))])
def test_a_column_that_comes_through_keeps_the_type_that_spark_does_not_know(type_: str, form: st.DataType) -> None:
    metadata = column_metadata(parse_type(type_))
    assert columns(st.StructField("x", form, metadata=metadata)) == {"x": type_}
    assert columns(st.StructField("x", st.LongType(), metadata=metadata)) == {"x": "long"}


def test_types_that_spark_knows_are_not_carried_along() -> None:
    assert [column_metadata(parse_type(type_)) for type_ in ("long", "timestamp", "list<dynamic>")] == [{}, {}, {}]
    assert TYPE_KEY in column_metadata(parse_type("dynamic"))


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        ((), "has no columns", "select at least one"),
        (("a", "a"), "the columns `a` twice", "name one of them differently"),
        (("Day", "day"), "`Day` and `day`, which differ only in case", "name one of them differently"),
        (("id", "_commit_seq"), "a column `_commit_seq`", "`SELECT * EXCEPT (_commit_seq)`"),
        (("_hw_x",), "a column `_hw_x`", "another name"),
        (("a\nb",), "'a\\\\nb'", "printable"),
        (("é" * 128,), "cannot be landed", "255 bytes"),
    ],
)
def test_names_that_cannot_be_landed_are_refused(names: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(HeadwaterError, match=message) as caught:
        columns(*[st.StructField(name, st.LongType()) for name in names])
    assert caught.value.code == "HW-S03"
    assert hint in caught.value.hint


def test_what_a_user_raises_is_no_refusal_of_ours() -> None:
    assert refusal_in("no rates for today") is None
    assert refusal_in("") is None

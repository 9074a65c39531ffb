"""Parquet files: exact types, columns joined by name, row groups as parts."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from by_hand import open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, INT, LONG, REAL, STRING, parse_type, vector
from headwater.connectors.files.convert_columns import convert_typed
from headwater.connectors.protocol import ArrowRead, BadRows, Observed, SliceGone, TableAsk, UnknownColumns
from unit.connectors.parquet_files import ASK, FAR, declared, landed, lists_of, opened, read_of, write

UUID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("column", "type_", "values"),
    [
        (pa.array([1, None], pa.int8()), "int", [1, None]),
        (pa.array([2**32 - 1], pa.uint32()), "long", [2**32 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", [decimal.Decimal(2**64 - 1)]),
        (pa.array([1.5], pa.float32()), "real", [1.5]),
        (pa.array([True, None]), "bool", [True, None]),
        (pa.array(["x"], pa.large_string()), "string", ["x"]),
        (pa.array(["x", "x"]).dictionary_encode(), "string", ["x", "x"]),
        (pa.array([UUID.bytes], pa.uuid()), "string", [str(UUID)]),
        (pa.array([b"\xff"], pa.binary(1)), "binary", [b"\xff"]),
        (pa.array(['{"a": 1}'], pa.json_(pa.string())), "dynamic", ['{"a": 1}']),
        (pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)), "decimal(5,2)", [decimal.Decimal("1.50")]),
        (pa.array([3], pa.date32()), "date", [dt.date(1970, 1, 4)]),
        (pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "vector(2)", [[1.0, 2.0]]),
        (pa.array([[1, 2]], pa.list_(pa.int8())), "list<int>", [[1, 2]]),
        (pa.array([{"a": 1}], pa.struct([("a", pa.int16())])), "struct<a:int>", [{"a": 1}]),
        (pa.array([0, 86_399], pa.time32("s")), "string", ["00:00:00.000000000", "23:59:59.000000000"]),
        (pa.array([1, None], pa.time32("ms")), "string", ["00:00:00.001000000", None]),
        (pa.array([1], pa.time64("us")), "string", ["00:00:00.000001000"]),
        (pa.array([86_399_999_999_999], pa.time64("ns")), "string", ["23:59:59.999999999"]),
        (pa.array([[1, None], None], pa.list_(pa.time32("s"))), "list<string>", [["00:00:01.000000000", None], None]),
        (
            pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int8())),
            "list<struct<key:string,value:int>>",
            [[{"key": "a", "value": 1}, {"key": "b", "value": None}], None, []],
        ),
        (
            pa.array([{"m": [(7, [5])]}, None], pa.struct([("m", pa.map_(pa.int64(), pa.list_(pa.time32("ms"))))])),
            "struct<m:list<struct<key:long,value:list<string>>>>",
            [{"m": [{"key": 7, "value": ["00:00:00.005000000"]}]}, None],
        ),
    ],
)
def test_every_type_arrives_exactly(tmp_path: Path, column: pa.Array, type_: str, values: list[Any]) -> None:
    write(tmp_path, "a.parquet", {"c": column})
    table = landed(tmp_path)
    assert [str(found.type) for found in table.schema.columns] == [type_]
    assert [row["c"] for row in table.rows] == values


@pytest.mark.parametrize(
    ("column", "type_", "reason"),
    [
        (lists_of([0, 1, 253_402_214_400, 2, 3], pa.int64(), pa.timestamp("s")), None, "timestamp_out_of_range"),
        (lists_of([0, 1, 2**63 - 1, 2, 3], pa.int64(), pa.timestamp("ns", "UTC")), None, "timestamp_out_of_range"),
        (lists_of([0, 1, 2**31 - 1, 2, 3], pa.int32(), pa.date32()), "list<timestamp>", "timestamp_out_of_range"),
        (pa.array([[0], [1], [2**40], [2], None]), "list<int>", "does_not_fit_list"),
        (pa.array([[0], [1], [2**40], [2], None], pa.list_(pa.int64(), 1)), "list<int>", "does_not_fit_list"),
        (pa.array([["0"], ["1"], ["x"], ["2"], []]), "list<decimal(5,2)>", "does_not_fit_list"),
        (pa.array([{"a": [n]} for n in (0, 1, 2**40, 2, 3)]), "struct<a:list<int>>", "does_not_fit_struct"),
        (
            pa.array([[("a", n)] for n in (0, 1, 253_402_214_400, 2, 3)], pa.map_(pa.string(), pa.timestamp("s"))),
            None,
            "timestamp_out_of_range",
        ),
    ],
    ids=["seconds", "infinity", "date", "int", "fixed size", "decimal", "in a struct", "map"],
)
def test_a_bad_item_makes_only_its_own_row_bad(
    tmp_path: Path, column: pa.Array, type_: str | None, reason: str
) -> None:
    write(tmp_path, "a.parquet", {"i": pa.array(range(5)), "l": column})
    ask = declared(l=parse_type(type_)) if type_ else ASK
    table = landed(tmp_path, replace(ask, max_bad_rows=5))
    assert [row["i"] for row in table.rows] == [0, 1, 3, 4]
    assert [(bad.error.line, bad.error.column, bad.error.reason) for bad in table.bad] == [(3, "l", reason)]


def test_one_list_of_a_slice_is_judged_by_itself() -> None:
    lists = pa.array([[2**40], [1], [2**40]]).slice(1, 1)
    assert convert_typed(lists, parse_type("list<int>")) == (pa.array([[1]], pa.list_(pa.int32())), [])


def test_observed_is_complete_and_joins_the_columns_of_all_files(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([1], pa.int32()), "x": pa.array(["a"])})
    write(tmp_path, "b.parquet", {"id": pa.array([2**40]), "y": pa.array([1.5])})
    assert read_of(tmp_path).observed == Observed({"id": LONG, "x": STRING, "y": REAL}, complete=True)
    table = landed(tmp_path)
    assert [tuple(row[name] for name in ("id", "x", "y")) for row in table.rows] == [(1, "a", None), (2**40, None, 1.5)]


def test_a_column_of_nulls_tells_no_type(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([1], pa.int32()), "x": pa.nulls(1)})
    assert read_of(tmp_path).observed == Observed({"id": INT}, complete=False, nulls=frozenset({"x"}))
    assert len(landed(tmp_path).rows) == 1
    write(tmp_path, "b.parquet", {"id": pa.array([1], pa.int32()), "x": pa.array([5])})
    assert read_of(tmp_path).observed == Observed({"id": INT, "x": LONG}, complete=True)


def test_types_that_disagree_are_refused_with_both_files(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"x": pa.array([1])})
    write(tmp_path, "b.parquet", {"x": pa.array(["1"])})
    with pytest.raises(HeadwaterError) as error:
        read_of(tmp_path)
    assert error.value.code == "HW-S01"
    assert "`a.parquet`" in error.value.message
    assert "`b.parquet`" in error.value.message


def test_a_declared_type_settles_a_disagreement(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"x": pa.array([1])})
    write(tmp_path, "b.parquet", {"x": pa.array(["1"])})
    ask = declared(x=STRING)
    assert read_of(tmp_path, ask).observed == Observed({"x": STRING}, complete=True)
    assert [row["x"] for row in landed(tmp_path, ask).rows] == ["1", "1"]


@pytest.mark.parametrize(
    ("column", "type_", "values"),
    [
        (pa.array([2**53 + 1]), "real", [float(2**53)]),
        (pa.array([2.0, None]), "long", [2, None]),
        (pa.array([0.1]), "decimal(5,2)", [decimal.Decimal("0.10")]),
        (pa.array(["2024-01-01"]), "date", [dt.date(2024, 1, 1)]),
        (pa.array(["12"]), "int", [12]),
        (pa.array(['{"a":1}']), "dynamic", ['{"a":1}']),
        (pa.array([5]), "dynamic", ["5"]),
        (pa.array([[1.0, 2.0]]), "vector(2)", [[1.0, 2.0]]),
        (pa.array([86_400 * 10**6], pa.timestamp("us")), "date", [dt.date(1970, 1, 2)]),
        (pa.array([b"x"]), "string", ["x"]),
    ],
)
def test_declared_types_hold_what_fits_exactly(tmp_path: Path, column: pa.Array, type_: str, values: list[Any]) -> None:
    write(tmp_path, "a.parquet", {"x": column})
    assert [row["x"] for row in landed(tmp_path, declared(x=parse_type(type_))).rows] == values


@pytest.mark.parametrize(
    ("column", "type_", "reason"),
    [
        (pa.array([1.5]), "long", "does_not_fit_long"),
        (pa.array([2**40]), "int", "does_not_fit_int"),
        (pa.array([1.25]), "decimal(5,1)", "does_not_fit_decimal"),
        (pa.array([86_400 * 10**6 + 1], pa.timestamp("us")), "date", "does_not_fit_date"),
        (pa.array([[1.0, 2.0, 3.0]]), "vector(2)", "does_not_fit_vector"),
        (pa.array([b"\xff"]), "string", "does_not_fit_string"),
        (pa.array([True]), "long", "expected_long"),
        (pa.array(["x"]), "long", "not_a_number"),
        (pa.array([{"a": 1}]), "long", "expected_long"),
    ],
)
def test_what_a_declared_type_does_not_hold_exactly_is_a_bad_row(
    tmp_path: Path, column: pa.Array, type_: str, reason: str
) -> None:
    write(tmp_path, "a.parquet", {"x": pa.concat_arrays([pa.nulls(3, column.type), column, pa.nulls(2, column.type)])})
    with pytest.raises(BadRows) as error:
        landed(tmp_path, declared(x=parse_type(type_)))
    assert [(bad.place, bad.line, bad.column, bad.reason) for bad in error.value.errors] == [
        ("a.parquet", 4, "x", reason)
    ]


def test_a_null_in_a_column_that_allows_none_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([1, None])})
    read = read_of(tmp_path)
    schema = TableSchema(primary_key=("id",)).added("id", LONG, nullable=False)
    with pytest.raises(BadRows) as error:
        list(read.read(read.partitions[0], schema))
    assert [(bad.line, bad.reason) for bad in error.value.errors] == [(2, "null_in_non_null")]


def test_a_column_that_no_table_can_have_is_refused_with_file_and_name(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"t": pa.array([1], pa.duration("s"))})
    with pytest.raises(HeadwaterError) as error:
        read_of(tmp_path)
    assert error.value.code == "HW-S03"
    assert "`a.parquet`" in error.value.message
    assert "duration" in error.value.message


def test_a_column_that_has_no_name_here_is_rescued(tmp_path: Path) -> None:
    odd = {"_run_id": pa.array([1, None]), "": pa.array([[1.5], None]), "at\n": pa.array([0, 1], pa.timestamp("us"))}
    write(tmp_path, "a.parquet", {"id": pa.array([1, 2]), **odd})
    assert read_of(tmp_path).observed == Observed({"id": LONG, "_rescued": DYNAMIC}, complete=True)
    assert [(row["id"], row["_rescued"]) for row in landed(tmp_path).rows] == [
        (1, '{"_run_id":1,"":[1.5],"at\\n":"1970-01-01 00:00:00.000000"}'),
        (2, '{"at\\n":"1970-01-01 00:00:00.000001"}'),
    ]


def test_a_rescued_value_without_a_text_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"": pa.array([0, FAR, 1], pa.timestamp("us"))})
    table = landed(tmp_path, replace(ASK, max_bad_rows=1))
    assert len(table.rows) == 2
    assert [(bad.error.line, bad.error.column, bad.error.reason) for bad in table.bad] == [
        (2, "", "does_not_fit_dynamic")
    ]


WIDE = decimal.Decimal("1" * 60 + ".0000000001")
MAPS = pa.map_(pa.string(), pa.decimal256(70, 10))
ENTRIES = pa.map_(pa.int8(), pa.time32("s"))


@pytest.mark.parametrize(
    ("column", "type_", "values"),
    [
        (pa.array([WIDE, None], pa.decimal256(76, 10)), "string", [str(WIDE), None]),
        (pa.array([decimal.Decimal("1e-10")], pa.decimal256(40, 10)), "string", ["0.0000000001"]),
        (pa.array([decimal.Decimal("0e-10")], pa.decimal128(30, 10)), "string", ["0.0000000000"]),
        (pa.array([decimal.Decimal("1.50")], pa.decimal256(60, 2)), "decimal(5,2)", [decimal.Decimal("1.50")]),
        (pa.array([[("a", WIDE), ("b", None)]], MAPS), "dynamic", [f'{{"a":{WIDE},"b":null}}']),
        (pa.array([[(1, 5)], None, []], ENTRIES), "string", ['[{"key":1,"value":"00:00:05.000000000"}]', None, "[]"]),
        (pa.array([[1, 2], None], pa.list_(pa.int8())), "dynamic", ["[1,2]", None]),
        (pa.array([{"a": "x"}], pa.struct([("a", pa.string())])), "string", ['{"a":"x"}']),
    ],
)
def test_a_declared_type_takes_what_has_no_type_of_its_own(
    tmp_path: Path, column: pa.Array, type_: str, values: list[Any]
) -> None:
    write(tmp_path, "a.parquet", {"c": column})
    table = landed(tmp_path, declared(c=parse_type(type_)))
    assert [str(found.type) for found in table.schema.columns] == [type_]
    assert [row["c"] for row in table.rows] == values


def test_a_decimal_of_too_many_digits_says_what_to_declare(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"d": pa.array([WIDE], pa.decimal256(76, 10))})
    with pytest.raises(HeadwaterError) as error:
        read_of(tmp_path)
    assert "column `d` of `a.parquet`" in error.value.message
    assert error.value.hint == 'declare the column as "string", or leave it out: `exclude = ["..."]`'


def test_a_column_that_is_left_out_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([1]), "_run_id": pa.array([1]), "d": pa.array([1], pa.duration("s"))})
    ask = TableAsk("t", "t", "append", exclude=("_run_id", "d"))
    assert read_of(tmp_path, ask).observed == Observed({"id": LONG}, complete=True)
    assert landed(tmp_path, ask).rows == [{"id": 1, "_source_id": "a.parquet"}]


def test_a_large_file_is_read_by_row_groups_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.parquet", {"id": pa.array(range(1000))}, row_group_size=100)
    monkeypatch.setattr(limits, "SPLIT_BYTES", path.stat().st_size // 3)
    assert len(read_of(tmp_path).partitions) == 4
    table = landed(tmp_path)
    assert [row["id"] for row in table.rows] == list(range(1000))
    assert table.landed["a.parquet"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_without_rows_lands_as_an_item(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([], pa.int64())})
    write(tmp_path, "b.parquet", {"id": pa.array([1])})
    table = landed(tmp_path)
    assert len(table.rows) == 1
    assert set(table.landed) == {"a.parquet", "b.parquet"}


def test_a_column_that_the_schema_lacks_is_named_by_the_read(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"id": pa.array([1]), "new": pa.array(["x"])})
    read = read_of(tmp_path)
    with pytest.raises(UnknownColumns) as unknown:
        list(read.read(read.partitions[0], TableSchema().added("id", LONG)))
    assert unknown.value.observed.columns == {"new": STRING}


@pytest.mark.parametrize("damage", ["garbage", "truncated", "page"])
def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path, damage: str) -> None:
    ids = pa.array(range(50_000))
    path = write(tmp_path, "a.parquet", {"id": ids}, use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    match damage:
        case "garbage":
            data = bytearray(range(256))
        case "truncated":
            del data[-100:]
        case "page":
            data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(HeadwaterError) as error:
        landed(tmp_path)
    assert error.value.code == "HW-C02"
    assert "`a.parquet`" in error.value.message


def test_a_compressed_parquet_file_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.gz").write_bytes(b"x")
    source = open_source("files", {"path": "*"}, root=tmp_path, resolve=str, pipeline="t")
    with pytest.raises(HeadwaterError, match=r"`a\.parquet\.gz` is a compressed Parquet file"):
        source.slices(ASK, None, source.bound(ASK), {})


def test_a_file_that_changed_after_it_was_planned_makes_the_run_plan_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", {"id": pa.array([1])})
    source = opened(tmp_path)
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    read = source.read(ASK, slice_)
    assert isinstance(read, ArrowRead)
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 1))
    with pytest.raises(SliceGone):
        list(read.read(read.partitions[0], TableSchema().added("id", LONG)))
    with pytest.raises(SliceGone):
        source.read(ASK, slice_)


def test_vectors_and_dynamic_columns_keep_their_arrow_types(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"v": pa.array([[1.0, 2.0]]), "d": pa.array(["[1]"])})
    ask = declared(v=vector(2), d=DYNAMIC)
    table = landed(tmp_path, ask)
    assert [(row["v"], row["d"]) for row in table.rows] == [([1.0, 2.0], "[1]")]


def test_a_column_that_is_called_json_is_checked(tmp_path: Path) -> None:
    texts = pa.array(['{"a": 1}', "5", None, '{"a": 1} x'])
    write(tmp_path, "a.parquet", {"v": pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts[:3])})
    assert [row["v"] for row in landed(tmp_path).rows] == ['{"a": 1}', "5", None]
    write(tmp_path, "a.parquet", {"v": pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)})
    with pytest.raises(BadRows) as raised:
        landed(tmp_path)
    assert [(error.line, error.column, error.reason) for error in raised.value.errors] == [(4, "v", "invalid_json")]

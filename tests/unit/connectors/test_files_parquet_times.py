"""Times in Parquet files: to the nanosecond and in UTC, or a bad row."""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import STRING, TIMESTAMP, Type, parse_type
from headwater.connectors.protocol import BadRows, Observed, TableAsk
from unit.connectors.parquet_files import ASK, FAR, declared, landed, lists_of, read_of, write


@pytest.mark.parametrize("type_", [pa.timestamp("ms"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns")])
def test_times_become_utc_nanoseconds(tmp_path: Path, type_: pa.DataType) -> None:
    write(tmp_path, "a.parquet", {"t": pa.array([1, -1], pa.int64()).cast(type_)})
    read = read_of(tmp_path)
    assert read.observed == Observed({"t": TIMESTAMP}, complete=True)
    schema = TableSchema().added("t", TIMESTAMP)
    batch = next(iter(read.read(read.partitions[0], schema)))
    scale = {"ms": 10**6, "us": 10**3, "ns": 1}[type_.unit]
    assert isinstance(batch, pa.RecordBatch)
    assert batch.column("t").cast(pa.int64()).to_pylist() == [scale, -scale]


def test_a_time_that_nanoseconds_cannot_hold_is_a_bad_row_with_its_number(tmp_path: Path) -> None:
    far = 10**18
    write(tmp_path, "a.parquet", {"t": pa.array([0, 1, far, 2], pa.timestamp("us"))}, row_group_size=2)
    with pytest.raises(BadRows) as error:
        landed(tmp_path)
    assert [(bad.line, bad.column, bad.reason) for bad in error.value.errors] == [(3, "t", "timestamp_out_of_range")]


def int96(root: Path, *julian: tuple[int, int] | None) -> None:
    """A file of INT96 times, each a Julian day and the nanoseconds of that day: its pages are written here by hand,
    because Arrow writes only those that nanoseconds since 1970 hold."""
    column = pa.array([None if moment is None else place for place, moment in enumerate(julian, 1)], pa.timestamp("ns"))
    write(
        root, "a.parquet", {"t": column}, use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none"
    )
    data = (root / "a.parquet").read_bytes()
    for place, moment in enumerate(julian, 1):
        if moment is not None:
            old = struct.pack("<qI", place, 2_440_588)
            assert data.count(old) == 1
            data = data.replace(old, struct.pack("<qI", moment[1], moment[0]))
    (root / "a.parquet").write_bytes(data)


DAY_9999 = (5_373_484, 0)
"""9999-12-31 as a Julian day."""


def test_int96_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    int96(tmp_path, (2_440_588, 123_456_789), None, (2_440_587, 86_399_999_999_999))
    table = landed(tmp_path)
    values = [row["t"] and row["t"].value for row in table.rows]
    assert values == [123_456_789, None, -1]


@pytest.mark.parametrize("far", [DAY_9999, (4_186_876_759, 0), (1, 0)], ids=["9999", "wraps", "4713 BC"])
def test_int96_times_beyond_nanoseconds_are_bad_rows(tmp_path: Path, far: tuple[int, int]) -> None:
    int96(tmp_path, (2_440_588, 1), far, (2_440_588, 3))
    table = landed(tmp_path, replace(ASK, max_bad_rows=1))
    assert [row["t"].value for row in table.rows] == [1, 3]
    (bad,) = table.bad
    assert (bad.error.line, bad.error.column, bad.error.reason) == (2, "t", "timestamp_out_of_range")
    assert (b"\\ud800 no text" in bad.source) is (far[0] == 4_186_876_759)
    assert (bad.source == b'{"t":"9999-12-31 00:00:00.000000"}') is (far == DAY_9999)


def test_int96_times_declared_as_text_are_exact_or_bad_rows(tmp_path: Path) -> None:
    int96(tmp_path, (2_440_588, 1_000), DAY_9999, (4_186_876_759, 0))
    table = landed(tmp_path, replace(declared(t=STRING), max_bad_rows=1))
    assert [row["t"] for row in table.rows] == ["1970-01-01 00:00:00.000001", "9999-12-31 00:00:00.000000"]
    (bad,) = table.bad
    assert (bad.error.line, bad.error.reason, bad.source) == (3, "timestamp_out_of_range", b'{"t":"\\ud800 no text"}')


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([253_402_214_400_000_000, FAR], pa.timestamp("us")), ["9999-12-31 00:00:00.000000"]),
        (pa.array([-62_135_596_800_000_000, -FAR], pa.timestamp("us", "UTC")), ["0001-01-01 00:00:00.000000Z"]),
        (pa.array([253_402_300_800_000, FAR], pa.timestamp("ms", "UTC")), ["10000-01-01 00:00:00.000Z"]),
        (pa.array([0, FAR], pa.timestamp("ms", "Europe/Berlin")), ["1970-01-01 01:00:00.000+0100"]),
        (pa.array([2_932_896, 2**31 - 1], pa.date32()), ["9999-12-31"]),
        (pa.array([[0], [1, FAR]], pa.list_(pa.timestamp("us"))), [["1970-01-01 00:00:00.000000"]]),
    ],
    ids=["us", "us utc", "ms", "zone", "date", "list"],
)
def test_a_time_declared_as_text_is_its_text_or_a_bad_row(tmp_path: Path, column: pa.Array, texts: list[Any]) -> None:
    write(tmp_path, "a.parquet", {"t": column})
    type_ = parse_type("list<string>") if pa.types.is_list(column.type) else STRING
    table = landed(tmp_path, replace(declared(t=type_), max_bad_rows=1))
    assert [row["t"] for row in table.rows] == texts
    assert [(bad.error.line, bad.error.reason) for bad in table.bad] == [(2, "timestamp_out_of_range")]


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), -(2**63) + 1])
def test_nanoseconds_that_readers_take_for_infinity_are_bad_rows(tmp_path: Path, value: int) -> None:
    for column in (pa.array([1, value, 2], pa.int64()), pa.array([1, value, 2], pa.timestamp("ns", "UTC"))):
        write(tmp_path, "a.parquet", {"t": column})
        table = landed(tmp_path, replace(declared(t=TIMESTAMP), max_bad_rows=1))
        assert [row["t"].value for row in table.rows] == [1, 2]
        assert [(bad.error.line, bad.error.reason) for bad in table.bad] == [(2, "timestamp_out_of_range")]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 86_400, -1], pa.int32()).view(pa.time32("s")),
        pa.array([1, 2**62, -1], pa.int64()).view(pa.time64("us")),
        lists_of([1, 86_400, -1], pa.int32(), pa.time32("s")),
    ],
)
def test_a_time_that_no_day_has_is_a_bad_row(tmp_path: Path, column: pa.Array) -> None:
    reason = "time_out_of_range"
    write(tmp_path, "a.parquet", {"t": column})
    with pytest.raises(BadRows) as error:
        landed(tmp_path)
    assert [(bad.line, bad.reason) for bad in error.value.errors] == [(2, reason), (3, reason)]


@pytest.mark.parametrize(
    ("column", "type_", "form", "values"),
    [
        (pa.array(["2010/01/02", None]), TIMESTAMP, TextForm("%Y/%m/%d"), [1_262_390_400 * 10**9, None]),
        (pa.array([20_100_102]), TIMESTAMP, TextForm("%Y%m%d"), [1_262_390_400 * 10**9]),
        (pa.array([1_700_000_000]), TIMESTAMP, TextForm("%s"), [1_700_000_000 * 10**9]),
        (
            pa.array([0, None, 15_638_400 * 10**6], pa.timestamp("us")),
            TIMESTAMP,
            TextForm(timezone="Europe/Berlin"),
            [-3_600 * 10**9, None, (15_638_400 - 3_600) * 10**9],
        ),
        (pa.array([0], pa.timestamp("us", "UTC")), TIMESTAMP, TextForm(timezone="Europe/Berlin"), [0]),
    ],
)
def test_texts_and_times_of_a_file_are_read_by_the_declared_form(
    tmp_path: Path, column: pa.Array, type_: Type, form: TextForm, values: list[int | None]
) -> None:
    write(tmp_path, "a.parquet", {"c": column})
    ask = TableAsk("t", "t", "append", declared={"c": type_}, forms={"c": form})
    read = read_of(tmp_path, ask)
    batch = next(iter(read.read(read.partitions[0], TableSchema().added("c", type_))))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.column("c").cast(pa.int64()).to_pylist() == values


def test_a_time_that_a_zone_skips_is_a_bad_row(tmp_path: Path) -> None:
    skipped = dt.datetime(2026, 3, 29, 2, 30)
    write(tmp_path, "a.parquet", {"c": pa.array([skipped, None], pa.timestamp("us"))})
    ask = TableAsk("t", "t", "append", declared={"c": TIMESTAMP}, forms={"c": TextForm(timezone="Europe/Berlin")})
    with pytest.raises(BadRows) as error:
        landed(tmp_path, ask)
    assert [(bad.line, bad.reason, bad.detail) for bad in error.value.errors] == [
        (1, "bad_timestamp", "no such time in Europe/Berlin")
    ]

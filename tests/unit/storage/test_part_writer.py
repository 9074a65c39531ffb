from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forked import exit_code
from headwater.base import limits
from headwater.base.blobs import sha256_of
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.storage.file_record import ColumnStats
from headwater.storage.part_writer import PartWriter, rewrite, rows_without, write_manifest
from headwater.storage.row_hash import content_hash, content_sum
from headwater.storage.system_columns import COMMIT_SEQ, shown_columns
from schemas import schema_of
from unit.duck.tables import INGESTED_AT_US, HandMade, live_file
from unit.storage.batches import batch_of
from unit.storage.test_row_hash import EVERY_TYPE, ROWS


def writer_at(root: Path, schema: TableSchema, **changed: Any) -> PartWriter:
    values: dict[str, Any] = {
        "schema": schema,
        "partition": 3,
        "task_attempt": 7,
        "run_id": "run-1",
        "ingested_at_us": INGESTED_AT_US,
    }
    return PartWriter(root, "tables/t/data/runs/r", **(values | changed))


def write_all(root: Path, schema: TableSchema, batches: list[pa.RecordBatch], **changed: Any) -> Any:
    with writer_at(root, schema, **changed) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.close()


def test_every_type_comes_back_as_it_was_written(tmp_path: Path) -> None:
    schema = schema_of(EVERY_TYPE)
    batch = batch_of(ROWS, EVERY_TYPE)
    (record,) = write_all(tmp_path, schema, [batch])
    found = pq.read_table(tmp_path / record.path)
    assert [found.schema.field(name).type for name in schema.names()] == list(batch.schema.types)
    (again,) = found.select(schema.names()).combine_chunks().to_batches()
    assert content_hash(again).equals(content_hash(batch))
    assert found.column("_content_hash").combine_chunks().equals(content_hash(batch))
    assert found.column("_run_id").to_pylist() == ["run-1"] * len(ROWS)
    assert found.column("_ingested_at").cast(pa.int64()).to_pylist() == [INGESTED_AT_US] * len(ROWS)
    assert found.column("_source_id").null_count == len(ROWS)


def test_the_record_says_what_the_file_is(tmp_path: Path) -> None:
    batch = batch_of(ROWS, EVERY_TYPE)
    (record,) = write_all(tmp_path, schema_of(EVERY_TYPE), [batch])
    path = tmp_path / record.path
    assert record.path == "tables/t/data/runs/r/part-00003-7.parquet"
    assert (record.rows, record.ordinal, record.merged) == (len(ROWS), 3000, False)
    assert (record.bytes, record.sha256) == (path.stat().st_size, sha256_of(path))
    assert record.content_sum == content_sum(content_hash(batch))
    assert path.stat().st_mode & 0o222 == 0


def test_the_footer_carries_ids_and_fingerprint(tmp_path: Path) -> None:
    schema = schema_of({"a": "long", "b": "list<string>"})
    (record,) = write_all(tmp_path, schema, [batch_of([{"a": 1}], {"a": "long"})])
    footer = pq.read_schema(tmp_path / record.path)
    ids = [int(footer.field(name).metadata[b"PARQUET:field_id"]) for name in footer.names]
    system = shown_columns(positions=False)
    assert ids == [1, 2, *(column.id for column in system if column is not COMMIT_SEQ)]
    assert footer.metadata[b"headwater.schema_fingerprint"].decode() == schema.fingerprint


def test_statistics_are_by_column_id(tmp_path: Path) -> None:
    schema = schema_of(
        {
            "n": "long", "r": "real", "s": "string", "t": "timestamp", "d": "date", "m": "decimal(9,2)", "o": "bool",
            "wide": "decimal(30,1)", "nan": "real", "void": "long", "text": "string", "l": "list<long>", "i": "real",
        }
    )  # fmt: skip
    types = {column.name: str(column.type) for column in schema.columns}
    rows = [
        {"n": 2, "r": 0.5, "s": "b", "t": -5, "d": -1, "m": Decimal("-1.50"), "o": True, "text": "x" * 65, "l": [1],
         "wide": Decimal(-(10**28)), "nan": math.nan, "i": math.inf},
        {"n": -3, "r": math.nan, "s": "ä", "t": 7, "d": 4, "m": Decimal("2.00"), "o": False, "text": "a", "l": [],
         "wide": Decimal("0.1"), "i": 0.0},
        {"n": None, "r": -1.5, "nan": math.nan},
    ]  # fmt: skip
    (record,) = write_all(tmp_path, schema, [batch_of(rows, types)])
    by_name = {column.name: record.stats[str(column.id)] for column in schema.columns}
    assert by_name == {
        "n": ColumnStats(nulls=1, min=-3, max=2),
        "r": ColumnStats(min=-1.5, max=0.5),
        "s": ColumnStats(nulls=1, min="b", max="ä"),
        "t": ColumnStats(nulls=1, min=-5, max=7),
        "d": ColumnStats(nulls=1, min=-1, max=4),
        "m": ColumnStats(nulls=1, min="-1.50", max="2.00"),
        "o": ColumnStats(nulls=1, min=False, max=True),
        "wide": ColumnStats(nulls=1, min="-10000000000000000000000000000.0", max="0.1"),
        "nan": ColumnStats(nulls=1),
        "void": ColumnStats(nulls=3),
        "text": ColumnStats(nulls=1, min="a"),
        "l": ColumnStats(nulls=1),
        "i": ColumnStats(nulls=1, min=0.0),
    }


def test_without_statistics_the_record_tells_no_values(tmp_path: Path) -> None:
    schema = schema_of({"a": "long"})
    (record,) = write_all(tmp_path, schema, [batch_of([{"a": 1}], {"a": "long"})], statistics=False)
    assert (record.stats, record.content_sum, record.rows) == (None, None, 1)


def test_files_roll_and_row_groups_hold_the_set_number_of_rows_or_half_as_many_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 4)
    schema = schema_of({"a": "long"})
    batch = pa.record_batch({"a": pa.array(range(25))})
    records = write_all(tmp_path, schema, [batch.slice(0, 3), batch.slice(3, 15), batch.slice(18)], max_rows=10)
    assert [(r.path.rsplit("/", 1)[1], r.rows, r.ordinal) for r in records] == [
        ("part-00003-7.parquet", 10, 3000),
        ("part-00003-7-1.parquet", 10, 3001),
        ("part-00003-7-2.parquet", 5, 3002),
    ]
    rows = [value for r in records for value in pq.read_table(tmp_path / r.path).column("a").to_pylist()]
    assert rows == list(range(25))
    footer = pq.read_metadata(tmp_path / records[0].path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [4, 6]
    assert [r.stats["1"] for r in records] == [
        ColumnStats(min=0, max=9), ColumnStats(min=10, max=19), ColumnStats(min=20, max=24),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "groups"), [(4, [4]), (5, [5]), (6, [4, 2]), (9, [4, 5]), (10, [4, 4, 2]), (13, [4, 4, 5])]
)
def test_no_row_group_is_smaller_than_half_of_what_one_should_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, groups: list[int]
) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 4)
    batches = [pa.record_batch({"a": pa.array([i])}) for i in range(rows)]
    (record,) = write_all(tmp_path, schema_of({"a": "long"}), batches)
    footer = pq.read_metadata(tmp_path / record.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == groups
    assert pq.read_table(tmp_path / record.path).column("a").to_pylist() == list(range(rows))


def test_a_column_is_compressed_well_where_that_is_worth_the_time(tmp_path: Path) -> None:
    """Noise stays as it is under any codec; words of few letters shrink by more than LZ4 can do; a part of a nested
    column is judged for itself."""
    draw = random.Random(7)
    rows = [
        {
            "noise": draw.random(),
            "words": f"customer {draw.randrange(10**6)}",
            "both": {"n": draw.random(), "w": f"customer {draw.randrange(10**6)}"},
        }
        for _ in range(10_000)
    ]
    types = {"noise": "real", "words": "string", "both": "struct<n:real,w:string>"}
    (many,) = write_all(tmp_path, schema_of(types), [batch_of(rows, types)])
    (few,) = write_all(tmp_path / "few", schema_of(types), [batch_of(rows[:100], types)])
    assert codecs(tmp_path / many.path) >= {"noise": "LZ4", "words": "ZSTD", "both.n": "LZ4", "both.w": "ZSTD"}.items()
    assert set(dict(codecs(tmp_path / "few" / few.path)).values()) == {"ZSTD"}


def codecs(path: Path) -> Any:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}.items()


@pytest.mark.parametrize(
    ("times", "micros"),
    [([0, 1_000, -1_000, None], True), ([1_000, 1_001], False), ([None, None], True), ([-1], False)],
)
def test_a_record_tells_whether_times_are_whole_microseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[int | None], micros: bool
) -> None:
    """Of all row groups together."""
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 1)
    types = {"seen": "timestamp", "n": "long"}
    (record,) = write_all(tmp_path, schema_of(types), [batch_of([{"seen": time, "n": 1000} for time in times], types)])
    assert (record.stats["1"].micros, record.stats["2"].micros) == (micros, False)


def test_wide_rows_make_smaller_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_BYTES", 1_000)
    batches = [pa.record_batch({"s": pa.array(["x" * 600])}) for _ in range(5)]
    (record,) = write_all(tmp_path, schema_of({"s": "string"}), batches)
    assert pq.read_metadata(tmp_path / record.path).num_row_groups == 3


def test_a_partition_cannot_roll_into_the_next_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FILES_PER_PARTITION", 2)
    with pytest.raises(HeadwaterError, match="more than 2 files"):
        write_all(tmp_path, schema_of({"a": "long"}), [pa.record_batch({"a": pa.array([1, 2, 3])})], max_rows=1)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write_all(tmp_path, schema_of({"a": "long"}), [pa.record_batch({"a": pa.array([], pa.int64())})]) == ()
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 2)
    schema = schema_of({"a": "long"})
    with pytest.raises(ZeroDivisionError), writer_at(tmp_path, schema, max_rows=4) as writer:
        writer.write(pa.record_batch({"a": pa.array(range(7))}))
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        raise ZeroDivisionError
    assert list(tmp_path.rglob("*.parquet")) == []


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    schema, batch = schema_of({"a": "long"}), pa.record_batch({"a": pa.array([1])})
    (record,) = write_all(tmp_path, schema, [batch])
    with pytest.raises(HeadwaterError) as raised:
        write_all(tmp_path, schema, [batch])
    assert raised.value.code == "HW-T05"
    assert sha256_of(tmp_path / record.path) == record.sha256


def test_known_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    schema = schema_of({"a": "long", "s": "string"})
    batch = pa.record_batch({"a": pa.array([1, 2, 3]), "s": pa.array(["x", None, "z"])})
    with writer_at(tmp_path, schema, known_hashes=content_hash(batch).take(pa.array([0, 2]))) as writer:
        writer.write(batch)
        writer.write(batch.slice(0, 1))
    (record,) = writer.close()
    assert (writer.rows_dropped, record.rows) == (3, 1)
    assert pq.read_table(tmp_path / record.path).column("a").to_pylist() == [2]


def test_sources_are_counted(tmp_path: Path) -> None:
    schema = schema_of({"a": "long"})
    plain = pa.record_batch({"a": pa.array([1, 2, 3]), "_source_id": pa.array(["f1", None, "f2"])})
    coded = pa.record_batch({"a": pa.array([4]), "_source_id": pa.array(["f2"]).dictionary_encode()})
    (record,) = write_all(tmp_path, schema, [plain, coded])
    assert record.sources == {"f1": 1, "f2": 2}
    assert pq.read_table(tmp_path / record.path).column("_source_id").to_pylist() == ["f1", None, "f2", "f2"]
    assert (record.source_count, record.positions) == (0, False)


def test_a_record_lists_a_thousand_source_ids_and_counts_more_of_them(tmp_path: Path) -> None:
    for count, listed in ((1000, 1000), (1001, 0)):
        ids = [f"f{i}" for i in range(count)]
        batch = pa.record_batch({"a": pa.array(range(count)), "_source_id": pa.array(ids)})
        (record,) = write_all(tmp_path / str(count), schema_of({"a": "long"}), [batch])
        assert (len(record.sources), record.source_count) == (listed, 0 if listed else count)


def test_source_positions_are_stored_where_the_source_gives_them(tmp_path: Path) -> None:
    schema = schema_of({"a": "long"})
    plain = pa.record_batch({"a": pa.array([1])})
    placed = pa.record_batch({"a": pa.array([2, 3]), "_source_pos": pa.array([7, None], pa.int32())})
    first, second, third = write_all(tmp_path, schema, [plain, placed, placed, plain])
    assert [(r.rows, r.positions, r.ordinal) for r in (first, second, third)] == [
        (1, False, 3000),
        (4, True, 3001),
        (1, False, 3002),
    ]
    assert pq.read_table(tmp_path / second.path).column("_source_pos").to_pylist() == [7, None, 7, None]
    assert "_source_pos" not in pq.read_schema(tmp_path / first.path).names
    assert pq.read_table(tmp_path / first.path).column("a").to_pylist() == [1]
    assert content_sum(content_hash(plain)) == first.content_sum == third.content_sum


def test_a_record_of_a_keyed_file_has_its_first_and_last_key(tmp_path: Path) -> None:
    schema = schema_of({"a": "long", "b": "string"}, ("a", "b"))
    rows = [{"a": a, "b": b} for a, b in ((2, "x"), (1, "z"), (2, "y"), (1, "y"))]
    (record,) = write_all(tmp_path, schema, [batch_of(rows, {"a": "long", "b": "string"})])
    assert (record.first_key, record.last_key) == ("18000000000000001" + "1y\x01", "18000000000000002" + "1y\x01")
    (unkeyed,) = write_all(tmp_path / "x", schema_of({"a": "long"}), [batch_of([{"a": 1}], {"a": "long"})])
    assert (unkeyed.first_key, unkeyed.last_key) == (None, None)


@pytest.mark.parametrize(
    ("type_", "given", "stored"),
    [
        ("long", pa.array([1, None], pa.int8()), [1, None]),
        ("int", pa.array([-(2**31), None], pa.int64()), [-(2**31), None]),
        ("real", pa.array([1, 2], pa.int32()), [1.0, 2.0]),
        ("real", pa.array([0.5], pa.float32()), [0.5]),
        ("decimal(10,2)", pa.array([12], pa.int64()), [Decimal("12.00")]),
        ("decimal(10,2)", pa.array([Decimal("1.5")], pa.decimal128(30, 1)), [Decimal("1.50")]),
        ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("string", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("dynamic", pa.array(['{"a":1}']), ['{"a":1}']),
        ("vector(2)", pa.array([[1.5, 2.0], None], pa.list_(pa.float64())), [[1.5, 2.0], None]),
        ("list<long>", pa.array([[1], None, []], pa.list_(pa.int32())), [[1], None, []]),
        ("list<string>", pa.array([[], None], pa.list_(pa.null())), [[], None]),
        ("struct<a:long,b:string>", pa.array([{"a": 1}], pa.struct([("a", pa.int32())])), [{"a": 1, "b": None}]),
        ("string", pa.nulls(2), [None, None]),
    ],
)
def test_types_that_lose_nothing_are_converted(tmp_path: Path, type_: str, given: pa.Array, stored: list[Any]) -> None:
    (record,) = write_all(tmp_path, schema_of({"c": type_}), [pa.record_batch({"c": given})])
    assert pq.read_table(tmp_path / record.path).column("c").to_pylist() == stored


@pytest.mark.parametrize(
    ("given", "ns"),
    [
        (pa.array([-1500], pa.int64()), -1500),
        (pa.array([-2], pa.timestamp("us")), -2000),
        (pa.array([3], pa.timestamp("s", "Europe/Berlin")), 3_000_000_000),
    ],
)
def test_times_of_every_unit_become_utc_nanoseconds(tmp_path: Path, given: pa.Array, ns: int) -> None:
    (record,) = write_all(tmp_path, schema_of({"c": "timestamp"}), [pa.record_batch({"c": given})])
    assert pq.read_table(tmp_path / record.path).column("c").cast(pa.int64()).to_pylist() == [ns]


def test_uuids_become_text(tmp_path: Path) -> None:
    values = [uuid.UUID(int=1), None, uuid.UUID("0195fe13-7b2a-7c7c-9b6b-0123456789ab")]
    array = pa.array([v.bytes if v else None for v in values], pa.binary(16))
    given = pa.ExtensionArray.from_storage(pa.uuid(), array)
    (record,) = write_all(tmp_path, schema_of({"c": "string"}), [pa.record_batch({"c": given}).slice(1)])
    assert pq.read_table(tmp_path / record.path).column("c").to_pylist() == [None, str(values[2])]


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        ("int", pa.array([2**31], pa.int64())),
        ("real", pa.array([2**53 + 1], pa.int64())),
        ("long", pa.array([1.0])),
        ("long", pa.array(["1"])),
        ("string", pa.array([1])),
        ("string", pa.array([b"a"])),
        ("decimal(3,1)", pa.array([100], pa.int64())),
        ("decimal(5,1)", pa.array([Decimal("1.25")], pa.decimal128(5, 2))),
        ("timestamp", pa.array([2**62], pa.timestamp("s"))),
        ("vector(2)", pa.array([[1.0]], pa.list_(pa.float32()))),
        ("struct<a:long>", pa.array([{"a": 1, "z": 2}])),
        ("date", pa.array([1], pa.timestamp("s"))),
    ],
)
def test_a_value_that_would_change_is_refused(tmp_path: Path, type_: str, given: pa.Array) -> None:
    with pytest.raises(HeadwaterError, match="column `c`") as raised:
        write_all(tmp_path, schema_of({"c": type_}), [pa.record_batch({"c": given})])
    assert raised.value.code == "HW-S03"
    assert list(tmp_path.rglob("*.parquet")) == []


def test_an_error_does_not_quote_the_value(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as raised:
        write_all(tmp_path, schema_of({"c": "int"}), [pa.record_batch({"c": pa.array([987654321987])})])
    assert "987654321987" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_stranger_and_a_missing_key_are_refused_by_name(tmp_path: Path) -> None:
    schema = schema_of({"id": "long", "name": "string"}, ("id",))
    with pytest.raises(HeadwaterError, match="`nmae` is not in the table") as raised:
        write_all(tmp_path, schema, [pa.record_batch({"id": pa.array([1]), "nmae": pa.array(["x"])})])
    assert "`name`" in raised.value.hint
    with pytest.raises(HeadwaterError, match="`id` may not be null, and 2 rows"):
        write_all(tmp_path, schema, [pa.record_batch({"name": pa.array(["x", "y"])})])


def test_the_manifest_tells_what_stands_beside_it(tmp_path: Path) -> None:
    records = write_all(tmp_path, schema_of({"a": "long"}), [pa.record_batch({"a": pa.array([1])})])
    write_manifest(tmp_path, records)
    found = json.loads((tmp_path / "tables/t/data/runs/r/_manifest.json").read_text())
    assert [(f["path"], f["rows"], f["sha256"], f["stats"]["1"]) for f in found["files"]] == [
        (records[0].path, 1, records[0].sha256, {"min": 1, "max": 1})
    ]


def test_rewriting_keeps_all_but_the_dropped_rows(tmp_path: Path) -> None:
    schema = schema_of({"a": "long", "v": "vector(2)", "j": "dynamic", "t": "timestamp", "l": "list<string>"})
    table = HandMade(tmp_path, schema)
    table.seq = 41
    rows = [
        {"a": 1, "v": [1, 2], "j": "1", "t": 5, "l": ["x"], "_source_id": "f1"},
        {"a": 2, "_source_id": "f2"},
        {"a": 3, "_source_id": None},
    ]
    (file,) = table.commit(rows)
    target = "tables/orders/data/runs/again"
    (record,) = rewrite(
        tmp_path, rows_without(tmp_path, file, ["f2"]), schema=schema, directory=target, partition=1, task_attempt=0
    )
    before, after = pq.read_table(tmp_path / file.path), pq.read_table(tmp_path / record.path)
    assert after.drop_columns([COMMIT_SEQ.name]).equals(before.take([0, 2]))
    assert after.column(COMMIT_SEQ.name).to_pylist() == [42, 42]
    assert (record.merged, record.rows, record.sources, record.ordinal) == (True, 2, {"f1": 1}, 1000)
    assert record.content_sum == content_sum(before.column("_content_hash").take([0, 2]))
    assert record.stats is not None
    assert record.stats[str(COMMIT_SEQ.id)] == ColumnStats(min=42, max=42)

    merged = live_file(record, seq=50, schema_id=1, run_id="again")
    (twice,) = rewrite(
        tmp_path, rows_without(tmp_path, merged, ["f1"]), schema=schema, directory=target, partition=2, task_attempt=0
    )
    assert pq.read_table(tmp_path / twice.path).equals(after.slice(1))


def test_rewriting_a_file_to_nothing_makes_no_file(tmp_path: Path) -> None:
    schema = schema_of({"a": "long"})
    (file,) = HandMade(tmp_path, schema).commit([{"a": 1, "_source_id": "f"}])
    kept = rewrite(
        tmp_path, rows_without(tmp_path, file, ["f"]), schema=schema, directory="again", partition=0, task_attempt=0
    )
    assert kept == ()
    assert not (tmp_path / "again").exists()


def test_rewriting_a_file_that_is_gone_is_a_damaged_store(tmp_path: Path) -> None:
    schema = schema_of({"a": "long"})
    (file,) = HandMade(tmp_path, schema).commit([{"a": 1, "_source_id": "f"}])
    (tmp_path / file.path).unlink()
    with pytest.raises(HeadwaterError) as raised:
        rewrite(
            tmp_path, rows_without(tmp_path, file, ["f"]), schema=schema, directory="x", partition=0, task_attempt=0
        )
    assert raised.value.code == "HW-T04"


def write_fifty_thousand_rows(root: Path) -> None:
    """In row groups of which each is on disk before the next begins."""
    limits.ROW_GROUP_ROWS = 10_000
    writer = PartWriter(
        root, "d", schema=schema_of({"a": "real"}), partition=0, task_attempt=0, run_id="r", ingested_at_us=0
    )
    with writer:
        for _ in range(5):
            writer.write(pa.record_batch({"a": pa.array([i * 0.1 for i in range(10_000)])}))


def write_to_a_full_disk(root: Path) -> None:
    """What is said goes to a file, also what comes when the writer is let go."""
    with open(root / "said", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        write_fifty_thousand_rows(root)
    except HeadwaterError as error:
        os.write(1, f"{error.code} {error.retryable}".encode())


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    assert exit_code(write_to_a_full_disk, tmp_path) == 0
    assert (tmp_path / "said").read_text() == "HW-T05 True"
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("point", ["part.mid", "part.before_fsync", "part.after_fsync"])
def test_every_crash_point_of_a_part_is_passed(tmp_path: Path, point: str) -> None:
    assert exit_code(write_fifty_thousand_rows, tmp_path, crash_at=point) == -signal.SIGKILL
    found = list(tmp_path.rglob("*.parquet"))
    assert len(found) == 1
    if point == "part.after_fsync":
        assert pq.read_metadata(found[0]).num_rows == 50_000

"""Files of text become rows: every row once, whatever the cuts, with exact places for bad ones."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from by_hand import Table, open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, LONG, REAL, STRING, TIMESTAMP, Type
from headwater.coerce.malformed import Fault
from headwater.coerce.row_errors import RowError
from headwater.connectors.files import json_lines as files_text
from headwater.connectors.files.streams import reading
from headwater.connectors.protocol import (
    ArrowRead,
    BadRows,
    Observed,
    SliceGone,
    Source,
    TableAsk,
    TransientError,
    UnknownColumns,
)

ASK = TableAsk("t", "t", "append")


def opened(root: Path, path: str | list[str], **config: object) -> Source:
    return open_source("files", {"path": path, **config}, root=root, resolve=str, pipeline="t")


def landed(source: Source, ask: TableAsk = ASK) -> Table:
    table = Table(ask)
    table.land(source)
    return table


def values(table: Table, *names: str) -> list[Any]:
    rows = [tuple(row[name] for name in names) for row in table.rows]
    return [row[0] for row in rows] if len(names) == 1 else rows


def bad_rows(source: Source, ask: TableAsk = ASK) -> BadRows:
    with pytest.raises(BadRows) as error:
        landed(source, ask)
    return error.value


def settle(path: Path) -> None:
    """Make a file look old enough for its mtime to be trusted."""
    old = time.time_ns() - 10 * limits.MTIME_TRUST_NS
    os.utime(path, ns=(old, old))


def test_ndjson_lands_with_source_ids_and_exact_versions(tmp_path: Path) -> None:
    data = b'{"id": 1, "x": "a"}\n\n{"id": 2, "x": null}'
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ndjson").write_bytes(data)
    table = landed(opened(tmp_path, "in/*.ndjson"))
    assert table.rows == [
        {"id": 1, "x": "a", "_source_id": "in/a.ndjson"},
        {"id": 2, "x": None, "_source_id": "in/a.ndjson"},
    ]
    version = table.landed["in/a.ndjson"]
    status = (tmp_path / "in/a.ndjson").stat()
    assert version["sha256"] == hashlib.sha256(data).hexdigest()
    assert (version["size"], version["mtime_ns"]) == (len(data), status.st_mtime_ns)
    assert version["scanned_at_ns"] <= time.time_ns()


def test_columns_are_inferred_from_all_files_of_a_slice(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"n": 1, "always_null": null}\n')
    (tmp_path / "b.ndjson").write_text('{"n": 1.5, "later": {"k": [1]}}\n')
    table = landed(opened(tmp_path, "*.ndjson"))
    assert {column.name: column.type for column in table.schema.columns} == {"n": REAL, "later": DYNAMIC}
    assert values(table, "n", "later") == [(1.0, None), (1.5, '{"k": [1]}')]


def test_declared_types_decide(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"n": 1, "t": "2024-01-01T00:00:00.123456789Z"}\n')
    declared: dict[str, Type] = {"n": STRING, "t": TIMESTAMP, "absent": LONG}
    ask = TableAsk("t", "t", "append", declared=declared)
    table = landed(opened(tmp_path, "a.ndjson"), ask)
    assert values(table, "n", "absent") == [("1", None)]
    assert table.schema.column("t").type == TIMESTAMP  # type: ignore[union-attr]


def test_a_new_key_late_in_a_partition_is_learnt_with_all_others(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", 64)
    lines = [{"id": n} for n in range(20)] + [{"id": 20, "late": 1}, {"id": 21, "late": 2.5, "last": "x"}]
    (tmp_path / "a.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = Table(ASK)
    table.learn({"id": LONG})
    table.land(opened(tmp_path, "a.ndjson"))
    assert {column.name: column.type for column in table.schema.columns} == {"id": LONG, "late": REAL, "last": STRING}
    assert len(table.rows) == 22


def test_a_key_that_is_always_null_asks_for_no_column(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"id": 1, "x": null}\n')
    table = Table(ASK)
    table.learn({"id": LONG})
    table.land(opened(tmp_path, "a.ndjson"))
    assert table.schema.names() == ("id",)


@pytest.mark.parametrize("name", ["_run_id", "_hw_x", "_rescued", "", "a\0b", "line\nbreak", "x" * 256])
@pytest.mark.parametrize("format_", ["ndjson", "json"])
def test_a_key_that_no_column_can_have_is_rescued(tmp_path: Path, format_: str, name: str) -> None:
    rows = [{"id": 1, name: {"n": 1.50}}, {"id": 2}, {name: None}, {"id": "x", name: 4}, {"id": 5, name: 5, "new": 1}]
    texts = [json.dumps(row) for row in rows]
    first, second = (
        "\n".join(part) if format_ == "ndjson" else f"[{','.join(part)}]" for part in (texts[:4], texts[4:])
    )
    (tmp_path / f"a.{format_}").write_text(first)
    table = Table(replace(ASK, declared={"id": LONG}, max_bad_rows=1))
    table.land(opened(tmp_path, f"*.{format_}"))
    key = json.dumps(name)
    found = [(row["id"], row["_rescued"]) for row in table.rows]
    assert found == [(1, f'{{{key}:{{"n": 1.5}}}}'), (2, None), (None, f"{{{key}:null}}")]
    assert [row.error.line for row in table.bad] == [4]
    (tmp_path / f"b.{format_}").write_text(second)
    table.land(opened(tmp_path, f"*.{format_}"))
    assert [(row["id"], row["_rescued"], row.get("new")) for row in table.rows[3:]] == [(5, f"{{{key}:5}}", 1)]
    assert table.schema.names() == ("id", "_rescued", "new")


@pytest.mark.parametrize("split", [1, 7, 16, 33, 100])
@pytest.mark.parametrize("chunk", [5, 64, 4096])
def test_a_file_read_in_parts_gives_the_rows_of_the_whole_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: int, chunk: int
) -> None:
    lines = [json.dumps({"id": n, "pad": "é" * (n * 7 % 23)}) for n in range(16)]
    data = ("\n".join(lines[:6]) + "\n\n\r\n" + "\r\n".join(lines[6:])).encode()
    (tmp_path / "a.ndjson").write_bytes(data)
    settle(tmp_path / "a.ndjson")
    monkeypatch.setattr(limits, "SPLIT_BYTES", split)
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", chunk)
    source = opened(tmp_path, "a.ndjson")
    table = landed(source)
    assert values(table, "id") == list(range(16))
    assert table.landed["a.ndjson"]["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_file_that_was_just_written_is_read_by_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 8)
    (tmp_path / "a.ndjson").write_text('{"id": 1}\n' * 10)

    def partitions() -> int:
        source = opened(tmp_path, "a.ndjson")
        (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
        read = source.read(ASK, slice_)
        assert isinstance(read, ArrowRead)
        return len(read.partitions)

    future = time.time_ns() + 3600 * 10**9
    os.utime(tmp_path / "a.ndjson", ns=(future, future))
    assert partitions() == 1
    settle(tmp_path / "a.ndjson")
    assert partitions() == 13


def test_bad_rows_name_file_and_line_also_behind_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 50)
    lines = ['{"id": 1}'] * 30
    lines[20], lines[22] = '{"id": "x"}', "no json"
    (tmp_path / "a.ndjson").write_text("\n".join(lines))
    settle(tmp_path / "a.ndjson")
    ask = TableAsk("t", "t", "append", declared={"id": LONG})
    source = opened(tmp_path, "a.ndjson")
    (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
    read = source.read(ask, slice_)
    assert isinstance(read, ArrowRead)
    table = Table(ask)
    table.learn({})
    found: list[RowError] = []
    for partition in read.partitions:
        try:
            list(read.read(partition, table.schema))
        except BadRows as bad:
            found += bad.errors
    detail, fault = "column 2: unexpected character", Fault(1, 2, "unexpected character")
    assert found == [
        RowError(21, "id", "not_a_number", "string", place="a.ndjson"),
        RowError(23, None, "invalid_json", "text", detail, "a.ndjson", fault),
    ]
    assert found[1].as_json()["detail"] == {"line": 23, "column": 2, "reason": "unexpected character"}


def test_all_bad_rows_of_a_partition_are_counted_and_the_first_ones_listed(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"id": 1}\n' + "bad\n" * 50)
    (tmp_path / "b.ndjson").write_text("[]\n")
    bad = bad_rows(opened(tmp_path, "*.ndjson"), TableAsk("t", "t", "append", declared={"id": LONG}))
    assert bad.total == 51
    assert [error.line for error in bad.errors] == list(range(2, 2 + limits.ERRORS_SHOWN))


def test_an_empty_file_lands_as_an_item_without_rows(tmp_path: Path) -> None:
    for name in ("a.ndjson", "b.ndjson"):
        (tmp_path / name).write_text('{"id": 1}\n' if name == "b.ndjson" else "")
    table = landed(opened(tmp_path, "*.ndjson"))
    assert len(table.rows) == 1
    assert table.landed["a.ndjson"]["size"] == 0


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\xef\xbb\xbf{"id": 1}\n')
    assert values(landed(opened(tmp_path, "a.ndjson")), "id") == [1]


def test_a_line_without_end_is_refused_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_text, "LINE_BYTES", 1024)
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", 256)
    (tmp_path / "a.ndjson").write_text('{"id": "' + "x" * 5000)
    with pytest.raises(HeadwaterError, match=r"`a\.ndjson` is not NDJSON: a line is longer"):
        landed(opened(tmp_path, "a.ndjson"))


@pytest.mark.parametrize("format_", ["ndjson", "json", "csv"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(b'{"id": 1}', mtime=0), "begins like gzip"),
        (b"PAR1....", "begins like Parquet"),
        (bytes(range(254, -1, -1)), "it is not text, byte 255 is NUL"),
        (b"123\0", "it is not text, byte 4 is NUL"),
        ("\ufeffid,x\n".encode("utf-16"), "it is UTF-16"),
        ('{"id":1}\n'.encode("utf-16-le"), "it is UTF-16"),
        ("id,x\n1,2\n".encode("utf-16-be"), "it is UTF-16"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused_with_its_path(
    tmp_path: Path, format_: str, data: bytes, words: str
) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(HeadwaterError) as error:
        landed(opened(tmp_path, "a.bin", format=format_))
    assert error.value.code == "HW-C02"
    assert "`a.bin`" in error.value.message
    assert words in error.value.message


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("format_", ["ndjson", "json", "csv"])
def test_compressed_files_land_like_plain_ones(tmp_path: Path, suffix: str, format_: str) -> None:
    text = {"ndjson": b'{"id": 1}\n{"id": 2}\n', "json": b'[{"id": 1}, {"id": 2}]', "csv": b"id\n1\n2\n"}[format_]
    data = compressed(text, suffix)
    (tmp_path / f"a.{format_}.{suffix}").write_bytes(data)
    table = landed(opened(tmp_path, "*"))
    assert values(table, "id") == [1, 2]
    assert table.landed[f"a.{format_}.{suffix}"]["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_joined_compressed_files_are_one_text(tmp_path: Path, suffix: str) -> None:
    data = compressed(b'{"id": 1}\n{"i', suffix) + compressed(b'd": 2}\n', suffix)
    (tmp_path / f"a.ndjson.{suffix}").write_bytes(data)
    assert values(landed(opened(tmp_path, "*")), "id") == [1, 2]


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        ("gz", "truncated"),
        ("gz", "flipped"),  # zstd frames need not have a checksum, and Arrow's have none
        ("gz", "plain"),
        ("zst", "truncated"),
        ("zst", "plain"),
    ],
)
def test_damaged_compressed_data_is_refused_with_the_file(tmp_path: Path, suffix: str, damage: str) -> None:
    text = "".join(f'{{"id": {n}, "h": "{hashlib.sha256(bytes(n)).hexdigest()}"}}\n' for n in range(2000)).encode()
    data = bytearray(compressed(text, suffix))
    match damage:
        case "truncated":
            del data[-5:]
        case "flipped":
            data[len(data) // 2] ^= 0xFF
            data[len(data) // 2 + 1] ^= 0xFF
        case "plain":
            data = bytearray(text)
    (tmp_path / f"a.ndjson.{suffix}").write_bytes(data)
    with pytest.raises(HeadwaterError) as error:
        landed(opened(tmp_path, "*"), TableAsk("t", "t", "append", declared={"id": LONG, "h": STRING}))
    assert error.value.code == "HW-C02"
    assert f"`a.ndjson.{suffix}`" in error.value.message


def compressed(data: bytes, suffix: str) -> bytes:
    if suffix == "gz":
        return gzip.compress(data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def test_a_json_document_is_an_array_or_one_object(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1}, {"id": 2}]')
    (tmp_path / "b.json").write_text('{\n  "id": 3\n}')
    (tmp_path / "c.json").write_text("[]\n")
    table = landed(opened(tmp_path, "*.json"))
    assert values(table, "id", "_source_id") == [(1, "a.json"), (2, "a.json"), (3, "b.json")]
    assert "c.json" in table.landed


def test_a_bad_element_of_a_document_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1}, {"id": "x"}]')
    bad = bad_rows(opened(tmp_path, "*.json"), TableAsk("t", "t", "append", declared={"id": LONG}))
    assert bad.errors == (RowError(2, "id", "not_a_number", "string", place="a.json"),)


def test_lines_under_the_name_of_a_document_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    with pytest.raises(HeadwaterError) as error:
        landed(opened(tmp_path, "*.json"))
    assert "`a.json`" in error.value.message
    assert 'format = "ndjson"' in error.value.hint
    assert values(landed(opened(tmp_path, "*.json", format="ndjson")), "id") == [1, 2]


def test_a_document_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JSON_DOCUMENT_BYTES", 10)
    (tmp_path / "a.json").write_text('[{"id": 1}, {"id": 2}]')
    with pytest.raises(HeadwaterError, match="more than"):
        landed(opened(tmp_path, "*.json"))


@pytest.mark.parametrize("name", ["a.ndjson", "a.json", "a.csv"])
def test_a_file_that_changed_after_it_was_planned_makes_the_run_plan_again(tmp_path: Path, name: str) -> None:
    text = {"a.ndjson": '{"id": 1}\n', "a.json": '[{"id": 1}]', "a.csv": "id\n1\n"}[name]
    (tmp_path / name).write_text(text)
    source = opened(tmp_path, name)
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    with (tmp_path / name).open("a") as file:
        file.write("\n")
    with pytest.raises(SliceGone, match=name):
        Table(ASK).read(source, slice_)
    (tmp_path / name).unlink()
    with pytest.raises(SliceGone, match=name):
        Table(ASK).read(source, slice_)


@pytest.mark.parametrize("is_split", [False, True])
def test_a_file_that_changes_while_it_is_read_makes_the_run_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_split: bool
) -> None:
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", 16)
    if is_split:
        monkeypatch.setattr(limits, "SPLIT_BYTES", 50)
    path = tmp_path / "a.ndjson"
    path.write_text('{"id": 1}\n' * 10)
    settle(path)
    source = opened(tmp_path, "a.ndjson")
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    table = Table(ASK)
    table.learn({"id": LONG})
    read = source.read(ASK, slice_)
    assert isinstance(read, ArrowRead)
    assert len(read.partitions) == (2 if is_split else 1)
    for partition in read.partitions:
        settle(path)
        os.utime(path, ns=(slice_.spec["files"][0][2],) * 2)
        reading_it = read.read(partition, table.schema)
        next(reading_it)
        path.touch()
        with pytest.raises(SliceGone):
            list(reading_it)


def test_a_compressed_file_that_is_still_being_written_makes_the_run_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", 1024)
    path = tmp_path / "a.ndjson.gz"
    path.write_bytes(gzip.compress(b'{"id": 1}\n' * 10_000)[:-4])
    source = opened(tmp_path, "*.gz")
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    table = Table(ASK)
    table.learn({"id": LONG})
    read = source.read(ASK, slice_)
    assert isinstance(read, ArrowRead)
    reading_it = read.read(read.partitions[0], table.schema)
    next(reading_it)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SliceGone):
        list(reading_it)


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (FileNotFoundError(errno.ENOENT, "gone"), SliceGone),
        (OSError(errno.EIO, "flaky disk"), TransientError),
        (OSError(errno.ESTALE, "stale handle"), TransientError),
        (PermissionError(errno.EACCES, "denied"), HeadwaterError),
        (IsADirectoryError(errno.EISDIR, "a folder"), HeadwaterError),
    ],
)
def test_errors_of_the_system_name_the_file_and_say_whether_to_try_again(
    error: OSError, becomes: type[Exception]
) -> None:
    with pytest.raises(becomes, match=r"`in/a\.csv`"), reading("in/a.csv"):
        raise error


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ndjson", '{"id": 1, "secret": {"x": [1]}, "_run_id": 7}\n{"id": 2, "secret": "y"}\n'),
        ("a.json", '[{"id": 1, "secret": 1e400}, {"id": 2, "_run_id": 1}]'),
        ("a.csv", "secret,id,_run_id\nx,1,\n,2,y\n"),
    ],
)
def test_a_column_that_is_left_out_lands_nowhere(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    ask = TableAsk("t", "t", "append", exclude=("secret", "_run_id"))
    table = landed(opened(tmp_path, name), ask)
    assert table.schema.names() == ("id",)
    assert table.rows == [{"id": n, "_source_id": name} for n in (1, 2)]
    source = opened(tmp_path, name)
    (slice_,) = Table(ask).plan(source).slices
    preview = source.preview(ask, slice_)
    assert preview is not None
    assert dict(preview.columns) == {"id": LONG}


def test_bytes_that_are_no_text_do_not_matter_in_a_column_that_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,secret\n1,\xff\n")
    table = landed(opened(tmp_path, "a.csv"), TableAsk("t", "t", "append", exclude=("secret",)))
    assert (values(table, "id"), table.bad) == ([1], [])


def test_of_files_without_a_header_a_declared_column_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x,2\n")
    ask = TableAsk("t", "t", "append", declared={"a": LONG, "b": LONG, "c": LONG}, exclude=("b",))
    source = opened(tmp_path, "a.csv", header=False)
    (slice_,) = Table(ask).plan(source).slices
    read = source.read(ask, slice_)
    assert isinstance(read, ArrowRead)
    schema = TableSchema().added("a", LONG).added("c", LONG)
    (batch, _) = read.read(read.partitions[0], schema)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"a": 1, "c": 2, "_source_id": "a.csv"}]


def test_a_column_that_was_dropped_is_unknown_until_it_is_restored(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"id": 1, "x": "a"}\n')
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    schema = TableSchema().added("id", LONG).added("x", STRING)
    schema = schema.with_column(replace(schema.columns[1], dropped=True))
    for name in ("a.ndjson", "a.csv"):
        source = opened(tmp_path, name)
        (slice_,) = Table(ASK).plan(source).slices
        read = source.read(ASK, slice_)
        assert isinstance(read, ArrowRead)
        with pytest.raises(UnknownColumns) as error:
            list(read.read(read.partitions[0], schema))
        assert error.value.observed == Observed({"x": STRING})

"""Files that cannot be read at all: each is a bad item with its reason and its version, and the others land."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from by_hand import Table, open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import Observed, TableAsk

ASK = TableAsk("t", "t", "append", max_bad_rows=100, max_bad_items=100)


def parquet(rows: int = 1) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(1, rows + 1))}), sink, use_dictionary=False, write_page_checksum=True)
    return sink.getvalue()


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


GOOD = {
    "ndjson": b'{"id": 1}\n',
    "json": b'[{"id": 1}]',
    "csv": b"id\n1\n",
    "parquet": parquet(),
    "ndjson.gz": gzip.compress(b'{"id": 1}\n'),
}
LONG_TEXT = gzip.compress(b"".join(map(b'{"id": %d}\n'.__mod__, range(500_000))), compresslevel=1)

BAD: list[tuple[str, bytes, str, int, str]] = [
    ("ndjson", b"\x7fELF\0\0", "wrong_format", 0, "is not NDJSON: it is not text, byte 5 is NUL"),
    ("ndjson", '{"id": 1}\n'.encode("utf-16"), "utf_16", 0, "is not NDJSON in UTF-8: it is UTF-16"),
    ("ndjson", b"PAR1....PAR1", "wrong_format", 0, "is not NDJSON: it begins like Parquet"),
    (
        "json",
        b'[{"id": 1},\n {"id": }]',
        "invalid_json",
        2,
        "is not JSON: line 2, column 9: unexpected character",
    ),
    (
        "json",
        b'{"id": 1}\n{"id": 2}',
        "invalid_json",
        2,
        "is not JSON: line 2, column 1: expected nothing after the value",
    ),
    (
        "json",
        b'{"d": [\n{"a": 1},\n{"a": 2,}\n]}',
        "invalid_json",
        3,
        "is not JSON: line 3, column 9: expected a key after the comma",
    ),
    ("json", b"", "invalid_json", 1, "is not JSON: line 1, column 1: the text ends too early"),
    ("json", b" \n", "invalid_json", 2, "is not JSON: line 2, column 1: the text ends too early"),
    ("json", b"7", "expected_object", 0, "is no array of objects and no object"),
    ("csv", b"id,id\n1,2\n", "duplicate_column", 0, "has two columns named `id`"),
    (
        "csv",
        b'id\n1\n"2\n',
        "unclosed_quote",
        3,
        "has a quote that is never closed, in the row that begins on line 3",
    ),
    *(
        (
            "csv",
            b"id,name,note\n1,x,y\n5\n" + record + b"\n3,a,b\n4,c,d\n",
            "unclosed_quote",
            4,
            "has a quote that is never closed, in the row that begins on line 4",
        )
        for record in (b'"2,z,w', b'2,"z,w', b'2,z,"w', b'2,z,w,"v')
    ),
    ("ndjson.gz", LONG_TEXT[:-20], "damaged_compression", 0, "is not whole gzip data"),
    ("ndjson.gz", b'{"id": 1}\n', "damaged_compression", 0, "is not whole gzip data"),
    ("ndjson.gz", b"", "damaged_compression", 0, "is not whole gzip data"),
    ("parquet", b"", "truncated_parquet", 0, "is Parquet without its end: a part of the file is missing"),
    ("parquet", b"id\n1\n", "wrong_format", 0, "is not Parquet: it does not begin with the bytes `PAR1`"),
    ("parquet", parquet()[:-9], "truncated_parquet", 0, "is Parquet without its end: a part of the file is missing"),
    ("parquet", flipped(parquet(50_000)), "damaged_parquet", 0, "has data pages that cannot be read"),
]


def opened(root: Path, config: Mapping[str, object] | None = None) -> Any:
    return open_source("files", {"path": "d/*", **(config or {})}, root=root, resolve=str, pipeline="t")


def folder(root: Path, suffix: str, data: bytes) -> Path:
    (root / "d").mkdir()
    for name in ("a", "c"):
        (root / f"d/{name}.{suffix}").write_bytes(GOOD[suffix])
    path = root / f"d/b.{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("suffix", "data", "reason", "line", "detail"), BAD, ids=[f"{s} {r}" for s, _, r, *_ in BAD])
def test_a_bad_file_is_left_out_with_its_reason_and_lands_when_it_was_repaired(
    tmp_path: Path, suffix: str, data: bytes, reason: str, line: int, detail: str
) -> None:
    path = folder(tmp_path, suffix, data)
    table = Table(ASK)
    table.land(opened(tmp_path))
    assert [(row["id"], row["_source_id"]) for row in table.rows] == [(1, f"d/a.{suffix}"), (1, f"d/c.{suffix}")]
    (bad,) = table.bad_items.values()
    assert (bad.source_id, bad.error.reason, bad.error.line) == (f"d/b.{suffix}", reason, line)
    assert bad.error.detail.startswith(detail)
    assert bad.version["sha256"] == hashlib.sha256(data).hexdigest()
    assert not table.plan(opened(tmp_path)).slices, "a bad file that did not change is not read again"
    path.write_bytes(GOOD[suffix] if suffix != "parquet" else parquet(2))
    table.land(opened(tmp_path))
    assert {row["_source_id"] for row in table.rows} == {f"d/{name}.{suffix}" for name in "abc"}


@pytest.mark.parametrize("suffix", ["json", "parquet", "ndjson.gz"])
def test_a_file_that_is_cut_to_no_bytes_keeps_its_landed_rows(tmp_path: Path, suffix: str) -> None:
    path = folder(tmp_path, suffix, GOOD[suffix])
    table = Table(ASK)
    table.land(opened(tmp_path))
    path.write_bytes(b"")
    table.land(opened(tmp_path))
    assert (len(table.rows), list(table.bad_items)) == (3, [f"d/b.{suffix}"])


@pytest.mark.parametrize("suffix", ["ndjson", "csv"])
def test_an_empty_text_file_has_no_rows(tmp_path: Path, suffix: str) -> None:
    path = folder(tmp_path, suffix, GOOD[suffix])
    table = Table(ASK)
    table.land(opened(tmp_path))
    path.write_bytes(b"")
    table.land(opened(tmp_path))
    assert (len(table.rows), table.bad_items) == (2, {})


@pytest.mark.parametrize("suffix", ["ndjson", "json", "csv", "parquet"])
def test_all_bad_files_are_named_at_once_where_none_is_kept(tmp_path: Path, suffix: str) -> None:
    folder(tmp_path, suffix, b"\0\0\0")
    (tmp_path / f"d/d.{suffix}").write_bytes(b"\1\0\2")
    for ask in (replace(ASK, max_bad_items=0), replace(ASK, max_bad_items=1)):
        with pytest.raises(HeadwaterError) as error:
            Table(ask).land(opened(tmp_path))
        assert error.value.code == "HW-C02"
        assert error.value.message.startswith("2 files of `t` cannot be read: `d/b.")
        assert [place.file for place in error.value.places] == [f"d/b.{suffix}", f"d/d.{suffix}"]


@pytest.mark.parametrize("suffix", ["ndjson", "json", "csv", "parquet"])
def test_a_preview_names_bad_files_and_shows_the_columns_of_the_others(tmp_path: Path, suffix: str) -> None:
    folder(tmp_path, suffix, b"\0\0\0")
    source = opened(tmp_path)
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    observed = source.preview(ASK, slice_)
    assert isinstance(observed, Observed)
    assert (list(observed.columns), observed.complete) == (["id"], False)
    assert [item.source_id for item in observed.bad_items] == [f"d/b.{suffix}"]


def test_a_large_file_whose_beginning_is_binary_is_one_bad_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 64)
    monkeypatch.setattr(limits, "MTIME_TRUST_NS", 0)
    folder(tmp_path, "ndjson", b"\0" + b"no json\n" * 100)
    table = Table(replace(ASK, max_bad_rows=1))
    table.land(opened(tmp_path))
    assert (len(table.rows), list(table.bad_items), table.bad) == (2, ["d/b.ndjson"], [])


def test_a_file_that_the_system_does_not_give_fails_and_is_no_bad_file(tmp_path: Path) -> None:
    path = folder(tmp_path, "ndjson", b"{}")
    source = opened(tmp_path)
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    read = source.read(ASK, slice_)
    path.unlink()
    path.mkdir()
    with pytest.raises(HeadwaterError, match=r"cannot read `d/b\.ndjson`: Is a directory"):
        read.observe(read.partitions[0])


def test_a_file_that_is_marked_as_unread_is_read_again(tmp_path: Path) -> None:
    folder(tmp_path, "ndjson", b"\0")
    table = Table(ASK)
    table.land(opened(tmp_path))
    table.landed["d/b.ndjson"] = {"unread": True}
    (slice_,) = table.plan(opened(tmp_path)).slices
    assert slice_.replaces == ("d/b.ndjson",)


def test_a_table_of_bad_parquet_files_drops_no_column(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name, data in (("a", b""), ("b", b"\0")):
        (tmp_path / f"d/{name}.parquet").write_bytes(data)
    source = opened(tmp_path)
    (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
    observed = source.read(ASK, slice_).observed
    assert (observed.columns, observed.complete) == ({}, False)


def test_a_line_break_in_a_name_is_an_escape_in_messages(tmp_path: Path) -> None:
    name = "d/y\nerror[HW-X99]: fake.ndjson"
    folder(tmp_path, "ndjson", b"").unlink()
    (tmp_path / name).write_bytes(b"\0")
    shown = r"`d/y\nerror[HW-X99]: fake.ndjson`"
    with pytest.raises(HeadwaterError) as error:
        Table(replace(ASK, max_bad_items=0)).land(opened(tmp_path))
    assert error.value.message == f"{shown} is not NDJSON: it is not text, byte 1 is NUL"
    table = Table(ASK)
    (slice_,) = table.land(opened(tmp_path)).slices
    assert slice_.describe == rf"3 files, d/a.ndjson .. {shown.strip('`')}"
    (tmp_path / name).unlink()
    assert table.plan(opened(tmp_path)).warnings[0].endswith(f": {shown}")

"""Bad rows of files that are kept: the good rows land, and each bad one is what it was, with its place."""

from __future__ import annotations

import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from by_hand import Table, open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.types import LONG, STRING, Type, parse_type
from headwater.catalog.evolution import DeclaredColumn, evolve
from headwater.coerce.row_errors import BadRow
from headwater.connectors.protocol import ArrowRead, BadRows, TableAsk
from headwater.runtime.inlet import merge_observed, shown_to


def landed(root: Path, data: str | bytes, *, name: str = "a.ndjson", room: int = 100, **declared: Type) -> Table:
    (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    table = Table(TableAsk("t", "t", "append", declared=declared or {"id": LONG}, max_bad_rows=room))
    table.land(open_source("files", {"path": name}, root=root, resolve=str, pipeline="t"))
    return table


def kept(table: Table) -> list[tuple[int, str | None, str, bytes]]:
    assert {row.error.place for row in table.bad} <= set(table.landed)
    return [(row.error.line, row.error.column, row.error.reason, row.source) for row in table.bad]


def ids(table: Table) -> list[int]:
    return [row["id"] for row in table.rows]


def test_lines_are_kept_as_they_were_and_the_others_land(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"id": "x"}\r\n\n{"id": 1}\r\n \xff \n{"id": 2}\n[]'
    table = landed(tmp_path, text)
    assert ids(table) == [1, 2]
    assert kept(table) == [
        (1, "id", "not_a_number", b'{"id": "x"}'),
        (4, None, "invalid_json", b" \xff "),
        (6, None, "expected_object", b"[]"),
    ]


def test_of_a_row_with_several_bad_values_the_first_is_told(tmp_path: Path) -> None:
    rows = "".join(f'{{"a": "x{n}", "b": "y"}}\n' for n in range(80))
    table = landed(tmp_path, rows, a=LONG, b=LONG)
    assert (len(table.bad), {row.error.column for row in table.bad}) == (80, {"a"})
    assert table.bad[79].source == b'{"a": "x79", "b": "y"}'


@pytest.mark.parametrize("chunk_bytes", [limits.FILE_CHUNK_BYTES, 16], ids=["in one go", "in chunks"])
def test_parts_of_a_file_keep_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(limits, "SPLIT_BYTES", 64)
    monkeypatch.setattr(limits, "MTIME_TRUST_NS", 0)
    lines = [f'{{"id": {n}}}' if n % 7 else f"bad {n}" for n in range(60)]
    table = landed(tmp_path, "\n".join(lines))
    assert ids(table) == [n for n in range(60) if n % 7]
    assert [(line, source) for line, _, _, source in kept(table)] == [(n + 1, b"bad %d" % n) for n in range(0, 60, 7)]


def test_one_bad_row_too_many_fails_all_of_them(tmp_path: Path) -> None:
    assert len(landed(tmp_path, '{"id": 1}\nbad\nbad\n', room=2).bad) == 2
    with pytest.raises(BadRows) as error:
        landed(tmp_path, '{"id": 1}\nbad\nbad\nbad\n', room=2)
    assert (error.value.total, [e.line for e in error.value.errors]) == (3, [2, 3, 4])


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.csv", "k,x\n,\n,5\n", [2, 3]),
        ("a.ndjson", "{}\n", [1]),
        ("a.ndjson", '{"x": null}\n{"k": null, "x": null}\n', [1, 2]),
        ("a.ndjson", '{"k": null, "x": 5}\n', [1]),
        ("a.json", "[{}]", [1]),
    ],
)
@pytest.mark.parametrize("declared", [{}, {"x": LONG}], ids=["undeclared", "declared"])
def test_a_key_that_is_always_null_makes_bad_rows(
    tmp_path: Path, name: str, text: str, lines: list[int], declared: dict[str, Type]
) -> None:
    (tmp_path / name).write_text(text)
    ask = TableAsk("t", "t", "upsert", primary_key=("k",), declared=declared, max_bad_rows=10)
    source = open_source("files", {"path": name}, root=tmp_path, resolve=str, pipeline="t")
    (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
    read = source.read(ask, slice_)
    assert isinstance(read, ArrowRead) and read.observe is not None
    preview, observed = source.preview(ask, slice_), merge_observed([read.observe(part) for part in read.partitions])
    assert preview is not None and shown_to(None, preview, ask) == shown_to(None, observed, ask)
    made = evolve(
        None,
        shown_to(None, observed, ask),
        declared={key: DeclaredColumn(type_) for key, type_ in declared.items()},
        primary_key=ask.primary_key,
    )
    key = made.schema.column("k")
    assert key is not None and (key.type, key.nullable) == (STRING, False)
    found = [row for part in read.partitions for row in read.read(part, made.schema)]
    bad = [row.error for row in found if isinstance(row, BadRow)]
    assert [(error.line, error.column, error.reason) for error in bad] == [(n, "k", "null_in_non_null") for n in lines]


def test_a_key_that_no_row_has_is_an_error_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"x": 5}\n')
    ask = TableAsk("t", "t", "upsert", primary_key=("k",))
    source = open_source("files", {"path": "a.ndjson"}, root=tmp_path, resolve=str, pipeline="t")
    (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
    with pytest.raises(HeadwaterError, match="the primary key names `k`, and there is no such column"):
        evolve(None, shown_to(None, source.preview(ask, slice_), ask), declared={}, primary_key=("k",))


def test_more_bytes_of_bad_rows_than_are_kept_fail_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BAD_ROWS_BYTES", 10)
    assert len(landed(tmp_path, "12345x\n67x\n").bad) == 2
    for name, text in (("a.ndjson", "12345x\n678901\n"), ("b.csv", "id\nabcdefgh\n")):
        with pytest.raises(BadRows):
            landed(tmp_path, text, name=name)


def test_elements_of_a_document_are_kept_as_they_were(tmp_path: Path) -> None:
    table = landed(tmp_path, ' [{"id": 1}, {"id":\n "x"} , 7,{"id": 2}]', name="a.json")
    assert ids(table) == [1, 2]
    assert kept(table) == [(2, "id", "not_a_number", b'{"id":\n "x"}'), (3, None, "expected_object", b"7")]


def test_cells_are_kept_by_column_and_records_of_another_width_as_text(tmp_path: Path) -> None:
    text = 'id,note\n1,a\nx,"é\n"""\n2\n,\n3,\n'
    table = landed(tmp_path, text, name="a.csv", id=LONG, note=STRING)
    assert ids(table) == [1, None, 3]
    assert [(line, column, reason, json.loads(source)) for line, column, reason, source in kept(table)] == [
        (3, "id", "not_a_number", {"id": "x", "note": 'é\n"'}),
        (5, None, "wrong_number_of_cells", "2"),
    ]


def test_bytes_that_are_no_text_are_kept_and_stay_none(tmp_path: Path) -> None:
    table = landed(tmp_path, b"id,note\n1,a\n2,\xffb\n", name="a.csv", id=LONG, note=STRING)
    assert ids(table) == [1]
    ((line, column, reason, source),) = kept(table)
    assert (line, column, reason) == (3, "note", "invalid_text")
    assert json.loads(source) == {"id": "2", "note": "\udcffb"}


def test_rows_of_a_typed_file_are_kept_as_json(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    row: dict[str, pa.Array] = {
        "id": pa.array(["1", "x"]),
        "n": pa.array([None, 2**53 + 1]),
        "d": pa.array([None, decimal.Decimal("1.50")], pa.decimal128(5, 2)),
        "at": pa.array([0, 253_402_214_400_000_000], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"", b"\xff"]),
        "tags": pa.array([[], ["a", None]]),
    }
    pq.write_table(pa.table(row), sink)
    types = {"n": LONG, "at": STRING} | {name: parse_type(text) for name, text in TYPES.items()}
    table = landed(tmp_path, sink.getvalue().to_pybytes(), name="a.parquet", id=LONG, **types)
    assert ids(table) == [1]
    ((line, column, reason, source),) = kept(table)
    assert (line, column, reason) == (2, "id", "not_a_number")
    assert source == (
        b'{"id":"x","n":9007199254740993,"d":1.50,"at":"9999-12-31 00:00:00.000000Z","raw":"/w==","tags":["a",null]}'
    )


TYPES = {"d": "decimal(5,2)", "raw": "binary", "tags": "list<string>"}

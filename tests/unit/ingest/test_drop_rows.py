"""Rows of dropped CSV and Parquet files: the connector's verdict on values, a push's way with unknown columns."""

from __future__ import annotations

import gzip
import hashlib
import io
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.config import FileFormat, format_of
from headwater.connectors.files.convert_columns import convert_any, json_texts
from headwater.connectors.files.read import ReadFiles
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.protocol import ItemRead, SliceGone, UnknownColumns
from headwater.ingest.decode import TooLarge
from headwater.ingest.dropped_files import FileRows, new_columns, read_part
from headwater.ingest.first_columns import DEFAULT_COLUMNS
from headwater.ingest.prepare import Prepared, wider
from schemas import schema_of

TYPED = schema_of({"id": "long", "ok": "bool", "price": "decimal(9,2)", "at_": "timestamp", "tags": "dynamic"})
PUSHED = schema_of({name: str(type_) for name, type_ in DEFAULT_COLUMNS.items()})


@dataclass(frozen=True)
class Folder:
    root: Path

    def put(self, name: str, content: bytes) -> FoundFile:
        path = self.root / name
        path.write_bytes(content)
        status = path.stat()
        return FoundFile(name, status.st_size, status.st_mtime_ns)

    def rows(self, name: str, content: bytes) -> FileRows:
        sha256 = hashlib.sha256(content).hexdigest()
        return FileRows(self.root, how_of(name), self.put(name, content), sha256, "t")

    def prepared(self, name: str, content: bytes, schema: TableSchema, most_bad: int | None = 100) -> Prepared:
        return self.rows(name, content)(schema, most_bad)


def how_of(name: str) -> FileFormat:
    return FileFormat(format_of(name) or "", takes_all=True)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def parquet(rows: dict[str, Any], **options: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table(rows), made, **options)
    return made.getvalue()


def values(prepared: Prepared) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if v is not None} for row in prepared.batch.to_pylist()]


CSVS = {
    "words and numbers": b"id,ok,price\n1,TRUE,1.50\n+2,False,-0\n3,1,2.555\n4,,\n",
    "times and JSON": b'id,at_,tags\n1,2026-01-01,"[1, 2]"\n2,1767225600,{\n3,"",nul\n',
    "rows of other widths": b"id,ok\n1\n2,true,3\n4,true\n\n5,false\n",
    "not UTF-8": b"id,price\n1,\xff\n2,3\n",
    "an empty file": b"",
    "a header alone": b"id,ok\n",
    "windows": "\ufeffid,ok\r\n1,true\r\nx,true\r\n".encode(),
}


@pytest.mark.parametrize("case", CSVS)
def test_csv_gets_the_verdict_of_the_files_connector(folder: Folder, case: str) -> None:
    content = CSVS[case]
    prepared = folder.prepared("a.csv", content, TYPED)
    file = folder.put("a.csv", content)
    piece = [file.source_id, file.size, file.mtime_ns, 0, file.size, True]
    found = list(ReadFiles(folder.root, FileFormat("csv"), max_bad_rows=100)({"pieces": [piece]}, TYPED))
    assert list(prepared.bad) == [each for each in found if isinstance(each, BadRow)]
    batches = [each for each in found if not isinstance(each, BadRow | ItemRead)]
    theirs = [row for batch in batches for row in batch.drop_columns(["_source_id"]).to_pylist()]
    assert prepared.batch.to_pylist() == theirs
    assert (prepared.added, prepared.rescues) == ((), False)


def test_unknown_columns_of_csv_become_text_and_the_others_are_rescued(folder: Folder) -> None:
    found = folder.prepared("a.csv.gz", gzip.compress(b'id,note,Full Name,ts\n1,007,"Ada, L.",\n2,,,x\n'), TYPED)
    assert found.added == ("note",), "`ts` is a name that pushes keep"
    assert values(found) == [
        {"id": 1, "note": "007", "_rescued": '{"Full Name":"Ada, L."}'},
        {"id": 2, "_rescued": '{"ts":"x"}'},
    ]
    assert found.rows_rescued == 2


def test_a_table_that_pushes_made_gets_its_time_from_another_column(folder: Folder) -> None:
    found = folder.prepared("a.csv", b"label,at,ts\na,2026-01-01,\nb,2026-01-02,2026-01-03\nc,,\n", PUSHED)
    assert found.added == ("at",), "one of its cells is not used"
    times = [None if row["ts"] is None else str(row["ts"])[:10] for row in found.batch.to_pylist()]
    assert times == ["2026-01-01", "2026-01-03", None]
    assert found.batch.column("at").to_pylist() == [None, "2026-01-02", None]
    assert folder.prepared("b.csv", b"label,at\na,2026-01-01\n", PUSHED).added == ()
    assert folder.prepared("c.csv", b"label,at\na,yesterday\n", PUSHED).added == ("at",)


def test_columns_of_parquet_have_the_types_of_the_table(folder: Folder) -> None:
    content = parquet(
        {"id": pa.array([1, 2], pa.uint8()), "ok": [True, None], "price": [1.5, 2.0], "tags": ["[1]", "5"]}
    )
    found = folder.prepared("a.parquet", content, TYPED)
    assert [(row["id"], row["price"], row["tags"]) for row in values(found)] == [
        (1, Decimal("1.50"), "[1]"),
        (2, Decimal("2.00"), "5"),
    ]


def test_new_columns_of_parquet_are_text_also_the_second_time(folder: Folder) -> None:
    content = parquet({"id": [1], "tags_": [["a", None]], "deep": [{"n": 1.5}], "raw": [b"\xff"], "Odd": [2]})
    first = folder.prepared("a.parquet", content, TYPED)
    text = {"id": 1, "tags_": '["a",null]', "deep": '{"n":1.5}', "raw": "/w==", "_rescued": '{"Odd":2}'}
    assert (first.added, values(first)) == (("tags_", "deep", "raw"), [text])
    wider = TYPED
    for name in first.added:
        wider = wider.added(name, STRING)
    second = folder.prepared("a.parquet", content, wider)
    assert (second.added, values(second)) == ((), [text])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_that_has_no_name_here_is_rescued(folder: Folder, name: str) -> None:
    content = b"id,,_run_id\n1,x,2\n" if name == "a.csv" else parquet({"id": [1], "": ["x"], "_run_id": ["2"]})
    found = folder.prepared(name, content, TYPED)
    assert (found.rescues, found.batch.column("_rescued").to_pylist()) == (True, ['{"":"x","_run_id":"2"}'])


def test_bad_rows_of_parquet_are_kept_or_refuse_the_file(folder: Folder) -> None:
    found = folder.prepared("a.parquet", parquet({"id": [1.0, 1.5]}), TYPED, most_bad=1)
    assert [(row.error.line, row.error.reason, row.source) for row in found.bad] == [
        (2, "does_not_fit_long", b'{"id":1.5}')
    ]
    with pytest.raises(HeadwaterError) as raised:
        folder.prepared("a.parquet", parquet({"id": [1.0, 1.5]}), TYPED, most_bad=0)
    assert (raised.value.code, raised.value.detail["total"]) == ("HW-I02", 1)


def test_a_file_with_more_bad_rows_than_are_borne_is_refused(folder: Folder) -> None:
    content = b"id\n" + b"x\n" * 3
    assert len(folder.prepared("a.csv", content, TYPED, most_bad=3).bad) == 3
    with pytest.raises(HeadwaterError) as raised:
        folder.prepared("a.csv", content, TYPED, most_bad=2)
    assert (raised.value.code, raised.value.detail["total"]) == ("HW-I02", 3)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"id,id\n1,2\n"),
        ("a.csv", b"PAR1 and so on"),
        ("a.csv.gz", b""),
        ("a.csv.gz", b"id\n1\n"),
        ("a.csv.gz", gzip.compress(b"id\n" + b"1\n" * 1000, mtime=0)[:-4]),
        ("a.parquet", b"id\n1\n"),
        ("a.parquet", parquet({"id": [1] * 9000})[:-20]),
        ("a.parquet", parquet({"m": pa.array([1], pa.duration("s"))})),
    ],
)
def test_a_file_that_is_not_what_it_says_cannot_be_read(folder: Folder, name: str, content: bytes) -> None:
    with pytest.raises(HeadwaterError) as raised:
        folder.prepared(name, content, TYPED)
    assert raised.value.code == "HW-I04"


def test_a_bad_row_in_a_later_part_of_a_file_moves_no_other_row(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.base.limits.FILE_CHUNK_BYTES", 100)
    content = b"".join(b'{"id": %d}\n' % n + b"bad\n" * (n == 70) for n in range(100))
    file, half = folder.put("a.ndjson", content), len(content) // 2
    read = partial(read_part, folder.root, how_of("a.ndjson"), 1, ())
    found: list[Any] = []
    for start, end in ((0, half), (half, len(content))):
        found += read({"pieces": [[file.source_id, file.size, file.mtime_ns, start, end, False]]}, TYPED)
    assert [n for each in found if isinstance(each, pa.RecordBatch) for n in each["id"].to_pylist()] == [*range(100)]
    assert [each.error.line for each in found if isinstance(each, BadRow)] == [72]


def test_a_big_file_of_short_rows_fits_a_wide_table(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUSH_SMALL_BYTES", 200)
    monkeypatch.setattr(limits, "BATCH_CELLS", 1_000)
    content = b"{}\n" * 999
    file = folder.put("a.ndjson", content)
    read = partial(read_part, folder.root, how_of("a.ndjson"), 0, ())
    partition = {"pieces": [[file.source_id, file.size, file.mtime_ns, 0, file.size, True]]}
    assert sum(each.num_rows for each in read(partition, TYPED) if isinstance(each, pa.RecordBatch)) == 999


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"label,at,Odd\na,2026-01-01,\nb,no time,1\n"),
        ("a.ndjson", b'{"label": "a", "at": "2026-01-01"}\n{"label": "b", "at": "no time", "Odd": 1}\n'),
    ],
)
def test_a_big_file_is_read_again_with_new_columns_as_if_it_were_small(
    folder: Folder, name: str, content: bytes
) -> None:
    small = folder.prepared(name, content, PUSHED)
    assert (small.added, small.rescues) == (("at",), True)
    rows = folder.rows(name, content)
    first = rows.in_parts(0, None)
    with pytest.raises(UnknownColumns) as raised:
        list(first.read(first.partitions[0], PUSHED))
    added, rescues = new_columns(PUSHED, [raised.value.observed])
    again = rows.in_parts(0, added)
    found = list(again.read(again.partitions[0], wider(PUSHED, added, rescues=rescues)))
    batches = [each for each in found if isinstance(each, pa.RecordBatch)]
    assert [row for batch in batches for row in batch.to_pylist()] == small.batch.to_pylist()


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}\n"), parquet({"id": [1]}), "{}\n".encode("utf-16")],
    ids=["gzip", "parquet", "utf-16"],
)
def test_a_file_that_is_no_text_is_no_ndjson(folder: Folder, content: bytes) -> None:
    with pytest.raises(HeadwaterError, match=r"`a\.ndjson` is not NDJSON") as raised:
        folder.prepared("a.ndjson", content, TYPED)
    assert raised.value.code == "HW-I04"


def test_a_file_that_is_another_one_by_now_is_not_landed(folder: Folder) -> None:
    rows = folder.rows("a.csv", b"id\n1\n")
    folder.put("a.csv", b"id\n1\n2\n")
    with pytest.raises(SliceGone):
        rows(TYPED, 0)
    forged = replace(rows, file=folder.put("b.csv", b"id\n3\n"))
    with pytest.raises(SliceGone):
        forged(TYPED, 0)


@pytest.mark.parametrize("name", ["b.csv.gz", "b.ndjson.gz"])
def test_a_file_that_is_small_because_it_is_compressed_well_is_no_batch(
    folder: Folder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b'{"id": 1}\n' * 10_000 if "json" in name else b"id\n" + b"1\n" * 10_000
    rows = folder.rows(name, gzip.compress(content))
    assert rows(TYPED, 0).rows == 10_000
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 100_000)
    with pytest.raises(TooLarge):
        rows(TYPED, 0)


def test_every_value_of_a_typed_file_has_a_text() -> None:
    columns = {
        "1": pa.array([1], pa.int8()),
        "1.5": pa.array([1.5]),
        "true": pa.array([True]),
        "1.50": pa.array([Decimal("1.50")]),
        "1970-01-02": pa.array([1], pa.date32()),
        "a": pa.array(["a"]).dictionary_encode(),
        "[[1],null]": pa.array([[[1], None]]),
        "{}": pa.array([{}], pa.struct([])),
        "[1,2]": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
        "AAE=": pa.array([b"\x00\x01"]),
    }
    for text, column in columns.items():
        assert convert_any(column, STRING)[0].to_pylist() == [text]
        empty = pa.concat_arrays([column.slice(0, 0), pa.nulls(1, column.type)])
        assert (convert_any(empty, STRING)[0].to_pylist(), json_texts(empty)) == ([None], ["null"])
    assert json_texts(pa.array([float("nan"), 1e300])) == ['"nan"', "1e+300"]
    assert json_texts(pa.array(['"', "\n"])) == ['"\\""', '"\\n"']

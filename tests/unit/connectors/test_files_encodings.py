"""Texts in other encodings, and records inside documents: the rows that the same file in UTF-8, or the records alone,
would give."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from by_hand import Table, open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.types import LONG, STRING
from headwater.connectors.files.encoding import is_line_safe
from headwater.connectors.protocol import TableAsk

ASK = TableAsk("t", "t", "append", max_bad_rows=100)
TEXT = "é ß ü"


def landed(root: Path, name: str, data: bytes, ask: TableAsk = ASK, **config: Any) -> Table:
    (root / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    table = Table(ask)
    source = open_source("files", {"path": name, **config}, root=root, resolve=str, pipeline="t")
    (slice_,) = table.plan(source).slices
    preview = source.preview(ask, slice_)
    table.land(source)
    if not table.bad:
        assert preview is not None
        assert dict(preview.columns) == {column.name: column.type for column in table.schema.columns}
    return table


def rows(table: Table) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_source_id"} for row in table.rows]


ENCODINGS = ["latin-1", "windows-1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp500", "utf-8", "utf-8-sig"]


@pytest.mark.parametrize("chunk_bytes", [limits.FILE_CHUNK_BYTES, 7], ids=["in one go", "in chunks"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["a.ndjson", "a.json", "a.csv", "a.csv.gz", "a.ndjson.gz"])
def test_every_text_format_is_read_in_every_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, encoding: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(limits, "FILE_CHUNK_BYTES", chunk_bytes)
    wanted = [{"id": number, "x": TEXT} for number in range(4)]
    lines = [json.dumps(row, ensure_ascii=False) for row in wanted]
    text = {
        "csv": "id,x\n" + "".join(f"{row['id']},{TEXT}\n" for row in wanted),
        "ndjson": "\n".join(lines),
        "json": f"[{','.join(lines)}]",
    }[name.split(".")[1]]
    assert rows(landed(tmp_path, name, text.encode(encoding), encoding=encoding)) == wanted


def test_an_east_asian_encoding_whose_second_bytes_look_like_marks(tmp_path: Path) -> None:
    text = "id,x\n1,表ソ\n2,ア\n"
    table = landed(tmp_path, "a.csv", text.encode("shift_jis"), encoding="shift_jis")
    assert rows(table) == [{"id": 1, "x": "表ソ"}, {"id": 2, "x": "ア"}]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_a_large_file_is_cut_only_where_a_newline_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(limits, "SPLIT_BYTES", 64)
    monkeypatch.setattr(limits, "MTIME_TRUST_NS", 0)
    # U+0A0A is two bytes that look like newlines in UTF-16.
    word = "é" if encoding == "latin-1" else "\u0a0aé"
    lines = [json.dumps({"id": n, "x": word}, ensure_ascii=False) if n % 7 else f"bad {n} é" for n in range(40)]
    data = "\n".join(lines).encode(encoding)
    table = landed(tmp_path, "a.ndjson", data, encoding=encoding)
    source = open_source("files", {"path": "a.ndjson", "encoding": encoding}, root=tmp_path, resolve=str, pipeline="t")
    (slice_,) = Table(ASK).plan(source).slices
    read: Any = source.read(ASK, slice_)
    assert (len(read.partitions) > 1) == (encoding == "latin-1")
    assert rows(table) == [{"id": n, "x": word} for n in range(40) if n % 7]
    assert [(row.error.line, row.source.decode()) for row in table.bad] == [
        (n + 1, f"bad {n} é") for n in range(0, 40, 7)
    ]


def test_only_encodings_of_one_byte_are_line_safe() -> None:
    assert [name for name in ("ascii", "latin-1", "cp1252", "koi8-r", "iso-8859-15") if not is_line_safe(name)] == []
    unsafe = ("utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "cp500", "shift_jis", "gb18030", "iso2022_jp", "hz")
    assert [name for name in unsafe if is_line_safe(name)] == []


def test_bytes_that_are_no_text_in_the_encoding_make_bad_rows(tmp_path: Path) -> None:
    lines = b'{"id": 1, "x": "\xe9"}\n{"id": 2, "x": "\x81"}\n{"id": 3, "x": "\xe9"}\n'
    ask = TableAsk("t", "t", "append", declared={"id": LONG, "x": STRING}, max_bad_rows=100)
    table = landed(tmp_path, "a.ndjson", lines, ask, encoding="windows-1252")
    assert [row["id"] for row in table.rows] == [1, 3]
    ((error, _),) = [(row.error, row.source) for row in table.bad]
    assert (error.line, error.reason) == (2, "invalid_json")
    assert error.fault is not None
    assert (error.fault.column, error.fault.reason) == (17, "not cp1252")
    table = landed(tmp_path, "a.csv", b"id,x\n1,\xe9\n2,\x81\n", ask, encoding="windows-1252")
    assert [row["x"] for row in table.rows] == ["é"]
    assert [(row.error.line, row.error.column, row.error.reason, row.error.detail) for row in table.bad] == [
        (3, "x", "invalid_text", "not cp1252")
    ]


DOCUMENT = {"data": [{"id": 1}, {"id": 2}], "one": {"id": 3}, "a b": [[{"id": 4}], [{"id": 5}, {"id": 6}]], "no": None}
ORDERS = {"orders": [{"lines": [{"id": 1}]}, {"lines": None}, {}, {"lines": [{"id": 2}, {"id": 3}]}]}


@pytest.mark.parametrize(
    ("document", "path", "ids"),
    [
        (DOCUMENT, "$.data[*]", [1, 2]),
        (DOCUMENT, "$.data", [1, 2]),
        (DOCUMENT, "$['data'][*]", [1, 2]),
        (DOCUMENT, "$.one", [3]),
        (DOCUMENT, "$['a b'][*][*]", [4, 5, 6]),
        (DOCUMENT["data"], "$[*]", [1, 2]),
        (DOCUMENT["data"], "$", [1, 2]),
        (ORDERS, "$.orders[*].lines[*]", [1, 2, 3]),
        (ORDERS, "$.orders[*].lines", [1, 2, 3]),
    ],
)
def test_records_are_what_a_path_leads_to(tmp_path: Path, document: Any, path: str, ids: list[int]) -> None:
    table = landed(tmp_path, "a.json", json.dumps(document, indent=1).encode(), records=path)
    assert rows(table) == [{"id": n} for n in ids]


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        (DOCUMENT, "$.rows[*]", "`a.json` has no records: there is no `$.rows`"),
        (DOCUMENT, "$.one[*]", "`a.json` has no records: `$.one` is no array"),
        (DOCUMENT, "$.data.rows", "`a.json` has no records: `$.data` is no object"),
        (DOCUMENT, "$['a b'][*].x", "`a.json` has no records: `$['a b'][*]` is no object"),
        ([], "$.data", "`a.json` has no records: `$` is no object"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_of_the_file(
    tmp_path: Path, document: Any, path: str, message: str
) -> None:
    with pytest.raises(HeadwaterError) as error:
        landed(tmp_path, "a.json", json.dumps(document).encode(), records=path)
    assert (error.value.code, error.value.message) == ("HW-C02", message)


def test_records_that_are_no_objects_are_bad_rows_by_their_number(tmp_path: Path) -> None:
    text = b'{"data": [{"id": 1}, 7, {"id": "x"}, {"id": "\\ud800"}, {"id": 2}]}'
    ask = TableAsk("t", "t", "append", declared={"id": LONG}, max_bad_rows=100)
    table = landed(tmp_path, "a.json", text, ask, records="$.data[*]")
    assert [row["id"] for row in table.rows] == [1, 2]
    assert [(row.error.line, row.error.reason, row.source) for row in table.bad] == [
        (2, "expected_object", b"7"),
        (3, "not_a_number", b'{"id": "x"}'),
        (4, "lone_surrogate", b'{"id": "\\ud800"}'),
    ]


def test_a_null_at_the_end_of_the_path_has_no_rows(tmp_path: Path) -> None:
    assert landed(tmp_path, "a.json", b'{"data": null}', records="$.data[*]").rows == []


def test_a_document_without_a_value_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"`b\.json` is not JSON: line 1, column 1: the text ends too early"):
        landed(tmp_path, "b.json", b"", records="$.data[*]")

"""CSV: cells, headers, nulls, and the line of every bad row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from by_hand import Table, open_source
from headwater.base.errors import HeadwaterError
from headwater.base.types import BOOL, LONG, REAL, STRING, Type
from headwater.connectors.files import csv as files_csv
from headwater.connectors.protocol import BadRows, Source, TableAsk

ASK = TableAsk("t", "t", "append")


def opened(root: Path, **config: object) -> Source:
    return open_source("files", {"path": "*.csv", **config}, root=root, resolve=str, pipeline="t")


def landed(root: Path, text: str | bytes, *, ask: TableAsk = ASK, **config: object) -> Table:
    (root / "a.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    table = Table(ask)
    table.land(opened(root, **config))
    return table


def rows(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(value for name, value in row.items() if name != "_source_id") for row in table.rows]


def bad(root: Path, text: str | bytes, **declared: Type) -> list[tuple[int, str | None, str]]:
    with pytest.raises(BadRows) as error:
        landed(root, text, ask=TableAsk("t", "t", "append", declared=declared))
    assert {found.place for found in error.value.errors} == {"a.csv"}
    assert error.value.total == len(error.value.errors)
    return [(found.line, found.column, found.reason) for found in error.value.errors]


def test_types_are_inferred_from_all_cells(tmp_path: Path) -> None:
    table = landed(tmp_path, "i,r,b,s,z\n1,1,true,x,007\n2,2.5,FALSE,,008\n")
    assert [column.type for column in table.schema.columns] == [LONG, REAL, BOOL, STRING, STRING]
    assert rows(table) == [(1, 1.0, True, "x", "007"), (2, 2.5, False, None, "008")]


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,x\n2,y\n", "a,b\r\n1,x\r\n2,y\r\n", "a,b\n1,x\n\n2,y", "\ufeffa,b\n1,x\n2,y", '"a","b"\n"1","x"\n"2","y"'],
)
def test_line_ends_marks_blank_lines_and_quotes_change_nothing(tmp_path: Path, text: str) -> None:
    assert rows(landed(tmp_path, text)) == [(1, "x"), (2, "y")]


def test_quoted_cells_keep_newlines_quotes_and_delimiters(tmp_path: Path) -> None:
    assert rows(landed(tmp_path, 'a,b\n"x\ny","1,""2"""\n')) == [("x\ny", '1,"2"')]


def test_an_unquoted_empty_cell_is_null_and_a_quoted_one_is_empty(tmp_path: Path) -> None:
    assert rows(landed(tmp_path, 'n,s\n1,\n,""\n,x\n')) == [(1, None), (None, ""), (None, "x")]


def test_null_texts_are_the_configured_ones(tmp_path: Path) -> None:
    assert rows(landed(tmp_path, 'n,s\nNA,"NA"\n1,\n', nulls=["NA"])) == [(None, "NA"), (1, "")]


def test_delimiter_and_quote_are_the_configured_ones(tmp_path: Path) -> None:
    assert rows(landed(tmp_path, "a;b\n'x;y';1\n", delimiter=";", quote="'")) == [("x;y", 1)]
    assert rows(landed(tmp_path, 'a\tb\n"x\t1\n', delimiter="\t", quote="")) == [('"x', 1)]


def test_without_a_header_the_declared_columns_name_the_cells(tmp_path: Path) -> None:
    ask = TableAsk("t", "t", "append", declared={"id": LONG, "name": STRING})
    assert rows(landed(tmp_path, "1,x\n2,y", ask=ask, header=False)) == [(1, "x"), (2, "y")]
    with pytest.raises(HeadwaterError) as error:
        landed(tmp_path, "1,x\n", header=False)
    assert error.value.code == "HW-C01"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("a,b,a", "two columns named `a`"),
        ("a\0b,c", "is not CSV"),
    ],
)
def test_a_header_that_no_table_can_have_is_refused_with_the_file(tmp_path: Path, header: str, words: str) -> None:
    with pytest.raises(HeadwaterError) as error:
        landed(tmp_path, f"{header}\n1,2,3\n")
    assert "`a.csv`" in error.value.message
    assert words in error.value.message


def test_a_column_that_has_no_name_here_is_rescued(tmp_path: Path) -> None:
    table = landed(tmp_path, ',a,_run_id\n0,x,\n1,y,"quo""te"\n,z,\n')
    assert table.schema.names() == ("a", "_rescued")
    assert [(row["a"], row["_rescued"]) for row in table.rows] == [
        ("x", '{"":"0"}'),
        ("y", '{"":"1","_run_id":"quo\\"te"}'),
        ("z", None),
    ]
    assert landed(tmp_path, "a,\n1,\n2,\n").schema.names() == ("a",)


@pytest.mark.parametrize("text", ["", "\n\n", "a,b", "a,b\n", "a", "a\n"])
def test_a_file_without_rows_lands_as_an_item(tmp_path: Path, text: str) -> None:
    table = landed(tmp_path, text)
    assert table.rows == []
    assert "a.csv" in table.landed


def test_files_whose_columns_differ_are_joined_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("c,a\n5,6\n")
    table = landed(tmp_path, "a,b\n1,2\n")
    assert [tuple(row[name] for name in "abc") for row in table.rows] == [(1, 2, None), (6, None, 5)]


def test_a_cell_that_does_not_fit_is_named_by_line_and_column(tmp_path: Path) -> None:
    text = 'id,note\n1,"two\nlines"\n\nx,ok\n3,ok\ny,"also\ntwo"\n'
    assert bad(tmp_path, text, id=LONG) == [(5, "id", "not_a_number"), (7, "id", "not_a_number")]


def test_rows_of_another_width_are_bad_rows_with_their_lines(tmp_path: Path) -> None:
    text = 'id,note\n1,"two\nlines"\n2\n\n3,a,b\nx,ok\n4\n'
    assert bad(tmp_path, text, id=LONG) == [
        (4, None, "wrong_number_of_cells"),
        (6, None, "wrong_number_of_cells"),
        (7, "id", "not_a_number"),
        (8, None, "wrong_number_of_cells"),
    ]


def test_cells_that_are_not_utf8_are_bad_rows(tmp_path: Path) -> None:
    assert bad(tmp_path, b"id,note\n1,x\n2,\xff\n", id=LONG) == [(3, "note", "invalid_text")]


@pytest.mark.parametrize("text", ['a,b\n1,x\n2,"open\n3,y\n', 'a,b\n1,x\n2,"open', 'a\nx\n"open\ny\n'])
def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path: Path, text: str) -> None:
    with pytest.raises(HeadwaterError, match="a quote that is never closed, in the row that begins on line 3"):
        bad(tmp_path, text)


def test_bad_rows_are_found_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_csv, "BLOCK_BYTES", 32)
    lines = ["id,note", *(f"{n},note {n}" for n in range(40))]
    lines[10], lines[20], lines[30] = "x,y", "1", "z,\u00e9"
    assert bad(tmp_path, "\n".join(lines), id=LONG) == [
        (11, "id", "not_a_number"),
        (21, None, "wrong_number_of_cells"),
        (31, "id", "not_a_number"),
    ]


def test_a_row_that_is_too_long_is_refused_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_csv, "BLOCK_BYTES", 64)
    with pytest.raises(HeadwaterError, match=r"`a\.csv` is not CSV: a row is longer"):
        landed(tmp_path, "a,b\n1," + "x" * 500 + "\n")

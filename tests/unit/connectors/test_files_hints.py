"""What a preview says of columns: words that probably mean null, columns to leave out that are not there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from by_hand import Table, open_source
from headwater.base.types import LONG, STRING, TIMESTAMP, Type
from headwater.connectors.protocol import TableAsk


def hints(root: Path, text: str, *, exclude: tuple[str, ...] = (), name: str = "a.csv", **config: object) -> list[str]:
    (root / name).write_text(text)
    return hints_of(root, TableAsk("t", "t", "append", exclude=exclude), name, **config)


def hints_of(root: Path, ask: TableAsk, name: str, **config: object) -> list[str]:
    source = open_source("files", {"path": name, **config}, root=root, resolve=str, pipeline="t")
    (slice_,) = Table(ask).plan(source).slices
    preview = source.preview(ask, slice_)
    assert preview is not None
    return list(preview.hints.values())


@pytest.mark.parametrize(
    ("cells", "hint"),
    [
        (["1", "NA", "3"], 'column `x` would be `long` but for `NA`; if that means null, set `nulls = ["", "NA"]`'),
        (
            ["1.5", "-", "N/A", "-"],
            'column `x` would be `real` but for `-`, `N/A`; if that means null, set `nulls = ["", "-", "N/A"]`',
        ),
        (
            ["2026-01-01", "null"],
            'column `x` would hold times but for `null`; if that means null, set `nulls = ["", "null"]`',
        ),
        (["a", "NA"], None),
        (["NA", "NA"], None),
        (["1", "2"], None),
        (["1", "nothing"], None),
    ],
)
def test_a_word_that_keeps_a_column_from_being_numbers_is_named(
    tmp_path: Path, cells: list[str], hint: str | None
) -> None:
    assert hints(tmp_path, "\n".join(["x,y", *(f"{cell},1" for cell in cells)])) == ([hint] if hint else [])


def test_a_word_that_means_null_already_is_not_named(tmp_path: Path) -> None:
    text = "x\n1\nNA\n-\n"
    (hint,) = hints(tmp_path, text, nulls=["NA"])
    assert hint.endswith('set `nulls = ["NA", "-"]`')
    assert hints(tmp_path, text, nulls=["NA", "-"]) == []


@pytest.mark.parametrize(("type_", "is_named"), [(TIMESTAMP, True), (LONG, True), (STRING, False)])
def test_a_word_in_a_declared_column_is_named_where_it_makes_bad_rows(
    tmp_path: Path, type_: Type, is_named: bool
) -> None:
    (tmp_path / "a.csv").write_text("x\nNA\n")
    found = hints_of(tmp_path, TableAsk("t", "t", "append", declared={"x": type_}), "a.csv")
    expected = f'column `x` is declared `{type_}`, and `NA` in it is none; if that means null, set `nulls = ["", "NA"]`'
    assert found == ([expected] if is_named else [])


def test_a_column_to_leave_out_that_is_not_there_has_the_nearest_name(tmp_path: Path) -> None:
    missing = "`exclude` names `secrte`, and the sample has no such column; did you mean `secret`?"
    assert hints(tmp_path, "id,secret\n", exclude=("secrte",)) == [missing]
    assert hints(tmp_path, '{"secret": 1}\n', exclude=("secrte",), name="a.ndjson") == [missing]
    assert hints(tmp_path, '[{"secret": 1}]', exclude=("secret",), name="a.json") == []
    pq.write_table(pa.table({"secret": [1]}), tmp_path / "a.parquet")
    ask = TableAsk("t", "t", "append", exclude=("secrte",))
    assert hints_of(tmp_path, ask, "a.parquet") == [missing]
    assert hints(tmp_path, "", exclude=("secrte",), name="b.ndjson") == []

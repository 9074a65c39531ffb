"""The files connector over several runs: each content lands once, and people are told what they should know."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from by_hand import Table, open_source
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.types import DYNAMIC, LONG, REAL, STRING
from headwater.connectors.protocol import CursorKind, Observed, SlicePlan, Source, TableAsk

APPEND, UPSERT, REPLACE = (TableAsk("t", "t", mode) for mode in ("append", "upsert", "replace"))


def opened(root: Path, path: str = "*.ndjson", **config: object) -> Source:
    return open_source("files", {"path": path, **config}, root=root, resolve=str, pipeline="my-pipe")


def plan(source: Source, ask: TableAsk = APPEND) -> SlicePlan:
    return source.slices(ask, None, source.bound(ask), {})


def write(path: Path, *ids: int) -> None:
    path.write_text("".join(f'{{"id": {id_}}}\n' for id_ in ids))


def settle(path: Path) -> None:
    old = time.time_ns() - 10 * limits.MTIME_TRUST_NS
    os.utime(path, ns=(old, old))


def ids(table: Table) -> list[int]:
    return [row["id"] for row in table.rows]


def test_a_changed_file_of_an_append_table_replaces_its_own_rows(tmp_path: Path) -> None:
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1, 2)
    write(tmp_path / "b.ndjson", 3)
    table.land(opened(tmp_path))
    write(tmp_path / "a.ndjson", 1, 2, 4)
    (slice_,) = table.land(opened(tmp_path)).slices
    assert slice_.replaces == ("a.ndjson",)
    assert sorted(ids(table)) == [1, 2, 3, 4]


def test_a_file_rewritten_with_equal_size_and_mtime_is_noticed(tmp_path: Path) -> None:
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1)
    table.land(opened(tmp_path))
    status = (tmp_path / "a.ndjson").stat()
    write(tmp_path / "a.ndjson", 2)
    os.utime(tmp_path / "a.ndjson", ns=(status.st_mtime_ns, status.st_mtime_ns))
    table.land(opened(tmp_path))
    assert ids(table) == [2]


def test_a_small_touched_file_is_not_worth_a_note(tmp_path: Path) -> None:
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1)
    settle(tmp_path / "a.ndjson")
    table.land(opened(tmp_path))
    (tmp_path / "a.ndjson").touch()
    assert table.plan(opened(tmp_path)) == SlicePlan(())


def test_a_touched_file_is_noted_and_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NOTED_BYTES", 1)
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1)
    settle(tmp_path / "a.ndjson")
    table.land(opened(tmp_path))
    assert table.plan(opened(tmp_path)) == SlicePlan(())
    (tmp_path / "a.ndjson").touch()
    touched = table.land(opened(tmp_path))
    assert touched.slices == ()
    assert [item.source_id for item in touched.touched] == ["a.ndjson"]
    assert ids(table) == [1]


def test_a_settled_file_is_trusted_after_its_first_landing(tmp_path: Path) -> None:
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1)
    settle(tmp_path / "a.ndjson")
    table.land(opened(tmp_path))
    assert table.plan(opened(tmp_path)).touched == ()


def test_vanished_files_are_reported_and_their_rows_stay(tmp_path: Path) -> None:
    table = Table(APPEND)
    for number in range(25):
        write(tmp_path / f"{number:02}.ndjson", number)
    write(tmp_path / "z.ndjson", 99)
    table.land(opened(tmp_path))
    for number in range(25):
        (tmp_path / f"{number:02}.ndjson").unlink()
    after = table.land(opened(tmp_path))
    (warning,) = after.warnings
    assert after.slices == ()
    assert warning.startswith("25 landed files are gone (their rows stay in the table): `00.ndjson`, `01.ndjson`")
    assert warning.endswith("and 5 more")
    assert len(table.rows) == 26


def test_a_vanished_file_that_comes_back_as_it_was_does_not_land_twice(tmp_path: Path) -> None:
    table = Table(APPEND)
    write(tmp_path / "a.ndjson", 1)
    table.land(opened(tmp_path))
    (tmp_path / "a.ndjson").rename(tmp_path / "away")
    table.land(opened(tmp_path))
    (tmp_path / "away").rename(tmp_path / "a.ndjson")
    assert table.land(opened(tmp_path)).slices == ()
    assert ids(table) == [1]


def test_replace_shows_the_files_that_are_there_and_misses_a_vanished_one_once(tmp_path: Path) -> None:
    table = Table(REPLACE)
    write(tmp_path / "a.ndjson", 1)
    write(tmp_path / "b.ndjson", 2)
    table.land(opened(tmp_path))
    assert ids(table) == [1, 2]
    (tmp_path / "a.ndjson").unlink()
    assert "their rows leave the table" in table.land(opened(tmp_path)).warnings[0]
    assert ids(table) == [2]
    assert table.plan(opened(tmp_path)) == SlicePlan(())
    write(tmp_path / "a.ndjson", 1)
    table.land(opened(tmp_path))
    assert ids(table) == [1, 2]


def test_replace_keeps_its_rows_when_every_file_is_gone(tmp_path: Path) -> None:
    table = Table(REPLACE)
    write(tmp_path / "a.ndjson", 1)
    table.land(opened(tmp_path))
    (tmp_path / "a.ndjson").unlink()
    after = table.land(opened(tmp_path))
    assert after.slices == ()
    assert "their rows stay in the table" in after.warnings[0]
    assert ids(table) == [1]


def test_upsert_reads_new_and_changed_files_in_path_order(tmp_path: Path) -> None:
    table = Table(UPSERT)
    write(tmp_path / "b.ndjson", 1)
    table.land(opened(tmp_path))
    write(tmp_path / "a.ndjson", 5)
    write(tmp_path / "b.ndjson", 1, 2)
    (slice_,) = table.plan(opened(tmp_path)).slices
    assert [item.source_id for item in slice_.items] == ["a.ndjson", "b.ndjson"]
    assert slice_.replaces == ()


def test_a_pattern_that_names_nothing_yet_is_a_warning(tmp_path: Path) -> None:
    assert plan(opened(tmp_path)).warnings == ("no file matches `*.ndjson`",)


def test_a_name_that_tells_no_format_is_refused_with_its_path(tmp_path: Path) -> None:
    write(tmp_path / "a.ndjson", 1)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(HeadwaterError) as error:
        plan(opened(tmp_path, "."))
    assert error.value.code == "HW-C01"
    assert "`notes.txt`" in error.value.message


def test_two_formats_are_refused_with_both_files(tmp_path: Path) -> None:
    write(tmp_path / "a.ndjson", 1)
    (tmp_path / "b.csv").write_text("id\n1\n")
    with pytest.raises(HeadwaterError, match=r"`a\.ndjson` is ndjson and `b\.csv` is csv"):
        plan(opened(tmp_path, "*"))


def test_the_source_says_what_it_is(tmp_path: Path) -> None:
    source = opened(tmp_path, "in/*.csv")
    assert source.identity(APPEND) == opened(tmp_path, "elsewhere/*.csv").identity(APPEND)
    assert [table.name for table in source.discover()] == ["my_pipe"]
    assert source.backfill_hint().cursor_kind is CursorKind.OPAQUE_TOKEN


def test_moving_the_project_changes_nothing(tmp_path: Path) -> None:
    project = tmp_path / "before"
    (project / "in").mkdir(parents=True)
    write(project / "in/a.ndjson", 1)
    settle(project / "in/a.ndjson")
    table = Table(APPEND)
    table.land(opened(project, "in/*.ndjson"))
    moved = project.rename(tmp_path / "after")
    source = opened(moved, "in/*.ndjson")
    assert table.cursor is not None
    assert source.identity(APPEND) == table.cursor.source_identity
    assert table.plan(source) == SlicePlan(())


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        ("a.ndjson", b'{"id": 1}\n' * 50, 50),
        ("a.ndjson", b'{"id": 1}\n' * 49 + b'{"id": 1}', 50),
        ("a.ndjson", b'{"id": 1}\n' * 20_000, 20_000),
        ("a.csv", b"id\n1\n2\n", 2),
        ("a.json", b"[]", None),
        ("a.ndjson", b"", 0),
        ("a.ndjson.gz", b"x", None),
    ],
)
def test_rows_are_estimated_where_lines_tell(tmp_path: Path, name: str, data: bytes, rows: int | None) -> None:
    (tmp_path / name).write_bytes(data)
    (slice_,) = plan(opened(tmp_path, name)).slices
    assert slice_.estimated_bytes == len(data)
    assert slice_.estimated_rows == (rows if rows is None else pytest.approx(rows, rel=0.01))


@pytest.mark.parametrize(
    ("name", "data", "observed"),
    [
        (
            "a.ndjson",
            b'{"id": 1, "x": null, "d": [1]}\n{"id": 2.5}\n',
            Observed({"id": REAL, "d": DYNAMIC}, nulls=frozenset({"x"})),
        ),
        ("a.json", b'[{"id": 1}]', Observed({"id": LONG})),
        ("a.csv", b"id,s\n1,x\n", Observed({"id": LONG, "s": STRING})),
    ],
)
def test_preview_tells_the_columns_of_text(tmp_path: Path, name: str, data: bytes, observed: Observed) -> None:
    (tmp_path / name).write_bytes(data)
    source = opened(tmp_path, name)
    (slice_,) = plan(source).slices
    assert source.preview(APPEND, slice_) == observed


def test_preview_looks_at_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREVIEW_BYTES", 25)
    (tmp_path / "a.ndjson").write_text('{"id": 1}\n{"id": 2}\n{"late": 1}\n')
    (tmp_path / "a.json").write_text('[{"id": 1}, {"id": 2}, {"id": 3}]')
    source = opened(tmp_path)
    assert source.preview(APPEND, plan(source).slices[0]) == Observed({"id": LONG})
    source = opened(tmp_path, "a.json")
    assert source.preview(APPEND, plan(source).slices[0]) is None


def test_preview_of_parquet_is_complete_only_if_every_footer_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({name: [1]}), tmp_path / f"{name}.parquet")
    source = opened(tmp_path, "*.parquet")
    (slice_,) = plan(source).slices
    assert source.preview(APPEND, slice_) == Observed({"a": LONG, "b": LONG}, complete=True)
    monkeypatch.setattr(limits, "PREVIEW_FOOTERS", 1)
    assert source.preview(APPEND, slice_) == Observed({"a": LONG}, complete=False)


def test_preview_of_a_file_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.ndjson", 1)
    source = opened(tmp_path)
    (slice_,) = plan(source).slices
    (tmp_path / "a.ndjson").unlink()
    assert source.preview(APPEND, slice_) is None

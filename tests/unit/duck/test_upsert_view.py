"""The view of a table with a key: the last write of a key is shown, and only what may hold it twice is ranked."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.base.types import parse_type
from headwater.catalog.inferred_levels import inferred_base
from headwater.duck.unique_keys import stored_keys
from headwater.storage.file_record import ColumnStats, LiveFile
from headwater.storage.part_writer import rewrite, rows_without
from schemas import schema_of
from unit.duck.tables import HandMade, ask, plan


def upsert_table(root: Path, types: dict[str, str] | None = None, key: tuple[str, ...] = ("id",)) -> HandMade:
    return HandMade(root, schema_of(types or {"id": "long", "v": "string"}, key), mode="upsert")


def test_the_last_write_wins_by_commit_then_by_row(tmp_path: Path) -> None:
    table = upsert_table(tmp_path)
    table.commit([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}], unique_keys=True)
    table.commit([{"id": 2, "v": "x"}, {"id": 4, "v": "d"}, {"id": 2, "v": "y"}])
    table.commit([{"id": 4, "v": "e"}])
    for stats in (True, False):
        files = tuple(table.files if stats else [replace(file, stats={}) for file in table.files])
        state = table.state(files=files)
        rows = ask(tmp_path, state, "SELECT id, v, _commit_seq FROM t ORDER BY id")
        assert rows == [(1, "a", 1), (2, "y", 2), (3, "c", 1), (4, "e", 3)]


def test_a_null_key_is_a_key_and_times_differ_by_a_nanosecond(tmp_path: Path) -> None:
    table = upsert_table(tmp_path, {"seen": "timestamp", "n": "long", "v": "long"}, ("seen", "n"))
    table.schemas[1] = replace(table.schema, columns=tuple(replace(c, nullable=True) for c in table.schema.columns))
    table.commit(
        [{"seen": 1, "n": None, "v": 1}, {"seen": 2, "n": None, "v": 2}, {"seen": None, "n": 0, "v": 3}],
        unique_keys=True,
    )
    table.commit([{"seen": 2, "n": None, "v": 20}, {"seen": None, "n": 0, "v": 30}, {"seen": 2, "n": 0, "v": 4}])
    assert ask(tmp_path, table.state(), "SELECT v FROM t ORDER BY v") == [(1,), (4,), (20,), (30,)]


def test_a_key_that_was_widened_or_renamed_is_the_same_key(tmp_path: Path) -> None:
    table = upsert_table(tmp_path, {"id": "int", "v": "string"})
    table.commit([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], unique_keys=True)
    column = table.schema.columns[0]
    schema = table.schema.with_column(replace(column, name="key", type=parse_type("long")))
    table.evolve(replace(schema, primary_key=("key",)))
    table.commit([{"key": 2, "v": "c"}, {"key": 2**40, "v": "d"}], unique_keys=True)
    assert ask(tmp_path, table.state(), "SELECT key, v FROM t ORDER BY key") == [(1, "a"), (2, "c"), (2**40, "d")]


def file_at(seq: int, low: Any, high: Any, *, unique: bool = True, nulls: int = 0, **changed: Any) -> LiveFile:
    stats = {"1": ColumnStats(min=low, max=high, nulls=nulls)} if low is not None else {}
    values: dict[str, Any] = {"path": f"{seq}", "schema_id": 1, "added_seq": seq, "ordinal": 0, "rows": 9, "bytes": 1}
    values |= {"run_id": "r", "unique_keys": unique, "stats": stats}
    return LiveFile(**(values | changed))


def seqs(values: range) -> dict[str, Any]:
    stats = {"1": ColumnStats(min=0, max=9), "2000000005": ColumnStats(min=values.start, max=values.stop - 1)}
    return {"merged": True, "stats": stats}


@pytest.mark.parametrize(
    ("files", "base"),
    [
        ([], 0),
        ([file_at(1, 0, 9)], 1),
        ([file_at(1, 0, 9, unique=False)], 0),
        ([file_at(1, None, None)], 1),
        ([file_at(1, 0, 9), file_at(2, 10, 19), file_at(3, -5, -1)], 3),
        ([file_at(1, 0, 9), file_at(2, 9, 19)], 1),
        ([file_at(1, 0, 9), file_at(2, 20, 29), file_at(3, 5, 25)], 2),
        ([file_at(1, 0, 9), file_at(2, 20, 29), file_at(3, 10, 19, unique=False)], 2),
        ([file_at(1, 0, 9), file_at(2, None, None), file_at(3, 20, 29)], 1),
        ([file_at(1, None, None), file_at(2, 20, 29)], 1),
        ([file_at(1, 0, 9, nulls=1), file_at(2, 10, 19)], 2),
        ([file_at(1, 0, 9, nulls=1), file_at(2, 10, 19, nulls=1)], 1),
        ([file_at(5, 0, 9, ordinal=0), file_at(5, 0, 9, ordinal=1, path="x"), file_at(6, 10, 11)], 3),
        ([file_at(4, 0, 9), file_at(9, 0, 9, **seqs(range(1, 4)))], 1),
        ([file_at(4, 0, 9), file_at(9, 0, 9, **seqs(range(1, 6)))], 0),
        ([file_at(9, 0, 9, merged=True), file_at(10, 5, 6)], 1),
    ],
)  # fmt: skip
def test_the_base_of_an_old_store_is_the_longest_known_part_without_duplicates(
    files: list[LiveFile], base: int
) -> None:
    schema = schema_of({"id": "long"}, ("id",))
    assert len(inferred_base(files, schema, {1: schema})) == base


def test_only_newer_files_are_ranked(tmp_path: Path) -> None:
    table = upsert_table(tmp_path)
    table.commit([{"id": i, "v": "a"} for i in range(10)], unique_keys=True)
    assert "Window" not in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    table.commit([{"id": i, "v": "b"} for i in range(10, 20)], unique_keys=True)
    assert "Window" not in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    assert "Join" not in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    table.commit([{"id": 3, "v": "c"}], unique_keys=True)
    assert "Window" not in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    assert "ANTI" in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    table.commit([{"id": 3, "v": "d"}], unique_keys=True)
    assert "Window" in plan(tmp_path, table.state(), "SELECT sum(id) FROM t")
    assert ask(tmp_path, table.state(), "SELECT count(*), max(v) FROM t") == [(20, "d")]


def test_merged_rows_keep_their_place_in_the_order(tmp_path: Path) -> None:
    """A file rewritten late holds early rows: they must not win over what was committed in between."""
    table = upsert_table(tmp_path)
    (early,) = table.commit([{"id": 1, "v": "old", "_source_id": "f"}, {"id": 2, "v": "keep", "_source_id": "g"}])
    table.commit([{"id": 2, "v": "newer"}])
    table.seq += 1
    records = rewrite(
        tmp_path,
        rows_without(tmp_path, early, ["f"]),
        schema=table.schema,
        directory="again",
        partition=0,
        task_attempt=0,
    )
    table.files.remove(early)
    table.add(records, "again")
    for stats in (True, False):
        files = tuple(table.files if stats else [replace(file, stats={}) for file in table.files])
        assert ask(tmp_path, table.state(files=files), "SELECT id, v, _commit_seq FROM t") == [(2, "newer", 2)]


def test_the_keys_of_a_table_are_counted_once_each(tmp_path: Path) -> None:
    table = upsert_table(tmp_path, {"id": "long", "v": "long"})
    assert stored_keys(tmp_path, table.state()) == 0
    table.commit([{"id": 1, "v": 1}, {"id": 2, "v": 2}], unique_keys=True)
    assert stored_keys(tmp_path, table.state()) == 2
    table.commit([{"id": 2, "v": 3}, {"id": 3, "v": 4}, {"id": 3, "v": 5}])
    assert stored_keys(tmp_path, table.state()) == 3


def test_reals_as_keys_are_ranked_whatever_their_bounds(tmp_path: Path) -> None:
    table = upsert_table(tmp_path, {"id": "real", "v": "long"})
    table.commit([{"id": math.nan, "v": 1}, {"id": 1.0, "v": 2}], unique_keys=True)
    table.commit([{"id": math.nan, "v": 3}, {"id": 5.0, "v": 4}], unique_keys=True)
    assert ask(tmp_path, table.state(), "SELECT v FROM t ORDER BY v") == [(2,), (3,), (4,)]

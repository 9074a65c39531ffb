"""How a view reads its files: by name or by id, with a cast or with care, and which of them it looks for keys in."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.base.types import parse_type
from headwater.duck.table_select import view_select
from schemas import schema_of
from unit.duck.tables import HandMade, ask

BY_ID, WITH_CARE, LOOKED_FOR = "schema = MAP", "time_bucket", "ANTI JOIN"


@pytest.mark.parametrize(
    ("names", "is_by_id"),
    [
        (["filename"], True),
        (["FILE_INDEX"], True),
        (["file_row_number"], True),
        (["a", "A"], True),
        (["Éa", "éA"], True),
        (["rowid"], False),
        (["c1", "c2"], False),
        (["newer", "read_parquet", "t"], False),
        (['a"b', "a.b", "a b", "'"], False),
        (["select", "Order", "schema"], False),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_column_is_read_whatever_it_is_called(tmp_path: Path, mode: str, names: list[str], is_by_id: bool) -> None:
    """In both modes: of an upsert the base is looked through for the keys of the newer files, which are ranked."""
    schema = schema_of({"id": "long", **dict.fromkeys(names, "string")}, ("id",) if mode == "upsert" else ())
    table = HandMade(tmp_path, schema, mode=mode)
    table.commit([{"id": i, **{name: f"{name} {i}" for name in names}} for i in range(3)], unique_keys=True)
    table.commit([{"id": 1, **{name: f"new {name}" for name in names}}])
    table.commit([{"id": 1, **{name: f"newer {name}" for name in names}}])
    found = sorted((row[0], row[1 : len(names) + 1], row[-1]) for row in ask(tmp_path, table.state()))
    rows: list[Any] = [(i, tuple(f"{name} {i}" for name in names), 1) for i in range(3)]
    newer: list[Any] = [
        (1, tuple(f"{word} {name}" for name in names), 2 + place) for place, word in enumerate(["new", "newer"])
    ]
    assert found == (sorted(rows + newer) if mode == "append" else [rows[0], newer[1], rows[2]])
    assert (BY_ID in view_select(table.state(), root=None)) is is_by_id


def test_two_columns_that_changed_their_names_are_not_mixed_up(tmp_path: Path) -> None:
    first = schema_of({"a": "long", "b": "long"})
    table = HandMade(tmp_path, first)
    table.commit([{"a": 1, "b": 2}])
    a, b = first.columns
    table.evolve(first.with_column(replace(a, name="b")).with_column(replace(b, name="a")))
    table.commit([{"a": 20, "b": 10}])
    assert ask(tmp_path, table.state(), "SELECT b, a FROM t ORDER BY b") == [(1, 2), (10, 20)]


def test_whole_microseconds_are_cast_and_others_floored(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"seen": "timestamp"}))
    table.commit([{"seen": -1_000}, {"seen": 2_000}, {"seen": None}])
    table.commit([{"seen": 2**62 // 1000 * 1000}])
    assert WITH_CARE not in view_select(table.state(), root=None)
    question = "SELECT epoch_us(seen), seen_ns FROM t ORDER BY ALL NULLS LAST"
    whole = [(-1, -1_000), (2, 2_000), (2**62 // 1000, 2**62 // 1000 * 1000), (None, None)]
    assert ask(tmp_path, table.state(), question) == whole
    unknown = table.state(files=tuple(replace(file, stats={}) for file in table.files))
    assert WITH_CARE in view_select(unknown, root=None)
    assert ask(tmp_path, unknown, question) == whole
    table.commit([{"seen": -1_501}])
    assert WITH_CARE in view_select(table.state(), root=None)
    assert ask(tmp_path, table.state(), question) == [(-2, -1_501), *whole]


def looked_through(table: HandMade) -> list[int]:
    """The commits of the files that the view looks through for newer keys."""
    parts = re.findall(rf"FROM read_parquet\(\[([^\]]*)\][^\n]*\n{LOOKED_FOR}", view_select(table.state(), root=None))
    return sorted(file.added_seq for file in table.files if any(file.path in part for part in parts))


@pytest.mark.parametrize(
    ("types", "commits", "expected"),
    [
        ({"id": "long"}, [[1, 9], [11, 19], [21, 29], [12, 40]], [2, 3]),
        ({"id": "long"}, [[1, 9], [11, 19], [21, 29], [9, 9]], [1]),
        ({"id": "long"}, [[1, 9], [11, 19], [0, 0], [5, 30], [5, 5]], [1, 2]),
        ({"id": "string"}, [["a", "c"], ["d", "f"], ["e", "e"]], [2]),
        ({"id": "string"}, [["a", "c"], ["d" * 100, "f"], ["x", "y"]], [1]),
        ({"id": "real"}, [[1.0], [1.0, 2.0]], [1]),
        ({"id": "timestamp"}, [[1_000, 1_999], [2_000, 2_001], [2_001, 2_001]], [2]),
    ],
)
def test_only_files_that_may_hold_a_newer_key_are_looked_through(
    tmp_path: Path, types: dict[str, str], commits: list[list[Any]], expected: list[int]
) -> None:
    table = HandMade(tmp_path, schema_of({**types, "v": "long"}, ("id",)), mode="upsert")
    last: dict[Any, int] = {}
    for place, keys in enumerate(commits):
        unique = dict.fromkeys(keys)
        table.commit([{"id": key, "v": place} for key in unique], unique_keys=True)
        last |= dict.fromkeys(unique, place)
    assert looked_through(table) == expected
    assert sorted(ask(tmp_path, table.state(), "SELECT v FROM t")) == sorted((place,) for place in last.values())


def test_a_key_of_two_columns_is_apart_where_one_of_them_is(tmp_path: Path) -> None:
    schema = schema_of({"day": "date", "shop": "string", "v": "long"}, ("day", "shop"))
    nullable = replace(schema, columns=tuple(replace(column, nullable=True) for column in schema.columns))
    table = HandMade(tmp_path, nullable, mode="upsert")
    table.commit([{"day": 1, "shop": "a", "v": 1}, {"day": 1, "shop": None, "v": 2}], unique_keys=True)
    table.commit([{"day": 2, "shop": "b", "v": 3}, {"day": 2, "shop": None, "v": 4}], unique_keys=True)
    table.commit([{"day": 2, "shop": None, "v": 5}, {"day": 3, "shop": "a", "v": 6}], unique_keys=True)
    assert looked_through(table) == [2]
    assert ask(tmp_path, table.state(), "SELECT v FROM t ORDER BY v") == [(1,), (2,), (3,), (5,), (6,)]


def test_a_widened_key_is_compared_as_what_it_is_now(tmp_path: Path) -> None:
    first = schema_of({"id": "int", "v": "long"}, ("id",))
    table = HandMade(tmp_path, first, mode="upsert")
    table.commit([{"id": 1, "v": 1}, {"id": 2, "v": 2}], unique_keys=True)
    table.commit([{"id": 8, "v": 3}, {"id": 9, "v": 4}], unique_keys=True)
    table.evolve(first.with_column(replace(first.columns[0], type=parse_type("long"))))
    table.commit([{"id": 9, "v": 5}, {"id": 2**40, "v": 6}], unique_keys=True)
    assert looked_through(table) == [2]
    assert ask(tmp_path, table.state(), "SELECT v FROM t ORDER BY v") == [(1,), (2,), (3,), (5,), (6,)]

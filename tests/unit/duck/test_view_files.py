from __future__ import annotations

import math
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from forked import exit_code
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema, schema_of
from headwater.base.types import parse_type
from headwater.catalog.inferred_levels import inferred_base
from headwater.catalog.table_state import TableState
from headwater.duck.table_select import column_names
from headwater.duck.unique_keys import stored_keys
from headwater.duck.view_files import refresh_views, view_file_text, views_seq
from headwater.storage.file_record import ColumnStats, LiveFile
from headwater.storage.part_writer import rewrite_without
from unit.duck.tables import INGESTED_AT_US, HandMade, ask


def plan(root: Path, state: TableState, sql: str) -> str:
    return str(ask(root, state, f"EXPLAIN ANALYZE {sql}")[0][1])


def retyped(schema: TableSchema, name: str, type_: str) -> TableSchema:
    column = schema.column(name)
    assert column is not None
    return schema.with_column(replace(column, type=parse_type(type_)))


def test_every_type_has_its_duckdb_type(tmp_path: Path) -> None:
    types = {
        "yes": ("bool", "BOOLEAN"), "few": ("int", "INTEGER"), "many": ("long", "BIGINT"), "share": ("real", "DOUBLE"),
        "name": ("string", "VARCHAR"), "seen": ("timestamp", "TIMESTAMP WITH TIME ZONE"), "day": ("date", "DATE"),
        "price": ("decimal(20,3)", "DECIMAL(20,3)"), "raw": ("binary", "BLOB"), "props": ("dynamic", "JSON"),
        "v": ("vector(3)", "FLOAT[3]"), "tags": ("list<string>", "VARCHAR[]"),
        "who": ('struct<id:long,"full name":string,seen:timestamp>',
                'STRUCT(id BIGINT, "full name" VARCHAR, seen TIMESTAMP WITH TIME ZONE)'),
        "times": ("list<timestamp>", "TIMESTAMP WITH TIME ZONE[]"),
    }  # fmt: skip
    system = {
        "seen_ns": "BIGINT", "_run_id": "VARCHAR", "_ingested_at": "TIMESTAMP WITH TIME ZONE", "_content_hash": "BLOB",
        "_source_id": "VARCHAR", "_commit_seq": "BIGINT",
    }  # fmt: skip
    table = HandMade(tmp_path, schema_of({name: text for name, (text, _) in types.items()}))
    expected = list({**{name: duck for name, (_, duck) in types.items()}, **system}.items())
    assert [row[:2] for row in ask(tmp_path, table.state(), "DESCRIBE t")] == expected
    assert ask(tmp_path, table.state()) == []
    table.commit([{"yes": True, "v": [1, 2, 3], "who": {"id": 1, "seen": -1}, "times": [1500, None]}, {}])
    assert [row[:2] for row in ask(tmp_path, table.state(), "DESCRIBE t")] == expected
    shown = ask(
        tmp_path,
        table.state(),
        "SELECT v, who.id, epoch_us(who.seen), list_transform(times, lambda x: epoch_us(x)) FROM t",
    )
    assert shown == [((1.0, 2.0, 3.0), 1, -1, [1, None]), (None, None, None, None)]


@pytest.mark.parametrize(
    "ns",
    [0, 1, 499, 500, 999, 1000, 1001, 1499, 1500, 1999, -1, -499, -500, -501, -999, -1000, -1001, -1499, -1500, -1501,
     -2000, 1_700_000_000_123_456_789, -1_700_000_000_123_456_789, 2**63 - 2, -(2**63) + 2],
)  # fmt: skip
def test_times_are_floored_to_microseconds_and_exact_beside(tmp_path: Path, ns: int) -> None:
    table = HandMade(tmp_path, schema_of({"seen": "timestamp"}))
    table.commit([{"seen": ns}])
    assert ask(tmp_path, table.state(), "SELECT epoch_us(seen), seen_ns FROM t") == [(ns // 1000, ns)]


def test_system_columns_tell_where_a_row_comes_from(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    for i in range(3):
        table.commit([{"a": i, "_source_id": f"f{i}"}])
    columns = "a, _run_id, epoch_us(_ingested_at), octet_length(_content_hash), _source_id, _commit_seq"
    assert ask(tmp_path, table.state(), f"SELECT {columns} FROM t ORDER BY a") == [
        (i, f"run-{i + 1}", INGESTED_AT_US, 16, f"f{i}", i + 1) for i in range(3)
    ]


def test_a_source_position_is_shown_where_a_file_has_one(tmp_path: Path) -> None:
    for names in ("id", "filename"):  # found by name, and by its id
        table = HandMade(tmp_path / names, schema_of({names: "long"}, (names,)), mode="upsert")
        table.commit([{names: 1}, {names: 2}], unique_keys=True)
        assert "_source_pos" not in [row[0] for row in ask(table.root, table.state(), "DESCRIBE t")]
        table.commit(pa.record_batch({names: pa.array([2, 3]), "_source_pos": pa.array([7, None])}), unique_keys=True)
        table.commit(pa.record_batch({names: pa.array([3]), "_source_pos": pa.array([2**40])}), unique_keys=True)
        shown = ask(table.root, table.state(), f"SELECT {names}, _source_pos, _commit_seq FROM t ORDER BY 1")
        assert shown == [(1, None, 1), (2, 7, 2), (3, 2**40, 3)]
        assert [row[:2] for row in ask(table.root, table.state(), "DESCRIBE t")][-1] == ("_source_pos", "BIGINT")


def test_one_view_reads_every_age_of_a_schema(tmp_path: Path) -> None:
    """Added (with and without default), dropped, renamed, re-added under an old name."""
    first = schema_of({"id": "long", "name": "string", "gone": "long", "swap": "string"})
    table = HandMade(tmp_path, first)
    table.commit([{"id": 1, "name": "ann", "gone": 7, "swap": "old"}])
    name, gone, swap = (first.column(n) for n in ("name", "gone", "swap"))
    assert name and gone and swap
    second = first.with_column(replace(name, name="full_name")).with_column(replace(gone, dropped=True))
    second = replace(second, columns=tuple(c for c in second.columns if c.id != swap.id))
    second = second.added("swap", parse_type("long")).added("level", parse_type("int"), default="3")
    table.evolve(second)
    table.commit([{"id": 2, "full_name": "bob", "swap": 5, "level": None}])
    rows = ask(tmp_path, table.state(), 'SELECT id, full_name, gone, swap, "level" FROM t ORDER BY id')
    assert rows == [(1, "ann", 7, None, 3), (2, "bob", None, 5, None)]


@pytest.mark.parametrize(
    ("old", "new", "given", "shown"),
    [
        ("int", "long", 2**31 - 1, 2**31 - 1),
        ("int", "real", -3, -3.0),
        ("long", "real", 2**53, float(2**53)),
        ("long", "int", 12, 12),
        ("long", "int", 2**40, None),
        ("decimal(5,2)", "decimal(9,2)", Decimal("123.45"), Decimal("123.45")),
        ("decimal(9,2)", "decimal(9,4)", Decimal("1234567.89"), None),
        ("int", "decimal(12,2)", 7, Decimal("7.00")),
        ("long", "decimal(12,2)", 10**12, None),
        ("real", "decimal(9,2)", 1.25, Decimal("1.25")),
        ("real", "long", 2.0, 2),
        ("decimal(5,1)", "real", Decimal("1.5"), 1.5),
        ("long", "string", -12, "-12"),
        ("bool", "string", True, "true"),
        ("bool", "int", True, 1),
        ("bool", "long", False, 0),
        ("real", "string", 1.5, "1.5"),
        ("decimal(5,2)", "string", Decimal("1.50"), "1.50"),
        ("date", "string", 19_000, "2022-01-08"),
        ("date", "timestamp", -1, datetime(1969, 12, 31, tzinfo=UTC)),
        ("timestamp", "date", -1, date(1969, 12, 31)),
        ("timestamp", "string", -1, "1969-12-31T23:59:59.999999999Z"),
        ("timestamp", "string", 1_500_000_000_000_000_000, "2017-07-14T02:40:00.000000000Z"),
        ("dynamic", "string", '{"b":1, "a":2}', '{"b":1, "a":2}'),
        ("list<long>", "string", [1, 2], "[1,2]"),
        ("vector(2)", "string", [1, 2], "[1.0,2.0]"),
        ("struct<a:long>", "string", {"a": 1}, '{"a":1}'),
    ],
)
def test_accepted_type_changes_show_old_rows_in_the_new_type(
    tmp_path: Path, old: str, new: str, given: Any, shown: Any
) -> None:
    table = HandMade(tmp_path, schema_of({"c": old}))
    table.commit([{"c": given}, {"c": None}])
    table.evolve(retyped(table.schema, "c", new))
    table.commit([{"c": None}])
    assert ask(tmp_path, table.state(), "SELECT c FROM t ORDER BY c IS NULL") == [(shown,), (None,), (None,)]


def test_a_date_that_became_a_timestamp_has_its_nanoseconds(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"c": "date"}))
    table.commit([{"c": -1}, {"c": 2_000_000}])
    table.evolve(retyped(table.schema, "c", "timestamp"))
    assert ask(tmp_path, table.state(), "SELECT c_ns FROM t ORDER BY c") == [(-86_400_000_000_000,), (None,)]


@pytest.mark.parametrize(
    ("type_", "default", "shown"),
    [
        ("long", "5", 5), ("string", '"it\'s"', "it's"), ("bool", "true", True), ("real", "1e3", 1000.0),
        ("decimal(9,2)", '"1.10"', Decimal("1.10")), ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("timestamp", '"2024-01-01T00:00:00.5+01:00"', datetime(2023, 12, 31, 23, 0, 0, 500_000, tzinfo=UTC)),
        ("timestamp", "1500", datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("dynamic", '{"a": [1]}', '{"a": [1]}'), ("vector(2)", "[1, 2.5]", (1.0, 2.5)), ("list<long>", "[1]", [1]),
        ("struct<a:long>", '{"a": 1}', {"a": 1}), ("binary", '"ab"', b"ab"), ("string", "null", None),
    ],
)  # fmt: skip
def test_rows_before_a_column_show_its_default(tmp_path: Path, type_: str, default: str, shown: Any) -> None:
    table = HandMade(tmp_path, schema_of({"id": "long"}))
    table.commit([{"id": 1}])
    table.evolve(table.schema.added("c", parse_type(type_), default=default))
    table.commit([{"id": 2}])
    assert ask(tmp_path, table.state(), "SELECT c FROM t ORDER BY id") == [(shown,), (None,)]


def test_a_default_for_times_keeps_its_nanoseconds(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"id": "long"}))
    table.commit([{"id": 1}])
    table.evolve(table.schema.added("c", parse_type("timestamp"), default='"1970-01-01 00:00:01.000000007Z"'))
    assert ask(tmp_path, table.state(), "SELECT epoch_us(c), c_ns FROM t") == [(1_000_000, 1_000_000_007)]


def test_names_that_mislead_duckdb_do_not_mislead_the_view(tmp_path: Path) -> None:
    names = ["id", "ID", "filename", "file_index", "file_row_number", 'a"b', "it's", "seen", "seen_ns", "x.y", "select"]
    types = {name: "timestamp" if name == "seen" else "string" for name in names}
    table = HandMade(tmp_path, schema_of(types, ("id", "ID")), mode="upsert")
    row = {name: f"<{name}>" for name in names} | {"seen": 1000}
    table.commit([row])
    table.commit([row | {"ID": "other"}, row | {"file_row_number": "z"}])
    shown, exacts = column_names(table.schema)
    assert list(shown.values()) == ["id", "ID_2", *names[2:]]
    assert list(exacts.values()) == ["seen_ns_2"]
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in [*shown.values(), *exacts.values()])
    rows = ask(tmp_path, table.state(), f"SELECT {columns} FROM t")
    at = datetime.fromtimestamp(0.000001, tz=UTC)
    values = [
        tuple((r | {"seen": at})[n] for n in names) + (1000,)
        for r in (row | {"file_row_number": "z"}, row | {"ID": "other"})
    ]
    assert sorted(rows, key=str) == sorted(values, key=str)


def test_replace_and_append_show_every_row(tmp_path: Path) -> None:
    for mode in ("append", "replace"):
        table = HandMade(tmp_path, schema_of({"id": "long"}, ("id",)), name=mode, mode=mode)
        table.commit([{"id": 1}, {"id": 1}])
        table.commit([{"id": 1}])
        assert ask(tmp_path, table.state(), "SELECT count(*) FROM t") == [(3,)]


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
    records = rewrite_without(
        tmp_path, early, schema=table.schema, drop_source_ids=["f"], directory="again", partition=0, task_attempt=0
    )
    table.files.remove(early)
    table.add(records, "again")
    for stats in (True, False):
        files = tuple(table.files if stats else [replace(file, stats={}) for file in table.files])
        assert ask(tmp_path, table.state(files=files), "SELECT id, v, _commit_seq FROM t") == [(2, "newer", 2)]


def test_filters_reach_the_row_groups_through_the_conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 1_000)
    table = HandMade(tmp_path, schema_of({"id": "long", "seen": "timestamp", "s": "string"}))
    table.commit([{"id": i, "seen": i * 1_000_000_001, "s": f"{i:05d}"} for i in range(10_000)])
    table.evolve(table.schema.added("more", parse_type("long")))
    table.commit([{"id": 10_000, "seen": 0, "s": "z"}])
    for condition in (
        "seen BETWEEN '1970-01-01 00:10:00+00' AND '1970-01-01 00:10:05+00'",
        "seen_ns BETWEEN 600000000000 AND 605000000000",
        "id = 777",
        "s = '00777'",
    ):
        text = plan(tmp_path, table.state(), f"SELECT count(s) FROM t WHERE {condition}")
        assert "Row Groups Scanned: 1 / 10" in text, text
    assert ask(tmp_path, table.state(), "SELECT count(*) FROM t WHERE seen >= '1970-01-01 02:46:39+00'") == [(1,)]


def test_the_file_says_what_it_was_made_from(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    text = view_file_text(table.state(changed_seq=12))
    head = text.split("CREATE SCHEMA")[0]
    assert table.schema.fingerprint in head
    assert "(rev 1)" in head
    assert "Commit sequence: 12" in head
    assert str(tmp_path) not in text


def columns_shown(root: Path, table: HandMade, name: str) -> list[str]:
    refresh_views(root, [table.state()], tables_info=[table.info()])
    with duckdb.connect(str(root / "duck.db"), read_only=True) as connection:
        return [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]


def test_the_plain_view_has_the_users_columns_in_the_order_of_the_schema(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"z": "timestamp", "Z": "long", "z_ns": "long"}))
    table.commit([{"z": 1, "Z": 2, "z_ns": 3}])
    assert columns_shown(tmp_path, table, "orders") == ["z", "Z_2", "z_ns"]
    assert columns_shown(tmp_path, table, "meta.orders")[:4] == ["z", "Z_2", "z_ns", "z_ns_2"]
    table.evolve(table.schema.added("a", parse_type("string")).added("_rescued", parse_type("dynamic")))
    table.commit([{"a": "x", "_rescued": "{}"}])
    assert columns_shown(tmp_path, table, "orders") == ["z", "Z_2", "z_ns", "a", "_rescued"]


def test_a_table_without_columns_shows_the_runs_of_its_rows(tmp_path: Path) -> None:
    table = HandMade(tmp_path, TableSchema())
    assert columns_shown(tmp_path, table, "orders") == ["_run_id"]


def test_views_of_an_older_format_are_made_again(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    assert columns_shown(tmp_path, table, "orders") == ["a"]
    mark = tmp_path / "views" / ".duck.json"
    mark.write_text(mark.read_text().replace('"format": 2', '"format": 1'))
    assert views_seq(tmp_path) == 0
    assert columns_shown(tmp_path, table, "orders") == ["a"]
    assert views_seq(tmp_path) == 1


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in [*root.glob("views/*"), *root.glob("views/.*"), root / "duck.db"] if path.exists()]
    return {str(path.relative_to(root)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def test_a_second_refresh_writes_nothing(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    before = snapshot(tmp_path)
    assert refresh_views(tmp_path, [table.state(seq=99)], tables_info=[table.info(freshness_us=0)]) == []
    assert snapshot(tmp_path) == before
    table.commit([{"a": 2}])
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT sum(a) FROM orders").fetchall() == [(3,)]
        found = connection.execute(
            "SELECT name, pipeline, mode, rows, files, seq, epoch_us(freshness) FROM headwater.tables"
        )
        assert found.fetchall() == [("orders", "shop", "append", 2, 2, 2, INGESTED_AT_US)]


def test_a_refresh_with_nothing_to_do_does_not_import_duckdb(tmp_path: Path) -> None:
    child = """
import pickle, sys
from pathlib import Path
from headwater.duck.view_files import refresh_views
root, states, infos = pickle.loads(Path(sys.argv[1]).read_bytes())
assert refresh_views(root, states, tables_info=infos) == []
assert not {"duckdb", "pyarrow", "numpy"} & set(sys.modules)
"""
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    values = tmp_path / "values"
    values.write_bytes(pickle.dumps((tmp_path, [table.state()], [table.info()])))
    subprocess.run([sys.executable, "-c", child, str(values)], check=True)


def test_views_of_tables_that_are_gone_are_removed_and_others_left(tmp_path: Path) -> None:
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()])
    mine = tmp_path / "views" / "mine.sql"
    mine.write_text("select 1")
    assert refresh_views(tmp_path, [a.state()], tables_info=[a.info()]) == ["b"]
    assert sorted(path.name for path in (tmp_path / "views").glob("*.sql")) == [
        "a.sql",
        "headwater.tables.sql",
        "mine.sql",
    ]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT name FROM headwater.tables").fetchall() == [("a",)]
        views = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
        assert connection.execute(views).fetchall() == [("headwater", "tables"), ("main", "a"), ("meta", "a")]


def test_one_changed_view_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """Only the changed one is made again: a file of the other is not there any more, and nobody notices."""
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    for table in (a, b):
        table.commit([{"a": 1}])
    refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()])
    (tmp_path / b.files[0].path).unlink()
    a.commit([{"a": 2}])
    assert refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()]) == ["a"]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT sum(a) FROM a").fetchall() == [(3,)]
        assert connection.execute("SELECT name, rows FROM headwater.tables ORDER BY 1").fetchall() == [
            ("a", 2),
            ("b", 1),
        ]


def test_a_duck_db_that_somebody_changed_is_made_anew(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    with duckdb.connect(str(tmp_path / "duck.db")) as connection:
        connection.execute("CREATE OR REPLACE VIEW orders AS SELECT 7 AS a")
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == []
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT a FROM orders").fetchall() == [(1,)]


def test_an_older_cut_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    old, old_info = table.state(), table.info()
    table.commit([{"a": 2}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    before = snapshot(tmp_path)
    assert refresh_views(tmp_path, [old], tables_info=[old_info]) == []
    assert snapshot(tmp_path) == before
    assert refresh_views(tmp_path, [old], tables_info=[old_info], force=True) == ["orders"]


def test_a_moved_store_gets_a_new_duck_db(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "here", schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(table.root, [table.state()], tables_info=[table.info()])
    (tmp_path / "here").rename(tmp_path / "there")
    assert refresh_views(tmp_path / "there", [table.state()], tables_info=[table.info()]) == []
    with duckdb.connect(str(tmp_path / "there" / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT a FROM orders").fetchall() == [(1,)]


def test_a_missing_file_is_a_damaged_store(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    (file,) = table.commit([{"a": 1}])
    (tmp_path / file.path).unlink()
    with pytest.raises(HeadwaterError) as raised:
        refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    assert raised.value.code == "HW-T04"
    assert not list(tmp_path.glob(".duck*"))


def test_a_damaged_table_keeps_no_other_from_being_shown(tmp_path: Path) -> None:
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    for table in (a, b):
        table.commit([{"a": 1}])
    path = tmp_path / b.files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    states, infos = [a.state(), b.state()], [a.info(), b.info()]
    for _ in range(2):
        with pytest.raises(HeadwaterError, match="table `b` cannot be read"):
            refresh_views(tmp_path, states, tables_info=infos)
        with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
            assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
            for name in ("b", "meta.b"):
                with pytest.raises(duckdb.InvalidInputException, match="`b` cannot be"):
                    connection.execute(f"SELECT * FROM {name}").fetchall()
    path.write_bytes(whole)
    refresh_views(tmp_path, states, tables_info=infos)
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT * FROM b").fetchall() == [(1,)]


@pytest.mark.parametrize("point", ["view.before", "view.torn"])
def test_a_crash_leaves_the_old_view_whole(tmp_path: Path, point: str) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    before = (tmp_path / "views" / "orders.sql").read_text()
    table.commit([{"a": 2}])
    refresh = partial(refresh_views, tables_info=[table.info()])
    assert exit_code(refresh, tmp_path, [table.state()], crash_at=point) == -signal.SIGKILL
    assert (tmp_path / "views" / "orders.sql").read_text() == before
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    assert (tmp_path / "views" / "orders.sql").read_text() == view_file_text(table.state())


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

"""What a view shows of a table: its columns with their types, names and defaults, whatever the age of a file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.duck.table_select import column_names
from schemas import schema_of
from unit.duck.tables import INGESTED_AT_US, HandMade, ask, plan


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

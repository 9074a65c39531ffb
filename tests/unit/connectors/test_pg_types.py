"""Every type of a real server, there and back."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import psycopg
import pytest

from headwater.base.types import Type, parse_type
from headwater.connectors.postgres.pg_types import PgColumn, transfer
from headwater.connectors.protocol import BadRows, TableAsk
from postgres_landing import rows_of, schema_of, source_of
from postgres_server import PostgresServer


def read_all(url: str, declared: dict[str, Type] | None = None) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The types that a source tells of table `t`, and all of its rows, in the order of `id`."""
    ask = TableAsk("t", "t", "replace", declared=declared or {})
    with closing(source_of(url)) as source:
        (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
        read = source.read(ask, slice_)
        assert read.observed is not None
        rows = sorted(rows_of(read, ask), key=lambda row: row["id"])
        return {name: str(type_) for name, type_ in read.observed.columns.items() if name != "id"}, rows


@dataclass(frozen=True)
class Sent:
    """Values, given as SQL expressions, of a column of a type; and the type it is declared to have here."""

    sql_type: str
    values: list[str]
    declared: str | None = None


def round_trip(url: str, *columns: Sent) -> list[tuple[str, list[Any]]]:
    """One table with these columns `v0`, `v1` and so on: the type of each here, and the values that arrive."""
    names = [f"v{place}" for place in range(len(columns))]
    rows = zip_longest(*(column.values for column in columns), fillvalue="null")
    with psycopg.connect(url, autocommit=True) as connection:
        typed = ", ".join(f"{name} {column.sql_type}" for name, column in zip(names, columns))
        connection.execute(f"drop table if exists t; create table t (id int primary key, {typed})".encode())
        for place, row in enumerate(rows):
            connection.execute(f"insert into t values ({place}, {', '.join(row)})".encode())
    declared = {name: parse_type(column.declared) for name, column in zip(names, columns) if column.declared}
    observed, found = read_all(url, declared)
    arrived = {name: [row[name] for row in found] for name in names}
    return [(observed[name], arrived[name][: len(column.values)]) for name, column in zip(names, columns)]


def utc(year: int, month: int, day: int, *time: int) -> datetime:
    return datetime(year, month, day, *time, tzinfo=UTC)  # type: ignore[misc,arg-type]


EXACT: list[tuple[str, str, list[str], list[Any]]] = [
    ("bool", "bool", ["true", "false", "null"], [True, False, None]),
    ("smallint", "int", ["-32768", "32767", "null"], [-32768, 32767, None]),
    ("int", "int", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    ("bigint", "long", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    ("oid", "long", ["4294967295"], [2**32 - 1]),
    ("real", "real", ["0.1", "'infinity'"], [0.10000000149011612, float("inf")]),
    ("double precision", "real", ["0.1", "5e-324", "1.7976931348623157e308"], [0.1, 5e-324, 1.7976931348623157e308]),
    (
        "numeric(10,2)",
        "decimal(10,2)",
        ["1.5", "-99999999.99", "null"],
        [Decimal("1.50"), Decimal("-99999999.99"), None],
    ),
    ("numeric(38,0)", "decimal(38,0)", ["9" * 38, "-" + "9" * 38], [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    ("numeric(38,38)", "decimal(38,38)", ["0." + "9" * 38], [Decimal("0." + "9" * 38)]),
    ("numeric(5,-2)", "decimal(7,0)", ["1234567"], [Decimal(1234600)]),
    ("numeric(2,5)", "decimal(5,5)", ["0.00012"], [Decimal("0.00012")]),
    ("numeric(39,2)", "string", ["12345678901234567890123456789012345.67"], ["12345678901234567890123456789012345.67"]),
    ("numeric", "string", ["0.10", "1e30", "'NaN'", "'Infinity'"], ["0.10", "1" + "0" * 30, "NaN", "Infinity"]),
    ("text", "string", ["''", "'žlutý 🐎 \\ '' \"'", "null", "E'a\\nb'"], ["", "žlutý 🐎 \\ ' \"", None, "a\nb"]),
    ("varchar(3)", "string", ["'abc'"], ["abc"]),
    ("char(4)", "string", ["'ab'"], ["ab"]),
    ("uuid", "string", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", "dynamic", ["""'{"b": 1,  "a": 12345678901234567890.10}'"""], ['{"b": 1,  "a": 12345678901234567890.10}']),
    (
        "jsonb",
        "dynamic",
        ["""'{"b":1,"a":[null,"é"]}'""", "'null'", "null"],
        ['{"a": [null, "é"], "b": 1}', "null", None],
    ),
    ("bytea", "binary", ["'\\x00ff'", "''"], [b"\x00\xff", b""]),
    (
        "date",
        "date",
        ["'0001-01-01'", "'1969-12-31'", "'9999-12-31'"],
        [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    ),
    ("timestamptz", "timestamp", ["'2024-03-31 03:00:00.123456+02'"], [utc(2024, 3, 31, 1, 0, 0, 123456)]),
    (
        "timestamptz",
        "timestamp",
        ["'1969-12-31 23:59:59.999999+00'", "'1700-01-01 00:00+00'"],
        [utc(1969, 12, 31, 23, 59, 59, 999999), utc(1700, 1, 1)],
    ),
    ("timestamp", "timestamp", ["'2024-03-31 02:30:00.5'", "null"], [utc(2024, 3, 31, 2, 30, 0, 500000), None]),
    ("time", "string", ["'23:59:59.5'"], ["23:59:59.5"]),
    ("interval", "string", ["'1 month 2 days 03:04:05'"], ["P1M2DT3H4M5S"]),
    ("inet", "string", ["'10.0.0.0/8'"], ["10.0.0.0/8"]),
    ("int4range", "string", ["'[1,5)'"], ["[1,5)"]),
    ("mood", "string", ["'sad'"], ["sad"]),
    ("pair", "string", ["row(1, 'x')"], ["(1,x)"]),
    ("amount", "decimal(9,3)", ["1.5"], [Decimal("1.500")]),
    ("int[]", "list<int>", ["'{1,null,3}'", "'{}'", "null", "'[5:6]={7,8}'"], [[1, None, 3], [], None, [7, 8]]),
    ("bigint[]", "list<long>", ["'{9223372036854775807}'"], [[2**63 - 1]]),
    ("text[]", "list<string>", ["array['a,b', null, 'ü']"], [["a,b", None, "ü"]]),
    (
        "uuid[]",
        "list<string>",
        ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"],
        [["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]],
    ),
    ("mood[]", "list<string>", ["'{sad,ok}'"], [["sad", "ok"]]),
    ("numeric(6,2)[]", "list<decimal(6,2)>", ["'{1.5,null}'"], [[Decimal("1.50"), None]]),
    ("amount[]", "list<decimal(9,3)>", ["'{1.5}'"], [[Decimal("1.500")]]),
    ("bool[]", "list<bool>", ["'{t,f,null}'"], [[True, False, None]]),
    ("real[]", "list<real>", ["'{0.5}'"], [[0.5]]),
    ("date[]", "list<date>", ["'{2024-01-01}'"], [[date(2024, 1, 1)]]),
    ("bytea[]", "list<binary>", ["array['\\x00'::bytea]"], [[b"\x00"]]),
    ("jsonb[]", "list<dynamic>", ["""array['{"a":1}'::jsonb, null]"""], [['{"a": 1}', None]]),
    (
        "timestamptz[]",
        "list<timestamp>",
        ["array['1960-01-01 00:00+00'::timestamptz, null]"],
        [[utc(1960, 1, 1), None]],
    ),
    ("int[][]", "dynamic", ["'{{1,2},{3,4}}'"], ["[[1,2],[3,4]]"]),
    ("vector(3)", "vector(3)", ["'[1,2.5,-3]'", "null"], [[1.0, 2.5, -3.0], None]),
    ("vector", "list<real>", ["'[1,2]'", "'[3]'"], [[1.0, 2.0], [3.0]]),
]


@pytest.fixture(scope="module")
def typed_url(postgres_server: PostgresServer) -> str:
    """One database for the whole module: a test makes its table anew."""
    url = postgres_server.create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension vector")
        connection.execute("create type mood as enum ('sad', 'ok')")
        connection.execute("create type pair as (a int, b text)")
        connection.execute("create domain base_amount as numeric(9,3)")
        connection.execute("create domain amount as base_amount check (value > 0)")
    return url


@pytest.fixture(scope="module")
def exact(typed_url: str) -> list[tuple[str, list[Any]]]:
    return round_trip(typed_url, *(Sent(sql_type, values) for sql_type, _, values, _ in EXACT))


@pytest.mark.parametrize("place", range(len(EXACT)), ids=[row[0] for row in EXACT])
def test_a_column_arrives_exactly(exact: list[tuple[str, list[Any]]], place: int) -> None:
    _, type_, _, expected = EXACT[place]
    assert exact[place] == (type_, expected)


DECLARED: list[tuple[str, str, list[str], list[Any]]] = [
    ("int", "long", ["7"], [7]),
    ("int", "real", ["7"], [7.0]),
    ("bigint", "int", ["7", "null"], [7, None]),
    ("bigint", "decimal(19,0)", ["-9223372036854775808"], [Decimal(-(2**63))]),
    ("numeric", "decimal(38,10)", ["0.1", "1.500000000000000000"], [Decimal("0.1"), Decimal("1.5")]),
    ("numeric", "long", ["9223372036854775807", "7.000"], [2**63 - 1, 7]),
    ("numeric(10,2)", "real", ["0.25", "0", "null"], [0.25, 0.0, None]),
    ("numeric(10,2)", "string", ["1.5"], ["1.50"]),
    ("date", "timestamp", ["'2024-01-01'", "null"], [utc(2024, 1, 1), None]),
    ("timestamptz", "string", ["'infinity'", "'9999-12-31 00:00+00'"], ["infinity", "9999-12-31 00:00:00+00"]),
    ("int[]", "dynamic", ["'{{1,2},{3,null}}'"], ["[[1,2],[3,null]]"]),
    ("int[]", "string", ["'{1,2}'"], ["{1,2}"]),
    ("int[]", "list<long>", ["'{1}'"], [[1]]),
    ("real[]", "vector(2)", ["'{1,2}'", "null"], [[1.0, 2.0], None]),
    ("double precision[]", "vector(1)", ["'{1e-300}'"], [[0.0]]),
    ("text", "dynamic", ["'5'"], ['"5"']),
]


@pytest.fixture(scope="module")
def declared(typed_url: str) -> list[tuple[str, list[Any]]]:
    return round_trip(typed_url, *(Sent(sql_type, values, type_) for sql_type, type_, values, _ in DECLARED))


@pytest.mark.parametrize("place", range(len(DECLARED)), ids=[f"{row[0]} as {row[1]}" for row in DECLARED])
def test_a_declared_type_is_obeyed(declared: list[tuple[str, list[Any]]], place: int) -> None:
    assert declared[place][1] == DECLARED[place][3]


@pytest.mark.parametrize(
    ("sql_type", "declared", "value", "reason"),
    [
        ("numeric(4,2)", None, "'NaN'", "not_finite"),
        ("numeric(4,2)[]", None, "'{NaN}'", "not_finite"),
        ("numeric", "decimal(4,2)", "'NaN'", "decimal_out_of_range"),
        ("numeric", "decimal(4,2)", "100", "decimal_out_of_range"),
        ("numeric", "decimal(4,2)", "1.234", "too_many_digits"),
        ("numeric", "long", "1.5", "not_integral"),
        ("numeric", "long", "9223372036854775808", "int64_out_of_range"),
        ("numeric", "real", "1e400", "not_finite"),
        ("bigint", "int", "2147483648", "int32_out_of_range"),
        ("bigint", "decimal(2,0)", "100", "decimal_out_of_range"),
        ("date", None, "'infinity'", "date_out_of_range"),
        ("date", "timestamp", "'5874897-12-31'", "timestamp_out_of_range"),
        ("date[]", None, "'{-infinity}'", "date_out_of_range"),
        ("timestamptz", None, "'infinity'", "timestamp_out_of_range"),
        ("timestamp", None, "'-infinity'", "timestamp_out_of_range"),
        ("timestamptz", None, "'9999-12-31'", "timestamp_out_of_range"),
        ("timestamptz[]", None, "'{9999-12-31}'", "timestamp_out_of_range"),
        ("int[]", None, "'{{1,2},{3,4}}'", "multi_dimensional"),
        ("real[]", "vector(2)", "'{1}'", "vector_length"),
        ("real[]", "vector(2)", "'{1,null}'", "non_numeric_element"),
        ("real[]", "vector(2)", "'{1,NaN}'", "not_finite"),
        ("vector", "vector(3)", "'[1,2]'", "vector_length"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused_by_place_and_reason(
    typed_url: str, sql_type: str, declared: str | None, value: str, reason: str
) -> None:
    with pytest.raises(BadRows) as caught:
        round_trip(typed_url, Sent(sql_type, ["null", value, "null", value], declared))
    assert caught.value.total == 2
    assert [(error.place, error.line, error.column, error.reason) for error in caught.value.errors] == [
        ("t", 2, "v0", reason),
        ("t", 4, "v0", reason),
    ]


@pytest.mark.parametrize(
    ("base", "dimensions", "target"),
    [
        ("text", 0, "long"),
        ("text", 0, "timestamp"),
        ("float8", 0, "long"),
        ("float8", 0, "decimal(10,2)"),
        ("timestamptz", 0, "date"),
        ("int4", 0, "bool"),
        ("uuid", 0, "binary"),
        ("int4", 1, "long"),
        ("int4", 2, "list<int>"),
        ("int8", 1, "list<int>"),
        ("int4", 0, "list<int>"),
        ("numeric", 1, "vector(2)"),
        ("int4", 0, "struct<a:int>"),
    ],
)
def test_a_conversion_that_would_guess_does_not_exist(base: str, dimensions: int, target: str) -> None:
    assert transfer(PgColumn("v", base, dimensions=dimensions), parse_type(target)) is None


def test_mixed_case_reserved_and_quoted_names_work(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("""create table "Or""der" ("Select" int primary key, "a b" text, "É'%s" date)""")
        connection.execute("""insert into "Or""der" values (1, 'x', '2024-01-01')""")
    ask = TableAsk("orders", 'Or"der', "upsert", incremental="Select")
    with closing(source_of(postgres_url)) as source:
        (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
        read = source.read(ask, slice_)
        assert rows_of(read, ask) == [{"Select": 1, "a b": "x", "É'%s": date(2024, 1, 1)}]
        assert schema_of(read, ask).primary_key == ("Select",)


def test_generated_and_identity_columns_are_columns(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "create table t (id int generated always as identity primary key, "
            "doubled int generated always as (id * 2) stored, dropped text)"
        )
        connection.execute("alter table t drop column dropped")
        connection.execute("insert into t default values")
    assert read_all(postgres_url) == ({"doubled": "int"}, [{"id": 1, "doubled": 2}])

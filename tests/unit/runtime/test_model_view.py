"""Queries of views in DuckDB's SQL, asked of DuckDB itself."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from headwater.runtime.model_text import SqlFault
from headwater.runtime.model_view import duck_query


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    session = duckdb.connect()
    session.execute("SET TimeZone = 'UTC'")
    session.execute(
        "CREATE VIEW _hw_orders AS SELECT * FROM (VALUES (1, 10.0, TIMESTAMPTZ '2024-02-03 04:05:06+00', ['a', 'b']),"
        " (2, NULL, TIMESTAMPTZ '2024-03-01 00:00:00+00', [])) AS t(id, amount, \"at\", tags)"
    )
    return session


CASES: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("select id from Orders order by id desc", [(2,), (1,)]),
    ("with orders as (select * from orders where id > 1) select orders.id from orders", [(2,)]),
    ("select o.id from orders o join orders p on o.id = p.id + 1", [(2,)]),
    ("select id, x from orders lateral view explode(tags) t as x order by 2", [(1, "a"), (1, "b")]),
    ("select /*+ broadcast(orders) */ count(*) as n from orders", [(2,)]),
    ("select date_format(at, 'yyyy-MM') as m from orders order by `at`", [("2024-02",), ("2024-03",)]),
    ("select nvl(amount, 0) as a from orders order by a nulls last limit 1", [(0,)]),
    ("select amount as a from orders order by amount limit 1", [(None,)]),  # nulls come first in Spark
    ("select id div 2 as h, id / 2 as q from orders where id = 1", [(0, 0.5)]),
    ("select try_cast('x' as int) as a", [(None,)]),
    ("select id from orders union all select 5 as id order by id", [(1,), (2,), (5,)]),
]


@pytest.mark.parametrize("sql, rows", CASES, ids=[sql for sql, _ in CASES])
def test_a_query_gives_in_duckdb_what_it_gives_in_spark(
    sql: str, rows: list[tuple[Any, ...]], database: duckdb.DuckDBPyConnection
) -> None:
    assert database.sql(duck_query(sql).text).fetchall() == rows


def test_a_value_that_cannot_be_cast_is_an_error_as_in_spark(database: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.ConversionException):
        database.sql(duck_query("select cast(tags[0] as int) as a from orders").text).fetchall()


def test_names_that_may_be_of_further_columns_are_told() -> None:
    assert duck_query("select _RUN_ID, at_ns, id as _x from orders").named == ("_run_id", "_x", "at_ns")


@pytest.mark.parametrize(
    "sql, message, at",
    [
        ("select id, count(*) from orders group by 1", "the column `COUNT(*)` of a view has no name", None),
        ("select 1 as a, upper(tags[0]) from orders", "the column `UPPER(tags[0])` of a view has no name", "tags"),
        ("select array_sort(tags, (x, y) -> 1) as t from orders", "a view has to work in DuckDB too", None),
        ("insert into orders select 1", "the SQL begins with `insert`", None),
    ],
)
def test_what_cannot_be_a_view_is_refused_where_it_stands(sql: str, message: str, at: str | None) -> None:
    with pytest.raises(SqlFault) as caught:
        duck_query(sql)
    assert caught.value.message.startswith(message)
    assert caught.value.offset == (sql.index(at) if at else 0)

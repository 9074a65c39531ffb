"""Results of ripples as tables: what lands, and what counts as a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_rows import runs
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.types import parse_type
from headwater.catalog.lookup import schema_events
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.schema_decisions import accept_change
from headwater.catalog.verify import verify
from headwater.runtime.cut_inputs import CutInput
from headwater.runtime.land_ripple import Closing, land_ripple
from headwater.spark.user_code import SqlCode
from spark.models import NANOS, ORDERS, Models, orders_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    with orders_landed(tmp_path, spark) as opened:
        yield opened


def test_a_result_becomes_a_table_that_duckdb_and_spark_show_alike(models: Models) -> None:
    landed = models.sql("select id, amount * 2 as double, date(at) as day from orders", "orders")
    assert (landed.rows, landed.changed, landed.seq) == (2, True, models.seq())
    assert landed.bytes > 0
    assert [event.kind for event in landed.schema_events] == ["created"]
    assert models.types() == {"id": "long", "double": "real", "day": "date"}
    rows = [(1, 20.0, date(2023, 11, 14)), (2, 40.0, date(1969, 12, 31))]
    assert models.shown("id, double, day") == models.in_spark("id, double, day") == rows
    assert verify(models.store).problems == ()


def test_every_type_lands_as_itself(models: Models) -> None:
    models.sql(
        """select true as b, 1Y as i8, 1S as i16, 1 as i, 1L as l, 1.5f as f, 2.5d as d, 1.25 as dec, 'x' as s,
        x'00ff' as bin, date'2020-02-29' as day, timestamp'1969-12-31 23:59:59.999999' as t,
        timestamp_ntz'2020-01-01 00:00:00' as n, array(1, null) as a, array(timestamp_micros(-1)) as ts,
        named_struct('x', 1, 'at', timestamp_micros(5)) as st, map('k', array(1)) as m, parse_json('{"a": [1]}') as v,
        array(map('a', timestamp_micros(1))) as am, null as nothing"""
    )
    assert models.types() == {
        "b": "bool",
        "i8": "int",
        "i16": "int",
        "i": "int",
        "l": "long",
        "f": "real",
        "d": "real",
        "dec": "decimal(3,2)",
        "s": "string",
        "bin": "binary",
        "day": "date",
        "t": "timestamp",
        "n": "timestamp",
        "a": "list<int>",
        "ts": "list<timestamp>",
        "st": "struct<x:int,at:timestamp>",
        "m": "dynamic",
        "v": "dynamic",
        "am": "dynamic",
        "nothing": "string",
    }
    ((*plain, t_ns, n_ns, m, v, am, nothing),) = models.shown(
        "b, i8, i16, i, l, f, d, dec, s, bin, day, a, epoch_us(ts[1]), st.x, epoch_us(st.at), "
        "t_ns, n_ns, m, v, am, nothing"
    )
    assert plain == [
        *(True, 1, 1, 1, 1, 1.5, 2.5, Decimal("1.25"), "x", b"\x00\xff", date(2020, 2, 29), [1, None], -1, 1, 5)
    ]
    assert (t_ns, n_ns) == (-1_000, 1_577_836_800_000_000_000)
    assert [json.loads(text) for text in (m, v, am)] == [
        {"k": [1]},
        {"a": [1]},
        [{"a": "1970-01-01T00:00:00.000001Z"}],
    ]
    assert nothing is None


def test_columns_that_come_through_keep_types_that_spark_does_not_know(models: Models) -> None:
    models.put("docs", {"id": "long", "body": "dynamic", "v": "vector(2)"}, [(1, {"a": 1}, [0.5, 1.5])])
    models.sql("select d.*, upper(body) as b from docs d join orders using (id)", "docs", "orders")
    assert models.types() == {"id": "long", "body": "dynamic", "v": "vector(2)", "b": "string"}
    assert models.shown("body ->> '$.a', v, b") == [("1", (0.5, 1.5), '{"A": 1}')]


def test_nanoseconds_stay_exact_in_a_column_that_is_declared_as_a_time(models: Models) -> None:
    sql = "select id, at_ns as exact, at as carried, at + interval 0 second as computed from orders"
    models.sql(sql, "orders", columns={"exact": "timestamp"})
    floored = NANOS // 1000 * 1000
    assert models.shown("id, exact_ns, carried_ns, computed_ns") == [(1, NANOS, NANOS, floored), (2, -1, -1, -1000)]


def test_a_text_that_is_not_json_does_not_become_dynamic(models: Models) -> None:
    models.put("docs", {"body": "dynamic"}, [({"a": 1},)])
    error = models.refused("select body from docs union all select 'plain'", "docs")
    assert (error.code, "`body` is not JSON" in error.message) == ("HW-R01", True)
    assert "to_json" in error.hint
    models.sql("select '[1]' as body union all select null", columns={"body": "dynamic"})
    assert models.shown("body") == [("[1]",), (None,)]


@pytest.mark.parametrize("text", ['{"a":1} x', r'"\ud800"', "[" * 201 + "]" * 201])
def test_what_is_json_for_spark_but_would_be_refused_in_a_push_is_refused(models: Models, text: str) -> None:
    """With the first two DuckDB could not read the table any more."""
    literal = text.replace("\\", "\\\\")
    assert models.refused(f"select '{literal}' as body", columns={"body": "dynamic"}).code == "HW-R01"


def test_a_pushed_object_with_a_key_twice_comes_through(models: Models) -> None:
    twice = '{"a": 1, "a":2}'
    sql = f"select '{twice}' as body"
    models.sql(sql, columns={"body": "dynamic"})
    assert models.shown("body, body ->> 'a'") == [(twice, "1")]


def test_an_equal_result_replaces_nothing(models: Models) -> None:
    first = models.sql("select id from orders", "orders")
    files = models.data_files()
    again = models.sql("select id from orders order by id desc", "orders")
    assert (again.changed, again.rows, again.schema_events, again.seq) == (False, 0, (), first.seq + 1)
    assert models.data_files() == files
    other = models.sql("select id + 1 as id from orders", "orders")
    assert (other.changed, other.rows) == (True, 2)
    assert models.shown("id") == [(2,), (3,)]
    assert models.shown("id", as_of=first.seq) == [(1,), (2,)]


def test_a_replaced_table_may_become_empty_and_full_again(models: Models) -> None:
    for where, expected in (("true", 2), ("false", 0), ("false", 0), ("true", 2)):
        models.sql(f"select id from orders where {where}", "orders")
        assert len(models.shown("id")) == expected
    changed = [record["rows"] for record in reversed(all_runs(models))]
    assert changed == [2, 0, 0, 2]


def test_append_adds_each_result(models: Models) -> None:
    for _ in range(2):
        assert models.sql("select id from orders", "orders", mode="append").changed
    assert not models.sql("select id from orders where id > 5", "orders", mode="append").changed
    assert models.shown("id") == [(1,), (1,), (2,), (2,)]


def test_an_upsert_writes_only_what_differs(models: Models) -> None:
    upsert: dict[str, Any] = {"mode": "upsert", "key": ("id",)}
    first = models.sql("select id, 'a' as v from orders", "orders", **upsert)
    same = models.sql("select id, 'a' as v from orders", "orders", **upsert)
    assert (same.changed, same.rows) == (False, 0)
    partly = models.sql("select id, if(id = 2, 'b', 'a') as v from orders", "orders", **upsert)
    assert (partly.changed, partly.rows) == (True, 1)
    assert models.shown("id, v, _commit_seq") == [(1, "a", first.seq), (2, "b", partly.seq)]
    assert models.in_spark("id, v") == [(1, "a"), (2, "b")]


def test_an_upsert_into_a_column_with_a_default_is_not_taken_for_equal(models: Models) -> None:
    upsert: dict[str, Any] = {"mode": "upsert", "key": ("id",)}
    models.sql("select id from orders", "orders", **upsert)
    work = models.work(SqlCode("select id, null as v from orders"), "orders", **upsert, columns={"v": "string"})
    declared = {"v": replace(work.ripple.declared["v"], default='"none"')}
    for _ in range(2):
        work = replace(work, ripple=replace(work.ripple, declared=declared), run_id=uuid7(), job_id=uuid7())
        work = replace(work, closing=lambda _outcome: Closing())
        assert land_ripple(work).rows == 2
    assert models.shown("id, v") == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("select 1 as id, amount as v from orders", "HW-R01", "several rows have the same primary key (id)"),
        ("select nullif(id, 2) as id, amount as v from orders", "HW-S03", "column `id` may not be null"),
        ("select amount as v from orders", "HW-S03", "the primary key names `id`"),
    ],
)
def test_an_upsert_without_one_row_for_each_key_is_refused(models: Models, sql: str, code: str, message: str) -> None:
    error = models.refused(sql, "orders", mode="upsert", key=("id",))
    assert error.code == code
    assert message in error.message


def test_a_key_that_stands_twice_is_refused_also_if_one_of_the_rows_is_there_already(models: Models) -> None:
    upsert: dict[str, Any] = {"mode": "upsert", "key": ("id",)}
    models.sql("select id, amount as v from orders", "orders", **upsert)
    error = models.refused("select id, amount as v from orders union all select 1, 99", "orders", **upsert)
    assert "several rows have the same primary key" in error.message


def test_the_cut_decides_what_is_read(models: Models) -> None:
    cut = models.seq()
    models.put("orders", ORDERS, [(3, 30.0, 0)])
    models.sql("select id from orders", CutInput("orders", cut))
    assert models.shown("id") == [(1,), (2,)]
    models.sql("select id from orders", "orders")
    assert models.shown("id") == [(1,), (2,), (3,)]


def test_two_inputs_may_be_of_two_sequences(models: Models) -> None:
    cut = models.seq()
    models.put("rates", {"r": "long"}, [(5,)])
    models.put("orders", ORDERS, [(3, 30.0, 0)])
    models.sql("select id * r as x from orders, rates", CutInput("orders", cut), "rates")
    assert models.shown("x") == [(5,), (10,)]


def test_an_optional_source_that_never_ran_is_an_empty_table_with_its_columns(models: Models) -> None:
    columns = {"id": parse_type("long"), "rate": parse_type("real"), "at": parse_type("timestamp")}
    absent = CutInput("rates", None, declared=columns)
    models.sql("select o.id, r.rate, r.at from orders o left join rates r using (id)", "orders", absent)
    assert models.shown("id, rate, at_ns") == [(1, None, None), (2, None, None)]
    assert models.types() == {"id": "long", "rate": "real", "at": "timestamp"}
    never = models.refused("select * from rates", CutInput("rates", models.seq()))
    assert (never.code, "never landed a row" in never.message) == ("HW-T07", True)


def test_the_schema_evolves_as_a_sources_does(models: Models) -> None:
    models.sql("select 1 as a, 'x' as b")
    grown = models.sql("select 1L as a, null as b, 2 as c")
    assert [(event.kind, event.column) for event in grown.schema_events] == [("widen_type", "a"), ("add_column", "c")]
    shrunk = models.sql("select 2L as a, 2 as c")
    assert [(event.kind, event.column) for event in shrunk.schema_events] == [("drop_column", "b")]
    assert models.shown("a, b, c") == [(2, None, 2)]
    error = models.refused("select 'text' as a, 2 as c")
    assert (error.code, "column `a` changed its type" in error.message) == ("HW-S01", True)
    accept_change(models.store, "out", actor="test")
    models.sql("select 'text' as a, 2 as c")
    assert models.shown("a") == [("text",)]
    with models.store.catalog.snapshot() as connection:
        kinds = [event["kind"] for event in schema_events(connection, ["out"])]
    assert kinds == ["created", "widen_type", "add_column", "drop_column", "refused", "change_type"]


def test_another_mode_or_key_needs_a_decision(models: Models) -> None:
    models.sql("select id from orders", "orders")
    assert models.refused("select id from orders", "orders", mode="append").code == "HW-S02"
    assert models.refused("select id from orders", "orders", mode="upsert", key=("id",)).code == "HW-S02"


def test_a_table_of_another_pipeline_is_left_alone(models: Models) -> None:
    work = models.work(SqlCode("select 1 as id"))
    with pytest.raises(HeadwaterError, match="table `orders` belongs to pipeline `orders-inlet`") as caught:
        land_ripple(replace(work, ripple=replace(work.ripple, table="orders")))
    assert caught.value.code == "HW-M04"


def all_runs(models: Models) -> list[dict[str, Any]]:
    with models.store.catalog.snapshot() as connection:
        return runs(connection, pipeline="models")


def test_the_run_is_in_the_same_commit_with_its_cut_and_its_parents(models: Models) -> None:
    work = models.work(SqlCode("select id from orders"), "orders")
    landed = land_ripple(work)
    (record,) = all_runs(models)
    assert {key: record[key] for key in ("run_id", "state", "rows", "freshness_us", "trigger_kind", "started_seq")} == {
        "run_id": work.run_id,
        "state": "success",
        "rows": 2,
        "freshness_us": 2_000_000,
        "trigger_kind": "pulse",
        "started_seq": landed.seq,
    }
    assert json.loads(record["cut"]) == {"orders": landed.seq - 1}
    assert landed.parent_runs == (models.state("orders").files[-1].run_id,)
    with models.store.catalog.snapshot() as connection:
        found = connection.exec_driver_sql("SELECT child_run_id, parent_run_id FROM lineage").all()
    assert [tuple(row) for row in found] == [(work.run_id, landed.parent_runs[0])]


def test_what_a_ripple_lands_is_rebuilt_from_the_log(models: Models) -> None:
    models.sql("select id from orders", "orders")
    models.sql("select id + 1 as id from orders", "orders")
    rows, found = models.shown("id"), all_runs(models)
    models.close()
    rebuild_catalog(models.root / "store", project="shop")
    again = Models(models.root, models.spark)
    assert (again.shown("id"), all_runs(again)) == (rows, found)
    again.close()


INCREMENTAL = """\
def out(context):
    return context.changed_rows("orders").select("id", "amount")
"""


def test_a_python_ripple_can_work_incrementally(models: Models) -> None:
    code = models.code("models/m.py", INCREMENTAL)
    first = models.seq()
    land_ripple(models.work(code, CutInput("orders", first), mode="append"))
    models.put("orders", ORDERS, [(3, 30.0, 0)])
    landed = land_ripple(models.work(code, CutInput("orders", models.seq(), since_seq=first), mode="append"))
    assert landed.rows == 1
    assert models.shown("id, amount") == [(1, 10.0), (2, 20.0), (3, 30.0)]


def test_an_error_of_a_job_is_the_users_with_its_place_and_leaves_the_table(models: Models) -> None:
    models.sql("select id from orders", "orders")
    error = models.refused("select id,\n 1 / (id - 1) as x from orders", "orders")
    assert error.code == "HW-R01"
    assert "failed at line 2, column 2 (`1 / (id - 1)`): DIVIDE_BY_ZERO" in error.message
    text = "from pyspark.sql.functions import udf\n\ndef out(orders):\n    f = udf(lambda x: 1 // (x - 1), 'long')\n"
    text += "    return orders.select(f('id').alias('id'))\n"
    with pytest.raises(HeadwaterError) as caught:
        models.python("models/m.py", text, "orders")
    assert caught.value.message == (
        "`out` failed: a function for rows raised ZeroDivisionError at `f = udf(lambda x: 1 // (x - 1), 'long')`"
    )
    assert [str(place) for place in caught.value.places] == ["models/m.py:4"]
    assert models.shown("id") == [(1,), (2,)]

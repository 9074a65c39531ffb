"""Ripples that make views: what DuckDB shows, what ripples that read them see, and what counts as a change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from catalog_rows import dump, runs
from headwater.base.errors import HeadwaterError, Position
from headwater.base.types import parse_type
from headwater.catalog.gc import collect
from headwater.catalog.lookup import table_states, table_versions
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.verify import verify
from headwater.duck.query_session import connect
from headwater.duck.ripple_views import view_states
from headwater.duck.statement import parse
from headwater.duck.view_files import refresh_views, table_infos
from headwater.runtime.cut_inputs import CutInput
from headwater.runtime.land_ripple import LandedRipple, RippleWork, land_ripple
from headwater.runtime.land_view import land_view
from headwater.spark.user_code import SqlCode
from spark.models import NANOS, ORDERS, Models, Row, orders_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIG = "select id, sum(amount) as total, max(date(at)) as day from orders where amount > 5 group by id"


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    with orders_landed(tmp_path, spark) as opened:
        yield opened


def view(models: Models, name: str, sql: str, *reads: CutInput | str, **more: Any) -> LandedRipple:
    return land_view(work_of(models, name, sql, *reads, **more))


def work_of(models: Models, name: str, sql: str, *reads: CutInput | str, **more: Any) -> RippleWork:
    work = models.work(SqlCode(sql, Position("models/big.sql", 1, 1)), *reads, **more)
    return replace(work, ripple=replace(work.ripple, table=name))


def shown(models: Models, sql: str, *, as_of: int | None = None, narrow: bool = False) -> list[Row]:
    """A question to DuckDB, as `query` asks it."""
    with models.store.catalog.snapshot() as connection:
        states, views = table_states(connection, as_of=as_of), view_states(connection, as_of=as_of)
    infos = table_infos(states, {}, views=views)
    statement = parse(sql) if narrow else None
    with connect(models.store.root, states, tables_info=infos, views=views, statement=statement) as session:
        return session.sql(sql).fetchall()


def read_by_spark(models: Models, sql: str, *reads: CutInput | str) -> list[Row]:
    """What a ripple sees of its inputs, landed as the table `out`."""
    models.sql(sql, *reads)
    return models.shown()


def files_of(models: Models) -> set[Path]:
    return set((models.store.root / "tables").rglob("*.parquet"))


def test_a_view_makes_no_file_and_duckdb_shows_what_its_tables_hold_now(models: Models) -> None:
    before = files_of(models)
    landed = view(models, "big", BIG, "orders")
    assert (landed.rows, landed.bytes, landed.changed, landed.seq) == (0, 0, True, models.seq())
    assert shown(models, "from big order by id") == [(1, 10.0, date(2023, 11, 14)), (2, 20.0, date(1969, 12, 31))]
    models.put("orders", ORDERS, [(1, 7.0, NANOS), (3, 1.0, NANOS)])
    assert shown(models, "select id, total from big order by id", narrow=True) == [(1, 17.0), (2, 20.0)]
    assert len(files_of(models) - before) == 1  # the order that was put
    assert verify(models.store).problems == ()


def test_a_views_columns_have_the_types_that_they_have_in_spark(models: Models) -> None:
    view(models, "typed", "select sum(id) as n, count(*) as c, avg(amount) as a, max(at) as at from orders", "orders")
    types = [(row[0], row[1]) for row in shown(models, "describe typed")]
    assert types == [("n", "BIGINT"), ("c", "BIGINT"), ("a", "DOUBLE"), ("at", "TIMESTAMP WITH TIME ZONE")]


def test_a_star_means_the_tables_own_columns_also_in_duckdb(models: Models) -> None:
    view(models, "every", "select * from orders", "orders")
    assert [row[0] for row in shown(models, "describe every")] == ["id", "amount", "at"]
    view(models, "exact", "select at_ns, _commit_seq as seq from orders where id = 1", "orders")
    assert shown(models, "from exact") == [(NANOS, 1)]


def test_columns_are_found_by_name_where_a_join_puts_them_in_another_order(models: Models) -> None:
    models.put("rates", {"r": "long", "id": "long"}, [(5, 1)])
    view(models, "joined", "select * from rates join orders using (id)", "rates", "orders")
    assert [row[0] for row in shown(models, "describe joined")] == ["id", "r", "amount", "at"]
    assert shown(models, "select id, r, amount from joined") == [(1, 5, 10.0)]


def test_a_ripple_reads_a_view_over_the_cut_that_it_was_landed_with(models: Models) -> None:
    view(models, "big", BIG, "orders")
    models.put("orders", ORDERS, [(3, 30.0, NANOS)])
    # the view as it was landed beside the table as it is: two cuts of one table, each under its name
    both = "select b.id, b.total, (select count(*) from orders) as n from big b"
    assert [row[:3] for row in read_by_spark(models, both, "big", "orders")] == [(1, 10.0, 3), (2, 20.0, 3)]
    view(models, "big", BIG, "orders")
    assert [row[0] for row in read_by_spark(models, "select id from big", "big")] == [1, 2, 3]


def test_a_ripple_of_an_older_cut_reads_the_view_as_it_was_then(models: Models) -> None:
    first = view(models, "big", "select id from orders", "orders").seq
    models.put("orders", ORDERS, [(3, 30.0, NANOS)])
    view(models, "big", "select id * 10 as id from orders", "orders")
    assert [row[0] for row in read_by_spark(models, "select id from big", CutInput("big", first))] == [1, 2]
    assert shown(models, "from big order by id", as_of=first) == [(1,), (2,)]
    assert shown(models, "from big order by id") == [(10,), (20,), (30,)]


def test_a_view_may_read_a_view(models: Models) -> None:
    view(models, "big", BIG, "orders")
    view(models, "biggest", "select max(total) as total from big", "big")
    assert shown(models, "from biggest", narrow=True) == [(20.0,)]
    assert [row[0] for row in read_by_spark(models, "select total from biggest", "biggest")] == [20.0]
    refresh(models)
    assert alone(models, "biggest", "select total from biggest") == [(20.0,)]


def test_a_python_ripple_gets_a_view_as_a_data_frame(models: Models) -> None:
    seq = view(models, "big", BIG, "orders").seq
    text = "def out(big, context):\n    return context.changed_rows('big').join(big, 'id').select('id')\n"
    assert models.python("out.py", text, "big").rows == 2
    unchanged = CutInput("big", models.seq(), since_seq=seq)
    assert models.python("out.py", text, unchanged).rows == 0
    models.put("orders", ORDERS, [(3, 30.0, NANOS)])
    view(models, "big", BIG, "orders")
    assert models.python("out.py", text, CutInput("big", models.seq(), since_seq=seq)).rows == 3


def test_a_view_changes_with_its_query_and_with_what_it_reads_and_else_not(models: Models) -> None:
    def version() -> int:
        with models.store.catalog.snapshot() as connection:
            return table_versions(connection)["big"]

    cut = CutInput("orders", models.seq())
    first = view(models, "big", BIG, cut)
    assert version() == first.seq
    again = view(models, "big", BIG, cut)
    assert (again.changed, again.seq > first.seq, version()) == (False, True, first.seq)
    moved = view(models, "big", BIG, CutInput("orders", models.put("orders", ORDERS, [(3, 1.0, NANOS)])))
    assert (moved.changed, version()) == (True, moved.seq)
    edited = view(models, "big", BIG + " having sum(amount) > 1", CutInput("orders", models.seq()))
    assert (edited.changed, version()) == (True, edited.seq)


def test_the_run_is_in_the_same_commit_with_its_cut_and_its_parents(models: Models) -> None:
    view(models, "big", BIG, "orders")
    with models.store.catalog.snapshot() as connection:
        (newest, *_) = runs(connection, pipeline="models")
    assert (newest["state"], newest["cut"], newest["rows"]) == ("success", '{"orders":1}', 0)


@pytest.mark.parametrize(
    "sql, code, message",
    [
        ("select nothing as a from orders", "HW-R01", "the SQL of `big` cannot be run"),
        ("select xxhash64(id) as c from orders", "HW-R01", "works in Spark, and DuckDB cannot show it"),
        ("values (1, 2)", "HW-R01", "works in Spark, and DuckDB cannot show it"),
        ("select id, id as ID from orders", "HW-S03", "ID"),
    ],
)
def test_a_query_that_spark_or_duckdb_does_not_take_is_refused_with_its_place(
    models: Models, sql: str, code: str, message: str
) -> None:
    before = models.seq()
    with pytest.raises(HeadwaterError, match=message) as caught:
        view(models, "big", sql, "orders")
    assert (caught.value.code, models.seq()) == (code, before)
    if code == "HW-R01":
        assert caught.value.places[0].file == "models/big.sql"


def test_an_error_inside_a_view_is_not_placed_in_the_text_of_its_reader(models: Models) -> None:
    models.put("texts", {"t": "string"}, [("no number",)])
    view(models, "numbers", "select cast(t as int) as n from texts", "texts")
    with pytest.raises(HeadwaterError, match=r"failed \(`cast\(t as int\)`\)") as caught:
        land_ripple(work_of(models, "out", "select n, 'and so on, and so on' as x from numbers", "numbers"))
    assert caught.value.places == (Position("models/big.sql", 1, 1),)


def test_a_view_does_not_take_the_place_of_a_table_but_a_table_that_of_a_view(models: Models) -> None:
    models.sql("select 1 as a")
    with pytest.raises(HeadwaterError, match="a view cannot take its place") as caught:
        view(models, "out", BIG, "orders")
    assert caught.value.code == "HW-M04"
    view(models, "big", "select id from orders", "orders")
    work = work_of(models, "big", "select 5 as five")
    land_ripple(work)
    assert shown(models, "select five from big") == [(5,)]
    refresh(models)
    assert alone(models, "big", "select five from big") == [(5,)]


def test_declared_columns_are_those_that_the_query_gives(models: Models) -> None:
    view(models, "big", "select id from orders", "orders", columns={"id": "long"})
    with pytest.raises(HeadwaterError, match="declares `id` as int, and its query gives it as long"):
        view(models, "big", "select id from orders", "orders", columns={"id": "int"})


def test_a_view_over_a_source_that_never_ran_is_empty_until_it_has(models: Models) -> None:
    absent = CutInput("rates", None, declared={"id": parse_type("long"), "r": parse_type("real")})
    view(models, "rated", "select o.id, r from orders o left join rates using (id)", "orders", absent)
    assert shown(models, "from rated order by id") == [(1, None), (2, None)]
    assert read_by_spark(models, "select count(r) as n from rated", "rated")[0][0] == 0
    models.put("rates", {"id": "long", "r": "real"}, [(1, 0.5)])
    assert shown(models, "from rated order by id") == [(1, 0.5), (2, None)]


def test_a_view_is_a_file_that_the_plain_duckdb_program_takes_by_itself(models: Models) -> None:
    view(models, "big", BIG, "orders")
    assert refresh(models) == ["big", "orders"]
    assert refresh(models) == []
    assert alone(models, "big", "select id from big order by id") == [(1,), (2,)]
    models.put("orders", ORDERS, [(3, 30.0, NANOS)])
    assert refresh(models) == ["big", "orders"]
    assert alone(models, "big", "select count(*) from big") == [(3,)]
    with duckdb.connect() as session:
        session.execute(f"ATTACH '{models.store.root / 'duck.db'}' AS store (READ_ONLY)")
        assert session.sql("select count(*) from store.big").fetchall() == [(3,)]
        listed = session.sql("select name, mode, rows from store.headwater.tables order by 1").fetchall()
    assert listed == [("big", "view", None), ("orders", "append", 3)]


def test_a_view_that_no_longer_binds_says_so_and_all_others_work(models: Models) -> None:
    view(models, "big", BIG, "orders")
    view(models, "biggest", "select max(total) as total from big", "big")
    with models.store.catalog.snapshot() as connection:
        (orders,) = table_states(connection, ["orders"])
        views = view_states(connection)
    lost = replace(orders, schema=orders.schema.added("extra", parse_type("long")), files=())
    lost = replace(
        lost, schema=replace(lost.schema, columns=tuple(c for c in lost.schema.columns if c.name != "amount"))
    )
    with connect(models.store.root, [lost], tables_info=(), views=views) as session:
        assert session.sql("select count(*) from orders").fetchall() == [(0,)]
        for name in ("big", "biggest"):
            with pytest.raises(duckdb.Error, match=f"the view `{name}` cannot be shown"):
                session.sql(f"from {name}").fetchall()


def test_views_are_rebuilt_from_the_log_and_gc_leaves_them(models: Models) -> None:
    view(models, "big", BIG, "orders")
    view(models, "biggest", "select max(total) as total from big", "big")
    before = dump(models.store.catalog)
    assert before["view_entry"] and before["view_definition"] and before["view_cut"]
    collect(models.store, actor="test", retention_seconds=0)
    rebuild_catalog(models.store.root, project="shop")
    assert dump(models.store.catalog) == before
    assert shown(models, "from biggest") == [(20.0,)]


def test_a_view_whose_cut_is_gone_tells_what_to_run(models: Models) -> None:
    models.sql("select id from orders", "orders")
    work = work_of(models, "ids", "select id from out", "out")
    land_view(work)
    models.sql("select id + 1 as id from orders", "orders")
    collect(models.store, actor="test", retention_seconds=0)
    reader = work_of(models, "reader", "select id from ids", "ids")
    with pytest.raises(HeadwaterError, match="the view `ids` cannot be read as it was landed") as caught:
        land_ripple(reader)
    assert "headwater run models" in caught.value.hint
    view(models, "ids", "select id from out", "out")
    assert land_ripple(work_of(models, "reader", "select id from ids", "ids")).rows == 2


def refresh(models: Models) -> list[str]:
    with models.store.catalog.snapshot() as connection:
        states, views = table_states(connection), view_states(connection)
    return refresh_views(models.store.root, states, tables_info=table_infos(states, {}, views=views), views=views)


def alone(models: Models, name: str, sql: str) -> list[Row]:
    """A question to nothing but the view's file, in a program that was started in the store's directory."""
    text = (models.store.root / "views" / f"{name}.sql").read_text()
    with duckdb.connect(config={"file_search_path": str(models.store.root)}) as session:
        session.execute(text)
        return session.sql(sql).fetchall()

"""Nanoseconds of times that a model hands on: traced in Spark's own plans, landed, and read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.coerce.times import FIRST_NS, LAST_NS
from headwater.runtime.land_ripple import CutInput
from headwater.runtime.land_view import land_view
from headwater.spark.carried_times import exact_frame
from headwater.spark.nanoseconds import REMAINDER
from headwater.spark.ripples import running
from headwater.spark.user_code import Code, SqlCode
from spark.models import Models

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

N = 1_700_000_000_123_456_789
E = {"id": "long", "t": "timestamp", "u": "timestamp"}
E_ROWS = [(1, N, N + 1), (2, -1, None), (3, None, 5), (4, FIRST_NS, LAST_NS)]
F_ROWS = [(1, N + 7), (2, -8), (9, 99)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Models]:
    opened = Models(tmp_path_factory.mktemp("exact"), spark)
    opened.put("e", E, E_ROWS)
    opened.put("f", {"id": "long", "v": "timestamp"}, F_ROWS)
    yield opened
    opened.close()


def exact(models: Models, code: Code) -> list[tuple[Any, ...]]:
    """The rows of a result, with its times as the nanoseconds that land."""
    inputs = models.input("e") | models.input("f")
    with running(models.spark, "out", code, inputs=inputs, freshness_us=2, previous_freshness_us=None) as frame:
        columns = []
        carried = exact_frame(frame)
        for field in frame.schema.fields:
            is_time = field.dataType.typeName() == "timestamp"
            columns.append(f"unix_micros(`{field.name}`)" if is_time else f"`{field.name}`")
            rest = f"`{REMAINDER}{field.name}`" if REMAINDER + field.name in carried.columns else "0"
            columns.append(rest if is_time else "null")
        found = []
        for row in carried.selectExpr(*columns).collect():
            pairs = zip(row[::2], row[1::2])
            found.append(tuple(v if rest is None or v is None else v * 1000 + rest for v, rest in pairs))
    return sorted(found, key=repr)


NINE = [(1, N), (1, N + 7), (2, -1), (2, -8)]
SQL: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("select * from e", E_ROWS),
    ("select u as b, t as a, id from e where t < timestamp'2100-01-01'", [(u, t, i) for i, t, u in E_ROWS if t]),
    ("select e.id, t, v from e join f on e.id = f.id", [(1, N, N + 7), (2, -1, -8)]),
    ("select id, v, t from f left join e using (id)", [(1, N + 7, N), (2, -8, -1), (9, 99, None)]),
    (
        "select e.t, f.v from e full join f on e.id = f.id where e.id is null or e.id < 4",
        [(N, N + 7), (-1, -8), (None, None), (None, 99)],
    ),
    ("select t from e left semi join f using (id)", [(N,), (-1,)]),
    ("select t from e left anti join f using (id) where id < 4", [(None,)]),
    ("select a.t, b.t as next from e a join e b on b.id = a.id + 1 where a.id < 3", [(N, -1), (-1, None)]),
    ("select id, t from e where id < 3 union all select id, v from f where id < 3", NINE),
    (
        "select timestamp'1970-01-01 00:00:00.000001' as t union all select t + interval 1 second from e where id = 2"
        " union all select v from f where id = 2",
        [(1_000,), (999_999_000,), (-8,)],
    ),
    ("with a as (select id, t as x from e where id < 3) select x from a", [(N,), (-1,)]),
    (
        "with a as (select * from e where id < 3), b as (select id, t from a)"
        " select a.t, b.t as s, a.u from a join b using (id)",
        [(N, N, N + 1), (-1, -1, None)],
    ),
    (
        "with a as (select id, v, rand() as r from f) select x.v, y.v as w, x.r = y.r as same from a x join a y using (id)",
        [(N + 7, N + 7, True), (-8, -8, True), (99, 99, True)],
    ),
    (
        "with a as (select v from f where id = 2) select * from a union all (select t from e where id = 2)"
        " union all select v from a",
        [(-8,), (-1,), (-8,)],
    ),
    ("select s.t from (select t, id from (select * from e) order by id limit 2) s", [(N,), (-1,)]),
    ("select t, row_number() over (order by id) as n from e where id < 3", [(N, 1), (-1, 2)]),
    ("select t, x from e lateral view explode(array(1, 2)) l as x where id = 1", [(N, 1), (N, 2)]),
    ("select e.t, l.v from e, lateral (select v from f where f.id = e.id) l", [(N, N // 1000 * 1000), (-1, -1000)]),
    ("from e |> where id < 3 |> select t |> order by t", [(N,), (-1,)]),
    ("select max(t) as m from e where id < 3", [(N // 1000 * 1000,)]),
    ("select t from e where id = 1 group by t", [(N // 1000 * 1000,)]),
    ("select distinct t from e where id = 1", [(N // 1000 * 1000,)]),
    ("select id, t from e where id < 2 union select id, t from e where id = 1", [(1, N // 1000 * 1000)]),
    ("select coalesce(t, u) as c, t + interval 1 second as l, t from e where id = 2", [(-1000, 999_999_000, -1)]),
]


@pytest.mark.parametrize(("sql", "rows"), SQL, ids=[sql for sql, _ in SQL])
def test_a_query_keeps_the_nanoseconds_of_times_that_it_hands_on(
    models: Models, sql: str, rows: list[tuple[Any, ...]]
) -> None:
    assert exact(models, SqlCode(sql)) == sorted(rows, key=repr)


PYTHON: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("e", E_ROWS),
    ("e.filter('id < 3').select('t')", [(N,), (-1,)]),
    ("e.where('id = 1').withColumnRenamed('t', 'a').withColumn('n', F.lit(1)).drop('u')", [(1, N, 1)]),
    ("e.join(f, 'id').select(f.v, e.t)", [(N + 7, N), (-8, -1)]),
    ("e.alias('a').join(e.alias('b'), 'id').where('id < 3').select('a.t', 'b.u')", [(N, N + 1), (-1, None)]),
    ("e.select('id', 't').where('id < 3').unionByName(f.select(f.v.alias('t'), 'id').where('id < 3'))", NINE),
    ("e.dropDuplicates(['id']).where('id < 3').orderBy('id').limit(1).repartition(2).select('t')", [(N,)]),
    ("context.every_column('e').where('id = 1').select('t', 't_ns')", [(N, N)]),
    ("context.changed_rows('f').where('id = 2')", [(2, -8)]),
    (
        "e.where('id = 1').select(F.date_add('t', 0).alias('d'), F.max('t').over(W).alias('m')).select('m')",
        [(N // 1000 * 1000,)],
    ),
    ("cached(e.where('id = 1').select('t'))", [(N // 1000 * 1000,)]),
]


@pytest.mark.parametrize(("expression", "rows"), PYTHON, ids=[expression for expression, _ in PYTHON])
def test_a_function_keeps_the_nanoseconds_of_times_that_it_hands_on(
    models: Models, expression: str, rows: list[tuple[Any, ...]]
) -> None:
    text = (
        "from pyspark.sql import Window, functions as F\n"
        "W = Window.partitionBy('id')\n"
        "def cached(frame):\n    frame.cache().count()\n    return frame\n"
        f"def out(e, f, context):\n    return {expression}\n"
    )
    try:
        assert exact(models, models.code("models/exact.py", text)) == sorted(rows, key=repr)
    finally:
        models.spark.catalog.clearCache()


def test_a_landed_copy_of_a_table_is_the_table(tmp_path: Path, spark: SparkSession) -> None:
    models = Models(tmp_path, spark)
    rows = [*E_ROWS, (5, LAST_NS, FIRST_NS), (6, 0, 999)]
    models.put("e", E, rows)
    models.sql("select * from e", "e")
    assert models.shown("id, t_ns, u_ns") == rows
    models.python("models/copy.py", "def out(e):\n    return e\n", "e")
    assert models.shown("id, t_ns, u_ns") == rows
    models.close()


def test_a_key_is_told_apart_by_its_nanoseconds(tmp_path: Path, spark: SparkSession) -> None:
    models = Models(tmp_path, spark)
    models.put("e", {"t": "timestamp", "n": "long"}, [(N, 1), (N + 1, 2)])
    models.sql("select * from e", "e", mode="upsert", key=("t",))
    assert models.shown("t_ns, n") == [(N, 1), (N + 1, 2)]
    error = models.refused("select t, n from e union all select t, n + 1 from e", "e", mode="upsert", key=("t",))
    assert "several rows have the same primary key (t)" in error.message
    models.close()


def test_a_view_between_two_tables_keeps_the_nanoseconds(tmp_path: Path, spark: SparkSession) -> None:
    models = Models(tmp_path, spark)
    models.put("e", E, E_ROWS)
    for name, sql in (
        ("recent", "select id, t from e where id < 3"),
        ("named", "with a as (select * from e) select * from a"),
    ):
        work = models.work(SqlCode(sql), "e")
        land_view(replace(work, ripple=replace(work.ripple, table=name)))
    sql = "select x.t, y.t as other, n.u from recent x join recent y using (id) join named n using (id)"
    models.sql(sql, CutInput("recent", models.seq()), CutInput("named", models.seq()))
    assert models.shown("t_ns, other_ns, u_ns") == [(-1, -1, None), (N, N, N + 1)]
    models.close()


def test_a_time_that_does_not_fit_is_still_refused(tmp_path: Path, spark: SparkSession) -> None:
    models = Models(tmp_path, spark)
    models.put("e", E, E_ROWS[:1])
    sql = "select t from e union all select timestamp'3000-01-01'"
    assert models.refused(sql, "e").code == "HW-S03"
    models.close()


def test_what_a_model_caches_is_for_it_alone_and_goes_with_its_run(tmp_path: Path, spark: SparkSession) -> None:
    models = Models(tmp_path, spark)
    models.put("e", E, E_ROWS)
    cache = spark._jsparkSession.sharedState().cacheManager()
    before = cache.numCachedEntries()
    text = "def out(e, context):\n    e.cache().count()\n    context.every_column('e').where('id > 1').cache()\n    return {}\n"
    inputs = models.input("e")
    used = models.code("models/used.py", text.format("e.groupBy('id').count()"))
    with running(spark, "out", used, inputs=inputs, freshness_us=2, previous_freshness_us=None) as frame:
        assert "InMemoryRelation" in frame._jdf.queryExecution().withCachedData().treeString()
        assert cache.numCachedEntries() == before + 2
        models.sql("select * from e", "e")
        assert models.shown("id, t_ns, u_ns") == E_ROWS
        assert cache.numCachedEntries() == before + 2
    assert cache.numCachedEntries() == before
    models.close()

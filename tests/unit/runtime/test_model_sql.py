"""Which tables a query reads, and what is no query, from the case files. `tests/spark/test_sql_tables.py` asks Spark
about the same queries."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headwater.runtime.model_sql import TableRead, tables_read
from headwater.runtime.model_text import SqlFault
from unit.runtime.sql_cases import sql_cases

QUERIES, FAULTS = sql_cases("queries"), sql_cases("faults")
ATTACKS = [case for case in sql_cases("attacks") if case["at"]]


@pytest.mark.parametrize("case", QUERIES, ids=[case["claim"].replace(" ", "_") for case in QUERIES])
def test_the_tables_of_a_query(case: dict[str, Any]) -> None:
    reads = tables_read(case["sql"])
    assert [read.name for read in reads] == case["tables"]
    for read in reads:
        assert case["sql"][read.offset :].lstrip("`").lower().startswith(read.name)


@pytest.mark.parametrize("case", FAULTS, ids=[case["claim"].replace(" ", "_") for case in FAULTS])
def test_what_is_no_query_is_refused_in_these_words(case: dict[str, Any]) -> None:
    with pytest.raises(SqlFault) as caught:
        tables_read(case["sql"])
    before = case["sql"][: caught.value.offset]
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    assert (place, caught.value.message, caught.value.hint) == (case["at"], case["message"], case["hint"])


@pytest.mark.parametrize("case", ATTACKS, ids=[case["claim"].replace(" ", "_") for case in ATTACKS])
def test_a_query_that_leaves_its_inputs_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(SqlFault) as caught:
        tables_read(case["sql"])
    before = case["sql"][: caught.value.offset]
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    assert (place, caught.value.message) == (case["at"], case["message"])
    assert caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "select 'reflect(1)' as a, id as reflect, o.name -- reflect(2)\nfrom orders o /* java_method(3) */",
        "with reflect(x) as (select id from orders) select x from reflect",
        "select x from values ('a'), ('b') as version(x)",
        "select approx_top_k(e, 2) as a from values 'a', 'b' as tab(e)",
        "select /*+ broadcast(o), repartition(3, id) */ o.`user` from orders o",
        "select timestampadd(day, 1, t) as a, try_cast(id as decimal(10, 2)) as b, left(name, 1) as c from orders",
        "select sum(id) over (partition by (name) order by (id)) as s from orders where (id) in (1, 2) and not (id > 3)",
        "select '${env:HOME}' as text from orders",
    ],
)
def test_words_that_call_nothing_are_allowed(sql: str) -> None:
    tables_read(sql)


def test_a_refused_function_is_explained_and_a_misspelled_one_corrected() -> None:
    with pytest.raises(SqlFault) as caught:
        tables_read("select input_file_name() as f from orders")
    assert caught.value.hint.endswith("a Python ripple may do this: its code runs with your rights")
    with pytest.raises(SqlFault) as caught:
        tables_read("select coalesc(id, 0) as i from orders")
    assert caught.value.hint == "did you mean `coalesce`?"


def test_a_table_is_placed_where_its_name_first_stands() -> None:
    assert tables_read("select 1 from b join a on true, b c") == (TableRead("b", 14), TableRead("a", 21))


def test_a_query_of_thousands_of_tables_is_read() -> None:
    sql = " union all ".join(f"select * from t{number}" for number in range(3_000))
    assert [read.name for read in tables_read(sql)] == [f"t{number}" for number in range(3_000)]


def test_a_query_too_deep_to_read_is_refused() -> None:
    with pytest.raises(SqlFault, match="nested too deeply"):
        tables_read("select " + "(" * 5_000 + "1" + ")" * 5_000)


def test_sqlglot_is_not_loaded_before_a_query_is_read() -> None:
    code = "import sys, headwater.runtime.compile, headwater.runtime.model_sql; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

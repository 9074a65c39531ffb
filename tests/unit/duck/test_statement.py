"""The rules for a client's SQL, on the parsed text alone: nothing is bound, so nothing here can reach a file."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from headwater.base.errors import HeadwaterError
from headwater.duck.statement import REFUSED_FUNCTIONS, TABLE_FUNCTIONS, parse

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "query"


def test_attacks_are_refused_before_anything_is_bound() -> None:
    """But for those of `bound`, which name a function or a column that does not exist."""
    passed, bound = [], []
    for case in json.loads((SCENARIOS / "attacks.json").read_text()):
        if case["expect"] != "HW-Q01" or "deep" in case:
            continue
        bound += [case["sql"]] if "bound" in case else []
        try:
            parse(case["sql"]).check_names(["orders"])
        except HeadwaterError as error:
            assert error.code == "HW-Q01"
        else:
            passed.append(case["sql"])
    assert passed == bound


def test_every_function_of_duckdb_was_decided_on() -> None:
    """A new version of DuckDB may bring one that reaches settings, files or the environment: add it to `functions.txt`,
    or to `REFUSED_FUNCTIONS`."""
    allowed = set((SCENARIOS / "functions.txt").read_text().split())
    found = duckdb.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions()"
        " WHERE function_type NOT IN ('table', 'table_macro', 'pragma') AND NOT contains(function_name, 'collate_')"
    ).fetchall()
    decided = allowed | REFUSED_FUNCTIONS
    assert sorted(name for (name,) in found if not name.startswith(("__", "IS ")) and name.lower() not in decided) == []
    assert not allowed & REFUSED_FUNCTIONS


def test_the_table_functions_that_are_allowed_exist() -> None:
    found = duckdb.sql("SELECT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')")
    assert {name for (name,) in found.fetchall()} | {"summary"} >= TABLE_FUNCTIONS


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("with a as (select * from orders), b as (from a) select * from a, b", {"orders"}),
        ("with a as (select 1) select (select * from a), (with b as (from a) from b)", set()),
        ("with a as (select * from a) from a", {"a"}),
        ("with recursive a as (select 1 as n union all select n + 1 from a where n < 3) from a", set()),
        ("with recursive a(n) using key (n) as (select 1 union select n from recurring.a) from a", set()),
        ("select (with b as (select 1) from b), * from b", {"b"}),
        ("from (with c as (select 1) from c) natural join c", {"c"}),
        ("from A join main.B using (x) join memory.main.c using (x)", {"a", "b", "c"}),
        ("select 1 where 1 in (from a) and exists (from b) and 1 > all (from c)", {"a", "b", "c"}),
        ("pivot a on b in (1, 2) using sum(c)", {"a"}),
        ("show a", {"a"}),
        ("select * from query_table(['a', 'b'])", {"a", "b"}),
        ("from headwater.tables", set()),
    ],
)
def test_a_statement_names_its_tables_and_not_its_ctes(sql: str, names: set[str]) -> None:
    assert parse(sql).names == names


def test_a_table_of_another_schema_is_not_taken_for_a_store_without_tables() -> None:
    with pytest.raises(HeadwaterError) as raised:
        parse("select * from headwater.nope")
    assert "headwater.nope does not exist" in raised.value.message
    assert raised.value.hint == "`SELECT * FROM headwater.tables` lists the tables"

"""The query of a ripple's view in DuckDB's SQL, found in the text alone: nothing is run, no table is looked up.

A query that DuckDB cannot express is refused here if sqlglot knows it. Otherwise it is refused when the view lands:
DuckDB then binds it over the tables that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.catalog.records import VIEW_INPUT
from headwater.runtime.model_sql import parse_query, tables_in
from headwater.runtime.model_text import SqlFault

if TYPE_CHECKING:
    from sqlglot import exp

_ONLY_IN_SPARK = 'write it in a way that DuckDB has too, or leave out `materialize = "view"`'


@dataclass(frozen=True)
class DuckQuery:
    """In `text` a table `t` is called `_hw_t`, with its own name as alias. `named` are all names in the query, in lower
    case, that begin or end like a column that `*` does not show."""

    text: str
    named: tuple[str, ...]


@lru_cache(maxsize=limits.VIEWS_CACHED)
def duck_query(sql: str) -> DuckQuery:
    """The query in DuckDB's SQL. Raises SqlFault for one that DuckDB cannot run, and for a column without a name, which
    Spark and DuckDB would name differently."""
    from sqlglot import ErrorLevel, exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import UnsupportedError

    query = parse_query(sql)
    _check_names(query)
    for select in query.find_all(exp.Select):
        select.set("hint", None)  # a hint tells Spark how to compute, not what
    _cast_strictly(query, sql)
    named = {node.name.lower() for node in query.find_all(exp.Identifier)}
    for table, read in list(tables_in(query, sql)):
        alias = table.args.get("alias") or exp.TableAlias()
        if alias.this is None:
            alias.set("this", exp.to_identifier(table.name, quoted=True))
        table.set("alias", alias)
        table.set("this", exp.to_identifier(VIEW_INPUT + read.name, quoted=True))
    # Quote every name: `at` and others are reserved words of DuckDB.
    generator = Dialect.get_or_raise("duckdb").generator(
        pretty=True, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE
    )
    try:
        text = generator.generate(query)
    except RecursionError as error:
        raise SqlFault("the SQL is nested too deeply", hint="divide it into several ripples", offset=0) from error
    except UnsupportedError as error:
        reason = str(error).splitlines()[0]
        raise SqlFault(f"a view has to work in DuckDB too: {reason}", hint=_ONLY_IN_SPARK, offset=0) from error
    return DuckQuery(text, tuple(sorted(name for name in named if name.startswith("_") or name.endswith("_ns"))))


def _cast_strictly(query: exp.Expression, sql: str) -> None:
    """In Spark a value that cannot be cast is an error, unless the query uses `try_cast`. sqlglot treats both alike, as
    Spark did before version 4."""
    from sqlglot import exp

    if "try_cast" not in sql.lower():
        for node in list(query.find_all(exp.TryCast)):
            node.replace(exp.Cast(**node.args))


def _check_names(query: exp.Expression) -> None:
    """Check that every column of the result has a name of its own, or is one of a table's."""
    from sqlglot import exp

    selects = query.selects if isinstance(query, exp.Query) else []
    for column in selects:
        if isinstance(column, exp.Alias | exp.Column | exp.Star):
            continue
        if isinstance(column, exp.Dot) and isinstance(column.expression, exp.Star | exp.Identifier):
            continue
        shown = column.sql(dialect="spark")[:80]
        offset = min((int(n.meta["start"]) for n in column.find_all(exp.Identifier) if "start" in n.meta), default=0)
        raise SqlFault(f"the column `{shown}` of a view has no name", hint=f"write `{shown} as ...`", offset=offset)

"""The query of a ripple's view in DuckDB's SQL. Found in the text alone: nothing is run, no table is looked up.

What cannot be said in DuckDB is refused here where sqlglot knows it, and where the view lands otherwise: DuckDB binds
it then, over the tables that it reads.
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
    """`text` calls a table `t` by `_hw_t`, under its own name as alias. `named` are all names in the query, in small
    letters, that begin like a column which `*` does not show, or end like one."""

    text: str
    named: tuple[str, ...]


@lru_cache(maxsize=limits.VIEWS_CACHED)
def duck_query(sql: str) -> DuckQuery:
    """The query as DuckDB takes it. Raises SqlFault for one that it cannot take, and for a column without a name: the
    two would call it by different ones."""
    from sqlglot import ErrorLevel, exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import UnsupportedError

    query = parse_query(sql)
    _check_names(query)
    for select in query.find_all(exp.Select):
        select.set("hint", None)  # it says to Spark how, not what
    _cast_strictly(query, sql)
    named = {node.name.lower() for node in query.find_all(exp.Identifier)}
    for table, read in list(tables_in(query, sql)):
        alias = table.args.get("alias") or exp.TableAlias()
        if alias.this is None:
            alias.set("this", exp.to_identifier(table.name, quoted=True))
        table.set("alias", alias)
        table.set("this", exp.to_identifier(VIEW_INPUT + read.name, quoted=True))
    # Every name in quotes: `at` and others are words of DuckDB's own.
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
    """A value that cannot be cast is an error in Spark, unless `try_cast` is asked for. sqlglot takes both for the
    same, with the manners that Spark had before its version 4."""
    from sqlglot import exp

    if "try_cast" not in sql.lower():
        for node in list(query.find_all(exp.TryCast)):
            node.replace(exp.Cast(**node.args))


def _check_names(query: exp.Expression) -> None:
    """Every column of the result has a name of its own, or is one of a table's."""
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

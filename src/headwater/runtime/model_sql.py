"""Which tables a ripple's SQL reads. Found in the text alone: nothing is run, no table is looked up.

sqlglot is imported when the first query is read: most commands never need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.ids import is_table_name
from headwater.runtime.model_sql_allowed import check_calls, check_tree
from headwater.runtime.model_text import SqlFault

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.errors import ParseError
    from sqlglot.tokenizer_core import Token

_UNCLOSED = re.compile(r"Missing \S+ from \d+:(\d+)")
_ONE_QUERY = "a ripple is one query: `select ...`, or `with ... select ...`"


@dataclass(frozen=True)
class TableRead:
    """A table that a query reads, and where its name first occurs in the text. Spark ignores the case of a name, and
    tables have lower-case names: so does this one."""

    name: str
    offset: int


@lru_cache(maxsize=limits.QUERIES_CACHED)
def tables_read(sql: str) -> tuple[TableRead, ...]:
    """The tables that the query reads, each once, in the order of the text.

    A name that a `with` defines is not a table in its scope: after its definition, in the query and its subqueries,
    and, in a `with recursive`, inside itself. Table functions, `values` and lateral views are not tables either. Raises
    SqlFault for a text that is not one query in Spark's SQL, and for a table outside of the run's inputs: with a
    database in front, by a path, by a function, at another version.
    """
    try:
        found = sorted((read for _, read in tables_in(parse_query(sql), sql)), key=lambda read: read.offset)
    except RecursionError as error:
        raise SqlFault("the SQL is nested too deeply", hint="divide it into several ripples", offset=0) from error
    first: dict[str, TableRead] = {}
    for read in found:
        first.setdefault(read.name, read)
    return tuple(first.values())


def parse_query(sql: str) -> exp.Expression:
    """The one query of the text. Raises SqlFault if it is not one, or reads more than its inputs."""
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, TokenError

    dialect = Dialect.get_or_raise("spark")
    try:
        tokens = dialect.tokenize(sql)
    except TokenError as error:
        unclosed = _UNCLOSED.search(str(error.__cause__))
        message = "the SQL has a quote or a comment that is not closed"
        raise SqlFault(message, hint="close it", offset=int(unclosed[1]) if unclosed else 0) from error
    _check_tokens(tokens)
    try:
        query = dialect.parser().parse(tokens, sql)[0]
    except ParseError as error:
        raise _misread(error, tokens) from error
    if not isinstance(query, exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
        raise SqlFault("the SQL is not a query", hint=_ONE_QUERY, offset=tokens[0].start)
    check_tree(query, tokens)
    check_calls(tokens, query)
    return query


def _check_tokens(tokens: list[Token]) -> None:
    """Reject what sqlglot accepts, or reads in another way than Spark does."""
    from sqlglot.tokenizer_core import TokenType as T

    while tokens and tokens[-1].token_type == T.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlFault("the SQL is empty", hint=_ONE_QUERY, offset=0)
    first = tokens[0]
    if first.token_type not in (T.SELECT, T.WITH, T.FROM, T.VALUES, T.L_PAREN, T.TABLE):
        raise SqlFault(f"the SQL begins with `{first.text[:80]}`", hint=_ONE_QUERY, offset=first.start)
    before = (T.L_PAREN, T.COMMA, T.UNION, T.EXCEPT, T.INTERSECT, T.ALL, T.DISTINCT)
    for index, token in enumerate(tokens):
        if token.token_type == T.SEMICOLON:
            message = "the SQL has more than one statement"
            raise SqlFault(message, hint="make a ripple of each", offset=tokens[index + 1].start)
        # `TABLE orders` as a query, or as an argument of a table function: sqlglot reads it as a name and its alias.
        opens = token.token_type == T.TABLE and (index == 0 or tokens[index - 1].token_type in before)
        following = tokens[index + 1].token_type if index + 1 < len(tokens) else T.SEMICOLON
        if opens and following in (T.VAR, T.IDENTIFIER, T.L_PAREN):
            message = "`TABLE ...` cannot be used as a query here"
            raise SqlFault(message, hint="write `select * from ...`", offset=token.start)


def _misread(error: ParseError, tokens: list[Token]) -> SqlFault:
    """Where sqlglot stopped, with its message unless that is about its own classes."""
    found = error.errors[0]
    offset = next((token.start for token in tokens if (token.line, token.col) == (found["line"], found["col"])), 0)
    message, reason = f"the SQL cannot be read at `{str(found['highlight'])[:80]}`", str(found["description"])
    if reason.startswith("Expect") and "<" not in reason:
        message += f": {reason[:1].lower()}{reason[1:]}"
    return SqlFault(message, hint="is something missing, or too much, just here?", offset=offset)


def tables_in(query: exp.Expression, sql: str) -> Iterator[tuple[exp.Table, TableRead]]:
    """Every table in the tree that no `with` in scope defines. Without recursion: a query may be long."""
    from sqlglot import exp

    waiting: list[tuple[exp.Expression, frozenset[str]]] = [(query, frozenset())]
    while waiting:
        node, defined = waiting.pop()
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            for cte in with_.expressions:
                name = frozenset([cte.alias.lower()])
                waiting.append((cte.this, defined | name if with_.recursive else defined))
                defined |= name
        elif isinstance(node, exp.Into):
            raise SqlFault("the SQL writes `into` a table", hint=_ONE_QUERY, offset=_offset(node.this.this))
        elif isinstance(node, exp.Table):
            read = _table(node, sql)
            if read is not None and read.name not in defined:
                yield node, read
        waiting += [(child, defined) for child in node.iter_expressions() if not isinstance(child, exp.With | exp.Hint)]


def _table(table: exp.Table, sql: str) -> TableRead | None:
    """The table's name, or None for a function that makes rows."""
    from sqlglot import exp

    named = table.this
    offset = _offset(named)
    if isinstance(named, exp.Func):
        return None
    if isinstance(named, exp.Dot) or table.args.get("db") is not None:
        whole, last = ".".join(part.name for part in table.parts), table.parts[-1].name
        message = f"the table `{whole[:160]}` has a prefix; the project's tables have none, and no others can be read"
        hint = (
            f"write `{last}`" if is_table_name(last.lower()) else "land it by a pipeline with a `source`, and read that"
        )
        raise SqlFault(message, hint=hint, offset=_offset(table.parts[0]))
    if not isinstance(named, exp.Identifier):
        raise SqlFault("the SQL has something else where a table's name belongs", hint="write the name", offset=offset)
    if sql[offset : offset + 1] in ('"', "'"):
        message = f"the table `{named.name[:80]}` is in quotes, which Spark reads as text"
        raise SqlFault(message, hint=f"write `{named.name[:80]}`, or put it in backticks", offset=offset)
    if table.args.get("version") is not None:
        message = f"the table `{named.name[:80]}` is asked for at another version or time"
        raise SqlFault(message, hint="a ripple reads what its run reads: leave it out", offset=offset)
    return TableRead(named.name.lower(), offset)


def _offset(node: exp.Expr) -> int:
    return int(node.meta.get("start", 0))

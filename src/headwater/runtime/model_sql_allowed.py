"""The SQL that a model may use: it computes over its inputs and reaches nothing else.

The rule is an allow list. Each word before a parenthesis must be a function of `ALLOWED_FUNCTIONS`, a word of SQL's
syntax, a type, or the name of an alias with columns. Calls are found in the tokens, because sqlglot's tree keeps
neither the name nor the position of a function that it knows. The tree shows the rest: programs (`TRANSFORM ...
USING`), statements inside a query, parameters.

Spark checks again before it runs a query (`spark/sql_plan.py`): sqlglot may read a text in another way than Spark does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.base.errors import did_you_mean
from headwater.runtime.model_text import SqlFault
from headwater.spark.sql_functions import ALLOWED_FUNCTIONS, REFUSED_FUNCTIONS

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

_SYNTAX_WORDS = """
all and anti any as asc between by case cross cube desc distinct else end escape except exclude exists filter for
from full group having ignore in include inner intersect interval is join lateral left like limit minus natural not
nulls offset on or order outer over partition pivot qualify recursive respect right rlike rollup select semi sets
some sort tablesample then timestampadd timestampdiff try_cast union unpivot using values when where window with
within
"""
_SYNTAX = frozenset(_SYNTAX_WORDS.split())
_TYPES = frozenset({"char", "character", "dec", "decimal", "numeric", "varchar"})
_PYTHON = "a Python ripple may do this: its code runs with your rights"
_CANNOT_LEAVE = "a model's SQL computes over its inputs alone; " + _PYTHON
_NAME = re.compile(r"\w*[^\W\d]\w*")
_PATH_CHARACTERS = frozenset("./\\:*?'\"")


def check_calls(tokens: list[Token], query: exp.Expression) -> None:
    """Raises SqlFault for the first function, hint or `using` in the text that a model may not use."""
    from sqlglot import exp
    from sqlglot.tokenizer_core import TokenType as T

    aliases = {int(alias.this.meta.get("start", -1)) for alias in query.find_all(exp.TableAlias) if alias.this}
    for index, token in enumerate(tokens):
        follows = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        if token.token_type == T.HINT:
            _check_hint(token)
        elif token.token_type == T.USING and follows != T.L_PAREN:
            raise SqlFault("the SQL runs a program by `using`", hint=_CANNOT_LEAVE, offset=token.start)
        elif follows == T.L_PAREN and token.start not in aliases:
            before = tokens[index - 1].token_type if index else None
            if before != T.ALIAS:  # `as t(x)`, even where sqlglot does not see an alias
                _check_call(token, quoted=token.token_type == T.IDENTIFIER, prefixed=before == T.DOT)


def _check_call(token: Token, *, quoted: bool, prefixed: bool) -> None:
    """Check a word before a parenthesis. Punctuation, numbers and texts before one call nothing."""
    word = token.text.lower()
    if not quoted:
        word = word.rpartition(" ")[2]  # sqlglot makes one token of `partition by`
        if not _NAME.fullmatch(word) or token.token_type.name.endswith("STRING"):
            return
        if not prefixed and (word in _SYNTAX or word in _TYPES):
            return
    if prefixed:
        message = f"the SQL calls `{word[:80]}` with a prefix"
        raise SqlFault(message, hint="Spark's functions have none, and no others can be called", offset=token.start)
    if word in ALLOWED_FUNCTIONS:
        return
    if word == "identifier":
        raise SqlFault("the SQL computes a name by `identifier(...)`", hint="write the name itself", offset=token.start)
    if word in REFUSED_FUNCTIONS:
        message = f"the SQL calls `{word}`, which {REFUSED_FUNCTIONS[word]}"
        raise SqlFault(message, hint=_CANNOT_LEAVE, offset=token.start)
    message = f"the SQL calls `{word[:80]}`, which is no function that a model's SQL can call"
    hint = did_you_mean(word, ALLOWED_FUNCTIONS, "it can call Spark's built-in functions; " + _PYTHON)
    raise SqlFault(message, hint=hint, offset=token.start)


def _check_hint(token: Token) -> None:
    """A hint contains names of tables and columns, and numbers of partitions: nothing in it is computed."""
    if re.search(r"['\"]|\([^)]*\(", token.text):
        message = "a hint of the SQL has something else in it than names and numbers"
        raise SqlFault(message, hint="write a hint as `/*+ broadcast(orders) */`", offset=token.start)


def check_tree(query: exp.Expression, tokens: list[Token]) -> None:
    """Raises SqlFault for a part of the query that is not part of a SELECT, or that reaches beyond its inputs."""
    from sqlglot import exp

    for node in query.walk():
        match node:
            case exp.QueryTransform():
                offset = _word_offset(tokens, "transform")
                raise SqlFault("the SQL runs a program by `transform ... using`", hint=_CANNOT_LEAVE, offset=offset)
            case exp.DDL() | exp.DML() | exp.Command() | exp.Set() | exp.Use():
                message = f"the SQL has `{node.key}` inside a query"
                raise SqlFault(message, hint="leave it out: a ripple only reads", offset=_word_offset(tokens, node.key))
            case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
                message = "the SQL has a parameter, and a ripple gets none"
                offset = next((t.start for t in tokens if t.text in (":", "?", "$", "@", "@@", "{")), 0)
                raise SqlFault(message, hint="write the value itself", offset=offset)
            case exp.CurrentUser() | exp.SessionUser():
                word = "current_user" if isinstance(node, exp.CurrentUser) else "session_user"
                offset = _word_offset(tokens, word)
                message = f"the SQL calls `{word}`, which {REFUSED_FUNCTIONS[word]}"
                raise SqlFault(message, hint=f"if it is a column, write it with its table: `t.{word}`", offset=offset)
            case exp.CTE() if _PATH_CHARACTERS & set(node.alias):
                message = f"`{node.alias[:80]}` cannot be the name of a `with`: it could be read as a path"
                offset = int(node.args["alias"].this.meta.get("start", 0))
                raise SqlFault(message, hint="use letters, digits and underscores", offset=offset)


def _word_offset(tokens: list[Token], word: str) -> int:
    return next((token.start for token in tokens if token.text.lower() == word), 0)

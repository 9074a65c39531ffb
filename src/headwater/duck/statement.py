"""A client's SQL as DuckDB parses it, and the rules for what it may contain.

Nothing of the SQL is bound here. DuckDB binds table functions and pragmas while it looks for the names in a
statement: it opens files and pipes, makes directories and downloads extensions. So the text is only parsed, by
`json_serialize_sql`, and the tree is checked against lists of what is allowed.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.base import limits
from headwater.base.errors import HeadwaterError, did_you_mean

if TYPE_CHECKING:
    import duckdb

LOCKED_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
}
"""The settings of every connection that handles a client's SQL."""

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_NODES = frozenset(
    ["BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"]
)
_PART_NODES = frozenset(
    [
        "DISTINCT_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "ORDER_MODIFIER",
        "ORDER_DEFAULT",
        "ASCENDING",
        "DESCENDING",
    ]
)
_NODES = _QUERY_NODES | _TABLE_NODES | _PART_NODES
_EXPRESSIONS = frozenset(
    [
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "DEFAULT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    ]
)
_DATABASE_LISTINGS = frozenset(
    ["duckdb_columns", "duckdb_constraints", "duckdb_databases", "duckdb_schemas", "duckdb_tables", "duckdb_views"]
)
"""Both views and table functions."""
_LISTING_FUNCTIONS = _DATABASE_LISTINGS | {"pragma_show", "pragma_table_info"}
"""Table functions that show what is in the database."""
_NAMING_FUNCTIONS = frozenset({"pragma_show", "pragma_table_info", "query_table"})
"""Table functions that take the names of tables, as constants."""
TABLE_FUNCTIONS = _LISTING_FUNCTIONS | frozenset(
    [
        "duckdb_functions",
        "duckdb_keywords",
        "duckdb_types",
        "generate_series",
        "icu_calendar_names",
        "json_each",
        "json_tree",
        "pg_timezone_names",
        "pragma_version",
        "query_table",
        "range",
        "repeat",
        "repeat_row",
        "summary",
        "unnest",
    ]
)
REFUSED_FUNCTIONS = frozenset(
    [
        # settings, and what another statement left behind
        "current_setting",
        "getvariable",
        "getenv",
        # SQL in a text: it is parsed, bound or run without a check
        "json_deserialize_sql",
        "json_serialize_plan",
        "json_serialize_sql",
        "sql_auto_complete",
        # state of the session
        "currval",
        "nextval",
        "setval",
        "write_log",
        # bytes that DuckDB interprets as its own structures in memory
        "combine",
        "combine_aggr",
        "finalize",
        "index_key",
        "to_aggregate_state",
        "variant_bytes_to_variant",
    ]
)
"""Scalar functions that reach further than their arguments, as do all whose names begin with two underscores."""
_LISTINGS = _DATABASE_LISTINGS | frozenset(
    [
        "duckdb_indexes",
        "duckdb_types",
        "pg_am",
        "pg_attrdef",
        "pg_attribute",
        "pg_class",
        "pg_collation",
        "pg_constraint",
        "pg_database",
        "pg_depend",
        "pg_description",
        "pg_enum",
        "pg_index",
        "pg_indexes",
        "pg_namespace",
        "pg_proc",
        "pg_sequence",
        "pg_sequences",
        "pg_tables",
        "pg_tablespace",
        "pg_type",
        "pg_views",
        "pragma_database_list",
        "sqlite_master",
        "sqlite_schema",
        "sqlite_temp_master",
        "sqlite_temp_schema",
    ]
)
"""DuckDB's own views that show what is in the database. The others show settings and logs."""
_SHOWN = frozenset({'"tables"', '"databases"', "__show_tables_expanded"})
_CATALOGS = frozenset({"", "memory", "system", "temp"})

_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s", re.IGNORECASE)
_NOT_CODE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_BRACKET = re.compile(r"[\[\](){}]")


@dataclass(frozen=True)
class Statement:
    """One checked statement that only reads. `names` are the tables that it reads, in lower case; with `lists` it also
    lists the tables, as `SHOW TABLES` does."""

    sql: str
    names: frozenset[str]
    lists: bool

    def check_names(self, known: Collection[str]) -> None:
        """Raises HW-Q01 for a name that is neither a known table nor a listing of DuckDB. DuckDB would take it for a
        file."""
        for name in sorted(self.names - _LISTINGS):
            if name not in known:
                raise _unknown(name, known)

    def tables(self, known: Collection[str]) -> set[str]:
        """Those of `known` that it needs."""
        everything = self.lists or any(name in _LISTINGS and name not in known for name in self.names)
        return set(known) if everything else {name for name in self.names if name in known}


def parse(sql: str) -> Statement:
    """The statement, if it only reads tables: SELECT, VALUES, FROM, DESCRIBE, SHOW, SUMMARIZE, or EXPLAIN of one of
    them. Everything else is HW-Q01. Nothing is opened, bound or run."""
    if _depth(sql) > limits.QUERY_DEPTH:
        raise too_deep()
    explain = _EXPLAIN.match(sql)
    prefix = "" if explain is None else "EXPLAIN ANALYZE " if explain[1] else "EXPLAIN "
    inner = sql if explain is None else sql[explain.end() :]
    tree = _tree(inner)
    if not tree:
        raise HeadwaterError("HW-Q01", "there is no statement", hint="give one, such as `SELECT * FROM orders`")
    if len(tree) > 1:
        raise HeadwaterError("HW-Q01", f"one statement at a time, not {len(tree)}", hint="ask them one by one")
    found = _StatementWalk()
    found.check(tree[0])
    return Statement(prefix + inner, frozenset(found.names), found.lists)


def too_deep() -> HeadwaterError:
    return HeadwaterError("HW-Q01", "the query or its answer is nested too deeply", hint="write it with fewer levels")


def _tree(sql: str) -> list[Any]:
    with _parser(os.getpid()).cursor() as cursor:
        (text,) = cursor.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]).fetchall()[0]
    try:
        parsed = msgspec.json.decode(text)
    except RecursionError as error:
        raise too_deep() from error
    if not parsed["error"]:
        return list(parsed["statements"])
    if parsed["error_type"] == "not implemented":
        raise not_reading()
    message = str(parsed["error_message"])
    if "expression depth" in message:
        raise too_deep()
    raise HeadwaterError("HW-Q01", f"Parser Error: {message}"[: limits.MESSAGE_CHARACTERS])


@functools.cache
def _parser(_pid: int) -> duckdb.DuckDBPyConnection:
    """A database only for parsing, one per process; it has no threads that a fork would lose."""
    import duckdb

    locked = {**LOCKED_CONFIG, "enable_external_access": False, "lock_configuration": True, "threads": 1}
    return duckdb.connect(":memory:", config=locked)


class _StatementWalk:
    """Checks every node of a tree, without recursion: a statement can be deeper than Python's stack."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.lists = False
        self._waiting: list[tuple[Any, frozenset[str]]] = []

    def check(self, statement: Any) -> None:
        self._waiting = [(statement, frozenset())]
        while self._waiting:
            node, ctes = self._waiting.pop()
            if isinstance(node, list):
                self._waiting += [(part, ctes) for part in node]
            elif isinstance(node, dict):
                self._check(node, ctes)

    def _check(self, node: dict[str, Any], ctes: frozenset[str]) -> None:
        kind = node.get("type")
        if "class" in node:
            _check_expression(node)
        elif isinstance(kind, str):
            if kind not in _NODES:
                raise not_reading()
            self._check_table(kind, node, ctes)
        if kind == "RECURSIVE_CTE_NODE":
            ctes |= {str(node["cte_name"]).lower()}
        ctes = self._with_ctes(node.get("cte_map"), ctes)
        self._waiting += [(part, ctes) for key, part in node.items() if key != "cte_map"]

    def _with_ctes(self, map_: Any, ctes: frozenset[str]) -> frozenset[str]:
        """Each CTE sees those before it, and the query sees all. Its own name, inside it, is a table."""
        for entry in map_["map"] if map_ else ():
            self._waiting.append((entry["value"], ctes))
            ctes |= {str(entry["key"]).lower()}
        return ctes

    def _check_table(self, kind: str, node: dict[str, Any], ctes: frozenset[str]) -> None:
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise _refused(f"the table function `{name}`")
            self.lists |= name in _LISTING_FUNCTIONS
            if name in _NAMING_FUNCTIONS:
                self.names |= {text.lower() for text in _texts(node["function"]["arguments"])}
        elif kind == "BASE_TABLE" or (kind == "SHOW_REF" and node["query"] is None):
            if node.get("show_type") == "SHOW_SPECIAL":
                if node["table_name"] not in _SHOWN:
                    raise _refused(f"SHOW {node['table_name']}")
                self.lists = True
            else:
                self._add_name(node, ctes)

    def _add_name(self, node: dict[str, Any], ctes: frozenset[str]) -> None:
        catalog, schema = str(node["catalog_name"]).lower(), str(node["schema_name"]).lower()
        name = str(node["table_name"]).lower()
        if catalog not in _CATALOGS:
            raise _refused(f"a table of `{node['catalog_name']}`")
        match schema:
            case "" if name in ctes and not catalog:
                pass
            case "recurring" if name in ctes:  # what a recursive query has found so far
                pass
            case "" | "main" | "memory" | "meta":
                self.names.add(name)
            case "headwater" if name == "tables":
                pass
            case "information_schema":
                self.lists = True
            case "pg_catalog" if name in _LISTINGS:
                self.lists = True
            case _:
                raise _unknown(f"{node['schema_name']}.{node['table_name']}")


def _check_expression(node: dict[str, Any]) -> None:
    if node["class"] not in _EXPRESSIONS:
        raise _refused(f"an expression of the kind {str(node['class']).lower()}")
    name = str(node.get("function_name", "")).lower()
    if name in REFUSED_FUNCTIONS or name.startswith("__"):
        raise _refused(f"the function `{name}`")


def _texts(arguments: Any) -> Iterable[str]:
    """The texts of constant arguments: of one text, or of a list of texts."""
    for argument in arguments:
        node = argument["expression"]
        if node["class"] == "CONSTANT" and node.get("literal", {}).get("kind") == "STRING":
            yield str(node["literal"]["text"])
        elif node["class"] == "FUNCTION" and node["function_name"] == "list_value":
            yield from _texts(node["arguments"])
        elif node["class"] != "CONSTANT":
            raise _refused("a name of a table that is computed")


def _depth(sql: str) -> int:
    """How deep its brackets are nested. DuckDB's parser has no limit for nested subqueries, and crashes."""
    depth = most = 0
    for bracket in _BRACKET.findall(_NOT_CODE.sub("", sql)):
        depth += 1 if bracket in "([{" else -1
        most = max(most, depth)
    return most


def _unknown(name: str, known: Collection[str] | None = None) -> HeadwaterError:
    """`known` is None while a statement is parsed: the tables are not read then."""
    shown = name[: limits.MESSAGE_CHARACTERS]
    if known is None:
        hint = "`SELECT * FROM headwater.tables` lists the tables"
    elif not known:
        hint = "there is no table yet: run `headwater apply`"
    else:
        hint = did_you_mean(shown, sorted(known), "tables: " + ", ".join(sorted(known)))
    return HeadwaterError("HW-Q01", f"Catalog Error: Table with name {shown} does not exist!", hint=hint)


def _refused(what: str) -> HeadwaterError:
    hint = "query the tables by their names; `SELECT * FROM headwater.tables` lists them"
    return HeadwaterError("HW-Q01", f"{what[: limits.MESSAGE_CHARACTERS]} cannot be used here", hint=hint)


def not_reading() -> HeadwaterError:
    return HeadwaterError(
        "HW-Q01",
        "a query can only read",
        hint="write SELECT, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN; tables change by pipelines",
    )

"""What a server's catalog knows about its tables: columns, keys, indexes, sizes; and whether a table was rewritten.

All functions ask over an open connection and read no rows of any table.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.base.ids import is_column_name
from headwater.connectors.postgres.pg_types import PgColumn, literal, quoted
from headwater.connectors.protocol import Observed, config_error

if TYPE_CHECKING:
    import psycopg

BLOCK_BYTES = 8_192

_TABLES = """
select c.relname, c.oid::int8, c.relkind::text, c.relhassubclass
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = {schema} and c.relkind in ('r', 'p', 'v', 'm', 'f') {and_named}
  and (has_table_privilege(c.oid, 'select') or has_any_column_privilege(c.oid, 'select') or {even_if_denied})
order by c.relname
"""

# A domain is followed to its base type, an array to its elements; the last step gives the type.
_COLUMNS = """
with recursive step as (
  select a.attrelid, a.attnum, a.attname, a.attnotnull, a.atttypid as type_id, a.atttypmod as modifier,
         0 as dimensions, a.attndims::int4 as declared, t.typtype, t.typcategory, t.typbasetype, t.typtypmod, t.typelem,
         t.typndims, t.typname, t.typnamespace
  from pg_attribute a join pg_type t on t.oid = a.atttypid
  where a.attrelid in ({oids}) and a.attnum > 0 and not a.attisdropped
  union all
  select s.attrelid, s.attnum, s.attname, s.attnotnull, t.oid,
         case when s.typtype = 'd' then s.typtypmod else s.modifier end,
         case when s.typtype = 'd' then s.dimensions
              else s.dimensions + greatest(s.declared, 1) end,
         case when s.typtype = 'd' then greatest(s.declared, s.typndims) else 0 end,
         t.typtype, t.typcategory, t.typbasetype, t.typtypmod, t.typelem, t.typndims, t.typname, t.typnamespace
  from step s join pg_type t on t.oid = case when s.typtype = 'd' then s.typbasetype else s.typelem end
  where s.typtype = 'd' or (s.typcategory = 'A' and s.typelem <> 0)
)
select s.attrelid::int8, s.attname,
       case when n.nspname = 'pg_catalog' then s.typname::text else n.nspname || '.' || s.typname end,
       s.modifier, s.dimensions, s.attnotnull
from step s join pg_namespace n on n.oid = s.typnamespace
where s.typtype <> 'd' and not (s.typcategory = 'A' and s.typelem <> 0)
order by s.attrelid, s.attnum
"""

_INDEXES = """
select i.indrelid::int8, i.indisprimary, i.indisunique and i.indpred is null and i.indexprs is null,
       array(select a.attname::text from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality k(attnum, place)
             join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.place)
from pg_index i
where i.indrelid in ({oids}) and i.indisvalid and i.indpred is null
"""

# A rewrite (some ALTER TABLEs, TRUNCATE) gives a table another file and makes it look empty to older snapshots:
# the snapshot shows the old pg_class, the function shows the present state.
_INTACT = """
select coalesce(to_regclass({name})::oid::int8 = {oid}, false) and coalesce(bool_and(
  c.relfilenode = 0 or c.relfilenode is not distinct from pg_relation_filenode(c.oid)), false)
from pg_class c where c.oid = {oid} or c.oid in (select relid from pg_partition_tree({oid}::regclass))
"""


@dataclass(frozen=True)
class Relation:
    """A table, view, materialized view or foreign table. `indexed` are the first columns of its indexes, `unique`
    the columns that hold each value once and no null."""

    schema: str
    name: str
    oid: int
    kind: str
    has_children: bool
    columns: tuple[PgColumn, ...]
    primary_key: tuple[str, ...]
    indexed: frozenset[str]
    unique: frozenset[str]

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def has_blocks(self) -> bool:
        """Whether ranges of `ctid` cut it into pieces: one heap, no children."""
        return self.kind in ("r", "m") and not self.has_children

    @property
    def has_row_versions(self) -> bool:
        """Whether its rows have `xmin`."""
        return self.kind in ("r", "m", "p")

    @property
    def fingerprint(self) -> str:
        """Changes with every change of the columns."""
        text = json.dumps([column.as_json() for column in self.columns])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def column(self, name: str) -> PgColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def observed(self) -> Observed:
        columns = {column.name: column.type for column in self.columns}
        return Observed(columns, complete=True, primary_key=self.primary_key)


def relations(connection: psycopg.Connection[Any], schema: str, name: str | None = None) -> tuple[Relation, ...]:
    """The tables of a schema that this user may read; or the one of that name, whether it may be read or not."""
    tables = ask(
        connection,
        _TABLES.format(
            schema=literal(schema),
            and_named=f"and c.relname = {literal(name)}" if name is not None else "",
            even_if_denied="true" if name is not None else "false",
        ),
    )
    if not tables:
        return ()
    oids = ", ".join(str(oid) for _, oid, _, _ in tables)
    columns: dict[int, list[PgColumn]] = {}
    for oid, column, base, modifier, dimensions, not_null in ask(connection, _COLUMNS.format(oids=oids)):
        columns.setdefault(oid, []).append(PgColumn(column, base, modifier, dimensions, not_null))
    indexes: dict[int, list[tuple[bool, bool, list[str]]]] = {}
    for oid, primary, unique, names in ask(connection, _INDEXES.format(oids=oids)):
        indexes.setdefault(oid, []).append((primary, unique, names))
    found = []
    for table, oid, kind, has_children in tables:
        own, keys = tuple(columns.get(oid, ())), indexes.get(oid, [])
        primary_key = next((tuple(names) for primary, _, names in keys if primary), ())
        indexed = frozenset(names[0] for _, _, names in keys if names)
        unique = frozenset(names[0] for _, unique, names in keys if unique and len(names) == 1)
        unique &= {column.name for column in own if column.not_null}
        found.append(Relation(schema, table, oid, kind, has_children, own, primary_key, indexed, unique))
    return tuple(found)


def check_columns(relation: Relation) -> None:
    """Raises HW-C01 for a table that can never be landed."""
    if not relation.columns:
        raise config_error(f"table `{relation.name}` has no columns")
    for column in relation.columns:
        if not is_column_name(column.name):
            raise config_error(
                f"table `{relation.name}` has a column `{column.name}`, a name that Headwater keeps for itself",
                "read it through a view that gives the column another name",
            )


def intact_sql(name: str, oid: int) -> str:
    """Whether the table is as the snapshot of the current transaction shows it: neither rewritten, emptied nor
    replaced since."""
    return _INTACT.format(name=literal(name), oid=oid)


def system_identity(connection: psycopg.Connection[Any]) -> str:
    """The server's system identifier and the database's number; the database's name where the user may not read the
    identifier."""
    allowed = "has_function_privilege('pg_catalog.pg_control_system()', 'execute')"
    ((may_ask, oid, name),) = ask(
        connection, f"select {allowed}, oid::int8, datname::text from pg_database where datname = current_database()"
    )
    if not may_ask:
        return f"{name}/{oid}"
    ((system,),) = ask(connection, "select system_identifier from pg_control_system()")
    return f"{system}/{oid}"


def histogram(connection: psycopg.Connection[Any], relation: Relation, column: str) -> list[str]:
    """Values that cut the column into parts of equal size, from the server's own statistics; or none."""
    found = ask(
        connection,
        f"select histogram_bounds::text::text[] from pg_stats where schemaname = {literal(relation.schema)} "
        f"and tablename = {literal(relation.name)} and attname = {literal(column)} and histogram_bounds is not null "
        "order by inherited desc limit 1",
    )
    return list(found[0][0]) if found else []


def estimate(connection: psycopg.Connection[Any], relation: Relation, where: str = "true") -> tuple[int, int]:
    """About how many rows fulfil a condition, and their bytes: the planner's guess, made without reading."""
    ((explained,),) = ask(connection, f"explain (format json) select * from {relation.sql} where {where}")
    plan = explained[0]["Plan"]
    rows = int(plan["Plan Rows"])
    return rows, rows * int(plan["Plan Width"])


def blocks(connection: psycopg.Connection[Any], relation: Relation) -> int:
    ((size,),) = ask(connection, f"select pg_relation_size({relation.oid}::regclass)")
    return -(-int(size) // BLOCK_BYTES)


def ask(connection: psycopg.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    """The rows of a statement without parameters: every name and value in it is quoted by `quoted` and `literal`."""
    return connection.execute(text.encode()).fetchall()

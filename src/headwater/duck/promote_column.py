"""Promote a value inside a `dynamic` column to a typed column, for existing and for future rows.

No file is rewritten. The new column records where it comes from; readers show a row's own value of it, or else what
they find at that place (`duck/json_paths.py`, `coerce/at_path.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError, did_you_mean
from headwater.base.json_path import parse_path, path_text
from headwater.base.table_schema import PROMOTABLE, Column, Promotion, TableSchema
from headwater.base.types import DYNAMIC, Type
from headwater.catalog.commit import Store
from headwater.catalog.evolution import check_names
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_entry, view_names
from headwater.catalog.records import SchemaEvent
from headwater.duck.table_select import column_names
from headwater.storage.system_columns import SYSTEM_COLUMNS


@dataclass(frozen=True)
class Promoted:
    """A column and where it is read from. `seq` is None if it existed already, and nothing was written."""

    table: str
    column: str
    type: str
    path: str
    schema_id: int
    seq: int | None
    decided_by: str


def promote(store: Store, table: str, path: str, *, name: str, type_: Type, actor: str) -> Promoted:
    """Add the column, in the name of `actor`. An equal column that exists is left alone. Raises HW-T07 for a table that
    does not exist, HW-S03 for what cannot be promoted, HW-T02 if the schema changes meanwhile."""
    with store.catalog.snapshot() as connection:
        if table in view_names(connection):
            raise HeadwaterError(
                "HW-S03",
                f"`{table}` is a view, and has no columns of its own to add to",
                hint="promote in the table that it reads, or put the path into the view's query",
            )
        entry = table_entry(connection, table)
    schema = with_promoted(entry.schema, table, path, name=name, type_=type_)
    found = Promoted(table, name, str(type_), path_text(*parse_path(path)), entry.schema_id, None, actor)
    if schema == entry.schema:
        return found
    crash_point("schema.before_accept")
    event = SchemaEvent(kind="promote_column", column=name, after=str(type_), note=f"from {found.path}")
    landing = Landing(store, actor)
    schema_id = landing.set_schema(table, entry.schema_id, schema, (event,), decided_by=actor)
    return replace(found, schema_id=schema_id, seq=landing.commit())


def with_promoted(schema: TableSchema, table: str, path: str, *, name: str, type_: Type) -> TableSchema:
    """The schema with the promoted column at its end; unchanged if it has that column. Raises HW-S03."""
    source, steps = parse_path(path)
    if type_.kind not in PROMOTABLE:
        raise HeadwaterError(
            "HW-S03",
            f"a promoted column cannot be `{type_}`: not every reader would find the same values",
            hint="types: " + ", ".join(PROMOTABLE),
        )
    column = Column(schema.next_id, name, type_, promoted=Promotion(_dynamic(schema, table, source).id, steps))
    standing = schema.column(name)
    if standing is not None and replace(standing, id=column.id, default=None) == column:
        return schema
    _check_name(schema, table, name)
    return replace(schema, columns=(*schema.columns, column), next_id=schema.next_id + 1)


def _dynamic(schema: TableSchema, table: str, name: str) -> Column:
    column = schema.column(name)
    dynamic = [each.name for each in schema.columns if each.type == DYNAMIC]
    known = f"`dynamic` columns of `{table}`: {', '.join(dynamic) or 'none'}"
    if column is None:
        hint = did_you_mean(name, schema.names(), known)
        raise HeadwaterError("HW-S03", f"`{table}` has no column `{name}`", hint=hint)
    if column.type != DYNAMIC:
        message = f"column `{name}` of `{table}` is `{column.type}`, not `dynamic`: there is nothing inside it"
        raise HeadwaterError("HW-S03", message, hint=known)
    return column


def _check_name(schema: TableSchema, table: str, name: str) -> None:
    check_names([name])
    names, exacts = column_names(schema)
    taken = {*schema.names(), *names.values(), *exacts.values(), *(column.name for column in SYSTEM_COLUMNS)}
    other = next((each for each in taken if each.lower() == name.lower()), None)
    if other is not None:
        raise HeadwaterError(
            "HW-S03",
            f"`{table}` has a column `{other}` already",
            hint=f"choose another name; `DESCRIBE {table}` shows those that are taken",
        )

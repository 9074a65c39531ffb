"""Checks whether a table can be read as a pipeline asks, from the server's catalog alone."""

from __future__ import annotations

from headwater.base.errors import did_you_mean
from headwater.base.types import widens
from headwater.connectors.postgres.catalog import Relation, check_columns
from headwater.connectors.postgres.config import PostgresConfig
from headwater.connectors.postgres.pg_types import CURSOR_TYPES, PgColumn, transfer
from headwater.connectors.postgres.slices import Incremental
from headwater.connectors.protocol import TableAsk, config_error


def check_ask(ask: TableAsk, relation: Relation, config: PostgresConfig) -> Incremental | None:
    """The incremental column; None for a table that is read whole. Raises HW-C01 for a table, a key, a column or a mode
    that cannot be used, and says what could."""
    check_columns(relation)
    for name in ask.primary_key:
        _known(relation, name, "primary key")
    if ask.mode == "upsert" and not (ask.primary_key or relation.primary_key):
        raise config_error(
            f"table `{relation.name}` is to be upserted but has no primary key",
            "name the columns that tell its rows apart with primary_key = [...]",
        )
    for name, type_ in ask.declared.items():
        found = relation.column(name)
        if found is not None and transfer(found, type_) is None:
            raise config_error(
                f"column `{name}` of table `{relation.name}` is `{found.type}` at the source and cannot be read as `{type_}`",
                f"declare it as `{found.type}` or `string`, or leave it out of `columns`",
            )
    if ask.incremental is not None:
        column = _known(relation, ask.incremental, "incremental column")
        _check_incremental(ask, relation, column)
        return Incremental(column.name, column.base, config.overlap_seconds, config.overlap_ids)
    if ask.mode == "append":
        raise config_error(
            f"table `{relation.name}` would be appended as a whole by every run",
            'name an id column with incremental = "...", or use mode = "replace" or "upsert"',
        )
    return None


def missing_declared(ask: TableAsk, relation: Relation) -> list[str]:
    """A warning for each declared column that the source does not have."""
    return [
        f"table `{relation.name}` has no column `{name}`: it stays null"
        for name in ask.declared
        if relation.column(name) is None
    ]


def _check_incremental(ask: TableAsk, relation: Relation, column: PgColumn) -> None:
    if ask.mode == "replace":
        raise config_error(
            f"table `{relation.name}` is replaced by every run, so it is read whole",
            'remove `incremental`, or use mode = "upsert"',
        )
    if column.base not in CURSOR_TYPES or column.dimensions:
        raise config_error(
            f"column `{column.name}` of table `{relation.name}` cannot tell what is new: it is not a time, date or integer",
            "name a column that only grows, such as `updated_at` or `id`",
        )
    declared = ask.declared.get(column.name)
    if (
        declared is not None
        and declared != column.type
        and not (declared.kind == "long" and widens(column.type, declared))
    ):
        raise config_error(
            f"the incremental column `{column.name}` is `{column.type}` and cannot be declared `{declared}`",
            "leave it out of `columns`",
        )
    if ask.mode != "append":
        return
    if CURSOR_TYPES[column.base] != "int8":
        raise config_error(
            f"table `{relation.name}` cannot be appended by `{column.name}`: "
            "a row that is changed at the source gets a new time and would be there twice",
            'give the table a primary_key and mode = "upsert"',
        )
    if column.name not in relation.unique:
        raise config_error(
            f"table `{relation.name}` cannot be appended by `{column.name}`: the column is not unique, or has nulls, "
            "so rows that were read cannot be distinguished from new ones",
            'make it unique and not null, or give the table a primary_key and mode = "upsert"',
        )


def _known(relation: Relation, name: str, role: str) -> PgColumn:
    column = relation.column(name)
    if column is None:
        hint = did_you_mean(name, [known.name for known in relation.columns])
        raise config_error(f"the {role} `{name}` is not a column of table `{relation.name}`", hint)
    return column

"""Schemas from texts, for tests."""

from __future__ import annotations

from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type


def schema_of(columns: dict[str, str], primary_key: tuple[str, ...] = ()) -> TableSchema:
    """A first schema from names and type texts."""
    schema = TableSchema(primary_key=primary_key)
    for name, text in columns.items():
        schema = schema.added(name, parse_type(text), nullable=name not in primary_key)
    return schema

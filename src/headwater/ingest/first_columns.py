"""The columns that a pushed table has before its first row. (Few imports: every command may load this.)"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.base.types import DYNAMIC, STRING, TIMESTAMP, Type
from headwater.ingest.otlp.tables import COLUMNS, TABLES

DEFAULT_COLUMNS: Mapping[str, Type] = {"ts": TIMESTAMP, "label": STRING, "body": STRING, "props": DYNAMIC}
"""The columns of a table without declared columns. All may be null."""
_OTLP = {table: COLUMNS[signal] for signal, table in TABLES.items()}


def first_columns(table: str, declared: Mapping[str, Type], primary_key: Collection[str]) -> dict[str, Type]:
    """All first columns of a table of the manifest: those that it declares or that OTLP has, and the undeclared
    ones."""
    known = declared or _OTLP.get(table, {})
    return {**known, **undeclared(known, primary_key)}


def undeclared(declared: Collection[str], primary_key: Collection[str]) -> dict[str, Type]:
    """The undeclared columns: the default ones if none is declared, and the primary key, as text."""
    found = {} if declared else dict(DEFAULT_COLUMNS)
    return found | {name: STRING for name in primary_key if name not in {*declared, *found}}

"""Rows of a catalog as plain records, for tests."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog


def dump(catalog: Catalog) -> dict[str, list[dict[str, Any]]]:
    """All rows that the log rebuilds, in a fixed order: two equal stores give equal dumps."""
    with catalog.snapshot() as connection:
        return {
            table.name: [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in t.DATA
        }


def runs(connection: Connection, *, pipeline: str) -> list[dict[str, Any]]:
    """The runs of a pipeline, the newest first."""
    query = select(t.run).where(t.run.c.pipeline == pipeline).order_by(t.run.c.started_seq.desc())
    return [dict(row._mapping) for row in connection.execute(query)]

"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL write alike and SQLAlchemy keeps in two places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def upsert(on: Connection | str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that has `on_conflict_do_nothing` and `on_conflict_do_update`. `on` may be the name of a dialect."""
    if (on if isinstance(on, str) else on.dialect.name) == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)

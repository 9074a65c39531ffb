"""Sessions with a PostgreSQL server, and the translation of its errors.

Every session is read-only and uses UTC, ISO and UTF-8, so that a text means the same wherever it is read. Names in SQL
are always qualified, and only the server's own catalog is on the search path.

A run reads the source at one exported snapshot. The session that exports it does nothing else: a transaction that has
read a table keeps a lock on it. With a lock held for hours, an ALTER TABLE would wait for the load, and the load's
readers would wait behind the ALTER TABLE: a deadlock. So tables are inspected in short transactions that import the
snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import SliceGone, TransientError, config_error

if TYPE_CHECKING:
    import psycopg

BEGIN = "begin isolation level repeatable read read only"
SESSION_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "client_encoding": "UTF8",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "search_path": "pg_catalog",
    "default_transaction_read_only": "on",
    "idle_in_transaction_session_timeout": "0",
}
SETTINGS_SQL = (
    "select "
    + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in SESSION_SETTINGS.items())
    + ", case when current_setting('transaction_timeout', true) is not null"  # PostgreSQL 17 has it
    + " then set_config('transaction_timeout', '0', false) end"
)

_TRANSIENT_STATES = re.compile(r"08...|53...|57P0.|40...|55P03|58...")
_BUSY = re.compile(
    r"starting up|shutting down|recovery mode|too many (clients|connections)|connection slots|not yet accepting"
)
_FINAL = re.compile(r"ERROR:|ReadRecord failed")
_ENDED = re.compile(r"terminating connection|conflict with recovery|closed the connection|connection (reset|timed out)")


def conninfo(url: str) -> str:
    """The URL with the time limits that a network needs; values in the URL itself win."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    wanted: dict[str, str | int | None] = {
        "connect_timeout": limits.PG_CONNECT_SECONDS,
        "keepalives_idle": limits.PG_KEEPALIVE_SECONDS,
        "application_name": "headwater",
    }
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError:
        raise config_error("the URL of the postgres source is malformed", "check the value behind its `url`") from None
    return make_conninfo(url, **{name: value for name, value in wanted.items() if name not in given})


def connect(info: str) -> psycopg.Connection[Any]:
    """A session in autocommit, with the settings above."""
    import psycopg

    try:
        connection = psycopg.connect(info, autocommit=True)
        connection.execute(SETTINGS_SQL.encode())
        return connection
    except psycopg.Error as error:
        raise translated(error, info=info) from error


class Snapshot:
    """A moment of the source that stays readable until it is closed."""

    def __init__(self, info: str):
        self._connection = connect(info)
        self._connection.execute(BEGIN)
        row = self._connection.execute("select pg_export_snapshot()").fetchone()
        assert row is not None
        self.name = str(row[0])

    def is_alive(self) -> bool:
        import psycopg

        try:
            self._connection.execute("select 1")
            return True
        except psycopg.Error:
            return False

    def close(self) -> None:
        self._connection.close()


@contextmanager
def looking(connection: psycopg.Connection[Any], snapshot: Snapshot, *, info: str, table: str) -> Iterator[None]:
    """One short transaction at the snapshot; errors of the server are translated."""
    import psycopg

    try:
        connection.execute(BEGIN)
        try:
            connection.execute(f"set transaction snapshot '{snapshot.name}'".encode())
        except psycopg.errors.UndefinedObject as error:
            raise TransientError("the session that kept the snapshot was lost") from error
        yield
        connection.execute("commit")
    except psycopg.Error as error:
        raise translated(error, info=info, table=table) from error
    finally:
        if not connection.closed and connection.info.transaction_status:
            connection.rollback()


def address_of(info: str) -> str:
    """The server, database and user, for messages: no password."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(info)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    port = f":{parts['port']}" if parts.get("port") else ""
    user = f"{parts['user']}@" if parts.get("user") else ""
    return f"{user}{host}{port}/{parts.get('dbname') or parts.get('user') or ''}"


def translated(error: Exception, *, info: str, table: str | None = None) -> Exception:
    """A foreign error as one of ours. Server messages may quote values of rows, so quoted text is left out."""
    state = getattr(error, "sqlstate", None) or ""
    text = str(error)
    where = address_of(info)
    of_table = f" of table `{table}`" if table else ""
    if not state and "FATAL:" in text and not _BUSY.search(text) and not _ENDED.search(text):
        return config_error(
            f"the server refused the connection {where}",
            "check the user, the password, the database's name and the server's pg_hba.conf",
        )
    if _TRANSIENT_STATES.fullmatch(state) or _ENDED.search(text) or (not state and not _FINAL.search(text)):
        return TransientError(f"the connection {where} failed{': ' + state if state else ''}")
    match state:
        case "42501":
            return HeadwaterError(
                "HW-C02",
                f"permission denied for a read{of_table} at {where}",
                hint="grant USAGE on the schema and SELECT on the table to this user",
            )
        case "57014":
            return HeadwaterError(
                "HW-C02",
                f"the server cancelled a read{of_table} at {where}",
                hint="raise `statement_timeout` for this user, or make `range_rows` smaller",
                retryable=True,
            )
        case "42P01" | "42703" | "42704" | "3F000":
            return SliceGone(f"a part{of_table} is not there any more")
        case _:
            return HeadwaterError(
                "HW-C02",
                f"a read{of_table} at {where} failed: {_without_values(text)}",
                hint="the server's log has the whole message",
                detail={"sqlstate": state} if state else {},
            )


def _without_values(text: str) -> str:
    """The first line of a server's message, without everything in quotes."""
    line = next((line for line in text.splitlines() if "ERROR:" in line), text.partition("\n")[0])
    return re.sub(r"\"[^\"]*\"|'[^']*'", "`...`", line.rpartition("ERROR:")[2].strip())

"""The catalog's database: open it, migrate it, and run transactions on it.

SQLite in WAL mode by default, PostgreSQL (one schema per project) for several machines. The same statements run
on both. `transaction` is a write, serialised with all others; `snapshot` is a consistent read.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, update
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.catalog import sql_tables as t

TELLS = "tells"
"""Set in a connection's info while its transaction has something to tell the waiting processes."""
SYNCHRONOUS = "synchronous"
"""In a connection's info: the level that it was set to last."""


@dataclass(frozen=True)
class Catalog:
    """An open catalog. Cheap to pass around; connections are made when they are needed."""

    engine: Engine
    schema: str | None = None
    """The PostgreSQL schema that holds the tables; None for SQLite."""
    listeners: set[Callable[[], None]] = field(default_factory=set, repr=False, compare=False)
    """Called after each SQLite transaction of this process that has something to tell: see `wakeups`."""

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """A write: all of it or nothing, one after the other. `durable=False` (claims and renewals) may be
        forgotten in a power cut, which costs only a lease."""
        with _translated(), self.engine.connect() as connection:
            if self.is_sqlite:
                _set_synchronous(connection, "FULL" if durable else "NORMAL")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            try:
                yield connection
            except BaseException:
                connection.info.pop(TELLS, None)
                _roll_back(connection)
                raise
            if self.is_sqlite:
                tells = connection.info.pop(TELLS, False)
                connection.exec_driver_sql("COMMIT")
                for listener in tuple(self.listeners) if tells else ():
                    listener()
            else:
                connection.commit()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A read in which all statements see the same state."""
        with _translated(), self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN")
            else:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            try:
                yield connection
            finally:
                _roll_back(connection)

    def copy_to(self, path: Path) -> None:
        """A SQLite catalog as it is at this moment, as one more file."""
        with _translated(), self.engine.connect() as connection:
            connection.exec_driver_sql("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        self.engine.dispose()


def open_catalog(
    url: str, *, sqlite_path: Path, project: str, create: bool = True, upgrade: bool = True
) -> Catalog | None:
    """Open the catalog and bring it to this version, unless `upgrade` is false. None if there is none and `create` is
    false: then it can be read on a disk that is full or read-only."""
    if url == "sqlite":
        if not create and not sqlite_path.exists():
            return None
        sqlite_path.parent.mkdir(parents=True, exist_ok=True)
        catalog = Catalog(_sqlite_engine(sqlite_path))
    else:
        schema = _schema_name(project)
        catalog = Catalog(_postgres_engine(url, schema), schema)
    try:
        with _translated():
            try:
                version = _version(catalog)
            except OperationalError as error:
                if create or not (catalog.is_sqlite and _is_unwritable(error)):
                    raise
                catalog.close()
                catalog = Catalog(_sqlite_engine(sqlite_path, as_it_is=_reading_options(sqlite_path)))
                version = _version(catalog)
            if version == 0 and not create:
                catalog.close()
                return None
            if upgrade or version >= t.FORMAT_VERSION:
                _bring_up(catalog, version, project=project)
    except BaseException:
        catalog.close()
        raise
    return catalog


def _bring_up(catalog: Catalog, version: int, *, project: str) -> None:
    if version == 0:
        _create(catalog, project=project)
    elif version > t.FORMAT_VERSION:
        raise HeadwaterError(
            "HW-T01",
            f"this store has format {version}, this Headwater knows formats up to {t.FORMAT_VERSION}",
            hint="upgrade Headwater on this machine; nothing was changed",
        )
    elif version < t.FORMAT_VERSION:
        _migrate(catalog)


def _migrate(catalog: Catalog) -> None:
    """All steps to this format in one transaction. Of two processes that try at once one does it."""
    from headwater.catalog.inferred_levels import settle_levels
    from headwater.catalog.migrations import MIGRATIONS, SERIAL

    with catalog.transaction() as connection:
        version: int = connection.execute(select(t.store.c.format_version).with_for_update()).scalar_one()
        for step in range(version, t.FORMAT_VERSION):
            for statement in MIGRATIONS[step]:
                connection.exec_driver_sql(statement.replace("$SERIAL", SERIAL[connection.dialect.name]))
        connection.execute(update(t.store).values(format_version=max(version, t.FORMAT_VERSION)))
        if version < t.FORMAT_VERSION:
            settle_levels(connection)


def _version(catalog: Catalog) -> int:
    """0 for a catalog that does not exist yet."""
    with catalog.engine.connect() as connection:
        if not inspect(connection).has_table("store"):
            return 0
        found = connection.execute(select(t.store.c.format_version)).scalar_one_or_none()
        return found or 0


def _create(catalog: Catalog, *, project: str) -> None:
    """Make all tables in one transaction; two processes may try at once, one wins."""
    with catalog.transaction() as connection:
        if not catalog.is_sqlite:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7267318)")
            connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{catalog.schema}"')
        t.metadata.create_all(connection)
        if connection.execute(select(t.store.c.id)).first() is None:
            made = {"store_id": uuid7(), "project": project, "created_us": now_us()}
            connection.execute(
                t.store.insert().values(**made, id=1, format_version=t.FORMAT_VERSION, seq=0, logged_seq=0)
            )


def _is_unwritable(error: OperationalError) -> bool:
    """Whether SQLite cannot make its files beside the database."""
    return any(reason in str(error.orig) for reason in ("unable to open", "readonly", "disk I/O", "disk is full"))


def _reading_options(path: Path) -> str:
    """How SQLite reads a database beside which it can make no file. Where the write-ahead log is empty or gone, every
    commit is in the database itself. Otherwise SQLite makes the log's index in memory."""
    wal = path.with_name(f"{path.name}-wal")
    return "mode=ro&vfs=unix-none" if wal.exists() and wal.stat().st_size else "immutable=1"


def _sqlite_engine(path: Path, *, as_it_is: str = "") -> Engine:
    """`as_it_is`: the options to read the files as they are, without locks and without making any. Only right while no
    process writes."""
    # A pool, because SQLite empties its write-ahead log whenever the last connection closes: that doubles a commit.
    engine = create_engine(
        f"sqlite:///file:{quote(str(path))}?{as_it_is}&uri=true" if as_it_is else f"sqlite:///{path}",
        isolation_level="AUTOCOMMIT",
        pool_timeout=limits.CATALOG_BUSY_SECONDS,
        connect_args={"timeout": limits.CATALOG_BUSY_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        execute = connection.execute  # type: ignore[attr-defined]
        if as_it_is:
            execute("PRAGMA locking_mode = EXCLUSIVE")  # then SQLite has the log's index in memory, not in a file
        else:
            _use_wal(execute)
        execute("PRAGMA foreign_keys = ON")

    return engine


def _use_wal(execute: Callable[[str], object]) -> None:
    """Two that open a new database at once are in each other's way here, and SQLite does not wait for that by itself."""
    deadline = time.monotonic() + limits.CATALOG_BUSY_SECONDS
    while True:
        try:
            execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(limits.WAL_PAUSE_SECONDS)


def _set_synchronous(connection: Connection, level: str) -> None:
    """A connection keeps it: most follow one that needed the same."""
    if connection.info.get(SYNCHRONOUS) != level:
        connection.info.pop(SYNCHRONOUS, None)
        connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
        connection.info[SYNCHRONOUS] = level


def _schema_name(project: str) -> str:
    """One schema per project. PostgreSQL cuts names after 63 bytes, so a long one ends in its hash."""
    name = f"headwater_{project}"
    return name if len(name) <= 63 else f"{name[:54]}_{hashlib.sha256(project.encode()).hexdigest()[:8]}"


def _postgres_engine(url: str, schema: str) -> Engine:
    engine = create_engine(
        _postgres_url(url),
        pool_pre_ping=True,
        pool_timeout=limits.CATALOG_BUSY_SECONDS,
        connect_args={"connect_timeout": 10},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(f'SET search_path TO "{schema}"')
            # A server may be set to answer before a commit is on disk; a commit of ours that comes back is.
            cursor.execute(
                "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            )
        connection.commit()  # type: ignore[attr-defined]

    return engine


def _postgres_url(text: str) -> URL:
    """Raises HW-M03 without a word of the text: it may hold a password."""
    try:
        url = make_url(text)
        if url.drivername in ("postgresql", "postgres"):
            return url.set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        pass
    raise HeadwaterError(
        "HW-M03",
        "`[context] catalog` is neither `sqlite` nor the URL of a PostgreSQL database",
        hint="for example `postgresql://user@host:5432/database`",
    )


def _roll_back(connection: Connection) -> None:
    """Quietly: a database that is gone, or that rolled back by itself (SQLite on a full disk), has nothing to undo,
    and the error that led here is the one to show."""
    with suppress(DBAPIError):
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("ROLLBACK")
        else:
            connection.rollback()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn a database that is out of reach or damaged into an error a person can act on."""
    try:
        yield
    except OperationalError as error:
        reason = (str(error.orig).splitlines() or ["no answer"])[0]
        if reason.startswith("no such "):  # SQLite: a table or column that every catalog has
            raise _damaged(reason) from error
        hint = "check that the database runs, that `[context] catalog` names it, and that the disk is not full"
        raise _away(f"the catalog does not answer: {reason}", hint) from error
    except NoConnectionFree as error:
        message = "the catalog is busy: all connections to it of this process were in use for too long"
        raise _away(message, "try again; if it goes on, look what keeps the database from answering") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            hint = "run the same command again: it goes on where it was"
            raise _away("the connection to the catalog was lost", hint) from error
        if type(error) is DatabaseError or getattr(error.orig, "sqlstate", None) in ("42P01", "42703"):
            # SQLite: not a database, or malformed. PostgreSQL: no such table, no such column.
            raise _damaged(str(error.orig).splitlines()[0]) from error
        raise


def _away(message: str, hint: str) -> HeadwaterError:
    return HeadwaterError("HW-T06", message, hint=hint, retryable=True)


def _damaged(what: str) -> HeadwaterError:
    """The error for a catalog that only a rebuild can fix."""
    return HeadwaterError(
        "HW-T04", f"the catalog is damaged: {what}", hint="run `headwater context rebuild-catalog`: the log has it all"
    )

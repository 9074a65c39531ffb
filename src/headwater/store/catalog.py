"""The catalog's database: open it, migrate it, and run transactions on it.

SQLite in WAL mode by default, PostgreSQL (one schema per project) for several machines. The same statements run
on both. `transaction` is a write, serialised with all others; `snapshot` is a consistent read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select, update
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.store import tables as t


@dataclass(frozen=True)
class Catalog:
    """An open catalog. Cheap to pass around; connections are made when they are needed."""

    engine: Engine

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """A write: all of it or nothing, one after the other. `durable=False` (claims and renewals) may be
        forgotten in a power cut, which costs only a lease."""
        with _translated(), self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            try:
                yield connection
            except BaseException:
                _end(connection, sqlite=self.is_sqlite, commit=False)
                raise
            _end(connection, sqlite=self.is_sqlite, commit=True)

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
                _end(connection, sqlite=self.is_sqlite, commit=False)

    def close(self) -> None:
        self.engine.dispose()


def open_catalog(url: str, *, sqlite_path: Path, project: str, create: bool = True) -> Catalog | None:
    """Open the catalog and bring it to this version. None if there is none and `create` is false."""
    if url == "sqlite":
        if not create and not sqlite_path.exists():
            return None
        catalog = Catalog(_sqlite_engine(sqlite_path))
    else:
        catalog = Catalog(_postgres_engine(url, project))
    with _translated(url=url):
        version = _version(catalog)
        if version == 0:
            if not create:
                catalog.close()
                return None
            _create(catalog, project=project)
        elif version > t.FORMAT_VERSION:
            catalog.close()
            raise HeadwaterError(
                "HW-T01",
                f"this store has format {version}, this Headwater knows formats up to {t.FORMAT_VERSION}",
                hint="upgrade Headwater on this machine; nothing was changed",
            )
        else:
            _migrate(catalog, version)
    return catalog


MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""Format n -> the statements that make it n + 1. A new store is made at the newest format directly."""


def _migrate(catalog: Catalog, version: int) -> None:
    while version < t.FORMAT_VERSION:
        with catalog.transaction() as connection:
            for statement in MIGRATIONS[version]:
                connection.exec_driver_sql(statement)
            version += 1
            connection.execute(update(t.store).values(format_version=version))


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
        t.metadata.create_all(connection)
        if connection.execute(select(t.store.c.id)).first() is None:
            connection.execute(
                t.store.insert().values(
                    id=1,
                    format_version=t.FORMAT_VERSION,
                    store_id=uuid7(),
                    project=project,
                    seq=0,
                    logged_seq=0,
                    created_us=now_us(),
                )
            )


def _sqlite_engine(path: Path) -> Engine:
    path.parent.mkdir(parents=True, exist_ok=True)
    # NullPool: SQLite connections are cheap, and one left open would outlive a fork.
    engine = create_engine(
        f"sqlite:///{path}",
        isolation_level="AUTOCOMMIT",
        poolclass=NullPool,
        connect_args={"timeout": limits.CATALOG_BUSY_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        execute = connection.execute  # type: ignore[attr-defined]
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA foreign_keys = ON")

    return engine


def _postgres_engine(url: str, project: str) -> Engine:
    schema = "headwater_" + project.replace("-", "_")
    full = url.replace("postgresql://", "postgresql+psycopg://", 1).replace("postgres://", "postgresql+psycopg://", 1)
    engine = create_engine(full, pool_pre_ping=True, connect_args={"connect_timeout": 10})

    @event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("SELECT pg_advisory_lock(7267317)")
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute("SELECT pg_advisory_unlock(7267317)")
            cursor.execute(f'SET search_path TO "{schema}"')
        connection.commit()  # type: ignore[attr-defined]

    return engine


def _end(connection: Connection, *, sqlite: bool, commit: bool) -> None:
    if sqlite:
        connection.exec_driver_sql("COMMIT" if commit else "ROLLBACK")
    elif commit:
        connection.commit()
    else:
        connection.rollback()


@contextmanager
def _translated(url: str | None = None) -> Iterator[None]:
    """Turn a database that is out of reach into an error a person can act on."""
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig).splitlines()[0] if error.orig else "no answer"
        raise HeadwaterError(
            "HW-T06",
            f"the catalog does not answer: {reason}",
            hint="check that the database runs, that `[context] catalog` names it, and that the disk is not full",
            retryable=True,
        ) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise HeadwaterError(
                "HW-T06",
                "the connection to the catalog was lost",
                hint="run the same command again: it goes on where it was",
                retryable=True,
            ) from error
        raise

"""`context rebuild-catalog`: an equal catalog from the log alone. Leases are not part of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from headwater.base.blobs import fsync_directory, make_directory
from headwater.base.errors import HeadwaterError
from headwater.store import tables as t
from headwater.store.catalog import RETIRED, Catalog, open_catalog
from headwater.store.commit import insert_commit
from headwater.store.layout import Layout
from headwater.store.log import log_records, unlogged, write_missing
from headwater.store.replay import apply_changes


@dataclass(frozen=True)
class Rebuilt:
    commits: int
    kept_as: str | None
    """Where the old SQLite catalog went; None if there was none or the catalog is PostgreSQL."""


def rebuild_catalog(root: Path, *, project: str, catalog_url: str = "sqlite") -> Rebuilt:
    """Replay the log into a fresh catalog. A SQLite catalog is built beside the old one and then takes its place;
    PostgreSQL's tables are replaced in one transaction. Nobody commits meanwhile, and what was committed and not yet
    logged is logged first, as far as the old catalog can be read. A damaged log changes nothing."""
    layout = Layout(root)
    make_directory(layout.log)
    if catalog_url == "sqlite":
        return _rebuild_sqlite(layout, project)
    catalog = open_catalog(catalog_url, sqlite_path=layout.sqlite, project=project)
    assert catalog is not None
    try:
        return Rebuilt(replay_log(catalog, layout), None)
    finally:
        catalog.close()


def replay_log(catalog: Catalog, layout: Layout) -> int:
    """Empty the data tables and fill them from the log, in one transaction. Returns the number of commits."""
    commits = 0
    with catalog.transaction() as connection:
        t.metadata.create_all(connection)
        connection.execute(select(t.store.c.seq).with_for_update())
        write_missing(layout, unlogged(connection))
        for table in (*t.DATA, t.unit_lease):
            connection.execute(delete(table))
        for record, body in log_records(layout):
            insert_commit(connection, record, body)
            apply_changes(connection, record)
            commits = record.seq
        if not commits:
            raise HeadwaterError(
                "HW-T04", f"there is no log in `{layout.log}`", hint="nothing was landed in this store yet"
            )
        _keep_attempts(connection, layout)
        connection.execute(update(t.store).values(seq=commits, logged_seq=commits))
    return commits


def _rebuild_sqlite(layout: Layout, project: str) -> Rebuilt:
    fresh = layout.sqlite.with_name("meta.sqlite.rebuild")
    try:
        old = _open_old(layout, project)
        if old is None:
            commits = _build(fresh, layout, project)
        else:
            with old.transaction() as connection:
                write_missing(layout, unlogged(connection))
                commits = _build(fresh, layout, project)
                # A commit that waits for this transaction would go into a file that nobody reads any more.
                connection.execute(update(t.store).values(format_version=RETIRED))
            _checkpoint(old)
        return Rebuilt(commits, _swap(layout, fresh))
    finally:
        _remove_sqlite(fresh)


def _open_old(layout: Layout, project: str) -> Catalog | None:
    """The catalog that is there, if it can be read."""
    try:
        return open_catalog("sqlite", sqlite_path=layout.sqlite, project=project, create=False)
    except HeadwaterError as error:
        if error.code != "HW-T04":
            raise
        return None


def _build(fresh: Path, layout: Layout, project: str) -> int:
    _remove_sqlite(fresh)
    catalog = open_catalog("sqlite", sqlite_path=fresh, project=project)
    assert catalog is not None
    commits = replay_log(catalog, layout)
    _checkpoint(catalog)
    return commits


def _keep_attempts(connection: Connection, layout: Layout) -> None:
    """The next claim of an open unit must not write into the directory of an attempt that was there before: one
    that is on disk, or one that was claimed and has not written yet."""
    for unit in connection.execute(select(t.unit).where(t.unit.c.state == "pending")).all():
        runs = layout.tables / unit.table_name / "data" / "runs" / unit.run_id
        names = [d.name.removeprefix("attempt-") for d in runs.glob(f"*/chunk-{unit.unit_id}/attempt-*")]
        attempt = max([0, *(int(name) for name in names if name.isdigit())]) + 1
        row = {"unit_id": unit.unit_id, "attempt": attempt, "epoch": 0, "holder": "rebuild", "node": ""}
        connection.execute(insert(t.unit_lease).values(**row, leased_until_us=0))


def dump(catalog: Catalog) -> dict[str, list[dict[str, Any]]]:
    """All rows that the log rebuilds, in a fixed order: two equal stores give equal dumps."""
    with catalog.snapshot() as connection:
        return {
            table.name: [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in t.DATA
        }


def _checkpoint(catalog: Catalog) -> None:
    with catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    catalog.close()


def _swap(layout: Layout, fresh: Path) -> str | None:
    kept = None
    if layout.sqlite.exists():
        old = layout.sqlite.with_name("meta.sqlite.before-rebuild")
        _remove_sqlite(old)
        for suffix in ("", "-wal", "-shm"):
            part = Path(f"{layout.sqlite}{suffix}")
            if part.exists():
                part.replace(Path(f"{old}{suffix}"))
        kept = old.name
    fresh.replace(layout.sqlite)
    fsync_directory(layout.root)
    return kept


def _remove_sqlite(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)

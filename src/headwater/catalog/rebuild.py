"""`context rebuild-catalog`: an equal catalog from the log alone: its newest checkpoint and the records after it.

Leases, the engine's state, its inbox and its queue are not part of it, and are emptied: a state that remembers other
commits than the log could take old data for new. What is asked for next runs again. Slices that were planned and have
not landed are queued again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import DBAPIError

from headwater.base.errors import HeadwaterError, StoreDamaged
from headwater.catalog import sql_tables as t
from headwater.catalog.checkpoint import newest_checkpoint, restore_checkpoint
from headwater.catalog.commit import insert_commit
from headwater.catalog.database import Catalog, open_catalog
from headwater.catalog.inferred_levels import settle_levels
from headwater.catalog.log import log_records, stored_texts, write_missing
from headwater.catalog.replay import apply_changes
from headwater.catalog.slice_jobs import queue_open_slices
from headwater.storage.layout import Layout
from headwater.storage.store_files import copy, last_attempt, make_directory, remove_database, rename


@dataclass(frozen=True)
class Rebuilt:
    commits: int
    kept_as: str | None
    """The copy of the old SQLite catalog; None if there was none or the catalog is PostgreSQL."""


def rebuild_catalog(root: Path, *, project: str, catalog_url: str = "sqlite") -> Rebuilt:
    """Replay the log into the catalog, in one transaction. A copy of a SQLite catalog is kept beside it; one that
    cannot be read is replaced. No commit lands meanwhile, and what was committed and not yet logged is logged first, as
    far as the old catalog can be read. A damaged log changes nothing."""
    layout = Layout(root)
    for directory in (layout.log, layout.stats):
        make_directory(directory)
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
    commits, head = 0, None
    with catalog.transaction() as connection:
        t.metadata.create_all(connection)
        mark = connection.execute(select(t.store.c.logged_seq).with_for_update()).scalar_one()
        write_missing(layout, stored_texts(connection, after=mark))
        for table in (*t.DATA, *t.TRANSIENT, t.log_record):
            connection.execute(delete(table))
        format_ = 0
        if (checkpoint := newest_checkpoint(layout)) is not None:
            restore_checkpoint(connection, layout, checkpoint.seq)
            commits, head = checkpoint.seq, checkpoint.head
        for record, text in log_records(layout, after=commits, head=head):
            if record.format > format_:
                settle_levels(connection)  # where the store was brought to a newer format
            insert_commit(connection, record, text)
            apply_changes(connection, record)
            commits, format_ = record.seq, record.format
        settle_levels(connection)
        if not commits:
            raise HeadwaterError(
                "HW-T04", f"there is no log in `{layout.log}`", hint="nothing was landed in this store yet"
            )
        queue_open_slices(connection)
        _keep_attempts(connection, layout)
        connection.execute(update(t.store).values(seq=commits, logged_seq=commits))
    return commits


def _rebuild_sqlite(layout: Layout, project: str) -> Rebuilt:
    """In place where the old catalog can be read, so that other processes only wait; else beside it."""
    spare = layout.sqlite.with_name("meta.sqlite.rebuild")
    remove_database(spare)
    try:
        try:
            old = open_catalog("sqlite", sqlite_path=layout.sqlite, project=project, create=False)
            if old is not None:
                old.copy_to(spare)
                commits = replay_log(old, layout)
                return Rebuilt(commits, rename(spare, _kept(layout)).name)
        except StoreDamaged as error:
            if not isinstance(error.__cause__, DBAPIError):
                raise  # not the catalog is damaged, but the log
        return _rebuild_beside(layout, project, spare)
    finally:
        remove_database(spare)


def _rebuild_beside(layout: Layout, project: str, spare: Path) -> Rebuilt:
    catalog = open_catalog("sqlite", sqlite_path=spare, project=project)
    assert catalog is not None
    commits = replay_log(catalog, layout)
    with catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = None
    if layout.sqlite.exists():
        kept = _kept(layout)
        copy(layout.sqlite, kept)
        remove_database(layout.sqlite, journal_only=True)
    rename(spare, layout.sqlite, durable=True)
    return Rebuilt(commits, kept.name if kept is not None else None)


def _kept(layout: Layout) -> Path:
    return layout.sqlite.with_name("meta.sqlite.before-rebuild")


def _keep_attempts(connection: Connection, layout: Layout) -> None:
    """The next claim of a slice must not write into the directory of an attempt that was there before: one that is on
    disk, or one that was claimed and has not written yet."""
    for unit in connection.execute(select(t.unit).join(t.job, t.job.c.job_id == t.unit.c.unit_id)).all():
        last = last_attempt(layout, unit.table_name, unit.run_id, unit.unit_id)
        connection.execute(update(t.job).where(t.job.c.job_id == unit.unit_id).values(attempt=last + 1))

"""The only writer: `Store.commit` applies a `Commit` in one transaction, or not at all.

Order: check what the commit requires, take the next sequence, write the rows, commit the transaction, write the
log record, answer. The store's row is locked first, so commits happen one after the other and `seq` is gapless
and in commit order; a commit's time is never before that of the last one. A commit that comes back has survived a power
cut.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.node import this_node
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.checkpoint import make_checkpoint
from headwater.catalog.database import Catalog, open_catalog
from headwater.catalog.engine_state import write_step
from headwater.catalog.inbox import put
from headwater.catalog.lease import JOB, Lease, hold
from headwater.catalog.ledger import taken_keys
from headwater.catalog.levels import decided
from headwater.catalog.log import LogText, decode_record, encode_record, heal_log, insert_text, last_hash, write_log
from headwater.catalog.queue import JobLease, cancel_slices, end_job, hold_job
from headwater.catalog.replay import apply_changes
from headwater.catalog.slice_jobs import after_end, end_run
from headwater.catalog.statements import chunks
from headwater.storage.layout import Layout
from headwater.storage.log_files import records_after
from headwater.storage.store_files import make_directory, read_text, write_text

# Built once: each commit runs them, and building a statement costs more than running it.
_NEXT_SEQ = (
    update(t.store)
    .where(t.store.c.format_version == bindparam("of_format"))
    .values(seq=t.store.c.seq + 1)
    .returning(
        t.store.c.seq,
        select(t.commit.c.at_us).order_by(t.commit.c.seq.desc()).limit(1).scalar_subquery().label("last_us"),
    )
)
_INSERT_COMMIT = insert(t.commit)
_COMMIT_COLUMNS = tuple(t.commit.columns.keys())
_LIVE = (
    select(func.count())
    .select_from(t.file)
    .where(t.file.c.table_name == bindparam("of_table"), t.file.c.removed_seq.is_(None))
    .where(t.file.c.path.in_(bindparam("chosen", expanding=True)))
)
_SCHEMA_ID = select(t.table.c.schema_id).where(t.table.c.name == bindparam("of_table"))


@dataclass(frozen=True)
class Store:
    """An open context store: its directory and its catalog."""

    layout: Layout
    catalog: Catalog

    @property
    def root(self) -> Path:
        return self.layout.root

    def commit(self, commit: r.Commit) -> int:
        """Apply everything or nothing; returns the sequence at which it is visible. Raises HW-T02 if something
        it requires is no longer so, HW-T03 if that is a lease, HW-T04 if the log already has this sequence.

        Only the changes are in the record of the log. Events, the end of a job and a step of the engine are rows of
        the same transaction, and nowhere else."""
        return self.commit_and_claim(commit, holder=None)[0]

    def commit_and_claim(self, commit: r.Commit, *, holder: str | None) -> tuple[int, JobLease | None]:
        """The same for a worker that goes on with the first of the jobs that the commit queues."""
        crash_point("commit.before")
        with self.catalog.transaction() as connection:
            seq, last_us = _next_seq(connection)
            self._check_log(seq)
            for requirement in commit.requires:
                _check(connection, requirement)
            record = r.LogRecord(
                seq=seq,
                commit_id=uuid7(),
                at_us=max(now_us(), last_us),
                actor=commit.actor,
                node=this_node(),
                changes=decided(connection, commit.changes),
                format=t.FORMAT_VERSION,
                previous=last_hash(connection, seq - 1),
            )
            text = encode_record(record)
            insert_commit(connection, record, text)
            apply_changes(connection, decode_record(text.body, text.values))  # as a rebuild will read it
            claimed = _apply_transient(connection, commit, holder)
            crash_point("commit.inside")
        crash_point("commit.after")
        write_log(self.layout, text)
        if seq % limits.LOG_CHECK_COMMITS == 0:
            heal_log(self.catalog, self.layout, tidy=False)
        if seq % limits.CHECKPOINT_COMMITS == 0:
            with suppress(HeadwaterError):  # the commit is durable: the next checkpoint does it
                make_checkpoint(self.catalog, self.layout)
        return seq, claimed

    def _check_log(self, seq: int) -> None:
        """A catalog that was lost or set back must not write over the only history there is."""
        if self.layout.log_record(seq).exists():
            raise HeadwaterError(
                "HW-T04",
                f"the log already has record {seq}: this catalog is older than its log",
                hint="run `headwater context rebuild-catalog`; nothing was changed",
            )

    def close(self) -> None:
        self.catalog.close()


def insert_commit(connection: Connection, record: r.LogRecord, text: LogText) -> None:
    connection.execute(_INSERT_COMMIT, {name: getattr(record, name) for name in _COMMIT_COLUMNS})
    insert_text(connection, text)


def open_store(root: Path, *, project: str, catalog_url: str = "sqlite") -> Store:
    """Open a store for reading and writing, making it if it is not there, and finish what a crash left: a log
    record that was committed and not written. Raises HW-T04 if there was a catalog and it is gone."""
    layout = Layout(root)
    catalog = _open_known(layout, project, catalog_url)
    make_directory(layout.log)
    if catalog is None:
        catalog = open_catalog(catalog_url, sqlite_path=layout.sqlite, project=project)
    assert catalog is not None
    heal_log(catalog, layout)
    _write_config(layout, catalog, project)
    return Store(layout, catalog)


def _write_config(layout: Layout, catalog: Catalog, project: str) -> None:
    """`config.toml` tells the format, also after an upgrade; the rest of it stays as it is."""
    format_line = f"format_version = {t.FORMAT_VERSION}"
    old = read_text(layout.config)
    if old is None:
        write_text(layout.config, f'{format_line}\nproject = "{project}"\npartitioning = "none"\n')
        return
    new = re.sub(r"^format_version = \d+$", format_line, old, count=1, flags=re.MULTILINE)
    if new != old:
        make_checkpoint(catalog, layout)  # what a migration made of the rows is in no record
        write_text(layout.config, new)


def open_existing(root: Path, *, project: str, catalog_url: str = "sqlite", upgrade: bool = True) -> Store | None:
    """Open a store for reading; None if nothing was ever landed. Writes nothing, unless the store has an older
    format: then it is brought to this one if `upgrade` is true. Raises HW-T04 if there was a catalog and it is gone."""
    layout = Layout(root)
    catalog = _open_known(layout, project, catalog_url, upgrade=upgrade)
    return Store(layout, catalog) if catalog is not None else None


def _open_known(layout: Layout, project: str, catalog_url: str, *, upgrade: bool = True) -> Catalog | None:
    """The catalog, if there is or ever was one. `config.toml` is written after the catalog was made."""
    was_there = layout.config.exists() or layout.log_record(1).exists()
    catalog = open_catalog(catalog_url, sqlite_path=layout.sqlite, project=project, create=False, upgrade=upgrade)
    if catalog is not None or not was_there:
        return catalog
    if records_after(layout, 0):
        message = f"the log in `{layout.log}` speaks of commits, and the catalog is gone"
        hint = "`headwater context rebuild-catalog` makes it again from the log"
    else:
        message = f"the store in `{layout.root}` has lost its catalog and its log"
        hint = "bring both back from a copy of the store; or move the directory away, and land everything anew"
    raise HeadwaterError("HW-T04", message, hint=hint)


def _apply_transient(connection: Connection, commit: r.Commit, holder: str | None) -> JobLease | None:
    claimed = None
    ended = end_job(connection, commit.ends) if commit.ends is not None else None
    for change in commit.changes:
        if isinstance(change, r.UnitsAbandoned):
            cancel_slices(connection, change.run_id, table=change.table, ended_us=now_us())
    if ended is not None:
        claimed = after_end(connection, ended, actor=commit.actor, holder=holder)
    for change in commit.changes:
        if isinstance(change, r.RunEnded):
            end_run(connection, change.run_id, actor=commit.actor)
    if commit.step is not None:
        write_step(connection, commit.step)
    put(connection, commit.events)
    return claimed


def _next_seq(connection: Connection) -> tuple[int, int]:
    """The next sequence, and the time of the last commit. Locks the store's row until the transaction ends."""
    store = connection.execute(_NEXT_SEQ, {"of_format": t.FORMAT_VERSION}).one_or_none()
    if store is None:
        raise HeadwaterError(
            "HW-T02",
            "the catalog was rebuilt or upgraded while it was open",
            hint="run the same command again",
            retryable=True,
        )
    return store.seq, store.last_us or 0


def _check(connection: Connection, requirement: r.Requirement) -> None:
    match requirement:
        case r.CursorIs():
            where = (t.cursor.c.pipeline == requirement.pipeline) & (t.cursor.c.table_name == requirement.table)
            version = connection.execute(select(t.cursor.c.version).where(where)).scalar_one_or_none()
            _require((version or 0) == requirement.version, f"the cursor of `{requirement.table}` has moved")
        case r.SchemaIs():
            found = connection.execute(_SCHEMA_ID, {"of_table": requirement.table}).scalar_one_or_none()
            _require((found or 0) == requirement.schema_id, f"the schema of `{requirement.table}` has moved")
        case Lease():
            (hold_job if requirement.kind == JOB else hold)(connection, requirement)
        case r.NoOpenRun():
            begun = (t.run_table.c.pipeline == requirement.pipeline) & (t.run_table.c.pending > 0)
            _require(not _any(connection, begun), f"another run of `{requirement.pipeline}` has begun")
        case r.FilesLive():
            _check_files(connection, requirement)
        case r.KeysFree():
            taken = taken_keys(connection, requirement.table, requirement.keys, now_us=now_us())
            _require(not taken, f"{len(taken)} of the keys of `{requirement.table}` have been used meanwhile")
        case r.UnitsOpen():
            left = (t.run_table.c.run_id == requirement.run_id) & (t.run_table.c.pending > 0)
            _require(_any(connection, left), "the run has already ended")
        case _:
            assert_never(requirement)


def _any(connection: Connection, tables: ColumnElement[bool]) -> bool:
    """Whether there is such a table of a run."""
    return connection.execute(select(t.run_table.c.run_id).where(tables).limit(1)).first() is not None


def _check_files(connection: Connection, requirement: r.FilesLive) -> None:
    live = 0
    for chunk in chunks(requirement.paths):
        live += connection.execute(_LIVE, {"of_table": requirement.table, "chosen": chunk}).scalar_one()
    _require(live == len(requirement.paths), f"files of `{requirement.table}` were replaced by another commit")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise HeadwaterError(
            "HW-T02", message, hint="run the same command again: it starts from the new state", retryable=True
        )

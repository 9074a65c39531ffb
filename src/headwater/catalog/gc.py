"""`context gc`: delete what no committed row names, after the retention time, and never anything else.

Order makes it safe. Retired files first leave the catalog by a commit, then the disk. Before the leftovers of an
attempt are deleted its epoch is raised, so that a writer that was only asleep is refused when it wakes up. A
crash in between leaves files that the next gc finds. Last, a checkpoint is written and the log trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import or_, select

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.catalog import sql_tables as t
from headwater.catalog.checkpoint import make_checkpoint
from headwater.catalog.commit import Store
from headwater.catalog.lease import JOB
from headwater.catalog.lookup import named_paths
from headwater.catalog.push_writers import living_writers, stop_writers
from headwater.catalog.queue import stop_attempt
from headwater.catalog.records import Commit, FilesForgotten
from headwater.storage.layout import parse_attempt
from headwater.storage.store_files import data_files, delete_data_files


@dataclass(frozen=True)
class Collected:
    """What gc deleted, or would delete (`dry_run`)."""

    retired_files: int
    orphan_files: int
    bytes: int
    fenced_units: int


def collect(
    store: Store, *, actor: str, retention_seconds: float = limits.RETENTION_SECONDS, dry_run: bool = False
) -> Collected:
    """Forget and delete retired files and losing attempts that are older than the retention time."""
    before_us = now_us() - int(retention_seconds * 1e6)
    retired = _retired(store, before_us)
    orphans = _orphans(store, before_us)
    forgotten = sorted({path for files in retired.values() for path, _ in files})
    fenced = 0
    if not dry_run:
        if retired:
            _forget(store, retired, actor)
        orphans, fenced = _fence(store, orphans)
        # Only now can none of them be committed any more: one that was, before the fence, stays.
        with store.catalog.snapshot() as connection:
            named = named_paths(connection)
        orphans = [path for path in orphans if path not in named]
        forgotten = [path for path in forgotten if path not in named]
    doomed = [*forgotten, *orphans]
    size = sum(_size(store.root / path) for path in doomed)
    if not dry_run:
        delete_data_files(store.root, doomed)
        make_checkpoint(store.catalog, store.layout, retention_seconds=retention_seconds)
    return Collected(len(forgotten), len(orphans), size, fenced)


def _retired(store: Store, before_us: int) -> dict[str, list[tuple[str, int]]]:
    """Paths whose last life has ended, and the sequences that ended their lives, by table."""
    kept = or_(t.file.c.removed_seq.is_(None), t.file.c.removed_us > before_us)
    old = (t.file.c.removed_us <= before_us, t.file.c.path.not_in(select(t.file.c.path).where(kept)))
    found: dict[str, list[tuple[str, int]]] = {}
    with store.catalog.snapshot() as connection:
        for row in connection.execute(select(t.file).where(*old).order_by(t.file.c.path)):
            found.setdefault(row.table_name, []).append((row.path, row.removed_seq))
    return found


def _forget(store: Store, retired: dict[str, list[tuple[str, int]]], actor: str) -> None:
    changes = tuple(
        FilesForgotten(
            table=table, paths=tuple(sorted({path for path, _ in files})), oldest_seq=max(seq for _, seq in files)
        )
        for table, files in sorted(retired.items())
    )
    store.commit(Commit(changes=changes, actor=actor))


def _orphans(store: Store, before_us: int) -> list[str]:
    """Files that no row names and that no living attempt may still be writing."""
    with store.catalog.snapshot() as connection:
        named = named_paths(connection)
        held = select(t.lease.c.id, t.lease.c.attempt).where(t.lease.c.kind == JOB)
        held_jobs = {tuple(row) for row in connection.execute(held.where(t.lease.c.leased_until_us > now_us()))}
        writers = living_writers(connection)
    found = []
    for path in data_files(store.layout):
        attempt = parse_attempt(path)
        if path in named or attempt is None:
            continue
        alive = (attempt.unit_id, attempt.attempt) in held_jobs or attempt.unit_id in writers
        if not alive and _modified_us(store.root / path) <= before_us:
            found.append(path)
    return found


def _fence(store: Store, orphans: list[str]) -> tuple[list[str], int]:
    """Take the lease from the writer of every job or pushed batch whose leftovers are about to go, before any of them
    goes. Answers with the files that may go (those of a writer that came back and renewed its lease meanwhile stay) and
    the number of writers that lost theirs."""
    writers = {path: (a.unit_id, a.attempt) for path in orphans if (a := parse_attempt(path)) is not None}
    with store.catalog.transaction() as connection:
        living, fenced = stop_writers(connection, {unit_id for unit_id, _ in writers.values()})
        alive = {writer for writer in writers.values() if writer[0] in living}
        for job_id, attempt in sorted(set(writers.values())):
            match stop_attempt(connection, job_id, attempt=attempt):
                case "held":
                    alive.add((job_id, attempt))
                case "stopped":
                    fenced += 1
    return [path for path, writer in writers.items() if writer not in alive], fenced


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _modified_us(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return 0

"""A pushed batch whose files somebody else writes, because it is too large for one piece of memory.

What the commit says is what it says of any batch: files, new columns, dead letters, the key and its answer, at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import Conflict, HeadwaterError, LeaseLost
from headwater.base.table_schema import TableSchema
from headwater.catalog.commit import Store, commit_files
from headwater.catalog.database import Catalog
from headwater.catalog.lease import Lease, lease_seconds, renew
from headwater.catalog.ledger import taken_keys
from headwater.catalog.push_writers import end_writer, new_writer
from headwater.catalog.records import Commit, KeysFree
from headwater.coerce.row_errors import BadRow
from headwater.ingest.group_commit import (
    Base,
    Files,
    Landed,
    Share,
    base_of,
    changes_of,
    kept_moving,
    refuse_change_of,
    write_bad,
)
from headwater.ingest.ledger_rules import fingerprint, replay
from headwater.ingest.prepare import Prepared
from headwater.ingest.push_records import Accepted, Push
from headwater.storage.file_record import FileRecord


@dataclass(frozen=True)
class WrittenElsewhere:
    """The files of a batch, all with this schema, and its bad rows."""

    run_id: str
    schema: TableSchema
    files: tuple[FileRecord, ...]
    bad: tuple[BadRow, ...]
    unique_keys: bool


Write = Callable[[Base, Files], WrittenElsewhere]
"""Writes a batch for a table as it is now, in directories that the names lead to."""


def land_written(store: Store, push: Push, write: Write, *, on_landed: Callable[[Push, Prepared], None]) -> Accepted:
    """The answer comes when the batch is durable. If the table moves meanwhile, it is written again. Raises what
    `Acceptor.accept` raises, and what `write` does; nothing of the batch is then there."""
    assert push.key is not None
    sent = fingerprint(push)
    moved: HeadwaterError | None = None
    for _ in range(limits.PUSH_TRIES):
        with store.catalog.snapshot() as connection:
            taken = taken_keys(connection, push.target.table, [push.key], now_us=now_us())
            if push.key in taken:
                return replay(taken[push.key], sent)
            base = base_of(connection, push.target)
        if base.evolution.refused:
            refuse_change_of(store, push.target, base, actor=push.actor)
        with _writer(store.catalog) as files:
            found = _land(store, push, sent, base, files, write(base, files))
        if not isinstance(found, HeadwaterError):
            accepted, prepared = found
            on_landed(push, prepared)
            return accepted
        moved = found
    raise kept_moving(push.target.table, moved)


def _land(
    store: Store, push: Push, sent: str, base: Base, files: Files, written: WrittenElsewhere
) -> tuple[Accepted, Prepared] | HeadwaterError:
    """One commit; what has moved if the state did, and nothing was written."""
    import pyarrow as pa

    assert push.key is not None
    rows = sum(file.rows for file in written.files)
    share = Share(rows, sum(file.bytes for file in written.files), len(written.bad))
    prepared = Prepared(pa.RecordBatch.from_pylist([]), rows, written.bad)
    letters, said = write_bad(store, files, [(push, prepared)])
    landed = Landed(written.run_id, written.schema, written.files, (share,), written.unique_keys)
    keyed = [(push, sent, share)]
    changes, needed = changes_of(push.target, base, landed, keyed, ttl_seconds=limits.LEDGER_TTL_SECONDS)
    requires = (files.writer, *needed, KeysFree(table=push.target.table, keys=(push.key,)))
    try:
        commit = Commit(changes=(*changes, *said), requires=requires, actor=push.actor)
        seq = commit_files(store, commit, (*written.files, *letters))
    except (Conflict, LeaseLost) as error:
        return error  # after any other error it may have been committed: only the ledger knows
    errors = tuple(row.error for row in written.bad[: limits.ERRORS_SHOWN])
    return Accepted(str(seq), rows, share.bytes, rows_refused=share.refused, errors=errors), prepared


@contextmanager
def _writer(catalog: Catalog) -> Iterator[Files]:
    """Names for files that gc leaves alone for as long as the block lasts."""
    writer = new_writer(catalog)
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(catalog, writer, done), name="writer-keeper", daemon=True)
    keeper.start()
    try:
        yield Files(writer)
    finally:
        done.set()
        keeper.join()
        end_writer(catalog, writer)


def _keep(catalog: Catalog, writer: Lease, done: threading.Event) -> None:
    while not done.wait(lease_seconds() / 3):
        try:
            renew(catalog, writer)
        except HeadwaterError:
            continue  # the catalog does not answer: the next round tries again, and the commit checks anyway

"""Lands a pushed batch that is too large for memory: the caller writes its files.

The commit holds the same as for any batch: files, new columns, dead letters, the key and its answer, all at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, LeaseLost
from headwater.catalog.commit import Store
from headwater.catalog.database import Catalog
from headwater.catalog.landing import Landing, until_landed
from headwater.catalog.lease import Lease, lease_seconds, renew
from headwater.catalog.ledger import taken_keys
from headwater.catalog.push_writers import end_writer, new_writer
from headwater.ingest.group_commit import (
    SEND_AGAIN,
    Base,
    Files,
    Share,
    WrittenRows,
    add_keys,
    add_rows,
    base_of,
    check_base,
    land_bad,
)
from headwater.ingest.ledger_rules import fingerprint, replay
from headwater.ingest.prepare import Prepared
from headwater.ingest.push_records import Accepted, Push

Write = Callable[[Base, Files, Landing], WrittenRows]
"""Writes a batch for the table as it is now, into the directories that `Files` names, and reports every file to the
landing."""


def land_written(store: Store, push: Push, write: Write, *, on_landed: Callable[[Push, Prepared], None]) -> Accepted:
    """Answers when the batch is durable. If the table changes meanwhile, the batch is written again. Raises what
    `Acceptor.accept` and `write` raise; then nothing of the batch has landed."""
    import pyarrow as pa

    assert push.key is not None
    key, target, sent = push.key, push.target, fingerprint(push)

    def attempt(_number: int) -> Accepted | None:
        with store.catalog.snapshot() as connection:
            taken = taken_keys(connection, target.table, [key], now_us=now_us())
            if key in taken:
                return replay(taken[key], sent)
            base = base_of(connection, target)
        check_base(store, target, base, actor=push.actor)
        with _writer(store.catalog) as files, Landing(store, push.actor) as landing:
            written = write(base, files, landing)
            add_rows(landing, target, base, written)
            rows, size = sum(file.rows for file in written.files), sum(file.bytes for file in written.files)
            prepared = Prepared(pa.RecordBatch.from_pylist([]), rows, written.bad)
            land_bad(landing, files, [(push, prepared)])
            share = Share(rows, size, len(written.bad))
            add_keys(landing, [(push, sent, share)], ttl_seconds=limits.LEDGER_TTL_SECONDS)
            try:
                seq = landing.commit(requires=(files.writer,))
            except LeaseLost:
                return None
        on_landed(push, prepared)
        errors = tuple(row.error for row in written.bad[: limits.ERRORS_SHOWN])
        return Accepted(str(seq), rows, size, rows_refused=share.refused, errors=errors)

    return until_landed(target.table, attempt, hint=SEND_AGAIN)


@contextmanager
def _writer(catalog: Catalog) -> Iterator[Files]:
    """Names for files that gc leaves alone until the block ends."""
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
            continue  # the catalog does not answer: try again in the next round; the commit checks the lease anyway

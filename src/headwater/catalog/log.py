"""The log: each commit's record as a file of its own, durable before the commit is acknowledged.

Each record names the hash of the one before it. Its cell values lie beside it. The catalog holds the same text: what a
crash kept from the log is written when the store is opened next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from headwater.base.errors import HeadwaterError
from headwater.catalog import sql_tables as t
from headwater.catalog.cell_values import REQUIRED, join, split
from headwater.catalog.database import Catalog
from headwater.catalog.records import LogRecord
from headwater.storage import log_files
from headwater.storage.layout import Layout
from headwater.storage.store_files import make_directory

_INSERT = insert(t.log_record)
_BODY = select(t.log_record.c.body).where(t.log_record.c.seq == bindparam("of_seq"))


class LogText(NamedTuple):
    """A record as it is written: its bytes, and those of its cell values if it has any."""

    seq: int
    body: bytes
    values: bytes | None = None
    fsync_values: bool = True

    @property
    def hash(self) -> str:
        """What the next record names as the one before it."""
        return hashlib.sha256(self.body).hexdigest()


def encode_record(record: LogRecord) -> LogText:
    bare, values = split(record)
    return LogText(record.seq, msgspec.json.encode(bare), values, not REQUIRED.isdisjoint(bare.moved))


def decode_record(body: bytes, values: bytes | None = None) -> LogRecord:
    return join(msgspec.json.decode(body, type=LogRecord), values)


def insert_text(connection: Connection, text: LogText) -> None:
    values = None if text.values is None else text.values.decode()
    connection.execute(_INSERT, {"seq": text.seq, "body": text.body.decode(), "cell_values": values})


def last_hash(connection: Connection, seq: int) -> str | None:
    """What the record after `seq` names as the one before it; None for the first."""
    body: str | None = connection.execute(_BODY, {"of_seq": seq}).scalar_one_or_none()
    return None if body is None else LogText(seq, body.encode()).hash


def stored_texts(connection: Connection, *, after: int = 0) -> Iterator[LogText]:
    """The records that the catalog holds, in order."""
    query = select(t.log_record).where(t.log_record.c.seq > after).order_by(t.log_record.c.seq)
    for seq, body, values in connection.execute(query.execution_options(yield_per=100)):
        yield LogText(seq, body.encode(), None if values is None else values.encode())


def write_log(layout: Layout, text: LogText) -> None:
    """Make one record durable, after its cell values. Statistics alone are not fsynced: the catalog has them, and a
    rebuild does without."""
    if text.values is not None:
        log_files.write_values(layout, text.seq, text.values, durable=text.fsync_values)
    log_files.write_record(layout, text.seq, text.body)


def read_log_record(layout: Layout, seq: int) -> tuple[LogRecord, LogText]:
    """One record with its cell values; raises HW-T04 if a file is torn or edited, or cell values are gone without which
    the next run would read rows twice or not at all."""
    body = log_files.read_body(layout, seq)
    try:
        record = decode_record(body)
    except msgspec.DecodeError as error:
        path = layout.log_record(seq)
        raise HeadwaterError(
            "HW-T01", f"the log record `{path.name}` is of a newer version: {error}", hint="upgrade Headwater"
        ) from error
    values = log_files.read_values(layout, seq) if record.values_sha256 is not None else None
    required = not REQUIRED.isdisjoint(record.moved)
    if values is None and not required:
        return record, LogText(seq, body)
    if values is None or not has_hash(values, record):
        hint = "if the catalog can be read, run `headwater context gc`: its checkpoint takes the place of the file"
        raise HeadwaterError(
            "HW-T04",
            f"`stats/{layout.values_of(seq).name}` is {'gone' if values is None else 'damaged'}: the values of commit {seq}",
            hint=f"restore it from a copy of the store; {hint if required else 'or delete it: it holds statistics'}",
        )
    return join(record, values), LogText(seq, body, values)


def has_hash(values: bytes, record: LogRecord) -> bool:
    return hashlib.sha256(values).hexdigest() == record.values_sha256


def log_records(layout: Layout, *, after: int = 0, head: str | None = None) -> Iterator[tuple[LogRecord, LogText]]:
    """All records after a sequence (whose record has the hash `head`) in order; raises HW-T04 on a gap, a damaged
    record or one that does not follow the one before it."""
    for expected, seq in enumerate(log_files.records_after(layout, after), start=after + 1):
        record, text = read_log_record(layout, seq)
        if record.seq != expected:
            raise HeadwaterError(
                "HW-T04",
                f"the log has no record {expected}: the next one is {record.seq}",
                hint="restore the missing file from a copy of the store",
            )
        if not follows(record, head):
            raise HeadwaterError(
                "HW-T04",
                f"the log record {expected} does not follow record {expected - 1}: one of them was replaced",
                hint="restore both files from a copy of the store",
            )
        head = text.hash
        yield record, text


def follows(record: LogRecord, head: str | None) -> bool:
    """Whether the record names this hash as that of the record before it. Old records name none."""
    return record.previous is None or head is None or record.previous == head


def heal_log(catalog: Catalog, layout: Layout, *, tidy: bool = True) -> int:
    """Write every record that the catalog has and the log has not; returns how many. `tidy` also looks in the whole
    directory for what others left half written, and removes it. Raises HW-T04 if the catalog is older than the log."""
    seq, written = write_unlogged(catalog, layout)
    if seq is None:
        return 0
    with catalog.transaction(durable=False) as connection:
        mark_logged(connection, seq)
    if tidy:
        log_files.remove_half_written(layout)
    return written


def write_unlogged(catalog: Catalog, layout: Layout) -> tuple[int | None, int]:
    """Write the records that the log has not: up to which sequence the log is whole now (None if the mark says so
    already), and how many were written."""
    for directory in (layout.log, layout.stats):
        make_directory(directory)
    with catalog.snapshot() as connection:
        store = connection.execute(select(t.store.c.seq, t.store.c.logged_seq)).one()
        _check_age(layout, store.seq, store.logged_seq)
        if store.seq == store.logged_seq:
            return None, 0
        texts = list(stored_texts(connection, after=store.logged_seq))
    return int(store.seq), write_missing(layout, texts)


def mark_logged(connection: Connection, seq: int) -> None:
    connection.execute(update(t.store).where(t.store.c.logged_seq < seq).values(logged_seq=seq))


def write_missing(layout: Layout, texts: Iterable[LogText]) -> int:
    """Write those of the records that the log has not, or has torn; returns how many."""
    written = 0
    for text in texts:
        if not is_whole(layout, text) or log_files.read_values(layout, text.seq) != text.values:
            write_log(layout, text)
            written += 1
    return written


def is_whole(layout: Layout, text: LogText) -> bool:
    """Whether the log holds these bytes."""
    try:
        return log_files.read_body(layout, text.seq) == text.body
    except (OSError, HeadwaterError):
        return False


def _check_age(layout: Layout, seq: int, logged_seq: int) -> None:
    """The newest record that is known to be in the log is never trimmed: if it is gone, a later checkpoint tells that
    the catalog is an old copy, whose next commit would hide what came after it."""
    if logged_seq and not layout.log_record(logged_seq).exists():
        newest = max(log_files.checkpoints(layout), default=0)
        if newest > seq:
            raise HeadwaterError(
                "HW-T04",
                f"the log has a checkpoint of commit {newest}: this catalog is older than its log",
                hint="run `headwater context rebuild-catalog`; nothing was changed",
            )

"""The log: each commit's record as a file of its own, durable before the commit is acknowledged.

`log/<seq>.json` is one JSON object, `{"sha256": ..., "record": {...}}`; the hash is over the bytes of the record,
so a torn or edited one is found. The catalog holds the same text: a record that a crash kept from the log is
written when the store is opened next.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from sqlalchemy import Connection, select, update

from headwater.base import limits
from headwater.base.blobs import make_directory, write_whole
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.records import LogRecord
from headwater.storage.layout import Layout

_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","record":', b"}\n"


def encode_record(record: LogRecord) -> bytes:
    return msgspec.json.encode(record)


def write_log(layout: Layout, seq: int, body: bytes) -> None:
    """Make one record durable. Writing it twice is harmless, also at once: the bytes are the same."""
    path, data = layout.log_record(seq), _framed(body)
    for tries in range(limits.LOG_WRITE_TRIES):
        try:
            write_whole(path, data, torn="log.torn")
            break
        except HeadwaterError as error:
            if not isinstance(error.__cause__, FileNotFoundError) or tries == limits.LOG_WRITE_TRIES - 1:
                raise
    crash_point("log.after")


def read_log_record(path: Path) -> LogRecord:
    """One record; raises HW-T04 if the file is torn, edited or not a record."""
    return _read(path)[0]


def decode_record(body: bytes) -> LogRecord:
    return msgspec.json.decode(body, type=LogRecord)


def _framed(body: bytes) -> bytes:
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def _read(path: Path) -> tuple[LogRecord, bytes]:
    data = path.read_bytes()
    body = data[len(_HEAD) + 64 + len(_MIDDLE) : -len(_TAIL)]
    if data != _framed(body):
        raise HeadwaterError(
            "HW-T04",
            f"the log record `{path.name}` is damaged",
            hint="restore the file from a copy of the store; as long as the catalog is whole nothing else is lost",
        )
    try:
        return decode_record(body), body
    except msgspec.DecodeError as error:
        raise HeadwaterError(
            "HW-T01", f"the log record `{path.name}` is of a newer version: {error}", hint="upgrade Headwater"
        ) from error


def heal_log(catalog: Catalog, layout: Layout, *, tidy: bool = True) -> int:
    """Write every record that the catalog has and the log has not; returns how many. `tidy` also removes what others
    left half written, for which it must look at the whole directory."""
    seq, written = write_unlogged(catalog, layout)
    if seq is None:
        return 0
    with catalog.transaction(durable=False) as connection:
        mark_logged(connection, seq)
    for left in layout.log.glob(".*.tmp") if tidy else ():
        if not _being_written(left):
            left.unlink(missing_ok=True)
    return written


def write_unlogged(catalog: Catalog, layout: Layout) -> tuple[int | None, int]:
    """The sequence up to which the log is whole, now that what it had not is written, and how many that were; None if
    the mark says so already."""
    make_directory(layout.log)
    with catalog.snapshot() as connection:
        store = connection.execute(select(t.store.c.seq, t.store.c.logged_seq)).one()
        if store.seq == store.logged_seq:
            return None, 0
        rows = unlogged(connection)
    return int(store.seq), write_missing(layout, rows)


def mark_logged(connection: Connection, seq: int) -> None:
    connection.execute(update(t.store).where(t.store.c.logged_seq < seq).values(logged_seq=seq))


def unlogged(connection: Connection) -> list[tuple[int, str]]:
    """The records above the mark up to which the log is known to be whole: sequence and text."""
    mark = select(t.store.c.logged_seq).scalar_subquery()
    rows = connection.execute(select(t.commit.c.seq, t.commit.c.record).where(t.commit.c.seq > mark))
    return [(seq, text) for seq, text in rows]


def write_missing(layout: Layout, rows: Iterable[tuple[int, str]]) -> int:
    """Write those of the records that the log has not, or has torn; returns how many."""
    written = 0
    for seq, text in rows:
        if not _is_whole(layout.log_record(seq)):
            write_log(layout, seq, text.encode())
            written += 1
    return written


def log_records(layout: Layout) -> Iterator[tuple[LogRecord, bytes]]:
    """All records in order, with their bytes; raises HW-T04 on a gap or a damaged record."""
    paths = sorted(path for path in layout.log.glob("*.json") if path.stem.isdigit())
    for expected, path in enumerate(paths, start=1):
        record, body = _read(path)
        if record.seq != expected:
            raise HeadwaterError(
                "HW-T04",
                f"the log has no record {expected}: the next one is {record.seq}",
                hint="restore the missing file from a copy of the store",
            )
        yield record, body


def _is_whole(path: Path) -> bool:
    try:
        read_log_record(path)
    except (OSError, HeadwaterError):
        return False
    return True


def _being_written(temporary: Path) -> bool:
    """True if the process that made this file lives on this machine: a commit of it may be on its way."""
    pid = temporary.name.split(".")[-3]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True

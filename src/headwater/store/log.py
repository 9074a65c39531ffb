"""The log: each commit's record as a file of its own, durable before the commit is acknowledged.

`log/<seq>.json` is one JSON object, `{"sha256": ..., "record": {...}}`; the hash is over the bytes of the record,
so a torn or edited one is found. The catalog holds the same text: a record that a crash kept from the log is
written when the store is opened next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from sqlalchemy import select, update

from headwater.base.blobs import make_directory, write_whole
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.store import tables as t
from headwater.store.catalog import Catalog
from headwater.store.layout import Layout
from headwater.store.records import LogRecord

_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","record":', b"}\n"


def encode_record(record: LogRecord) -> bytes:
    return msgspec.json.encode(record)


def write_log(layout: Layout, seq: int, body: bytes) -> None:
    """Make one record durable. Writing it twice is harmless: the bytes are the same."""
    digest = hashlib.sha256(body).hexdigest().encode()
    write_whole(layout.log_record(seq), _HEAD + digest + _MIDDLE + body + _TAIL, torn="log.torn")
    crash_point("log.after")


def read_log_record(path: Path) -> LogRecord:
    """One record; raises HW-T04 if the file is torn, edited or not a record."""
    data = path.read_bytes()
    start = len(_HEAD) + 64 + len(_MIDDLE)
    body = data[start : -len(_TAIL)]
    digest = data[len(_HEAD) : len(_HEAD) + 64].decode("ascii", "replace")
    if not data.endswith(_TAIL) or hashlib.sha256(body).hexdigest() != digest:
        raise HeadwaterError(
            "HW-T04",
            f"the log record `{path.name}` is damaged",
            hint="if the catalog is whole, `headwater context verify` names the record and `apply` writes it again "
            "after the file is deleted",
        )
    try:
        return msgspec.json.decode(body, type=LogRecord)
    except msgspec.DecodeError as error:
        raise HeadwaterError(
            "HW-T01", f"the log record `{path.name}` is of a newer version: {error}", hint="upgrade Headwater"
        ) from error


def heal_log(catalog: Catalog, layout: Layout) -> int:
    """Write every record that the catalog has and the log has not; returns how many."""
    make_directory(layout.log)
    with catalog.snapshot() as connection:
        store = connection.execute(select(t.store.c.seq, t.store.c.logged_seq)).one()
        if store.seq == store.logged_seq:
            return 0
        rows = connection.execute(
            select(t.commit.c.seq, t.commit.c.record).where(t.commit.c.seq > store.logged_seq)
        ).all()
    written = 0
    for seq, body in rows:
        if not _is_whole(layout.log_record(seq)):
            write_log(layout, seq, body.encode())
            written += 1
    with catalog.transaction(durable=False) as connection:
        connection.execute(update(t.store).where(t.store.c.logged_seq < store.seq).values(logged_seq=store.seq))
    for left in layout.log.glob(".*.tmp"):
        left.unlink(missing_ok=True)
    return written


def log_records(layout: Layout) -> Iterator[LogRecord]:
    """All records in order; raises HW-T04 on a gap or a damaged record."""
    for expected, path in enumerate(sorted(layout.log.glob("[0-9]*.json")), start=1):
        record = read_log_record(path)
        if record.seq != expected:
            raise HeadwaterError(
                "HW-T04",
                f"the log has no record {expected}: the next one is {record.seq}",
                hint="restore the missing file from a copy of the store",
            )
        yield record


def _is_whole(path: Path) -> bool:
    try:
        read_log_record(path)
    except (OSError, HeadwaterError):
        return False
    return True

"""The files of the log: records, the cell values beside them, and checkpoints.

`log/<seq>.json` is one JSON object, `{"sha256": ..., "record": {...}}`; the hash is over the bytes of the record, so a
torn or edited one is found. `stats/<seq>.json` holds the record's cell values. `log/checkpoint-<seq>` holds lines of
JSON; the last one is the hash of the others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.base import limits
from headwater.base.blobs import write_whole
from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError
from headwater.storage.layout import Layout

_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","record":', b"}\n"
_CHECKPOINT = "checkpoint-"


def write_record(layout: Layout, seq: int, body: bytes) -> None:
    """Make one record durable. Writing it twice is harmless, also at once: the bytes are the same."""
    _write(layout.log_record(seq), framed(body), torn="log.torn")
    crash_point("log.after")


def write_values(layout: Layout, seq: int, values: bytes, *, durable: bool) -> None:
    _write(layout.values_of(seq), values, torn="stats.torn", durable=durable)
    crash_point("stats.after")


def framed(body: bytes) -> bytes:
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def read_body(layout: Layout, seq: int) -> bytes:
    """The bytes of one record; raises HW-T04 if its file is torn or edited."""
    path = layout.log_record(seq)
    data = path.read_bytes()
    body = data[len(_HEAD) + 64 + len(_MIDDLE) : -len(_TAIL)]
    if data != framed(body):
        raise HeadwaterError(
            "HW-T04",
            f"the log record `{path.name}` is damaged",
            hint="restore the file from a copy of the store; as long as the catalog is whole nothing else is lost",
        )
    return body


def read_values(layout: Layout, seq: int) -> bytes | None:
    """None if they were deleted. A power cut leaves an empty file of what was not fsynced."""
    path = layout.values_of(seq)
    return (path.read_bytes() or None) if path.is_file() else None


def records_after(layout: Layout, seq: int) -> list[int]:
    """The numbers of the records that are there, in order."""
    names = (path.stem for path in layout.log.glob("*.json") if path.stem.isdigit())
    return sorted(number for number in map(int, names) if number > seq)


def write_checkpoint(layout: Layout, seq: int, lines: Iterable[bytes]) -> None:
    _write(layout.checkpoint(seq), _with_hash(lines), torn="checkpoint.torn")
    crash_point("checkpoint.after")


def checkpoints(layout: Layout) -> list[int]:
    """The numbers of the checkpoints that are there, whole or not, the newest first."""
    names = (path.name.removeprefix(_CHECKPOINT) for path in layout.log.glob(f"{_CHECKPOINT}*"))
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def checkpoint_lines(layout: Layout, seq: int) -> Iterator[bytes]:
    """The lines of a checkpoint; none if it is torn or edited."""
    with open(layout.checkpoint(seq), "rb") as file:
        digest, last = hashlib.sha256(), b""
        for line in file:
            digest.update(last)
            last = line
        if last == _last_line(digest.hexdigest()):
            file.seek(0)
            for line in file:
                if line != last:
                    yield line


def trim(layout: Layout, *, before: int, keep: int) -> None:
    """Delete the records below `before` with their cell values, the oldest first, and all but the newest checkpoints."""
    for number in checkpoints(layout)[keep:]:
        layout.checkpoint(number).unlink(missing_ok=True)
    for count, number in enumerate(n for n in records_after(layout, 0) if n < before):
        layout.values_of(number).unlink(missing_ok=True)
        layout.log_record(number).unlink(missing_ok=True)
        if count == 0:
            crash_point("checkpoint.mid_delete")


def remove_half_written(layout: Layout) -> None:
    """Delete what processes that are gone left half written."""
    for directory in (layout.log, layout.stats):
        for left in directory.glob(".*.tmp"):
            if not _being_written(left):
                left.unlink(missing_ok=True)


def _write(path: Path, data: bytes | Iterable[bytes], *, torn: str, durable: bool = True) -> None:
    """Once more if the clean-up of another machine took the half-written file away."""
    for tries in range(limits.LOG_WRITE_TRIES):
        try:
            write_whole(path, data, torn=torn, durable=durable)
            break
        except HeadwaterError as error:
            gone = isinstance(error.__cause__, FileNotFoundError) and isinstance(data, bytes)
            if not gone or tries == limits.LOG_WRITE_TRIES - 1:
                raise


def _with_hash(lines: Iterable[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
        yield line
    yield _last_line(digest.hexdigest())


def _last_line(digest: str) -> bytes:
    return b'{"sha256":"' + digest.encode() + b'"}\n'


def _being_written(temporary: Path) -> bool:
    """True if the process that made this file lives on this machine: a commit of it may be on its way."""
    pid = temporary.name.split(".")[-3]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        pass
    return True

"""One file, open for one read: its bytes, their hash, and the proof that it stayed as it was planned."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from headwater.base import limits
from headwater.base.errors import HeadwaterError, SourceFailed
from headwater.base.printable import quoted
from headwater.base.regular_files import NotRegular, open_below, open_regular
from headwater.connectors.files.changes import version_of
from headwater.connectors.files.encoding import utf8_parts
from headwater.connectors.files.scan import FoundFile, cannot_read
from headwater.connectors.protocol import BadItem, ItemRead, Json, SliceGone, TransientError

if TYPE_CHECKING:
    import pyarrow as pa

_TRANSIENT = {errno.EIO, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE, errno.ENFILE}
_FOREIGN = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PAR1", "Parquet"), (b"PK\x03\x04", "zip"))


@dataclass(frozen=True)
class Piece:
    """What one partition reads of one file: from `start` to `end` (bytes, or row groups). `whole` means that no other
    partition reads a part of it."""

    file: FoundFile
    start: int
    end: int
    whole: bool

    @staticmethod
    def from_json(value: Json) -> Piece:
        source_id, size, mtime_ns, start, end, whole = value
        return Piece(FoundFile(source_id, size, mtime_ns), start, end, whole)


def whole_file(file: FoundFile) -> Piece:
    return Piece(file, 0, file.size, whole=True)


class OpenFile:
    """A file that must be and stay what `piece` says; otherwise `SliceGone`, on entry or by `finish`.

    `read` gives its content (decompressed, and a text in another `encoding` as UTF-8) and hashes the bytes of the file
    at the same time, so that the landed and the hashed bytes are the same. The time of the check is taken before the
    first byte is read: a later write either changes the mtime or falls into the window in which no mtime is trusted. If
    the file must lie `below` a folder, a file that is reached through a link there is not the planned one.
    """

    def __init__(
        self, root: Path, piece: Piece, *, compression: str = "none", encoding: str | None = None, below: str = ""
    ):
        self.piece, self.source_id, self.compression = piece, piece.file.source_id, compression
        self.root, self.below = root, below
        self.encoding = encoding
        chunks = iter(partial(self._content, limits.FILE_CHUNK_BYTES), b"")
        self._texts = None if encoding is None else utf8_parts(chunks, encoding)
        self._text = b""
        self._digest = hashlib.sha256()
        self._hashed_to = 0
        self._stream: pa.NativeFile | None = None
        self._head: BytesIO | None = None

    def __enter__(self) -> Self:
        self._looked_at_ns = time.time_ns()
        with reading(self.source_id):
            self.raw: BinaryIO = self._open()
        try:
            self.check_unchanged()
        except BaseException:
            self.raw.close()
            raise
        if self.compression != "none":
            import pyarrow as pa

            # As a file of Arrow; this object closes what it opened.
            hashed = SimpleNamespace(read=self._read_raw, close=lambda: None, closed=False)
            self._stream = pa.CompressedInputStream(pa.PythonFile(hashed, "r"), self.compression)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, HeadwaterError):
                self.check_unchanged()  # an error in a file that is being written is not an error of the file
        finally:
            if self._stream is not None:
                self._stream.close()
            self.raw.close()

    def _open(self) -> BinaryIO:
        if not self.below:
            return open_regular(self.root / self.source_id)
        try:
            return open_below(self.root / self.below, self.source_id.removeprefix(f"{self.below}/"))
        except NotRegular as error:
            raise SliceGone(f"{quoted(self.source_id)} is no longer a file") from error

    def check_unchanged(self) -> None:
        status = os.fstat(self.raw.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.piece.file.size, self.piece.file.mtime_ns):
            raise SliceGone(f"{quoted(self.source_id)} changed after it was planned")

    def read(self, size: int | None = None) -> bytes:
        """The next bytes of the content, empty at its end. Raises HW-C02 where compressed data is damaged."""
        size = limits.FILE_CHUNK_BYTES if size is None else size
        if self._head is not None:
            return self._head.read(size)
        if self._texts is None:
            return self._content(size)
        self._text = self._text or next(self._texts, b"")
        found, self._text = self._text[:size], self._text[size:]
        return found

    def keep_head(self, size: int) -> tuple[bytes, bool]:
        """The first bytes of the content, and whether they are all of it. From now on `read` gives the whole lines
        among them, and nothing else."""
        parts: list[bytes] = []
        while size and (part := self.read(size)):
            parts.append(part)
            size -= len(part)
        head, is_whole = b"".join(parts), size > 0
        self._head = BytesIO(head if is_whole else head[: head.rfind(b"\n") + 1])
        return head, is_whole

    def _content(self, size: int) -> bytes:
        with reading(self.source_id):
            if self._stream is None:
                return self._read_raw(size)
            try:
                if not self.piece.file.size:  # Arrow takes no bytes for no content
                    raise OSError("no compressed data")
                return self._stream.read(size)  # type: ignore[no-any-return]
            except OSError as error:
                if error.errno is not None:
                    raise
                raise unreadable(
                    self.source_id,
                    f"is not whole {self.compression} data",
                    reason="damaged_compression",
                    hint="copy the file again, and set `compression` if its suffix misleads",
                ) from error

    def read_range(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of the file between two places, in chunks, not hashed. Other reads of the file at the same time do
        not disturb it."""
        with reading(self.source_id):
            while start < end and (
                data := os.pread(self.raw.fileno(), min(limits.FILE_CHUNK_BYTES, end - start), start)
            ):
                start += len(data)
                yield data

    def read_text_range(self, start: int, end: int) -> Iterator[bytes]:
        """As `read_range`, as UTF-8. The places must be the beginnings of lines, in a line-safe encoding."""
        parts = self.read_range(start, end)
        return parts if self.encoding is None else utf8_parts(parts, self.encoding)

    def line_start(self, offset: int) -> int:
        """Where the first line at or after `offset` begins: neighbouring partitions agree on it."""
        if offset <= 0:
            return 0
        place = offset - 1
        for data in self.read_range(place, self.piece.file.size):
            found = data.find(b"\n")
            if found >= 0:
                return place + found + 1
            place += len(data)
        return self.piece.file.size

    @cached_property
    def lines_skipped(self) -> int:
        """How many lines of the file end before the piece."""
        return sum(data.count(b"\n") for data in self.read_range(0, self.line_start(self.piece.start)))

    def finish(self) -> ItemRead:
        """Hashes the bytes that were not read yet and checks the file once more. Returns its exact version."""
        with reading(self.source_id):
            self.raw.seek(self._hashed_to)
            while self._read_raw(limits.FILE_CHUNK_BYTES):
                pass
        self.check_unchanged()
        version = version_of(self.piece.file, sha256=self._digest.hexdigest(), scanned_at_ns=self._looked_at_ns)
        return ItemRead(self.source_id, version)

    def _read_raw(self, size: int) -> bytes:
        data = self.raw.read(size)
        self._digest.update(data)
        self._hashed_to += len(data)
        return data


@contextmanager
def reading(source_id: str) -> Iterator[None]:
    """The system's errors as the protocol's: a file that is gone, one that may come back, one that is refused."""
    try:
        yield
    except FileNotFoundError as error:
        raise SliceGone(f"{quoted(source_id)} vanished after it was planned") from error
    except OSError as error:
        if error.errno in _TRANSIENT:
            raise TransientError(f"cannot read {quoted(source_id)}: {error.strerror}") from error
        raise cannot_read(source_id, error) from error


class UnreadableFile(SourceFailed):
    """HW-C02: the bytes of a file do not fit its format, so nothing of it can be read. A file that the system does not
    let us read is another error: it may be there, and complete, the next time."""

    def as_bad_item(self, source_id: str, version: Json = None) -> BadItem:
        """The file as a dead letter keeps it."""
        from headwater.coerce.row_errors import RowError

        line, reason, what = (self.detail[key] for key in ("line", "reason", "what"))
        error = RowError(int(str(line)), None, str(reason), "file", detail=str(what), place=source_id)
        return BadItem(source_id, version, error, self.hint)


def unreadable(source_id: str, what: str, *, reason: str, hint: str, line: int = 0) -> UnreadableFile:
    """`what` follows the name of the file in the message."""
    detail: dict[str, object] = {"reason": reason, "what": what, "line": line}
    return UnreadableFile("HW-C02", f"{quoted(source_id)} {what}", hint=hint, detail=detail)


def not_what_it_says(source_id: str, format_: str, reason: str) -> UnreadableFile:
    return unreadable(
        source_id,
        f"is not {format_}: {reason}",
        reason="wrong_format",
        hint="correct `path`, or set `format` and `compression` to what the file is",
    )


def refuse_foreign(head: bytes, *, source_id: str, format_: str) -> None:
    """Raises HW-C02 for a file whose first bytes show that it is not text, or not in UTF-8."""
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            raise not_what_it_says(source_id, format_, f"it begins like {name}")
    if _is_utf16(head[:4096]):
        hint = 'set `encoding = "utf-16"`, or convert the file to UTF-8'
        raise unreadable(source_id, f"is not {format_} in UTF-8: it is UTF-16", reason="utf_16", hint=hint)
    place = head[:4096].find(b"\0")
    if place >= 0:
        raise not_what_it_says(source_id, format_, f"it is not text, byte {place + 1} is NUL")


def _is_utf16(head: bytes) -> bool:
    """By its byte order mark, or because most characters of it are two bytes of which one is NUL."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    odd, even = head[1::2].count(0), head[0::2].count(0)
    return len(head) >= 4 and max(odd, even) * 4 > len(head) and min(odd, even) == 0


def content_hash(root: Path, file: FoundFile) -> str | None:
    """The hash of a file's bytes if it is as the scan saw it, else None."""
    try:
        with OpenFile(root, whole_file(file)) as opened:
            version: dict[str, str] = opened.finish().version
            return version["sha256"]
    except SliceGone:
        return None

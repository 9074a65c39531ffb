"""A dropped file as rows of its table: read by the `files` connector, with a push's way with unknown columns.

A small file is one batch. A big one comes in pieces, and the caller sees to it that they land together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError, SourceFailed, UnusableColumn
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING, Type
from headwater.coerce.objects import line_pieces
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.config import FileFormat, compression_of, format_of
from headwater.connectors.files.convert_columns import BadRowList
from headwater.connectors.files.read import open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece, refuse_foreign
from headwater.connectors.protocol import SliceGone, TransientError
from headwater.ingest.decode import TooLarge, decoded
from headwater.ingest.drop.cells import prepare_cells, reading_of
from headwater.ingest.drop.folder import Changed
from headwater.ingest.prepare import Prepared, joined, prepare, refuse_rows

if TYPE_CHECKING:
    import pyarrow as pa


def is_lines(name: str) -> bool:
    return format_of(name) == "ndjson"


def how_of(name: str) -> FileFormat:
    """How a file is read, by its name."""
    format_ = format_of(name)
    assert format_ is not None
    return FileFormat(format_)


def body_of(data: bytes, source_id: str) -> bytes:
    """The NDJSON of a file. Raises HW-I04 as `decoded` does, and for what is no text at all."""
    body = decoded(data, compression_of(source_id), most=limits.MAX_BODY_BYTES)
    with translated_errors():
        refuse_foreign(body, source_id=source_id, format_="NDJSON")
    return body


@dataclass
class GroupBudget:
    """What the files of one group may hold together. A file that is small because it is compressed well may not fit;
    alone it may. What comes behind it does not fit either: it would land before it."""

    most: int = field(default_factory=lambda: limits.MAX_BODY_BYTES)
    _held: dict[str, int] = field(default_factory=dict)
    _is_full: bool = False

    def enter(self, source_id: str, size: int) -> None:
        """Raises `TooLarge`."""
        is_new = source_id not in self._held
        self._held[source_id] = self._held.get(source_id, 0) + size
        if (self._is_full and is_new) or sum(self._held.values()) > self.most:
            del self._held[source_id]
            self._is_full = True
            raise TooLarge(self.most)

    def restart(self, source_id: str) -> None:
        """The file is read from its beginning: what was held of it is not."""
        if source_id in self._held:
            self._held[source_id] = 0


@dataclass(frozen=True)
class FileRows:
    """Makes one batch of a CSV or Parquet file that must be and stay the one with the hash `sha256`. Raises HW-I02 for
    bad rows, HW-I04 for a file that cannot be read, `TooLarge`, and `Changed`."""

    root: Path
    file: FoundFile
    sha256: str
    table: str
    room: GroupBudget

    def __call__(self, schema: TableSchema, most_bad: int | None) -> Prepared:
        how = how_of(self.file.source_id)
        if not self.file.size:
            decoded(b"", compression_of(self.file.source_id))  # nothing, compressed, is something
        bad = BadRowList(room=most_bad or 0)
        found: list[Prepared] = []
        self.room.restart(self.file.source_id)
        with translated_errors():
            piece = self._piece()
            with open_piece(self.root, how, piece) as opened:
                for prepared in pieces_of(opened, how, schema, bad, root=self.root, evolve=True):
                    self.room.enter(self.file.source_id, prepared.batch.nbytes)
                    found.append(prepared)
                if opened.finish().version["sha256"] != self.sha256:
                    raise Changed
        if bad.is_over:
            refuse_rows([row.error for row in bad.rows], bad.total, self.table)
        return replace(joined(found), bad=tuple(bad.rows))

    def _piece(self) -> Piece:
        if format_of(self.file.source_id) != "parquet":
            return Piece(self.file, 0, self.file.size, whole=True)
        from headwater.connectors.files.parquet import read_footer

        return Piece(self.file, 0, read_footer(self.root, self.file).row_groups, whole=True)


def pieces_of(
    opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList, *, root: Path, evolve: bool
) -> Iterator[Prepared]:
    """The good rows of a piece of a file, in parts; its bad rows go to `bad`. Nothing comes once there are too many of
    those."""
    schema = schema.formed(how.forms)
    if how.format == "ndjson":
        found = _lines(opened, schema, bad, evolve=evolve)
    else:
        found = _cells(opened, how, schema, bad, root=root, evolve=evolve)
    return (prepared for prepared in found if not bad.is_over and prepared.rows)


def _lines(opened: OpenFile, schema: TableSchema, bad: BadRowList, *, evolve: bool) -> Iterator[Prepared]:
    from headwater.connectors.files.json_lines import line_chunks

    piece, source_id = opened.piece, opened.source_id
    start = 0 if piece.whole else opened.line_start(piece.start)
    parts = iter(opened.read, b"") if piece.whole else opened.read_range(start, opened.line_start(piece.end))
    before: int | None = None
    line = 0
    chunks = line_chunks(parts, source_id=source_id)
    for lines in (lines for chunk in chunks for lines in line_pieces(chunk, limits.PUSH_SMALL_BYTES)):
        if start == 0 and line == 0:
            refuse_foreign(lines, source_id=source_id, format_="NDJSON")
        prepared = prepare(lines, schema, table="", evolve=evolve, most_bad=None)
        bad.total += len(prepared.bad)
        for row in prepared.bad[: max(bad.room, limits.ERRORS_SHOWN)]:
            if before is None:
                before = opened.lines_before(start)
            error = replace(row.error, line=before + line + row.error.line, place=source_id)
            bad.add(BadRow(error, bad.kept(row.source)))
        line += lines.count(b"\n")
        yield prepared


def _cells(
    opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList, *, root: Path, evolve: bool
) -> Iterator[Prepared]:
    whole = Piece(opened.piece.file, 0, opened.piece.file.size, whole=True)

    def reopen() -> OpenFile:
        return open_piece(root, how, whole)

    columns = _columns(reopen, how, root)
    reading = reading_of(columns, schema)
    batches: Iterator[pa.RecordBatch]
    if how.format == "csv":
        from headwater.connectors.files.csv import read_piece as read_csv

        batches = read_csv(opened, how, reading.wide, bad, again=reopen())
    else:
        from headwater.connectors.files.parquet import read_piece as read_parquet

        batches = read_parquet(opened, reading.wide, bad)
    for batch in batches:
        yield prepare_cells(batch, reading, evolve=evolve)


def _columns(reopen: Callable[[], OpenFile], how: FileFormat, root: Path) -> dict[str, Type | None]:
    """The columns that a file names itself."""
    with reopen() as opened:
        if how.format == "csv":
            from headwater.connectors.files.csv import open_rows

            names = open_rows(opened.read, how.csv, (), source_id=opened.source_id).names
            return dict.fromkeys(names, STRING)
        from headwater.connectors.files.parquet import read_footer

        return dict(read_footer(root, opened.piece.file).columns)


@contextmanager
def translated_errors() -> Iterator[None]:
    """What the connector says of a file, as what is wrong with a batch."""
    try:
        yield
    except SliceGone as error:
        raise Changed from error
    except TransientError as error:
        raise HeadwaterError("HW-C03", str(error), retryable=True) from error
    except (SourceFailed, UnusableColumn) as error:
        raise HeadwaterError("HW-I04", error.message, hint="fix the file and drop it again") from error

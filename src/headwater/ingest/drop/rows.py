"""A dropped file as rows of its table: read by the `files` connector, with the rules of a push for unknown columns.

A small file is one batch. A large file is read in parts by executors, first with the table's schema as it is. If a part
has columns that the table lacks, all parts are read again with the columns that the table gets; the rest is rescued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError, SourceFailed, UnusableColumn
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, STRING, Type
from headwater.coerce.objects import line_pieces
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.bad_rows import BadRowList
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.json_lines import chunks_of_piece, lines_before
from headwater.connectors.files.read import ReadFiles, open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import cut_partitions, text_cuts
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile
from headwater.connectors.protocol import (
    ArrowRead,
    ItemRead,
    Json,
    Observed,
    SliceGone,
    TransientError,
    UnknownColumns,
)
from headwater.ingest.decode import TooLarge
from headwater.ingest.prepare import Prepared, columns_left, joined, prepare, prepare_cells, refuse_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FileRows:
    """Reads the file with the hash `sha256` for the table `table`. Raises HW-I02 for bad rows, HW-I04 for a file that
    does not match its format, HW-C03 for one that cannot be read now, and `SliceGone` if it is no longer that file."""

    root: Path
    how: FileFormat
    file: FoundFile
    sha256: str
    table: str

    def __call__(self, schema: TableSchema, most_bad: int | None) -> Prepared:
        """All rows in one batch. Also raises `TooLarge`."""
        bad = BadRowList(room=most_bad or 0)
        found: list[Prepared] = []
        held = 0
        whole = Piece(self.file, 0, self.file.size, whole=True)
        with file_errors(), open_piece(self.root, self.how, whole) as opened:
            for prepared in prepared_rows(opened, ReadFiles(self.root, self.how), schema, bad, added=None):
                found.append(prepared)
                held += prepared.batch.nbytes
                if held > limits.MAX_BODY_BYTES:
                    raise TooLarge(limits.MAX_BODY_BYTES)
            self.check(opened.finish().version)
        if bad.is_over:
            refuse_rows([row.error for row in bad.rows], bad.total, self.table)
        return replace(joined(found), bad=tuple(bad.rows))

    def in_parts(self, most_bad: int, added: Sequence[str] | None) -> ArrowRead:
        """The same rows, read by executors. They report columns that the schema lacks. If `added` is given, it has the
        columns of the schema that were added for this file, and all other unknown columns are rescued."""
        with file_errors():
            if self.how.format == "parquet":
                from headwater.connectors.files.parquet import cuts_of, read_footer

                cuts = cuts_of(read_footer(self.root, self.file, self.how), self.file.size)
            else:
                cuts = text_cuts(self.file, self.how, time.time_ns())
        partitions = cut_partitions([self.file], lambda _: cuts)
        return ArrowRead(tuple(partitions), partial(read_part, self.root, self.how, most_bad, added))

    def check(self, version: Json) -> None:
        if version["sha256"] != self.sha256:
            raise SliceGone(f"{self.file.source_id} is another file by now")


def read_part(
    root: Path, how: FileFormat, most_bad: int, added: Sequence[str] | None, partition: Json, schema: TableSchema
) -> Iterator[pa.RecordBatch | ItemRead | BadRow]:
    """`ArrowRead.read` for a part of a large file. Raises `UnknownColumns` with all columns that the schema lacks."""
    bad = BadRowList(room=most_bad)
    lacking: dict[str, Type] = {}
    for piece in (Piece.from_json(value) for value in partition["pieces"]):
        with open_piece(root, how, piece) as opened:
            for prepared in prepared_rows(opened, ReadFiles(root, how), schema, bad, added=added):
                lacking |= {name: STRING for name in prepared.added if schema.column(name) is None}
                if prepared.rescues and schema.column(RESCUED) is None:
                    lacking[RESCUED] = DYNAMIC
                if not lacking:
                    yield prepared.batch
            if piece.start == 0:
                yield opened.finish()
            else:
                opened.check_unchanged()
    bad.raise_if_over()
    if lacking:
        raise UnknownColumns(Observed(lacking))
    yield from bad.rows


def new_columns(schema: TableSchema, observed: Sequence[Observed]) -> tuple[list[str], bool]:
    """The columns that a table gets for the parts of a file, in their order, and whether anything is rescued."""
    names = list(dict.fromkeys(name for each in observed for name in each.columns if name != RESCUED))
    room = columns_left(schema)
    return names[:room], len(names) > room or any(RESCUED in each.columns for each in observed)


def prepared_rows(
    opened: OpenFile, read: ReadFiles, schema: TableSchema, bad: BadRowList, *, added: Sequence[str] | None
) -> Iterator[Prepared]:
    """The good rows of a piece of a file, in parts; its bad rows go to `bad`. Stops when there are too many of them."""
    schema = schema.formed(read.how.forms)
    known = replace(schema, columns=tuple(column for column in schema.columns if column.name not in (added or ())))
    if read.how.format == "ndjson":
        found = _lines(opened, known, bad, added)
    else:
        found = (prepare_cells(batch, known, added=added) for batch in read.batches(opened, known, bad))
    return (prepared for prepared in found if not bad.is_over and prepared.rows)


def _lines(opened: OpenFile, schema: TableSchema, bad: BadRowList, added: Sequence[str] | None) -> Iterator[Prepared]:
    line = 1 if opened.piece.start == 0 else 2  # only the first line of a file may begin with a byte order mark
    shift: int | None = None
    evolve, names = added is None, tuple(added or ())
    for lines in (part for chunk in chunks_of_piece(opened) for part in line_pieces(chunk, limits.PUSH_SMALL_BYTES)):
        prepared = prepare(lines, schema, table="", evolve=evolve, most_bad=None, first_line=line, added=names)
        names, line = prepared.added, line + lines.count(b"\n")
        bad.total += len(prepared.bad)
        for row in prepared.bad[: max(bad.room, limits.ERRORS_SHOWN)]:
            shift = lines_before(opened) if shift is None else shift
            error = replace(row.error, line=row.error.line + shift, place=opened.source_id)
            bad.add(BadRow(error, bad.kept(row.source)))
        yield prepared


@contextmanager
def file_errors() -> Iterator[None]:
    """Translates the connector's errors about a file into errors of a batch."""
    try:
        yield
    except (UnreadableFile, UnusableColumn) as error:
        raise HeadwaterError("HW-I04", error.message, hint="fix the file and drop it again") from error
    except SourceFailed as error:
        raise HeadwaterError("HW-C03", error.message, hint=error.hint, retryable=True) from error
    except TransientError as error:
        raise HeadwaterError("HW-C03", str(error), retryable=True) from error

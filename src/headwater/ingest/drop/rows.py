"""A dropped file as rows of its table: read by the `files` connector, with a push's way with unknown columns.

A small file is one batch. A big one is read in parts by executors: first with the table's schema as it is; if a part has
columns that the table lacks, all parts are read again with those that the table gets, and the rest is rescued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError, SourceFailed, UnusableColumn
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, STRING, TIMESTAMP, Type
from headwater.coerce.objects import line_pieces
from headwater.coerce.rescued import dynamic_array, rescue_cells, without_rescued
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.convert_columns import BadRowList, convert_any, convert_typed, json_texts
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
from headwater.ingest.prepare import (
    TIME,
    TIME_KEYS,
    Prepared,
    columns_left,
    has_default_times,
    joined,
    may_be_added,
    prepare,
    refuse_rows,
    wider,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FileRows:
    """Reads a file that must be and stay the one with the hash `sha256`, for the table `table`. Raises HW-I02 for bad
    rows, HW-I04 for a file that is not what its name says, HW-C03 for one that cannot be read now, and `SliceGone`."""

    root: Path
    how: FileFormat
    file: FoundFile
    sha256: str
    table: str

    def __call__(self, schema: TableSchema, most_bad: int | None) -> Prepared:
        """All rows in one batch. Raises `TooLarge` too."""
        bad = BadRowList(room=most_bad or 0)
        found: list[Prepared] = []
        held = 0
        whole = Piece(self.file, 0, self.file.size, whole=True)
        with file_errors(), open_piece(self.root, self.how, whole) as opened:
            for prepared in prepared_rows(opened, ReadFiles(self.root, self.how), schema, bad, evolve=True):
                found.append(prepared)
                held += prepared.batch.nbytes
                if held > limits.MAX_BODY_BYTES:
                    raise TooLarge(limits.MAX_BODY_BYTES)
            self.check(opened.finish().version)
        if bad.is_over:
            refuse_rows([row.error for row in bad.rows], bad.total, self.table)
        return replace(joined(found), bad=tuple(bad.rows))

    def in_parts(self, most_bad: int, *, evolve: bool) -> ArrowRead:
        """The same rows, for executors. With `evolve`, columns that the schema lacks are reported; without, rescued."""
        with file_errors():
            if self.how.format == "parquet":
                from headwater.connectors.files.parquet import cuts_of, read_footer

                cuts = cuts_of(read_footer(self.root, self.file, self.how), self.file.size)
            else:
                cuts = text_cuts(self.file, self.how, time.time_ns())
        partitions = cut_partitions([self.file], lambda _: cuts)
        return ArrowRead(tuple(partitions), partial(read_part, self.root, self.how, most_bad, evolve))

    def check(self, version: Json) -> None:
        if version["sha256"] != self.sha256:
            raise SliceGone(f"{self.file.source_id} is another file by now")


def read_part(
    root: Path, how: FileFormat, most_bad: int, evolve: bool, partition: Json, schema: TableSchema
) -> Iterator[pa.RecordBatch | ItemRead | BadRow]:
    """`ArrowRead.read` of a part of a big file. Raises `UnknownColumns` with all that the part has and the schema lacks."""
    bad = BadRowList(room=most_bad)
    lacking: dict[str, Type] = {}
    for piece in (Piece.from_json(value) for value in partition["pieces"]):
        with open_piece(root, how, piece) as opened:
            for prepared in prepared_rows(opened, ReadFiles(root, how), schema, bad, evolve=evolve):
                lacking |= dict.fromkeys(prepared.added, STRING)
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


def with_new_columns(schema: TableSchema, observed: Sequence[Observed]) -> TableSchema:
    """The schema with the columns that the parts of a file lack, in the order of the parts."""
    names = list(dict.fromkeys(name for each in observed for name in each.columns if name != RESCUED))
    room = columns_left(schema)
    return wider(schema, names[:room], rescues=len(names) > room or any(RESCUED in o.columns for o in observed))


def prepared_rows(
    opened: OpenFile, read: ReadFiles, schema: TableSchema, bad: BadRowList, *, evolve: bool
) -> Iterator[Prepared]:
    """The good rows of a piece of a file, in parts; its bad rows go to `bad`. Nothing comes once there are too many of
    those."""
    schema = schema.formed(read.how.forms)
    if read.how.format == "ndjson":
        found = _lines(opened, schema, bad, evolve=evolve)
    else:
        known = without_rescued(schema)
        found = (prepare_cells(batch, known, evolve=evolve) for batch in read.batches(opened, schema, bad))
    return (prepared for prepared in found if not bad.is_over and prepared.rows)


def _lines(opened: OpenFile, schema: TableSchema, bad: BadRowList, *, evolve: bool) -> Iterator[Prepared]:
    line = 1 if opened.piece.start == 0 else 2  # a byte order mark begins a file, and no other line
    shift: int | None = None
    added: tuple[str, ...] = ()
    for lines in (part for chunk in chunks_of_piece(opened) for part in line_pieces(chunk, limits.PUSH_SMALL_BYTES)):
        prepared = prepare(lines, schema, table="", evolve=evolve, most_bad=None, first_line=line, added=added)
        added, line = prepared.added, line + lines.count(b"\n")
        bad.total += len(prepared.bad)
        for row in prepared.bad[: max(bad.room, limits.ERRORS_SHOWN)]:
            shift = lines_before(opened) if shift is None else shift
            error = replace(row.error, line=row.error.line + shift, place=opened.source_id)
            bad.add(BadRow(error, bad.kept(row.source)))
        yield prepared


def prepare_cells(rows: pa.RecordBatch, known: TableSchema, *, evolve: bool) -> Prepared:
    """Good rows of a CSV or Parquet file as rows of a table. A column that it lacks becomes one of text, whether or not
    it has values; what may not become one is rescued."""
    batch = rows.select(list(known.names()))
    others = {name: rows.column(name) for name in rows.schema.names if known.column(name) is None}
    if has_default_times(known):
        batch, others = _with_times(batch, others)
    added = [name for name in others if evolve and may_be_added(name)][: columns_left(known)]
    for name in added:
        batch = batch.append_column(name, convert_any(others[name], STRING)[0])
    rescued = {name: json_texts(column) for name, column in others.items() if name not in added}
    texts = rescue_cells(rescued) if rescued else []
    count = sum(text is not None for text in texts)
    if count:
        batch = batch.append_column(RESCUED, dynamic_array(texts))
    return Prepared(batch, rows.num_rows, added=tuple(added), rescues=count > 0, rows_rescued=count)


def _with_times(batch: pa.RecordBatch, others: Mapping[str, pa.Array]) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """An empty `ts` is filled from the first column that holds a time. Of a column that the table lacks, what was used
    for that is known then; one that is used up is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left = dict(others)
    place = batch.schema.get_field_index(TIME)
    for key in TIME_KEYS:
        if key not in left and key not in batch.schema.names:
            continue
        column = left[key] if key in left else batch.column(key)
        times, _ = convert_typed(column, TIMESTAMP)
        empty = batch.column(place).is_null()
        batch = batch.set_column(place, batch.schema.field(place), pc.if_else(empty, times, batch.column(place)))
        used = pc.and_(empty, times.is_valid())
        if key in left and pc.any(used).as_py():
            left[key] = pc.if_else(used, pa.nulls(len(column), column.type), column)
            if left[key].null_count == len(column):
                del left[key]
    return batch, left


@contextmanager
def file_errors() -> Iterator[None]:
    """What the connector says of a file, as what is wrong with a batch."""
    try:
        yield
    except (UnreadableFile, UnusableColumn) as error:
        raise HeadwaterError("HW-I04", error.message, hint="fix the file and drop it again") from error
    except SourceFailed as error:
        raise HeadwaterError("HW-C03", error.message, hint=error.hint, retryable=True) from error
    except TransientError as error:
        raise HeadwaterError("HW-C03", str(error), retryable=True) from error

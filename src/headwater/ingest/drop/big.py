"""Reading a big dropped file in executors: the same rows, columns and bad rows as if it were a small one.

First every part is read with the table's schema as it is. A part that finds a column which the table lacks says so;
then all parts are asked for their columns, and read again with those that the table gets. What gets no column is
rescued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, STRING
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.changes import is_settled
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.convert_columns import BadRowList
from headwater.connectors.files.read import open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import Cut, byte_cuts, cut_partitions
from headwater.connectors.files.streams import Piece
from headwater.connectors.protocol import ArrowRead, ItemRead, Json, Observed, UnknownColumns
from headwater.ingest.drop.rows import how_of, pieces_of
from headwater.ingest.prepare import Prepared, columns_left

if TYPE_CHECKING:
    import pyarrow as pa


def big_read(
    root: Path, file: FoundFile, schema: TableSchema, forms: Mapping[str, TextForm], *, most_bad: int, evolve: bool
) -> ArrowRead:
    """A file in parts. With `evolve`, columns that the schema lacks are told; without, they are rescued."""
    how = replace(how_of(file.source_id), forms=dict(forms))
    partitions = cut_partitions([file], lambda _: _cuts(root, file, how))
    return ArrowRead(
        partitions=tuple(partitions),
        read=ReadBig(root, how, most_bad, evolve),
        observe=ObserveBig(root, how, schema),
        format=how.format,
    )


def wider(schema: TableSchema, observed: Sequence[Observed]) -> TableSchema:
    """The schema with the columns that the parts of a file bring, in the order of the parts."""
    names = dict.fromkeys(name for each in observed for name in each.columns if schema.column(name) is None)
    rescues = names.pop(RESCUED, False) is None
    room = columns_left(schema)
    rescues |= len(names) > room
    for name in list(names)[:room]:
        schema = schema.added(name, STRING)
    return schema.added(RESCUED, DYNAMIC) if rescues and schema.column(RESCUED) is None else schema


@dataclass(frozen=True)
class ReadBig:
    """`ArrowRead.read` of a part of a big file."""

    root: Path
    how: FileFormat
    most_bad: int
    evolve: bool

    def __call__(self, partition: Json, schema: TableSchema) -> Iterator[pa.RecordBatch | ItemRead | BadRow]:
        bad = BadRowList(room=self.most_bad)
        for piece in _pieces(partition):
            with open_piece(self.root, self.how, piece) as opened:
                for prepared in pieces_of(opened, self.how, schema, bad, root=self.root, evolve=self.evolve):
                    if _lacks(prepared, schema):
                        raise UnknownColumns(_observed([prepared]))
                    yield prepared.batch
                if piece.start == 0:
                    yield opened.finish()
                else:
                    opened.check_unchanged()
        bad.raise_if_over()
        yield from bad.rows


@dataclass(frozen=True)
class ObserveBig:
    """`ArrowRead.observe` of a part of a big file: the columns that it needs besides those of the table."""

    root: Path
    how: FileFormat
    schema: TableSchema

    def __call__(self, partition: Json) -> Observed:
        found: list[Prepared] = []
        for piece in _pieces(partition):
            bad = BadRowList(room=limits.MAX_BAD_ROWS)
            with open_piece(self.root, self.how, piece) as opened:
                for prepared in pieces_of(opened, self.how, self.schema, bad, root=self.root, evolve=True):
                    if _lacks(prepared, self.schema):
                        found.append(replace(prepared, batch=prepared.batch.slice(0, 0)))
                opened.check_unchanged()
        return _observed(found)


def _lacks(prepared: Prepared, schema: TableSchema) -> bool:
    return bool(prepared.added) or (prepared.rescues and schema.column(RESCUED) is None)


def _observed(found: Sequence[Prepared]) -> Observed:
    columns = {name: STRING for prepared in found for name in prepared.added}
    kept = dict(list(columns.items())[: limits.NEW_COLUMNS_PER_BATCH])
    is_rescued = len(kept) < len(columns) or any(prepared.rescues for prepared in found)
    return Observed({**kept, RESCUED: DYNAMIC} if is_rescued else kept)


def _pieces(partition: Json) -> list[Piece]:
    return [Piece.from_json(value) for value in partition["pieces"]]


def _cuts(root: Path, file: FoundFile, how: FileFormat) -> list[Cut]:
    if how.format == "parquet":
        from headwater.connectors.files.parquet import cuts_of, read_footer

        return cuts_of(read_footer(root, file), file.size)
    if how.is_splittable(file.source_id) and is_settled(file.mtime_ns, time.time_ns()):
        return byte_cuts(file.size)
    return [(0, file.size)]

"""Reading a slice of files in executors: plain functions over partitions, each file proven unchanged.

A partition is `{"pieces": [...]}`: parts of files, or whole ones. Whoever reads the first part of a file answers
for the file: it yields the file's exact version, with the hash of all of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base.schema import TableSchema
from headwater.connectors.files.changes import gone_version
from headwater.connectors.files.columns import BadRowList, UnknownKeys, check_names, with_source_id
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece
from headwater.connectors.protocol import ItemRead, Json, Observed, UnknownColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.coerce.errors import BadRow
    from headwater.coerce.infer import Inferred


@dataclass(frozen=True)
class ReadFiles:
    """`ArrowRead.read` of files. Yields the bad rows at the end; once there are more than `max_bad_rows` it yields
    nothing more, but reads on to count all of them."""

    root: Path
    how: FileFormat
    max_bad_rows: int = 0

    def __call__(self, partition: Json, schema: TableSchema) -> Iterator[pa.RecordBatch | ItemRead | BadRow]:
        bad = BadRowList(room=self.max_bad_rows)
        schema = self.how.coerced(schema)
        try:
            for value in partition["pieces"]:
                piece = Piece.from_json(value)
                with open_piece(self.root, self.how, piece) as opened:
                    for batch in self._batches(opened, schema, bad):
                        if not bad.is_over:
                            kept = [name for name in batch.schema.names if name not in self.how.exclude]
                            yield with_source_id(batch.select(kept), opened.source_id)
                    if piece.start == 0:
                        read = opened.finish()
                        if not bad.is_over:
                            yield read
                    else:
                        opened.check_unchanged()
        except UnknownKeys:
            raise UnknownColumns(self._unknown(partition, schema)) from None
        bad.raise_if_over()
        yield from bad.rows
        for source_id in partition.get("gone", ()):
            yield ItemRead(source_id, gone_version())

    def _batches(self, opened: OpenFile, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch]:
        match self.how.format:
            case "ndjson":
                from headwater.connectors.files.text import read_lines

                return read_lines(opened, schema, bad)
            case "json":
                from headwater.connectors.files.text import read_document

                return read_document(opened, self.how, schema, bad)
            case "csv":
                from headwater.connectors.files.csv import read_piece as read_csv

                return read_csv(opened, self.how, schema, bad, again=self._again(opened.piece.file))
            case "parquet":
                from headwater.connectors.files.parquet import read_piece as read_parquet

                return read_parquet(opened, schema, bad, exclude=self.how.exclude)
            case format_:
                raise AssertionError(format_)

    def _again(self, file: FoundFile) -> OpenFile:
        """The same file once more, not yet open."""
        return open_piece(self.root, self.how, Piece(file, 0, file.size, whole=True))

    def _unknown(self, partition: Json, schema: TableSchema) -> Observed:
        """The columns that the schema lacks, from the whole partition: one look tells all of them."""
        observed = ObserveFiles(self.root, self.how)(partition)
        return Observed({name: type_ for name, type_ in observed.columns.items() if schema.column(name) is None})


@dataclass(frozen=True)
class ObserveFiles:
    """`ArrowRead.observe` of files: the columns of a partition, from every row of it."""

    root: Path
    how: FileFormat

    def __call__(self, partition: Json) -> Observed:
        from headwater.coerce.infer import Inferred, merge_inferred

        pieces = [Piece.from_json(value) for value in partition["pieces"]]
        if self.how.format == "parquet":
            from headwater.connectors.files.parquet import merge_footers, read_footer

            return merge_footers([read_footer(self.root, piece.file, self.how) for piece in pieces], self.how.declared)
        found = Inferred()
        for piece in pieces:
            with open_piece(self.root, self.how, piece) as opened:
                own = self._infer(opened)
                opened.check_unchanged()
            check_names(self.how.observed(own.columns).columns, source_id=piece.file.source_id)
            found = merge_inferred(found, own)
        return self.how.observed(found.columns)

    def _infer(self, opened: OpenFile) -> Inferred:
        match self.how.format:
            case "ndjson":
                from headwater.connectors.files.text import infer_piece

                return infer_piece(opened)
            case "json":
                from headwater.connectors.files.text import infer_whole

                return infer_whole(opened, self.how)
            case "csv":
                from headwater.connectors.files.csv import infer_rows

                return infer_rows(opened.read, self.how, source_id=opened.source_id)
            case format_:
                raise AssertionError(format_)


def open_piece(root: Path, how: FileFormat, piece: Piece) -> OpenFile:
    return OpenFile(root, piece, compression=how.compression_of(piece.file.source_id), encoding=how.encoding)

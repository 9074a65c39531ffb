"""Reads a slice of files in executors: plain functions over partitions; each file is proven unchanged.

A partition is `{"pieces": [...]}`: parts of files, or whole files. The partition with the first part of a file yields
the file's exact version, with the hash of all of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base.table_schema import TableSchema
from headwater.coerce.infer import Inferred, merge_inferred
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.bad_rows import BadRowList, UnknownKeys
from headwater.connectors.files.changes import gone_version
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.json_lines import infer_piece, infer_whole, read_document, read_lines
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile, whole_file
from headwater.connectors.protocol import BadItem, ItemRead, Json, Observed, UnknownColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.connectors.files.hints import Texts
    from headwater.connectors.files.parquet import Footer


@dataclass(frozen=True)
class ReadFiles:
    """`ArrowRead.read` of files. Yields the bad rows at the end; once there are more than `max_bad_rows` it yields
    nothing more, but reads on to count all of them. If files of a partition cannot be read, it yields them at the end,
    and nothing else of the partition counts."""

    root: Path
    how: FileFormat
    max_bad_rows: int = 0

    def __call__(self, partition: Json, schema: TableSchema) -> Iterator[pa.RecordBatch | ItemRead | BadRow | BadItem]:
        bad = BadRowList(room=self.max_bad_rows)
        bad_files: list[BadItem] = []
        schema = self.how.coerced(schema)
        try:
            for value in partition["pieces"]:
                piece = Piece.from_json(value)
                try:
                    for found in self._piece(piece, schema, bad):
                        if not bad.is_over and not bad_files:
                            yield found
                except UnreadableFile as error:
                    bad_files.append(bad_file(self.root, piece.file, error))
        except UnknownKeys:
            raise UnknownColumns(self._unknown(partition, schema)) from None
        if bad_files:
            yield from bad_files
            return
        bad.raise_if_over()
        yield from bad.rows
        for source_id in partition.get("gone", ()):
            yield ItemRead(source_id, gone_version())

    def _piece(self, piece: Piece, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch | ItemRead]:
        import pyarrow as pa

        with open_piece(self.root, self.how, piece) as opened:
            for batch in self.batches(opened, schema, bad):
                kept = batch.select([name for name in batch.schema.names if name not in self.how.exclude])
                source_ids = pa.repeat(pa.scalar(opened.source_id, pa.string()), batch.num_rows)
                yield kept.append_column("_source_id", source_ids)
            if piece.start == 0:
                yield opened.finish()
            else:
                opened.check_unchanged()

    def batches(self, opened: OpenFile, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch]:
        """The good rows of a piece of a file; its bad rows go to `bad`."""
        match self.how.format:
            case "ndjson":
                return read_lines(opened, schema, bad)
            case "json":
                return read_document(opened, self.how, schema, bad)
            case "csv":
                from headwater.connectors.files.csv import read_piece as read_csv

                again = open_piece(self.root, self.how, opened.piece)
                return read_csv(opened, self.how, schema, bad, again=again)
            case "parquet":
                from headwater.connectors.files.parquet import read_piece as read_parquet

                return read_parquet(opened, self.how, schema, bad)
            case format_:
                raise AssertionError(format_)

    def _unknown(self, partition: Json, schema: TableSchema) -> Observed:
        """The columns that the schema lacks, all of them at once, from the whole partition."""
        observed = ObserveFiles(self.root, self.how)(partition)
        columns = {name: type_ for name, type_ in observed.columns.items() if schema.column(name) is None}
        return Observed(columns, bad_items=observed.bad_items)


@dataclass(frozen=True)
class ObserveFiles:
    """`ArrowRead.observe` of files: the columns of a partition, from every row of it."""

    root: Path
    how: FileFormat

    def __call__(self, partition: Json) -> Observed:
        pieces = [Piece.from_json(value) for value in partition["pieces"]]
        if self.how.format == "parquet":
            from headwater.connectors.files.parquet import merge_footers

            footers, bad_files = read_footers(self.root, [piece.file for piece in pieces], self.how)
            return merge_footers(list(footers.values()), self.how.declared, bad_files=bad_files)
        found = Inferred()
        bad: list[BadItem] = []
        for piece in pieces:
            try:
                with open_piece(self.root, self.how, piece) as opened:
                    own = infer_columns(opened, self.how)
                    opened.check_unchanged()
            except UnreadableFile as error:
                bad.append(bad_file(self.root, piece.file, error))
                continue
            found = merge_inferred(found, own)
        return replace(self.how.observed(found), bad_items=tuple(bad))


def infer_columns(opened: OpenFile, how: FileFormat, texts: Texts | None = None) -> Inferred:
    """The columns of a piece of a text file; columns of CSV are added to `texts`."""
    match how.format:
        case "ndjson":
            return infer_piece(opened)
        case "json":
            return infer_whole(opened, how)
        case "csv":
            from headwater.connectors.files.csv import infer_rows

            return infer_rows(opened, how, texts)
        case format_:
            raise AssertionError(format_)


def open_piece(root: Path, how: FileFormat, piece: Piece) -> OpenFile:
    compression = how.compression_of(piece.file.source_id)
    return OpenFile(root, piece, compression=compression, encoding=how.encoding, below=how.below)


def read_footers(
    root: Path, files: Sequence[FoundFile], how: FileFormat, *, is_sample: bool = False
) -> tuple[dict[str, Footer], tuple[BadItem, ...]]:
    """The footers of Parquet files, and the files whose footers cannot be read."""
    from headwater.connectors.files.parquet import read_footer

    footers: dict[str, Footer] = {}
    bad: list[BadItem] = []
    for file in files:
        try:
            footers[file.source_id] = read_footer(root, file, how)
        except UnreadableFile as error:
            bad.append(error.as_bad_item(file.source_id) if is_sample else bad_file(root, file, error))
    return footers, tuple(bad)


def bad_file(root: Path, file: FoundFile, error: UnreadableFile) -> BadItem:
    """A file that cannot be read, with its exact version. Raises SliceGone if it is no longer as planned."""
    with OpenFile(root, whole_file(file)) as opened:
        return error.as_bad_item(file.source_id, opened.finish().version)

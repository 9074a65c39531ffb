"""Parquet files: columns by name from the footers, rows by row group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.schema import TableSchema
from headwater.base.types import Type, widens
from headwater.coerce.errors import BadRow, RowError
from headwater.connectors.files.columns import (
    BadRowList,
    check_names,
    convert_batch,
    convert_typed,
    first_cells,
    source_type,
)
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import Cut, byte_cuts
from headwater.connectors.files.streams import OpenFile, Piece, not_what_it_says, reading
from headwater.connectors.protocol import Observed, UnknownColumns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


_AS_IT_IS = FileFormat("parquet")


@dataclass(frozen=True)
class Footer:
    """What a file says of itself. A column that holds nothing but nulls by its type has the type None."""

    source_id: str
    columns: Mapping[str, Type | None]
    row_groups: int
    rows: int


def read_footer(root: Path, file: FoundFile, how: FileFormat = _AS_IT_IS) -> Footer:
    """The footer of one file, of which nothing else is read. An empty file has no columns and no rows."""
    if file.size == 0:
        return Footer(file.source_id, {}, 0, 0)
    with OpenFile(root, Piece(file, 0, 0, whole=True)) as opened, _parquet(opened) as parquet:
        columns = _columns(parquet.schema_arrow, file.source_id, how.declared, how.exclude)
        return Footer(file.source_id, columns, parquet.num_row_groups, parquet.metadata.num_rows)


def merge_footers(footers: Sequence[Footer], declared: Mapping[str, Type]) -> Observed:
    """The columns of several files together. Declared types decide; else one type must hold the values of all
    files by itself (HW-S01 otherwise). A column of nulls tells nothing, and then the answer is not complete."""
    found: dict[str, tuple[Type, str]] = {}
    silent: set[str] = set()
    for footer in footers:
        for name, type_ in footer.columns.items():
            if type_ is None:
                silent.add(name)
                continue
            type_ = declared.get(name, type_)
            known, first = found.get(name, (type_, footer.source_id))
            if known == type_ or widens(type_, known):
                found[name] = known, first
            elif widens(known, type_):
                found[name] = type_, footer.source_id
            else:
                raise HeadwaterError(
                    "HW-S01",
                    f"column `{name}` is {known} in `{first}` and {type_} in `{footer.source_id}`",
                    hint=f"declare its type: columns = {{ {name} = ... }}, or make the files agree",
                )
    columns = {name: type_ for name, (type_, _) in found.items()}
    return Observed(columns, complete=not silent - columns.keys())


def cuts_of(footer: Footer, size: int) -> list[Cut]:
    """A file's row groups in about as many parts as its bytes make tasks."""
    count = max(1, min(len(byte_cuts(size)), footer.row_groups))
    edges = [footer.row_groups * place // count for place in range(count + 1)]
    return list(pairwise(edges))


def read_piece(
    opened: OpenFile, schema: TableSchema, bad: BadRowList, *, exclude: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, in the columns of `schema`. A bad row's line is its number in the file; there is no
    text of it that could be read again, so one is too many."""
    bad.room = 0
    piece = opened.piece
    if piece.file.size == 0:
        return
    with _parquet(opened) as parquet:
        types = {column.name: column.type for column in schema.columns}
        columns = _columns(parquet.schema_arrow, opened.source_id, types, exclude)
        unknown = {name: type_ for name, type_ in columns.items() if type_ and schema.column(name) is None}
        if unknown:
            raise UnknownColumns(Observed(unknown))
        wanted = [name for name in columns if schema.column(name) is not None]
        line = 1 + sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
        groups = list(range(piece.start, piece.end))
        for batch in _batches(parquet, groups, wanted, opened.source_id):
            converted, cells = convert_batch(batch, schema, convert_typed)
            wrong = first_cells(cells)
            bad.total += len(wrong)
            for row, cell in wrong.items():
                error = RowError(line + row, cell.column, cell.reason, cell.value_type, place=opened.source_id)
                bad.add(BadRow(error, b""))
            line += batch.num_rows
            yield converted


def _batches(parquet: pq.ParquetFile, groups: list[int], names: list[str], source_id: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    batches = parquet.iter_batches(limits.ARROW_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False)
    while True:
        try:
            with reading(source_id):
                batch = next(batches, None)
        except (pa.ArrowInvalid, HeadwaterError) as error:
            raise not_what_it_says(source_id, "readable Parquet", "its data pages are damaged") from error
        if batch is None:
            return
        yield batch


def _parquet(opened: OpenFile) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with reading(opened.source_id):
            # INT96 holds times that nanoseconds cannot; Spark, which still writes it, fills it with microseconds.
            return pq.ParquetFile(opened.raw, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise not_what_it_says(opened.source_id, "Parquet", "its footer cannot be read") from error


def _columns(
    schema: pa.Schema, source_id: str, declared: Mapping[str, Type], exclude: Collection[str]
) -> dict[str, Type | None]:
    import pyarrow as pa

    fields = [field for field in schema if field.name not in exclude]
    check_names([field.name for field in fields], source_id=source_id)
    columns: dict[str, Type | None] = {}
    for field in fields:
        try:
            known = declared.get(field.name)
            columns[field.name] = None if pa.types.is_null(field.type) else source_type(field.type, known)
        except HeadwaterError as error:
            raise HeadwaterError(
                error.code, f"column `{field.name}` of `{source_id}`: {error.message}", hint=error.hint
            ) from error
    return columns

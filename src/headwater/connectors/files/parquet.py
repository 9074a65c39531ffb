"""Parquet files: columns by name from the footers, rows by row group."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED, is_column_name
from headwater.base.printable import quoted
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, Type, widens
from headwater.coerce.rescued import nameless, without_rescued
from headwater.coerce.row_errors import BadRow, RowError, first_of_each_row
from headwater.connectors.files.bad_rows import BadRowList
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.convert_columns import (
    check_names,
    convert_any,
    convert_batch,
    convert_typed,
    json_texts,
    source_type,
    with_unknown,
    without_rows,
)
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import Cut, byte_cuts, even_cuts
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile, not_what_it_says, reading, unreadable
from headwater.connectors.files.time_range import wrapped_rows
from headwater.connectors.protocol import BadItem, Observed, UnknownColumns

_MAGIC = (b"PAR1", b"PARE")
_NO_TEXT = '"\\ud800 no text"'
"""Replaces a value that JSON cannot hold: a lone surrogate, which no column takes."""


@dataclass(frozen=True)
class Footer:
    """What a file says of itself. A column of Arrow's null type has the type None. `names` are all of its columns, also
    excluded ones."""

    source_id: str
    columns: Mapping[str, Type | None]
    row_groups: int
    names: tuple[str, ...] = ()


def read_footer(root: Path, file: FoundFile, how: FileFormat) -> Footer:
    """The footer of one file; nothing else is read."""
    with OpenFile(root, Piece(file, 0, 0, whole=True), below=how.below) as opened, _parquet(opened) as parquet:
        columns = _columns(parquet.schema_arrow, file.source_id, how.declared, how.exclude)
        names = tuple(parquet.schema_arrow.names)
        return Footer(file.source_id, columns, parquet.num_row_groups, names)


def merge_footers(
    footers: Sequence[Footer], declared: Mapping[str, Type], *, bad_files: tuple[BadItem, ...] = ()
) -> Observed:
    """The columns of several files together. Declared types decide; else one file's type must hold the values of all
    files (HW-S01 otherwise). A column of nulls has no type. A file without columns, or one that cannot be read, makes
    the answer incomplete. What cannot be the name of a column is rescued."""
    found: dict[str, tuple[Type, str]] = {}
    silent: set[str] = set()
    for footer in footers:
        for name, type_ in footer.columns.items():
            if type_ is None:
                silent.add(name)
                continue
            if not is_column_name(name):
                name, type_ = RESCUED, DYNAMIC
            type_ = declared.get(name, type_)
            known, first = found.get(name, (type_, footer.source_id))
            if known == type_ or widens(type_, known):
                found[name] = known, first
            elif widens(known, type_):
                found[name] = type_, footer.source_id
            else:
                raise HeadwaterError(
                    "HW-S01",
                    f"column `{name}` is {known} in {quoted(first)} and {type_} in {quoted(footer.source_id)}",
                    hint=f"declare its type: columns = {{ {name} = ... }}, or make the files agree",
                )
    columns = {name: type_ for name, (type_, _) in found.items()}
    nulls = frozenset(silent - columns.keys())
    complete = bool(columns) and not nulls and not bad_files
    return Observed(columns, complete=complete, nulls=nulls, bad_items=bad_files)


def cuts_of(footer: Footer, size: int) -> list[Cut]:
    """A file's row groups in about as many parts as its bytes make tasks."""
    return even_cuts(footer.row_groups, max(1, min(len(byte_cuts(size)), footer.row_groups)))


def read_piece(opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups (those that exist), in the columns of `schema`. A bad row's line is its number in the
    file; it is kept as a JSON object."""
    piece = opened.piece
    convert = convert_any if how.takes_all else convert_typed
    with _parquet(opened) as parquet:
        types = {column.name: column.type for column in schema.columns}
        columns = _columns(parquet.schema_arrow, opened.source_id, types, how.exclude)
        if how.takes_all:
            schema = with_unknown(schema, columns)
        known = without_rescued(schema)
        unknown = {name: type_ for name, type_ in columns.items() if type_ and known.column(name) is None}
        odd = nameless(unknown)
        if odd < unknown.keys() or (odd and schema.column(RESCUED) is None):
            raise UnknownColumns(merge_footers([Footer(opened.source_id, unknown, 0)], {}))
        wanted = [name for name in columns if known.column(name) is not None or name in odd]
        line = 1 + sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
        groups = list(range(piece.start, min(piece.end, parquet.num_row_groups)))
        for batch, wrapped, source_of in _exact_batches(opened, parquet, groups, wanted, schema):
            converted, errors = convert_batch(batch, schema, convert, odd)
            wrong = first_of_each_row(sorted([*wrapped, *errors], key=lambda error: error.line))
            bad.total += len(wrong)
            for error in wrong:
                source = b"" if bad.is_over else bad.kept(source_of(error.line))
                bad.add(BadRow(replace(error, line=line + error.line, place=opened.source_id), source))
            line += batch.num_rows
            if not bad.is_over:
                yield without_rows(converted, wrong)


def _exact_batches(
    opened: OpenFile, parquet: pq.ParquetFile, groups: list[int], names: list[str], schema: TableSchema
) -> Iterator[tuple[pa.RecordBatch, list[RowError], Callable[[int], bytes]]]:
    """The batches, the times in them that have wrapped around, and what is kept of their rows if they are bad. INT96
    holds more than any unit of Arrow: such a column is read once more in seconds, which always fit, and in nanoseconds
    where the table keeps those."""
    batches = _batches(parquet, groups, names, opened.source_id)
    wide = [name for name in _int96_columns(parquet) if name in names]
    if not wide:
        yield from ((batch, [], partial(_source, batch, frozenset())) for batch in batches)
        return
    exact = [name for name in wide if (column := schema.column(name)) is not None and column.type.kind == "timestamp"]
    with _parquet(opened, int96="s") as coarse, _parquet(opened, int96="ns") as fine:
        seconds = _batches(coarse, groups, wide, opened.source_id)
        nanoseconds = _batches(fine, groups, exact, opened.source_id) if exact else iter(())
        for batch, whole in zip(batches, seconds, strict=True):
            no_text = {(row, name) for name in wide for row in wrapped_rows(batch.column(name), whole.column(name))}
            source_of, precise = partial(_source, batch, frozenset(no_text)), next(nanoseconds, batch)
            wrapped = set(no_text)
            for name in exact:
                batch = batch.set_column(batch.schema.get_field_index(name), name, precise.column(name))
                wrapped |= {(row, name) for row in wrapped_rows(batch.column(name), whole.column(name))}
            bad = [RowError(row, name, "timestamp_out_of_range", "timestamp") for row, name in sorted(wrapped)]
            yield batch, bad, source_of


def _int96_columns(parquet: pq.ParquetFile) -> list[str]:
    """The columns that hold INT96, at any depth."""
    found: list[str] = []
    place = 0
    for field in parquet.schema_arrow:
        leaves = range(place, place + _leaves(field.type))
        if any(parquet.schema.column(leaf).physical_type == "INT96" for leaf in leaves):
            found.append(field.name)
        place = leaves.stop
    return found


def _leaves(type_: pa.DataType) -> int:
    """The number of Parquet columns that store a column of Arrow."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if not pa.types.is_nested(type_):
        return 1
    return sum(_leaves(type_.field(part).type) for part in range(type_.num_fields))


def _source(batch: pa.RecordBatch, no_text: frozenset[tuple[int, str]], row: int) -> bytes:
    """A row as a JSON object. A value that has no text, or that was not read (`no_text`, by row and column), is a text
    that no column takes."""
    members: list[str] = []
    for name, column in zip(batch.schema.names, batch.columns):
        try:
            (text,) = [_NO_TEXT] if (row, name) in no_text else json_texts(column.slice(row, 1))
        except pa.ArrowInvalid:
            text = _NO_TEXT
        members.append(f"{json.dumps(name)}:{text}")
    return f"{{{','.join(members)}}}".encode()


def _batches(parquet: pq.ParquetFile, groups: list[int], names: list[str], source_id: str) -> Iterator[pa.RecordBatch]:
    batches = parquet.iter_batches(limits.ARROW_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False)
    while True:
        try:
            with reading(source_id):
                batch = next(batches, None)
        except (pa.ArrowException, HeadwaterError) as error:
            raise _unreadable_parquet(source_id, "has data pages that cannot be read", error) from error
        if batch is None:
            return
        yield batch


def _parquet(opened: OpenFile, *, int96: str = "us") -> pq.ParquetFile:
    """`int96` is the unit that INT96 is read in. It holds times that nanoseconds cannot; Spark, which still writes it,
    fills it with microseconds."""
    try:
        return pq.ParquetFile(opened.raw, coerce_int96_timestamp_unit=int96, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            with reading(opened.source_id):
                raise
        raise _no_footer(opened, error) from error


def _no_footer(opened: OpenFile, error: Exception) -> UnreadableFile:
    """Why a file is not Parquet; if it has the marks of Parquet, with the reader's message."""
    size = opened.piece.file.size
    head, tail = (b"".join(opened.read_range(place, place + 4)) for place in (0, max(size - 4, 0)))
    if not any(magic.startswith(head) for magic in _MAGIC):
        return not_what_it_says(opened.source_id, "Parquet", "it does not begin with the bytes `PAR1`")
    if tail not in _MAGIC:
        what, hint = "is Parquet without its end: a part of the file is missing", "copy the file again"
        return unreadable(opened.source_id, what, reason="truncated_parquet", hint=hint)
    return _unreadable_parquet(opened.source_id, "has a Parquet footer that cannot be read", error)


def _unreadable_parquet(source_id: str, what: str, error: Exception) -> UnreadableFile:
    is_unsupported = isinstance(error, pa.ArrowNotImplementedError)
    cause = error.__cause__ if isinstance(error, HeadwaterError) else error
    return unreadable(
        source_id,
        f"{what}: {' '.join(str(cause).split())[:200]}",
        reason="unsupported_parquet" if is_unsupported else "damaged_parquet",
        hint="write it anew in a simpler form" if is_unsupported else "copy the file again, or write it anew",
    )


def _columns(
    schema: pa.Schema, source_id: str, declared: Mapping[str, Type], exclude: Collection[str]
) -> dict[str, Type | None]:
    fields = [field for field in schema if field.name not in exclude]
    check_names([field.name for field in fields], source_id=source_id)
    columns: dict[str, Type | None] = {}
    for field in fields:
        try:
            known = declared.get(field.name)
            columns[field.name] = None if pa.types.is_null(field.type) else source_type(field.type, known)
        except HeadwaterError as error:
            raise HeadwaterError(
                error.code, f"column `{field.name}` of {quoted(source_id)}: {error.message}", hint=error.hint
            ) from error
    return columns

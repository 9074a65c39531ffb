"""CSV files: cells as texts, cut by Arrow, judged by `coerce`; errors with the line a person finds in an editor.

A file is never cut into parts: only from its beginning can one tell whether a newline stands inside quotes. Blank
lines are skipped. A row of another width than the header's is a bad row.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.schema import TableSchema
from headwater.base.types import Type
from headwater.connectors.files.columns import (
    BadCell,
    BadRowList,
    UnknownKeys,
    check_names,
    convert_batch,
    convert_text,
)
from headwater.connectors.files.config import CsvOptions, FileFormat
from headwater.connectors.files.streams import CHUNK_BYTES, OpenFile, not_what_it_says, refuse_foreign
from headwater.connectors.protocol import RowError

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.coerce.infer import Inferred

BLOCK_BYTES = 2 * CHUNK_BYTES
"""What is parsed at a time, and so the longest row that can be read."""

_END = b"\0" * 8
"""Put on a line of its own behind the text: if it turns up inside a cell, a quote was never closed."""


@dataclass
class CsvRows:
    """One CSV text being read. `names` are its columns; `batches` gives its rows as texts, once. Afterwards the rest
    is known: `ragged` are the records left out because of their width (counted from 1, with the header), `not_text`
    the rows (counted from 0) and columns of cells that are not UTF-8, `rows` the number of rows given."""

    names: list[str]
    reader: pa.csv.CSVStreamingReader | None
    source_id: str
    ragged: list[int] = field(default_factory=list)
    not_text: list[tuple[int, str]] = field(default_factory=list)
    is_unclosed: bool = False
    rows: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows whose cells are counted right, in order. Cells that are not UTF-8 are null here."""
        import pyarrow as pa

        while self.reader is not None:
            try:
                batch = self.reader.read_next_batch()
            except StopIteration:
                return
            except pa.ArrowInvalid as error:
                raise _damaged(self.source_id, error) from error
            batch = self._without_end(self._as_utf8(batch))
            if batch.num_rows:
                yield batch
                self.rows += batch.num_rows

    def _as_utf8(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        try:
            batch.validate(full=True)
            return batch
        except pa.ArrowInvalid:
            pass
        arrays: list[pa.Array] = []
        for name, column in zip(batch.schema.names, batch.columns):
            texts: list[str | None] = []
            for row, value in enumerate(column.cast(pa.binary()).to_pylist()):
                try:
                    texts.append(None if value is None else value.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    self.not_text.append((self.rows + row, name))
            arrays.append(pa.array(texts, pa.string()))
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _without_end(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the end mark where it is a row by itself (of a file with one column), and notice it in a cell."""
        if not batch.num_rows:
            return batch
        last = batch.column(batch.num_columns - 1)[-1].as_py()
        if last is None or _END.decode() not in last:
            return batch
        self.is_unclosed = last.strip("\r\n") != _END.decode() or batch.num_columns > 1
        return batch.slice(0, batch.num_rows - 1)


def open_rows(read: Callable[[int], bytes], options: CsvOptions, names: Sequence[str], *, source_id: str) -> CsvRows:
    """Begin to read a CSV text; `names` are the columns of a file without a header. Raises HW-S03 for a header that
    no table can have, HW-C02 for what is no CSV."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    text = _Text(read)
    refuse_foreign(text.head, source_id=source_id, format_="CSV")
    if not text.head.strip():
        return CsvRows(list(names), None, source_id)
    ragged: list[int] = []

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        if row.number is not None and not text.is_end(row.text):
            ragged.append(row.number)
        return "skip"

    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(text, "r"),
            # One thread: only then are rows numbered.
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=None if options.header else list(names)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                newlines_in_values=True,
                invalid_row_handler=leave_out,
            ),
            convert_options=arrow_csv.ConvertOptions(
                default_column_type=pa.string(),
                check_utf8=False,
                null_values=list(options.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        found = list(reader.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _damaged(source_id, error) from error
    check_names(found, source_id=source_id)
    return CsvRows(found, reader, source_id, ragged)


def read_piece(
    opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList, *, again: OpenFile
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the columns of `schema`. `again` is the same file, opened for the lines of bad rows.
    Raises UnknownKeys."""
    from headwater.coerce.text import infer_csv_strings

    rows = open_rows(opened.read, how.csv, tuple(how.declared), source_id=opened.source_id)
    unknown = [name for name in rows.names if schema.column(name) is None]
    cells: list[tuple[int, BadCell]] = []
    total = 0
    for batch in rows.batches():
        if any(infer_csv_strings(batch.column(name)) for name in unknown):
            raise UnknownKeys
        converted, found = convert_batch(batch, schema, convert_text)
        not_text = set(rows.not_text)
        found = [cell for cell in found if (rows.rows + cell.row, cell.column) not in not_text]
        total += len(found)
        cells += [(rows.rows + cell.row, cell) for cell in found[: limits.ERRORS_SHOWN - len(cells)]]
        if not found and not not_text:
            yield converted
    total += len(rows.not_text) + len(rows.ragged) + rows.is_unclosed
    if total:
        bad.add_counted(_row_errors(rows, cells, how.csv, again), total)


def infer_rows(read: Callable[[int], bytes], how: FileFormat, *, source_id: str) -> Inferred:
    """The columns of a CSV text, from every row."""
    from headwater.coerce.infer import Inferred, join_types
    from headwater.coerce.text import infer_csv_strings

    rows = open_rows(read, how.csv, tuple(how.declared), source_id=source_id)
    columns: dict[str, Type | None] = dict.fromkeys(rows.names)
    for batch in rows.batches():
        for name in rows.names:
            columns[name] = join_types(columns[name], infer_csv_strings(batch.column(name)))
    return Inferred(columns, rows.rows)


def _row_errors(
    rows: CsvRows, cells: Sequence[tuple[int, BadCell]], options: CsvOptions, again: OpenFile
) -> Iterator[RowError]:
    """The first bad rows of a file in their order, with the lines on which they begin."""
    records: list[tuple[int, str | None, str, str | None]] = []
    records += [(_record(row, rows.ragged, options), cell.column, cell.reason, cell.value_type) for row, cell in cells]
    records += [(_record(row, rows.ragged, options), name, "invalid_utf8", "string") for row, name in rows.not_text]
    records += [(number, None, "wrong_number_of_cells", None) for number in rows.ragged]
    if rows.is_unclosed:
        records.append((_record(rows.rows, rows.ragged, options), rows.names[-1], "unclosed_quote", "string"))
    records = sorted(records, key=lambda record: record[0])[: limits.ERRORS_SHOWN]
    with again:
        lines = _lines_of({number for number, *_ in records}, again, options)
    for number, column, reason, value_type in records:
        yield RowError(rows.source_id, lines.get(number, 0), column, reason, value_type)


class _Text:
    """A CSV text as the file object that Arrow reads, with the end mark behind it."""

    closed = False

    def __init__(self, read: Callable[[int], bytes]):
        self._read = read
        self.head = read(CHUNK_BYTES)
        self._waiting = self.head
        self._is_ended = False

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes until the end is near: Arrow takes each answer for a block of its own, and wants the
        header and a row in the first one."""
        parts = [self._waiting[:size]]
        self._waiting = self._waiting[size:]
        missing = size - len(parts[0])
        while missing and not self._is_ended:
            data = self._read(missing)
            if not data:
                self._is_ended = True
                mark = b"\n" + _END + b"\n"
                data, self._waiting = mark[:missing], mark[missing:]
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        """The reader's caller closes what it opened."""

    @staticmethod
    def is_end(text: str) -> bool:
        return text.strip("\r\n") == _END.decode()


def _record(row: int, ragged: Sequence[int], options: CsvOptions) -> int:
    """The number of a row among all records of the file, from 1, with the header and those left out."""
    number = row + 1 + options.header
    for left_out in sorted(ragged):
        if left_out > number:
            break
        number += 1
    return number


def _lines_of(records: set[int], opened: OpenFile, options: CsvOptions) -> dict[int, int]:
    """The lines on which records begin. Slow and exact: only for files that have bad rows."""
    lines: dict[int, int] = {}
    before = csv.field_size_limit(sys.maxsize)
    try:
        text = io.TextIOWrapper(io.BufferedReader(_Raw(opened)), encoding="utf-8", errors="replace", newline="")
        if options.quote:
            rows = csv.reader(text, delimiter=options.delimiter, quotechar=options.quote)
        else:
            rows = csv.reader(text, delimiter=options.delimiter, quoting=csv.QUOTE_NONE)
        number, line = 0, 1
        for row in rows:
            if row:
                number += 1
                if number in records:
                    lines[number] = line
            line = rows.line_num + 1
            if len(lines) == len(records):
                break
    finally:
        csv.field_size_limit(before)
    return lines


class _Raw(io.RawIOBase):
    """An `OpenFile`'s content as Python's own kind of stream."""

    def __init__(self, opened: OpenFile):
        self._opened = opened

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._opened.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _damaged(source_id: str, error: Exception) -> Exception:
    if "straddl" in str(error):
        reason = f"a row is longer than {BLOCK_BYTES // 1024 // 1024} MiB, or a quote is never closed"
    elif isinstance(error, UnicodeDecodeError):
        reason = "its header is not UTF-8"
    else:
        reason = "it cannot be cut into rows"
    return not_what_it_says(source_id, "CSV", reason)

"""CSV files: Arrow splits them into cells, `coerce` judges the texts; errors have the line that an editor shows.

A file is never cut into parts: only a read from its beginning shows whether a newline is inside quotes. Blank lines are
skipped. A row of another width than the header's is a bad row.

A bad row is kept as JSON: an object of its cells by column, or the text of a row of another width. Bytes that are not
UTF-8 become lone surrogates in it, which no column takes. A file with a quote that is never closed cannot be read: it
is unknown which rows are inside the quote.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from headwater.base import limits
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING, Type
from headwater.coerce.infer import Inferred, join_types
from headwater.coerce.rescued import nameless, without_rescued
from headwater.coerce.row_errors import BadRow, RowError, first_of_each_row
from headwater.coerce.text_columns import coerce_strings, infer_csv_strings
from headwater.connectors.files.bad_rows import BadRowList, UnknownKeys
from headwater.connectors.files.config import CsvOptions, FileFormat
from headwater.connectors.files.convert_columns import check_names, convert_batch, with_unknown, without_rows
from headwater.connectors.files.hints import Texts
from headwater.connectors.files.streams import OpenFile, not_what_it_says, refuse_foreign, unreadable

BLOCK_BYTES = 2 * limits.FILE_CHUNK_BYTES
"""What is parsed at a time, and so the longest row that can be read."""

_END = b"\0" * 8
"""The end mark, on its own line behind the text: if it is found inside a cell or at the end of a record, a quote was
never closed."""


@dataclass
class CsvRows:
    """One CSV text being read. `names` are its columns; `batches` gives its rows as texts, once. `not_text` are the
    cells of the last batch that are not UTF-8, by row and column. After the last batch, `ragged` holds the records left
    out because of their width (counted from 1, with the header) and what is kept of them, `rows` the number of rows."""

    names: list[str]
    reader: pa.csv.CSVStreamingReader | None
    source_id: str
    ragged: dict[int, bytes] = field(default_factory=dict)
    not_text: dict[tuple[int, str], bytes] = field(default_factory=dict)
    is_unclosed: bool = False
    rows: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows with the right number of cells, in order. Cells that are not UTF-8 are null here."""
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
        self.not_text = {}
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
                    self.not_text[row, name] = value
            arrays.append(pa.array(texts, pa.string()))
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _without_end(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the end mark where it is a row by itself (in a file with one column), and notice it in a cell."""
        if not batch.num_rows:
            return batch
        last = batch.column(batch.num_columns - 1)[-1].as_py()
        if last is None or _END.decode() not in last:
            return batch
        self.is_unclosed = last.strip("\r\n") != _END.decode() or batch.num_columns > 1
        return batch.slice(0, batch.num_rows - 1)


def open_rows(
    read: Callable[[int], bytes],
    options: CsvOptions,
    names: Sequence[str],
    *,
    source_id: str,
    exclude: Collection[str] = (),
    kept: Callable[[bytes], bytes] = lambda _source: b"",
) -> CsvRows:
    """Begin to read a CSV text; `names` are the columns of a file without a header, `exclude` those whose names do not
    matter, and `kept` says what is kept of a record of another width. Raises HW-C02 for a text that is not CSV, or has
    one column twice."""
    text = _Text(read)
    refuse_foreign(text.head, source_id=source_id, format_="CSV")
    rows = CsvRows(list(names), None, source_id)
    if not text.head.strip():
        return rows

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        record = row.text.strip("\r\n")
        if record.endswith("\n" + _END.decode()):
            rows.is_unclosed = True
        elif row.number is not None and record != _END.decode():
            rows.ragged[row.number] = kept(json.dumps(row.text, ensure_ascii=False).encode())
        return "skip"

    try:
        rows.reader = arrow_csv.open_csv(
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
        rows.names = list(rows.reader.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _damaged(source_id, error) from error
    check_names([name for name in rows.names if name not in exclude], source_id=source_id)
    return rows


def read_piece(
    opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList, *, again: OpenFile
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the columns of `schema`. `again` is the same file, opened for the lines of bad rows.
    Raises UnknownKeys."""
    declared = tuple(how.declared)
    rows = open_rows(opened.read, how.csv, declared, source_id=opened.source_id, exclude=how.exclude, kept=bad.kept)
    if how.takes_all:
        schema = with_unknown(schema, dict.fromkeys(rows.names, STRING))
    known = without_rescued(schema)
    unknown = [name for name in rows.names if known.column(name) is None and name not in how.exclude]
    odd = nameless(unknown) if schema.column(RESCUED) is not None else frozenset()
    found: list[BadRow] = []
    for batch in rows.batches():
        if any(infer_csv_strings(batch.column(name)) for name in unknown if name not in odd):
            raise UnknownKeys
        converted, errors = convert_batch(batch, schema, coerce_strings, odd)
        wrong = _wrong(rows, errors, how)
        bad.total += len(wrong)
        for error in wrong[: max(bad.room, limits.ERRORS_SHOWN) - len(found)]:
            source = bad.kept(_source(batch, error.line, rows))
            found.append(BadRow(replace(error, line=rows.rows + error.line), source))
        if not bad.is_over:
            yield without_rows(converted, wrong)
    if rows.is_unclosed:
        number = _record(rows.rows, rows.ragged, how.csv)
        line = _lines_of({number}, again, how.csv).get(number, 0)
        what = f"has a quote that is never closed, in the row that begins on line {line}"
        raise unreadable(opened.source_id, what, reason="unclosed_quote", hint="close the quote", line=line)
    bad.total += len(rows.ragged)
    if found or rows.ragged:
        for row in _with_lines(rows, found, how.csv, again):
            bad.add(row)


def _wrong(rows: CsvRows, errors: Sequence[RowError], how: FileFormat) -> tuple[RowError, ...]:
    """The first error of each bad row of a batch. A cell that is not text has no other error."""
    detail = f"not {how.encoding or 'UTF-8'}"
    judged = [error for error in errors if (error.line, error.column) not in rows.not_text]
    not_text = [
        RowError(row, name, "invalid_text", "string", detail) for row, name in rows.not_text if name not in how.exclude
    ]
    return first_of_each_row(sorted((*judged, *not_text), key=lambda error: error.line))


def _source(batch: pa.RecordBatch, row: int, rows: CsvRows) -> bytes:
    """A row's cells as a JSON object."""
    (cells,) = batch.slice(row, 1).to_pylist()
    raw = {name: value.decode(errors="surrogateescape") for (at, name), value in rows.not_text.items() if at == row}
    return json.dumps(cells | raw, ensure_ascii=bool(raw)).encode()


def infer_rows(opened: OpenFile, how: FileFormat, texts: Texts | None = None) -> Inferred:
    """The columns of a CSV text, from every row; `texts` learns of them too."""
    rows = open_rows(opened.read, how.csv, tuple(how.declared), source_id=opened.source_id, exclude=how.exclude)
    columns: dict[str, Type | None] = dict.fromkeys(name for name in rows.names if name not in how.exclude)
    if texts is not None:
        texts.names.update(rows.names)
    for batch in rows.batches():
        for name in columns:
            columns[name] = join_types(columns[name], infer_csv_strings(batch.column(name)))
            if texts is not None:
                texts.see(name, batch.column(name))
    return Inferred(columns, rows.rows)


def _with_lines(rows: CsvRows, found: Sequence[BadRow], options: CsvOptions, again: OpenFile) -> list[BadRow]:
    """The bad rows of a file that are known, in their order, with the lines on which they begin. `found` have the
    numbers of their rows instead."""
    records = [(_record(row.error.line, rows.ragged, options), row.error, row.source) for row in found]
    records += [(number, RowError(0, None, "wrong_number_of_cells"), text) for number, text in rows.ragged.items()]
    lines = _lines_of({number for number, *_ in records}, again, options)
    return [
        BadRow(replace(error, line=lines.get(number, 0), place=rows.source_id), source)
        for number, error, source in sorted(records, key=lambda record: record[0])
    ]


class _Text:
    """A CSV text as the file object that Arrow reads, with the end mark behind it."""

    closed = False

    def __init__(self, read: Callable[[int], bytes]):
        self._read = read
        self.head = read(limits.FILE_CHUNK_BYTES)
        self._waiting = memoryview(self.head)
        self._is_ended = False

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes until the end is near: Arrow takes each answer as one block, and needs the header and a
        row in the first one."""
        parts: list[bytes | memoryview] = [self._waiting[:size]]
        self._waiting = self._waiting[size:]
        missing = size - len(parts[0])
        while missing and not self._is_ended:
            data = self._read(missing)
            if not data:
                self._is_ended = True
                mark = b"\n" + _END + b"\n"
                data, self._waiting = mark[:missing], memoryview(mark)[missing:]
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        """The reader's caller closes what it opened."""


def _record(row: int, ragged: Collection[int], options: CsvOptions) -> int:
    """The number of a row among all records of the file, from 1, with the header and those left out."""
    number = row + 1 + options.header
    for left_out in sorted(ragged):
        if left_out > number:
            break
        number += 1
    return number


def _lines_of(records: set[int], again: OpenFile, options: CsvOptions) -> dict[int, int]:
    """The lines on which records begin. Slow and exact: only for files that have bad rows."""
    lines: dict[int, int] = {}
    quotes: dict[str, Any] = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    before = csv.field_size_limit(sys.maxsize)
    try:
        with again, pa.PythonFile(_Text(again.read), "r") as file:
            text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
            rows = csv.reader(text, delimiter=options.delimiter, **quotes)
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


def _damaged(source_id: str, error: Exception) -> Exception:
    if "straddl" in str(error):
        reason = f"a row is longer than {BLOCK_BYTES // 1024 // 1024} MiB, or a quote is never closed"
    elif isinstance(error, UnicodeDecodeError):
        reason = "its header is not UTF-8"
    else:
        reason = "it cannot be cut into rows"
    return not_what_it_says(source_id, "CSV", reason)

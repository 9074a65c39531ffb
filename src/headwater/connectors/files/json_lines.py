"""NDJSON in chunks of whole lines, JSON as whole documents; `coerce` judges the rows.

(connectors -> coerce is a sideways import; coerce knows nothing of connectors.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.coerce import objects
from headwater.coerce.batches import Coerced, coerce_document, coerce_lines
from headwater.coerce.infer import Inferred, infer_document, infer_lines, merge_inferred
from headwater.coerce.json_records import NO_RECORDS, records_at
from headwater.coerce.malformed import NOT_UTF8, Fault, fault_in
from headwater.coerce.objects import Objects, bad_lines, elements, without_bom
from headwater.coerce.rescued import good_rows, nameless, rescue, with_rescued, without_rescued
from headwater.coerce.row_errors import BadRow, Refused, RowError
from headwater.connectors.files.bad_rows import BadRowList, UnknownKeys
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.streams import OpenFile, not_what_it_says, refuse_foreign, unreadable

if TYPE_CHECKING:
    import pyarrow as pa

LINE_BYTES = limits.MAX_BODY_BYTES
"""The longest line that is read: a text without a newline for longer is not NDJSON."""


def read_lines(opened: OpenFile, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch]:
    """The rows of a piece of NDJSON. Line numbers of bad rows are those of the file, also where the piece begins in its
    middle. Raises UnknownKeys."""
    first_line = 1 if opened.piece.start == 0 else 2
    for chunk in chunks_of_piece(opened):
        coerced = coerce_lines(chunk, without_rescued(schema), first_line=first_line, place=opened.source_id)
        text = without_bom(chunk, first_line=first_line)
        batch = _rescued(coerced, schema, partial(objects.read_lines, text, first_line=first_line, place=""))
        if coerced.bad:
            kept = coerced.bad[: max(bad.room, limits.ERRORS_SHOWN)]
            add_bad_lines(bad, opened, bad_lines(text, kept, first_line=first_line), total=len(coerced.bad))
        first_line += coerced.lines
        if coerced.rows:
            yield batch


def infer_piece(opened: OpenFile) -> Inferred:
    """The columns of a piece of NDJSON; rows that are not objects are ignored."""
    found = Inferred()
    for chunk in chunks_of_piece(opened):
        found = merge_inferred(found, infer_lines(chunk))
    return found


def read_document(opened: OpenFile, how: FileFormat, schema: TableSchema, bad: BadRowList) -> Iterator[pa.RecordBatch]:
    """The rows of a JSON document: an array of objects, or one object, or what the path of `how` leads to. The line of
    a bad row is its number among them. Raises UnknownKeys."""
    data = records_of(_document(opened), how, opened.source_id)
    coerced = coerce_document(data, without_rescued(schema), place=opened.source_id)
    _refuse_no_document(coerced.errors, data, opened.source_id)
    batch = _rescued(coerced, schema, partial(objects.read_document, without_bom(data), place=""))
    bad.total += len(coerced.bad)
    sources = elements(without_bom(data)) if coerced.bad else []
    for error in coerced.bad[: max(bad.room, limits.ERRORS_SHOWN)]:
        bad.add(BadRow(error, bad.kept(sources[error.line - 1])))
    if coerced.rows:
        yield batch


def infer_whole(opened: OpenFile, how: FileFormat) -> Inferred:
    """The columns of a JSON document."""
    data = records_of(_document(opened), how, opened.source_id)
    found = infer_document(data, place=opened.source_id)
    _refuse_no_document(found.errors, data, opened.source_id)
    return found


def records_of(document: bytes, how: FileFormat, source_id: str) -> bytes:
    """The records of a document, as a document; the document itself if `how` has no path. Raises HW-C02 if there is
    nothing at the end of the path."""
    text = without_bom(document)
    if not how.records or not text.strip():
        return document
    try:
        return records_at(text, how.records)
    except Refused as refused:
        if refused.reason != NO_RECORDS:
            return document  # the reader reports what is wrong with it, and where
        hint = "correct `records`, the path from the document `$` to its rows"
        raise unreadable(source_id, f"has no records: {refused.detail}", reason=NO_RECORDS, hint=hint) from refused


def line_chunks(parts: Iterable[bytes], *, source_id: str) -> Iterator[bytes]:
    """The same bytes in pieces that end with a newline, except perhaps the last. Raises HW-C02 for a line that is too
    long."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        cut = part.rfind(b"\n") + 1
        if cut:
            held.append(part[:cut])
            yield b"".join(held)
            held, size = [], 0
        held.append(part[cut:])
        size += len(part) - cut
        if size > LINE_BYTES:
            raise not_what_it_says(source_id, "NDJSON", f"a line is longer than {LINE_BYTES // 1024 // 1024} MiB")
    if size:
        yield b"".join(held)


def chunks_of_piece(opened: OpenFile) -> Iterator[bytes]:
    """The lines that begin in a piece, in chunks of whole lines. Raises HW-C02 for bytes that are not text."""
    piece = opened.piece
    if piece.whole:
        parts: Iterator[bytes] = iter(opened.read, b"")
    else:
        parts = opened.read_text_range(opened.line_start(piece.start), opened.line_start(piece.end))
    if piece.start == 0:
        head = next(parts, b"")
        refuse_foreign(head, source_id=opened.source_id, format_="NDJSON")
        parts = chain((head,), parts)
    return line_chunks(parts, source_id=opened.source_id)


def add_bad_lines(bad: BadRowList, opened: OpenFile, rows: Iterable[BadRow], *, total: int) -> None:
    """Adds the first of `total` bad rows of a piece, with their lines in the file."""
    bad.total += total
    for row in rows:
        # In mid-file, the reader's line numbers begin at 2, so that no line counts as the first.
        line = row.error.line + (opened.lines_skipped - 1 if opened.piece.start else 0)
        error = replace(row.error, line=line, place=opened.source_id, fault=_fault(row.error.fault, opened))
        bad.add(BadRow(error, bad.kept(row.source)))


def _fault(fault: Fault | None, opened: OpenFile) -> Fault | None:
    """Names the file's own encoding in a fault about bytes that are not text."""
    if fault is None or opened.encoding is None or fault.reason != NOT_UTF8:
        return fault
    return replace(fault, reason=f"not {opened.encoding}")


def _document(opened: OpenFile) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in iter(opened.read, b""):
        if not parts:
            refuse_foreign(part, source_id=opened.source_id, format_="JSON")
        parts.append(part)
        size += len(part)
        if size > limits.JSON_DOCUMENT_BYTES:
            raise unreadable(
                opened.source_id,
                f"is a JSON document of more than {limits.JSON_DOCUMENT_BYTES // 1024 // 1024} MiB",
                reason="too_large",
                hint="write one object per line (NDJSON): that is read in pieces",
            )
    return b"".join(parts)


def _refuse_no_document(errors: Iterable[RowError], document: bytes, source_id: str) -> None:
    """Raises HW-C02 for a text that is not a document; a document with bad elements passes."""
    for error in errors:
        if error.line == 0 or (error.column is None and error.reason == "invalid_json"):
            what, line, fault = "is no array of objects and no object", 0, error.fault
            if error.reason == "invalid_json":
                what = "is not JSON"
                if error.line != 0:  # a position within one element
                    fault = fault_in(without_bom(document))
            if fault is not None:
                line = fault.line
                what = f"is not JSON: line {line}, column {fault.column}: {fault.reason}"
            hint = 'if it has one object per line, set format = "ndjson"'
            raise unreadable(source_id, what, reason=error.reason, hint=hint, line=line)


def _rescued(coerced: Coerced, schema: TableSchema, read: Callable[[], Objects]) -> pa.RecordBatch:
    """The good rows, with what must be rescued of them. Raises UnknownKeys for keys that need a column. A key that is
    always null has no type: its column comes with its first value."""
    names = nameless(coerced.unknown_seen)
    needs_column = any(type_ is not None and name not in names for name, type_ in coerced.unknown_seen.items())
    if needs_column or (names and schema.column(RESCUED) is None):
        raise UnknownKeys
    texts = [rescue(row, names) for row in good_rows(read(), coerced.bad).rows] if names else None
    return with_rescued(coerced.batch, schema, texts)

"""Pieces of NDJSON, and JSON documents, into record batches of a table's schema.

There are three ways, each used only where the one before it does not fit. All give the same result for every row:
1. all rows at once, decoded by the schema's types and built column by column (the happy path);
2. rows as keys with source text, then each column at once;
3. in a column in which something does not fit, each value by the exact rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.base.limits import MAX_BAD_ROWS
from headwater.base.table_schema import Column, TableSchema
from headwater.base.types import STRING, Type
from headwater.coerce.infer import infer_members
from headwater.coerce.objects import Objects, read_document, read_lines, typed_document, typed_lines, without_bom
from headwater.coerce.row_errors import Refused, RowError, Unfit, first_of_each_row
from headwater.coerce.row_types import NULL, Decoded, row_decoder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Coerced:
    """What a piece of input became.

    batch         the good rows in their order, with exactly the columns of the schema
    lines         the number of physical lines, blank ones too (of a document: of elements)
    errors        the first `MAX_BAD_ROWS` errors, in order of line and column; `error_total` counts all of them
    bad           the first error of every bad row
    unknown_seen  the top-level keys that the schema does not have, in order of first appearance, with the type of all
                  values in this piece, or None if all were null
    """

    batch: pa.RecordBatch
    rows: int
    lines: int
    unknown_seen: Mapping[str, Type | None]
    errors: tuple[RowError, ...]
    error_total: int
    bad: tuple[RowError, ...]


def coerce_lines(data: bytes | memoryview, schema: TableSchema, *, first_line: int = 1, place: str = "") -> Coerced:
    """Coerce whole lines of NDJSON. `first_line` is the first line's number in its file (a byte order mark is skipped
    at line 1), `place` goes into the errors."""
    text = without_bom(data, first_line=first_line)
    batch = _batch_at_once(typed_lines(text, _decoder(schema)), schema)
    if batch is not None:
        return _all_good(batch)
    return coerce_objects(read_lines(text, first_line=first_line, place=place), schema, place=place)


def coerce_pieces(pieces: Sequence[bytes], schema: TableSchema) -> list[pa.RecordBatch | None]:
    """Several inputs of whole lines, each as for `coerce_lines`. Gives the batch of each input that has only good rows
    and no unknown key, if a quick check can show that, else None. Many small inputs cost little more than one."""
    decoder = _decoder(schema)
    decoded = [typed_lines(without_bom(piece), decoder) for piece in pieces]
    together = _batch_at_once([row for rows in decoded for row in rows or ()], schema)
    found: list[pa.RecordBatch | None] = []
    first = 0
    for rows in decoded:
        found.append(None if rows is None or together is None else together.slice(first, len(rows)))
        first += len(rows or ())
    return found


def coerce_document(data: bytes | memoryview, schema: TableSchema, *, place: str = "") -> Coerced:
    """Coerce a JSON document: an array of objects, or one object. Its lines are the numbers of the elements, from 1;
    an error of the document itself (no valid JSON, say) is at line 0, and then there are no rows."""
    text = without_bom(data)
    batch = _batch_at_once(typed_document(text, _decoder(schema, many=True)), schema)
    if batch is not None:
        return _all_good(batch)
    return coerce_objects(read_document(text, place=place), schema, place=place)


def coerce_objects(objects: Objects, schema: TableSchema, *, place: str = "", exactly: bool = False) -> Coerced:
    """Coerce rows that are already split into keys and values. `exactly` skips the quick way over whole columns; it
    changes no result."""
    import pyarrow as pa

    arrays: list[pa.Array] = []
    errors = list(objects.errors)
    bad: set[int] = set()
    for column in schema.columns:
        array, refusals = _column(objects, column, exactly=exactly)
        arrays.append(array)
        errors += [refused.at(objects.lines[index], column.name, place) for index, refused in refusals.items()]
        bad |= refusals.keys()
    kept = [index for index in range(len(objects.rows)) if index not in bad]
    if bad:
        positions = pa.array(kept, pa.int64())
        arrays = [array.take(positions) for array in arrays]
    batch = record_batch(arrays, schema, rows=len(kept))
    ordered = sorted(errors, key=attrgetter("line"))
    return Coerced(
        batch,
        rows=len(kept),
        lines=objects.seen,
        unknown_seen=infer_members(objects.rows, without=frozenset(schema.names())),
        errors=tuple(ordered[:MAX_BAD_ROWS]),
        error_total=len(ordered),
        bad=first_of_each_row(ordered),
    )


def _decoder(schema: TableSchema, *, many: bool = False) -> msgspec.json.Decoder[Any] | None:
    # Texts are read as their column's form says, once they are texts; all else takes the exact way.
    return row_decoder(tuple((c.name, STRING if c.form else c.type) for c in schema.columns), many=many)


def _batch_at_once(rows: Sequence[msgspec.Struct] | None, schema: TableSchema) -> pa.RecordBatch | None:
    if rows is None:
        return None
    arrays: list[pa.Array] = []
    for index, column in enumerate(schema.columns):
        try:
            array = _quick_column(list(map(attrgetter(f"f{index}"), rows)), column)
        except Unfit:
            return None
        if array.null_count and not column.nullable:
            return None
        arrays.append(array)
    return record_batch(arrays, schema, rows=len(rows))


def _quick_column(values: list[Decoded], column: Column) -> pa.Array:
    import pyarrow as pa

    from headwater.coerce.columns import column_from_decoded
    from headwater.coerce.forms import texts_by_form

    if column.form is None:
        return column_from_decoded(values, column.type)
    array, refused = texts_by_form(pa.array(values, pa.string()), column.type, column.form)
    if refused:
        raise Unfit
    return array


def record_batch(arrays: Sequence[pa.Array], schema: TableSchema, *, rows: int) -> pa.RecordBatch:
    """A batch, also of a schema without columns, where the arrays do not show the number of rows."""
    import pyarrow as pa

    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())


def _all_good(batch: pa.RecordBatch) -> Coerced:
    rows = batch.num_rows
    return Coerced(batch, rows, rows, unknown_seen={}, errors=(), error_total=0, bad=())


def _column(objects: Objects, column: Column, *, exactly: bool) -> tuple[pa.Array, dict[int, Refused]]:
    """One column of the rows, null where a value is refused, and the refusals by row."""
    from headwater.coerce.columns import column_exactly, column_from_sources
    from headwater.coerce.forms import sources_by_form

    sources = [row.get(column.name, NULL) for row in objects.rows]
    refusals: dict[int, Refused] = {}
    try:
        if column.form is not None:
            array, refusals = sources_by_form(sources, column.type, column.form)
        elif exactly:
            raise Unfit
        else:
            array = column_from_sources(sources, column.type)
    except Unfit:
        array, refusals = column_exactly(sources, column.type)
    if not column.nullable and array.null_count > len(refusals):
        for index, is_null in enumerate(array.is_null().to_pylist()):
            if is_null and index not in refusals:
                given = "null" if column.name in objects.rows[index] else "absent"
                refusals[index] = Refused("null_in_non_null", given)
    return array, refusals

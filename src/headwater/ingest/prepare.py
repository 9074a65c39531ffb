"""A pushed batch as columns of its table: coerced, with new columns for unknown keys; the rest is rescued.

Pure: bytes and a schema in, Arrow out. A batch with a bad row is refused whole and changes nothing. If the sender asks
for it, the batch lands without its bad rows; those add no columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NoReturn

from msgspec import Raw

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED, is_reserved_column
from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC, STRING, TIMESTAMP
from headwater.coerce.batches import Coerced, coerce_lines, coerce_objects, coerce_pieces
from headwater.coerce.objects import Objects, bad_lines, line_pieces, read_lines, without_bom
from headwater.coerce.rescued import dynamic_array, good_rows, rescue, rescue_cells, without_rescued
from headwater.coerce.row_errors import BadRow, Refused, RowError
from headwater.coerce.values import coerce_value
from headwater.ingest.decode import TooLarge
from headwater.ingest.first_columns import DEFAULT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

TIME = "ts"
TIME_KEYS = ("at", "timestamp", "_timestamp", "time_unix_nano", "observed_time_unix_nano")
"""The keys that fill an empty `ts` of a table with default columns: the first that holds a time."""

_NEW_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NULL = Raw(b"null")


class TooManyCells(TooLarge):
    """HW-I04 for a batch of many short rows in a wide table."""

    def __init__(self, columns: int):
        what = f"the batch has more than {limits.BATCH_CELLS // columns:,} rows, in a table of {columns:,} columns"
        HeadwaterError.__init__(self, "HW-I04", what, hint="cut it into several batches, each with a key of its own")


@dataclass(frozen=True)
class Prepared:
    """A good batch. `added` are the columns that it needs besides those of its schema, all `string`; `rescues`: it also
    has a column `_rescued`. A column that the batch lacks is null. `bad` are the rows that it leaves out."""

    batch: pa.RecordBatch
    rows: int
    bad: tuple[BadRow, ...] = ()
    added: tuple[str, ...] = ()
    rescues: bool = False
    rows_rescued: int = 0


def prepare(
    body: bytes,
    schema: TableSchema,
    *,
    table: str,
    evolve: bool,
    most_bad: int | None = 0,
    first_line: int = 1,
    added: tuple[str, ...] = (),
) -> Prepared:
    """Raises HW-I02 with the position of every bad row (at most the first hundred) if more than `most_bad` are bad;
    None allows any number. Raises `TooManyCells`. A large batch is coerced piece by piece, because a row takes many
    times its text in memory; the result is the same. With many bad rows a refused batch is not read to its end. Lines
    are counted from `first_line`; line 1 may begin with a byte order mark. `added` are the columns that earlier parts
    of the same file brought."""
    known = without_rescued(schema)
    parts: list[Prepared] = []
    bad: list[BadRow] = []
    errors: list[RowError] = []
    total = bad_rows = end = 0
    line = first_line
    for piece in line_pieces(body, limits.PUSH_SMALL_BYTES):
        found = coerce_lines(piece, wider(known, added), first_line=line)
        text = without_bom(piece, first_line=line)
        total, bad_rows = total + found.error_total, bad_rows + len(found.bad)
        errors += found.errors[: limits.MAX_BAD_ROWS - len(errors)]
        end += len(piece)
        if most_bad is None or bad_rows <= most_bad:
            bad += bad_lines(text, found.bad, first_line=line) if found.bad else ()
            parts.append(_evolved(text, found, known, added, evolve=evolve, first_line=line))
            added = parts[-1].added
            columns = len(known.columns) + len(added)
            if sum(part.rows for part in parts) * columns > limits.BATCH_CELLS:
                raise TooManyCells(columns)
        elif total >= limits.MAX_BAD_ROWS:
            break
        line += found.lines
    if most_bad is not None and bad_rows > most_bad:
        refuse_rows(errors, total, table, at_least=end < len(body))
    return replace(joined(parts), bad=tuple(bad))


def _evolved(
    text: bytes, found: Coerced, known: TableSchema, added: tuple[str, ...], *, evolve: bool, first_line: int
) -> Prepared:
    """The good rows of a piece, with columns for its unknown keys; `added` are the columns that earlier pieces
    brought."""
    if not found.unknown_seen and not _lacks_times(found.batch, wider(known, added)):
        return Prepared(found.batch, found.rows, added=added)
    objects = read_lines(text, first_line=first_line, place="")
    if found.bad:
        objects = good_rows(objects, found.bad)
    if has_default_times(known):
        objects.rows[:] = [_with_time(row, known) for row in objects.rows]
    added, rescued = _sort_out(objects, known, added, evolve=evolve)
    coerced = coerce_objects(objects, wider(known, added))
    assert not coerced.bad  # a text column takes every value of a good row, and times were checked
    texts = [rescue(row, rescued) for row in objects.rows] if rescued else []
    batch = coerced.batch.append_column(RESCUED, dynamic_array(texts)) if rescued else coerced.batch
    count = sum(text is not None for text in texts)
    return Prepared(batch, coerced.rows, added=added, rescues=bool(rescued), rows_rescued=count)


def prepare_cells(rows: pa.RecordBatch, schema: TableSchema, *, added: Sequence[str] | None = None) -> Prepared:
    """Good rows of a CSV or Parquet file, in columns of the schema and of the file, as rows of the table. A column of
    the file becomes a text column, with or without values, if it may be added or if it is among the columns `added`
    for the file; otherwise it is rescued."""
    from headwater.connectors.files.convert_columns import convert_any, json_texts

    known = without_rescued(schema)
    batch = rows.select(list(known.names()))
    others = {name: rows.column(name) for name in rows.schema.names if known.column(name) is None}
    if has_default_times(known):
        batch, others = _with_times(batch, others)
    if added is None:
        added = [name for name in others if may_be_added(name)][: columns_left(known)]
    added = [name for name in others if name in added]
    for name in added:
        batch = batch.append_column(name, convert_any(others[name], STRING)[0])
    rescued = {name: json_texts(column) for name, column in others.items() if name not in added}
    texts = rescue_cells(rescued) if rescued else []
    count = sum(text is not None for text in texts)
    if count:
        batch = batch.append_column(RESCUED, dynamic_array(texts))
    return Prepared(batch, rows.num_rows, added=tuple(added), rescues=count > 0, rows_rescued=count)


def _with_times(batch: pa.RecordBatch, others: Mapping[str, pa.Array]) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """Fills an empty `ts` from the first column that holds a time. For a column that the table lacks, the values that
    were used are removed; a column that is used up is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.connectors.files.convert_columns import convert_typed

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


def joined(parts: Sequence[Prepared]) -> Prepared:
    """The parts of a batch in one; a column that a part lacks is null there. Bad rows are left out."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Prepared(pa.RecordBatch.from_pylist([]), 0)
    tables = [pa.Table.from_batches([part.batch]) for part in parts]
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()
    return Prepared(
        whole[0] if whole else parts[-1].batch,
        sum(part.rows for part in parts),
        added=tuple(dict.fromkeys(name for part in parts for name in part.added)),
        rescues=any(part.rescues for part in parts),
        rows_rescued=sum(part.rows_rescued for part in parts),
    )


def wider(schema: TableSchema, names: Iterable[str], *, rescues: bool = False) -> TableSchema:
    """The schema with text columns for the names that it lacks, and with `_rescued` if rows need it."""
    for name in names:
        if schema.column(name) is None:
            schema = schema.added(name, STRING)
    return schema.added(RESCUED, DYNAMIC) if rescues and schema.column(RESCUED) is None else schema


def prepare_together(bodies: Sequence[bytes], schema: TableSchema) -> list[Prepared | None]:
    """What `prepare` makes of each batch that is good and brings no new keys, as most do; None for those that must be
    prepared one by one."""
    known = without_rescued(schema)
    ends = accumulate(len(body) for body in bodies)
    groups = groupby(zip(ends, bodies), key=lambda pair: pair[0] // (4 * limits.PUSH_SMALL_BYTES))
    # The rows of one group are held in memory at once.
    batches = [batch for _, group in groups for batch in coerce_pieces([body for _, body in group], known)]
    return [
        None if batch is None or _lacks_times(batch, known) else Prepared(batch, batch.num_rows) for batch in batches
    ]


def may_be_added(name: str) -> bool:
    """Whether an unknown key may become a column without a declaration."""
    return (
        _NEW_NAME.fullmatch(name) is not None
        and len(name) <= limits.NAME_BYTES
        and not is_reserved_column(name)
        and name not in DEFAULT_COLUMNS
    )


def columns_left(schema: TableSchema) -> int:
    """How many columns a batch may add to a table."""
    return limits.NEW_COLUMNS_PER_BATCH if len(schema.columns) < limits.TABLE_COLUMNS else 0


def refuse_rows(errors: Sequence[RowError], total: int, table: str, *, at_least: bool = False) -> NoReturn:
    """Raises HW-I02 for a batch with `total` bad rows (`at_least` that many), of which the first `errors` are given."""
    first, shown = errors[0], errors[: limits.ERRORS_SHOWN]
    column = f", column `{first.column}`" if first.column else ""
    more = f", and {'at least ' if at_least else ''}{total - 1} more" if total > 1 else ""
    raise HeadwaterError(
        "HW-I02",
        f"`{table}` took nothing of the batch: line {first.line}{column}: {first.text}{more}",
        hint="fix the rows and send the batch again; nothing was written",
        detail={"table": table, "total": total, "rows": [error.as_json() for error in shown]},
    )


def has_default_times(schema: TableSchema) -> bool:
    """Whether the table was made without declared columns."""
    made = tuple((column.id, column.name, column.type) for column in schema.columns[: len(DEFAULT_COLUMNS)])
    return made == tuple((id_, name, type_) for id_, (name, type_) in enumerate(DEFAULT_COLUMNS.items(), 1))


def _lacks_times(batch: pa.RecordBatch, schema: TableSchema) -> bool:
    """True if `ts` can be filled although no key is unknown: a key that holds the time may be a column already."""
    return (
        has_default_times(schema)
        and any(schema.column(key) is not None for key in TIME_KEYS)
        and batch.column(TIME).null_count > 0
    )


def _with_time(row: dict[str, Raw], schema: TableSchema) -> dict[str, Raw]:
    """The row with its time in `ts`. The key that held it adds no column; if it is a column already, it keeps its value
    there too."""
    if bytes(row.get(TIME, _NULL)) != b"null":
        return row
    for key in TIME_KEYS:
        if key in row and _is_time(row[key]):
            kept = {name: value for name, value in row.items() if name != key or schema.column(key) is not None}
            return {**kept, TIME: row[key]}
    return row


def _is_time(source: Raw) -> bool:
    try:
        return coerce_value(str(source, "utf-8"), TIMESTAMP) is not None
    except Refused:
        return False


def _sort_out(
    objects: Objects, schema: TableSchema, before: tuple[str, ...], *, evolve: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The unknown keys of a batch: those that become columns, after those from `before`, in order of first appearance,
    and those that are rescued."""
    names = set().union(*objects.rows) - {*schema.names(), *before}
    unknown = dict.fromkeys(name for row in objects.rows for name in row if name in names) if names else {}
    new = [name for name in unknown if evolve and may_be_added(name)]
    added = (*before, *new)[: columns_left(schema)]
    return added, frozenset(unknown) - frozenset(added)

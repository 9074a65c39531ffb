"""A pushed batch as columns of its table: coerced, with new columns for unknown keys, the rest rescued.

Pure: bytes and a schema in, Arrow out. A batch with one bad row is refused whole, and then changes nothing; or, where
the sender wants it so, lands without its bad rows, and those bring no columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from headwater.connectors.files.convert_columns import convert_any, convert_typed, json_texts
from headwater.ingest.decode import TooLarge
from headwater.ingest.first_columns import DEFAULT_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

TIME = "ts"
TIME_KEYS = ("at", "timestamp", "_timestamp", "time_unix_nano", "observed_time_unix_nano")
"""What fills an empty `ts` of such a table, in this order, where it holds a time."""

_NEW_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NULL = Raw(b"null")


class TooManyCells(TooLarge):
    """HW-I04 of a batch whose rows are short, and whose table is wide."""

    def __init__(self, columns: int):
        what = f"the batch has more than {limits.BATCH_CELLS // columns:,} rows, in a table of {columns:,} columns"
        HeadwaterError.__init__(self, "HW-I04", what, hint="cut it into several batches, each with a key of its own")


@dataclass(frozen=True)
class Prepared:
    """A good batch. `added` are the columns that it needs besides those of the schema it was prepared for, all
    `string`; `rescues`: it has a column `_rescued` too. A column that the batch lacks is null. `bad` are the rows that
    are not in it."""

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
    """Raises HW-I02 with the place of every bad row (of the first hundred) if more than `most_bad` are bad; None bears
    any number. A large batch is looked at piece by piece, which changes nothing of what becomes of it: a row costs many
    times its text while it is looked at. One that is refused is not read to its end if there are many bad rows. Raises
    `TooManyCells`. Lines are counted from `first_line`; before the first of all a byte order mark may stand. `added` are the
    columns that what came before it in the same file brought."""
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
    """The good rows of a piece, with columns for what is unknown in it; `added` are those that came before it."""
    if not found.unknown_seen and not _lacks_times(found.batch, wider(known, added)):
        return Prepared(found.batch, found.rows, added=added)
    objects = read_lines(text, first_line=first_line, place="")
    if found.bad:
        objects = good_rows(objects, found.bad)
    if has_default_times(known):
        objects.rows[:] = [_with_time(row, known) for row in objects.rows]
    added, rescued = _sort_out(objects, known, added, evolve=evolve)
    coerced = coerce_objects(objects, wider(known, added))
    assert not coerced.bad  # a text takes every value of a good row, and a time was looked at
    if not rescued:
        return Prepared(coerced.batch, coerced.rows, added=added)
    texts = [rescue(row, rescued) for row in objects.rows]
    return Prepared(
        coerced.batch.append_column(RESCUED, dynamic_array(texts)),
        coerced.rows,
        added=added,
        rescues=True,
        rows_rescued=sum(text is not None for text in texts),
    )


def prepare_cells(rows: pa.RecordBatch, schema: TableSchema, *, added: Sequence[str] | None = None) -> Prepared:
    """Good rows of a CSV or Parquet file, in columns of the schema and its own, as rows of the table. A column of its own
    becomes one of text, whether or not it has values, if it may, or if it is among those that were `added` for the file;
    what becomes none is rescued."""
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
    """An empty `ts` is filled from the first column that holds a time. Of a column that the table lacks, what was used
    for that is known then; one that is used up is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    """The parts of a batch, one after the other: a column that one of them lacks is null there. Bad rows are left
    out."""
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
    """The schema with columns of text for those of the names that it lacks, and with `_rescued` if rows need it."""
    for name in names:
        if schema.column(name) is None:
            schema = schema.added(name, STRING)
    return schema.added(RESCUED, DYNAMIC) if rescues and schema.column(RESCUED) is None else schema


def prepare_together(bodies: Sequence[bytes], schema: TableSchema) -> list[Prepared | None]:
    """What `prepare` makes of each of these batches, where they are good and bring nothing new, as most do; None for
    those that must be prepared by themselves."""
    known = without_rescued(schema)
    batches = [batch for lot in _lots(bodies) for batch in coerce_pieces(lot, known)]
    return [
        None if batch is None or _lacks_times(batch, known) else Prepared(batch, batch.num_rows) for batch in batches
    ]


def _lots(bodies: Sequence[bytes]) -> Iterator[list[bytes]]:
    """So many bodies as are held as rows at once."""
    lot: list[bytes] = []
    size = 0
    for body in bodies:
        if size + len(body) > 4 * limits.PUSH_SMALL_BYTES:
            yield lot
            lot, size = [], 0
        lot.append(body)
        size += len(body)
    if lot:
        yield lot


def may_be_added(name: str) -> bool:
    """Whether an unknown key may become a column by itself."""
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
    """Raises HW-I02 for a batch with so many errors (`at_least` so many), of which the first are given."""
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
    """A key that may fill `ts` can be a column by now: then nothing is unknown, and `ts` still empty."""
    return (
        has_default_times(schema)
        and any(schema.column(key) is not None for key in TIME_KEYS)
        and batch.column(TIME).null_count > 0
    )


def _with_time(row: dict[str, Raw], schema: TableSchema) -> dict[str, Raw]:
    """The row with its time in `ts`. The key that held it is then known: it becomes no column, and if it is one
    already it keeps its value there too."""
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

"""A pushed batch as columns of its table: coerced, with new columns for unknown keys, the rest rescued.

Pure: bytes and a schema in, Arrow out. A batch with one bad row is refused whole, and then changes nothing; or, where
the sender wants it so, lands without its bad rows, and those bring no columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import Raw

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import is_reserved_column
from headwater.base.schema import TableSchema
from headwater.base.types import DYNAMIC, STRING, TIMESTAMP, to_arrow
from headwater.coerce.batches import Coerced, coerce_lines, coerce_objects, coerce_pieces
from headwater.coerce.errors import BadRow, Refused, RowError
from headwater.coerce.objects import Objects, bad_lines, read_lines, without_bom
from headwater.coerce.values import coerce_value

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_COLUMNS = {"ts": TIMESTAMP, "label": STRING, "body": STRING, "props": DYNAMIC}
"""The columns of a table for which nobody declares any. All may be null."""
TIME = "ts"
TIME_KEYS = ("at", "timestamp", "_timestamp", "time_unix_nano", "observed_time_unix_nano")
"""What fills an empty `ts` of such a table, in this order, where it holds a time."""
RESCUED = "_rescued"

_NEW_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NULL = Raw(b"null")


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


def prepare(body: bytes, schema: TableSchema, *, table: str, evolve: bool, most_bad: int | None = 0) -> Prepared:
    """Raises HW-I02 with the place of every bad row (of the first hundred) if more than `most_bad` are bad; None bears
    any number."""
    known = _known(schema)
    found = coerce_lines(body, known)
    text = without_bom(body)
    if most_bad is not None and len(found.bad) > most_bad:
        refuse_rows(found.errors, found.error_total, table)
    bad = tuple(bad_lines(text, found.bad)) if found.bad else ()
    if not found.unknown_seen and not _lacks_times(found.batch, known):
        return Prepared(found.batch, found.rows, bad)
    objects = _good_objects(text, found)
    if has_default_times(known):
        objects.rows[:] = [_with_time(row, known) for row in objects.rows]
    added, rescued = _sort_out(objects, known, evolve=evolve)
    wider = known
    for name in added:
        wider = wider.added(name, STRING)
    coerced = coerce_objects(objects, wider)
    assert not coerced.bad  # a text takes every value of a good row, and a time was looked at
    texts = [_rescue(row, rescued) for row in objects.rows] if rescued else []
    if not rescued:
        return Prepared(coerced.batch, coerced.rows, bad, added)
    return Prepared(
        coerced.batch.append_column(RESCUED, dynamic_array(texts)),
        coerced.rows,
        bad,
        added,
        rescues=True,
        rows_rescued=sum(text is not None for text in texts),
    )


def prepare_together(bodies: Sequence[bytes], schema: TableSchema) -> list[Prepared | None]:
    """What `prepare` makes of each of these batches, where they are good and bring nothing new, as most do; None for
    those that must be prepared by themselves."""
    known = _known(schema)
    batches = coerce_pieces(bodies, known)
    return [
        None if batch is None or _lacks_times(batch, known) else Prepared(batch, batch.num_rows) for batch in batches
    ]


def _known(schema: TableSchema) -> TableSchema:
    """`_rescued` is the store's: a key of that name is as unknown as any other, and is rescued into it."""
    if schema.column(RESCUED) is None:
        return schema
    return replace(schema, columns=tuple(column for column in schema.columns if column.name != RESCUED))


def may_be_added(name: str) -> bool:
    """Whether an unknown key may become a column by itself."""
    return (
        _NEW_NAME.fullmatch(name) is not None
        and len(name) <= limits.NAME_BYTES
        and not is_reserved_column(name)
        and name not in DEFAULT_COLUMNS
    )


def _good_objects(text: bytes, found: Coerced) -> Objects:
    """The rows that are not bad, taken apart."""
    objects = read_lines(text, first_line=1, place="")
    if not found.bad:
        return objects
    bad = {error.line for error in found.bad}
    kept = [(row, line) for row, line in zip(objects.rows, objects.lines) if line not in bad]
    return Objects([row for row, _ in kept], [line for _, line in kept], seen=objects.seen)


def refuse_rows(errors: Sequence[RowError], total: int, table: str) -> NoReturn:
    """Raises HW-I02 for a batch with so many errors, of which the first are given."""
    first, shown = errors[0], errors[: limits.ERRORS_SHOWN]
    column = f", column `{first.column}`" if first.column else ""
    kind = f" ({first.value_type})" if first.value_type else ""
    more = f", and {total - 1} more" if total > 1 else ""
    raise HeadwaterError(
        "HW-I02",
        f"`{table}` took nothing of the batch: line {first.line}{column}: {first.reason}{kind}{more}",
        hint="mend the rows and send the batch again; nothing was written",
        detail={
            "table": table,
            "total": total,
            "rows": [
                {"line": e.line, "column": e.column, "reason": e.reason, "type": e.value_type, "detail": e.detail}
                for e in shown
            ],
        },
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


def _sort_out(objects: Objects, schema: TableSchema, *, evolve: bool) -> tuple[tuple[str, ...], frozenset[str]]:
    """The unknown keys of a batch: those that become columns, in order of first appearance, and those that are
    rescued."""
    names = set().union(*objects.rows) - set(schema.names())
    unknown = dict.fromkeys(name for row in objects.rows for name in row if name in names) if names else {}
    added = [name for name in unknown if evolve and may_be_added(name)][: limits.NEW_COLUMNS_PER_BATCH]
    return tuple(added), frozenset(unknown) - frozenset(added)


def _rescue(row: Mapping[str, Raw], names: frozenset[str]) -> str | None:
    """The keys that have no column, as one object, each value as it was written."""
    kept = [msgspec.json.encode(name) + b":" + bytes(value) for name, value in row.items() if name in names]
    return (b"{" + b",".join(kept) + b"}").decode() if kept else None


def dynamic_array(texts: Sequence[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(to_arrow(DYNAMIC), pa.array(texts, pa.string()))

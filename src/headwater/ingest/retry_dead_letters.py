"""Coerces dead letters again: those that fit the table as it is now become rows, the others stay dead letters.

Pure: dead letters and a schema in, Arrow out. The dead letters of a pushed table are prepared as a push is. Those of a
table that a pipeline fills bring no columns, so one with a key that has no column stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.catalog.dead_letters import DeadLetter
from headwater.coerce.batches import coerce_objects, record_batch
from headwater.coerce.objects import Objects, read_sources
from headwater.coerce.rescued import good_rows, nameless, rescue, rescue_cells, with_rescued, without_rescued
from headwater.ingest.prepare import Prepared, prepare
from headwater.storage.system_columns import SOURCE_ID

if TYPE_CHECKING:
    import pyarrow as pa

_CSV = "csv"
_NULL = b"null"


@dataclass(frozen=True)
class RetriedRows:
    """The rows that fit now, and the positions of their dead letters."""

    batches: tuple[Prepared, ...]
    fits: frozenset[int]


def retry_coercion(
    letters: Sequence[DeadLetter], schema: TableSchema, *, pushed: bool, exclude: Collection[str] = ()
) -> RetriedRows:
    """The rows keep the order of the dead letters. Rows of a table that is not `pushed` keep their source; values in
    excluded columns are dropped."""
    schema = replace(schema, columns=tuple(column for column in schema.columns if column.name not in exclude))
    texts = [place for place, letter in enumerate(letters) if letter.format != _CSV]
    cells = [place for place, letter in enumerate(letters) if letter.format == _CSV]
    parts: list[tuple[Prepared, list[int]]] = []
    if texts:
        chosen = [letters[place] for place in texts]
        parts.append(_pushed(chosen, texts, schema) if pushed else _pulled(chosen, texts, schema, exclude))
    if cells:
        parts.append(_cells([letters[place] for place in cells], cells, schema, exclude))
    batches: list[Prepared] = []
    for prepared, fits in parts:
        if fits:
            places = [letters[place].place for place in fits]
            batches.append(prepared if pushed else Prepared(_from(prepared.batch, places), prepared.rows))
    return RetriedRows(tuple(batches), frozenset(place for _, fits in parts for place in fits))


def _pushed(letters: Sequence[DeadLetter], places: Sequence[int], schema: TableSchema) -> tuple[Prepared, list[int]]:
    # A line break inside is a part of a JSON document, where it is only white space.
    lines = [letter.source.replace(b"\n", b" ") for letter in letters]
    # None of them is the first line of a file, so a byte order mark is a part of its row.
    table = letters[0].table_name
    prepared = prepare(b"\n".join(lines), schema, table=table, evolve=True, most_bad=None, first_line=2)
    bad = {row.error.line for row in prepared.bad}
    return prepared, [place for number, place in enumerate(places, 2) if number not in bad]


def _pulled(
    letters: Sequence[DeadLetter], places: Sequence[int], schema: TableSchema, exclude: Collection[str]
) -> tuple[Prepared, list[int]]:
    found = read_sources(letter.source for letter in letters)
    stored = without_rescued(schema)
    odd = _odd(found.rows, schema, exclude)
    known = {*stored.names(), *exclude, *odd}
    kept = [
        (row, line)
        for row, line in zip(found.rows, found.lines)
        if all(name in known or bytes(value) == _NULL for name, value in row.items())
    ]
    objects = Objects([row for row, _ in kept], [line for _, line in kept])
    coerced = coerce_objects(objects, stored)
    good = good_rows(objects, coerced.bad)
    batch = with_rescued(coerced.batch, schema, [rescue(row, odd) for row in good.rows])
    return Prepared(batch, coerced.rows), [places[line - 1] for line in good.lines]


def _cells(
    letters: Sequence[DeadLetter], places: Sequence[int], schema: TableSchema, exclude: Collection[str]
) -> tuple[Prepared, list[int]]:
    import pyarrow as pa

    from headwater.coerce.text_columns import coerce_text_batch

    rows = [json.loads(letter.source) for letter in letters]
    stored = without_rescued(schema)
    odd = _odd([row for row in rows if isinstance(row, dict)], schema, exclude)
    known = {*stored.names(), *exclude, *odd}
    kept: list[tuple[dict[str, str | None], int]] = []
    for row, place in zip(rows, places):
        if isinstance(row, dict) and all(_is_text(text) and (name in known or not text) for name, text in row.items()):
            kept.append((row, place))
    columns = {name: pa.array([row.get(name) for row, _ in kept], pa.string()) for name in stored.names()}
    batch = pa.RecordBatch.from_pydict(columns) if columns else record_batch([], stored, rows=len(kept))
    coerced = coerce_text_batch(batch, stored)
    bad = {error.line for error in coerced.bad}
    good = [each for number, each in enumerate(kept, 1) if number not in bad]
    rescued = {name: [json.dumps(row.get(name), ensure_ascii=False) for row, _ in good] for name in sorted(odd)}
    texts = rescue_cells(rescued) if rescued else None
    return Prepared(with_rescued(coerced.batch, schema, texts), coerced.rows), [place for _, place in good]


def _odd(rows: Sequence[Mapping[str, object]], schema: TableSchema, exclude: Collection[str]) -> frozenset[str]:
    """The keys that cannot be column names, if the table has `_rescued` for them."""
    if schema.column(RESCUED) is None:
        return frozenset()
    return nameless(set().union(*rows) - set(exclude))


def _is_text(text: str | None) -> bool:
    """False for a cell with bytes that are not UTF-8: they are kept as lone surrogates."""
    try:
        return text is None or text.encode() is not None
    except UnicodeEncodeError:
        return False


def _from(batch: pa.RecordBatch, places: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.append_column(SOURCE_ID.name, pa.array(places, pa.string()))

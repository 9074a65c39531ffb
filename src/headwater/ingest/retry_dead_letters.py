"""Coerces dead letters again: those that fit the table as it is now become rows, the others stay dead letters.

Pure: dead letters and a schema in, Arrow out. The dead letters of a pushed table are prepared as a push is. Those of a
table that a pipeline fills bring no columns, so one with a key that has no column stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.catalog.dead_letters import DeadLetter
from headwater.coerce.batches import coerce_objects, record_batch
from headwater.coerce.objects import Objects, read_sources
from headwater.coerce.rescued import good_rows, nameless, rescue, rescue_cells, with_rescued, without_rescued
from headwater.coerce.row_errors import first_of_each_row
from headwater.ingest.prepare import Prepared, prepare
from headwater.storage.system_columns import SOURCE_ID


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
    import pyarrow as pa

    schema = replace(schema, columns=tuple(column for column in schema.columns if column.name not in exclude))
    batches: list[Prepared] = []
    fits: set[int] = set()
    for is_csv, coerce in ((False, _pushed if pushed else _pulled), (True, _cells)):
        places = [place for place, letter in enumerate(letters) if (letter.format == "csv") is is_csv]
        if places:
            prepared, good = coerce([letters[place] for place in places], schema, exclude)
            fitting = [places[position] for position in good]
            if fitting and not pushed:
                sources = pa.array([letters[place].place for place in fitting], pa.string())
                prepared = Prepared(prepared.batch.append_column(SOURCE_ID.name, sources), prepared.rows)
            batches += [prepared] if fitting else []
            fits.update(fitting)
    return RetriedRows(tuple(batches), frozenset(fits))


_Coerced = tuple[Prepared, Sequence[int]]
"""The rows that fit, and the positions of their dead letters."""


def _pushed(letters: Sequence[DeadLetter], schema: TableSchema, _exclude: Collection[str]) -> _Coerced:
    # A line break inside is a part of a JSON document, where it is only white space.
    lines = [letter.source.replace(b"\n", b" ") for letter in letters]
    # None of them is the first line of a file, so a byte order mark is a part of its row.
    table = letters[0].table_name
    prepared = prepare(b"\n".join(lines), schema, table=table, evolve=True, most_bad=None, first_line=2)
    bad = {row.error.line for row in prepared.bad}
    return prepared, [position for position in range(len(letters)) if position + 2 not in bad]


def _pulled(letters: Sequence[DeadLetter], schema: TableSchema, exclude: Collection[str]) -> _Coerced:
    found = read_sources(letter.source for letter in letters)
    stored = without_rescued(schema)
    odd = _odd(found.rows, schema, exclude)
    known = {*stored.names(), *exclude, *odd}
    kept = [
        (row, line)
        for row, line in zip(found.rows, found.lines)
        if all(name in known or bytes(value) == b"null" for name, value in row.items())
    ]
    objects = Objects([row for row, _ in kept], [line for _, line in kept])
    coerced = coerce_objects(objects, stored)
    good = good_rows(objects, coerced.bad)
    batch = with_rescued(coerced.batch, schema, [rescue(row, odd) for row in good.rows])
    return Prepared(batch, coerced.rows), [line - 1 for line in good.lines]


def _cells(letters: Sequence[DeadLetter], schema: TableSchema, exclude: Collection[str]) -> _Coerced:
    import pyarrow as pa

    from headwater.coerce.text_columns import coerce_strings
    from headwater.connectors.files.convert_columns import convert_batch, without_rows

    rows = [json.loads(letter.source) for letter in letters]
    stored = without_rescued(schema)
    odd = _odd([row for row in rows if isinstance(row, dict)], schema, exclude)
    known = {*stored.names(), *exclude, *odd}
    kept: list[tuple[dict[str, str | None], int]] = [
        (row, position)
        for position, row in enumerate(rows)
        if isinstance(row, dict) and all(_is_text(text) and (name in known or not text) for name, text in row.items())
    ]
    columns = {name: pa.array([row.get(name) for row, _ in kept], pa.string()) for name in stored.names()}
    batch = pa.RecordBatch.from_pydict(columns) if columns else record_batch([], stored, rows=len(kept))
    converted, errors = convert_batch(batch, stored, coerce_strings)
    bad = {error.line for error in errors}
    good = [each for number, each in enumerate(kept) if number not in bad]
    rescued = {name: [json.dumps(row.get(name), ensure_ascii=False) for row, _ in good] for name in sorted(odd)}
    texts = rescue_cells(rescued) if rescued else None
    fitting = without_rows(converted, first_of_each_row(errors))
    return Prepared(with_rescued(fitting, schema, texts), len(good)), [position for _, position in good]


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

"""Bad rows that were kept: dead letters.

They are rows of one table of the store, `_dead_letters`, and land in the commit that lands the good rows beside them.
Each file holds letters of one table, which its record names as the partition: so the letters of a table can be taken
out without touching others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import msgspec

from headwater.base.clock import now_us
from headwater.base.errors import Conflict
from headwater.base.types import BINARY, LONG, STRING, Type
from headwater.catalog.commit import Store
from headwater.catalog.evolution import Evolution, Shown, evolve
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_entries
from headwater.coerce.row_errors import BadRow
from headwater.storage.file_record import FileRecord

TABLE = "_dead_letters"
PIPELINE = "_dead_letters"
"""The owner of the table: no declared pipeline can have this name."""
WHOLE_FILE = "file"
"""The format of a letter that is about a whole file, which cannot be read: its row is the file at its place."""


@dataclass(frozen=True)
class DeadLetter:
    """A bad row: whose it was, where it stood, the first thing that is wrong with it, and the row itself as it came.
    `format` tells how to read it again."""

    table_name: str
    pipeline: str
    place: str
    line: int
    column_name: str | None
    reason: str
    value_type: str | None
    detail: str
    format: str
    source: bytes


def dead_letter_of(row: BadRow, *, table: str, pipeline: str, place: str, format_: str) -> DeadLetter:
    return DeadLetter(
        table_name=table,
        pipeline=pipeline,
        place=place,
        line=row.error.line,
        column_name=row.error.column,
        reason=row.error.reason,
        value_type=row.error.value_type,
        detail=row.error.detail,
        format=format_,
        source=row.source,
    )


_COLUMNS: dict[str, Type] = {field.name: STRING for field in fields(DeadLetter)} | {"line": LONG, "source": BINARY}


def ensure_table(store: Store, *, actor: str) -> int:
    """Make the table if it is not there; the id of its schema."""
    if (standing := _schema_id(store)) is not None:
        return standing
    landing = Landing(store, actor)
    schema_id = landing.evolve(TABLE, None, _made(), pipeline=PIPELINE, mode="append", has_rows=False)
    try:
        landing.commit()
    except Conflict:
        if (standing := _schema_id(store)) is None:
            raise
        return standing  # another process has made it meanwhile
    return schema_id


def _schema_id(store: Store) -> int | None:
    with store.catalog.snapshot() as connection:
        entry = table_entries(connection, [TABLE]).get(TABLE)
    return None if entry is None else entry.schema_id


def write_dead_letters(
    root: Path, directory: str, letters: Sequence[DeadLetter], *, run_id: str, number: int
) -> tuple[FileRecord, ...]:
    """The letters of one table as a file (none for no letters). `directory` is one of `_dead_letters`, and `number` is
    free in it."""
    import pyarrow as pa

    from headwater.storage.part_writer import PartWriter

    tables = {letter.table_name for letter in letters}
    assert len(tables) < 2
    schema = _made().schema
    rows = pa.RecordBatch.from_pylist([vars(letter) for letter in letters], schema=schema.to_arrow())
    writer = PartWriter(
        root,
        directory,
        schema=schema,
        partition=0,
        task_attempt=number,
        run_id=run_id,
        ingested_at_us=now_us(),
        statistics=False,
    )
    with writer:
        writer.write(rows)
    return tuple(msgspec.structs.replace(file, partition=next(iter(tables))) for file in writer.close())


def _made() -> Evolution:
    return evolve(None, Shown(_COLUMNS), declared={}, primary_key=())


def add_dead_letters(landing: Landing, files: Sequence[FileRecord], *, run_id: str) -> None:
    """The commit adds these files of letters, if there are any."""
    if files:
        landing.add_files(TABLE, ensure_table(landing.store, actor=landing.actor), run_id, files)

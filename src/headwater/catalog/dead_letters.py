"""Bad rows that were kept: dead letters.

They are rows of one table of the store, `_dead_letters`, and land in the commit that lands the good rows beside them.
Each file holds letters of one table, which its record names as the partition: so the letters of a table can be taken
out without touching others. Counting them is part of every apply, so what the rest needs is imported where it is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select

from headwater.base.clock import now_us
from headwater.base.errors import Conflict
from headwater.base.types import BINARY, LONG, STRING, Type
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.evolution import Evolution, Shown, evolve
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_entries, table_states
from headwater.catalog.table_state import TableState
from headwater.coerce.row_errors import BadRow
from headwater.storage.file_record import FileRecord, LiveFile
from headwater.storage.system_columns import INGESTED_AT, RUN_ID

if TYPE_CHECKING:
    import pyarrow as pa

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


_FIELDS = tuple(field.name for field in fields(DeadLetter))
_COLUMNS: dict[str, Type] = dict.fromkeys(_FIELDS, STRING) | {"line": LONG, "source": BINARY}


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


@dataclass(frozen=True)
class StoredDeadLetter:
    """A letter, when and by which run it was kept, and where it lies: a file, and the row in it."""

    letter: DeadLetter
    run_id: str
    at_us: int
    path: str
    row: int


@dataclass(frozen=True)
class DeadLetterFiles:
    """The files with the letters of one table, oldest first."""

    table: str
    state: TableState
    files: tuple[LiveFile, ...]


def dead_letter_files(connection: Connection, table: str) -> DeadLetterFiles | None:
    """The letters of a table as they are now; None if there is none."""
    mine = select(t.file.c.path).where(_live(), t.file.c.partition == table)
    paths = {path for (path,) in connection.execute(mine)}
    if not paths:
        return None
    (state,) = table_states(connection, [TABLE])
    return DeadLetterFiles(table, state, tuple(file for file in state.files if file.path in paths))


def count_dead_letters(connection: Connection) -> dict[str, int]:
    """How many letters each table has, of those that have any."""
    query = select(t.file.c.partition, func.sum(t.file.c.rows)).where(_live()).group_by(t.file.c.partition)
    return {str(table): int(rows) for table, rows in connection.execute(query)}


def dead_letters_by_run(connection: Connection, run_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """How many bad rows each of these runs kept, by table, whatever became of them since."""
    run_id, table = t.file.c.run_id, t.file.c.partition
    # A file that was written again holds letters that were counted before.
    query = select(run_id, table, func.sum(t.file.c.rows)).where(t.file.c.table_name == TABLE, ~t.file.c.merged)
    found: dict[str, dict[str, int]] = {}
    for run, name, rows in connection.execute(query.where(run_id.in_(list(run_ids))).group_by(run_id, table)):
        found.setdefault(run, {})[str(name)] = int(rows)
    return found


def dead_letters_by_engine_run(connection: Connection, run_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """The same of runs of the engine, for as long as it is known what they landed."""
    jobs = select(t.job.c.run_id, t.job.c.landed_run_id)
    pairs = connection.execute(jobs.where(t.job.c.run_id.in_(list(run_ids)), t.job.c.landed_run_id.is_not(None))).all()
    landed = dead_letters_by_run(connection, {landed_id for _, landed_id in pairs})
    return {run_id: landed[landed_id] for run_id, landed_id in pairs if landed_id in landed}


def read_dead_letters(root: Path, letters: DeadLetterFiles) -> Iterator[StoredDeadLetter]:
    """All letters, oldest first. Raises HW-T04 for a file that is gone or damaged."""
    import pyarrow as pa

    from headwater.storage.part_writer import stored_rows

    for file in letters.files:
        row = 0
        for batch in stored_rows(root, file):
            times = batch.column(INGESTED_AT.name).cast(pa.int64()).to_pylist()
            runs = batch.column(RUN_ID.name).to_pylist()
            for values, run_id, at_us in zip(batch.select(_FIELDS).to_pylist(), runs, times):
                yield StoredDeadLetter(DeadLetter(**values), run_id, at_us, file.path, row)
                row += 1


def take_out_all(landing: Landing, letters: DeadLetterFiles) -> None:
    landing.remove_files(TABLE, [file.path for file in letters.files])


def take_out(
    landing: Landing, letters: DeadLetterFiles, gone: Collection[tuple[str, int]], *, directory: str
) -> list[str]:
    """Take letters (a file, and the row in it) out. Files that hold others too are written again without them, below
    `directory`, which no other process writes to; the others keep their times and their runs. Returns the new files."""
    from headwater.storage.part_writer import rewrite

    taken = Counter(path for path, _ in gone)
    files = tuple(file for file in letters.files if file.path in taken)
    if not files:
        return []
    root, written = landing.store.root, []
    for number, file in enumerate(files):
        if taken[file.path] == file.rows:
            continue
        left = rewrite(
            root,
            _others(root, file, gone),
            schema=letters.state.schemas[file.schema_id],
            directory=f"{directory}/kept",
            partition=number,
            task_attempt=0,
            statistics=False,
        )
        landing.files += left
        again = [msgspec.structs.replace(record, partition=letters.table) for record in left]
        landing.add_files(TABLE, file.schema_id, file.run_id, again)
        written += [record.path for record in again]
    take_out_all(landing, replace(letters, files=files))
    return written


def _others(root: Path, file: LiveFile, gone: Collection[tuple[str, int]]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from headwater.storage.part_writer import stored_rows

    first = 0
    for batch in stored_rows(root, file):
        rows = range(first, first + batch.num_rows)
        yield batch.filter(pa.array([(file.path, row) not in gone for row in rows]))
        first = rows.stop


def _live() -> ColumnElement[bool]:
    return (t.file.c.table_name == TABLE) & t.file.c.removed_seq.is_(None)

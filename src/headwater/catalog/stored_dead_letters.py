"""The dead letters that are there: counted, read, and taken out again. Counting them is part of every apply, so what
the rest needs is imported where it is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select

from headwater.catalog import sql_tables as t
from headwater.catalog.dead_letters import TABLE, DeadLetter
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_states
from headwater.catalog.table_state import TableState
from headwater.storage.file_record import LiveFile
from headwater.storage.system_columns import INGESTED_AT, RUN_ID

if TYPE_CHECKING:
    import pyarrow as pa

_FIELDS = tuple(field.name for field in fields(DeadLetter))


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

"""Checkpoints: the data tables of the catalog at one sequence, as a file of the log, so that the log can be trimmed.

Order makes it safe. The checkpoint is durable, and was read back, before the text of a record leaves the catalog, and
that is before its file is deleted. A crash in between leaves files that the next checkpoint deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, delete, func, insert, select

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.catalog import sql_tables as t
from headwater.catalog.database import Catalog
from headwater.catalog.log import heal_log, last_hash
from headwater.storage import log_files
from headwater.storage.layout import Layout


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is whole. `head` is the hash of the record of its sequence."""

    seq: int
    head: str
    format: int

    @property
    def is_usable(self) -> bool:
        """False if it has the tables of another format of the catalog."""
        return self.format == t.FORMAT_VERSION


def read_checkpoint(layout: Layout, seq: int) -> Checkpoint | None:
    """None if it is damaged."""
    header = next(log_files.checkpoint_lines(layout, seq), None)
    found = None if header is None else msgspec.json.decode(header, type=Checkpoint)
    return found if found is not None and found.seq == seq else None


def newest_checkpoint(layout: Layout) -> Checkpoint | None:
    """The newest one that is whole and usable."""
    found = (read_checkpoint(layout, seq) for seq in log_files.checkpoints(layout))
    return next((checkpoint for checkpoint in found if checkpoint is not None and checkpoint.is_usable), None)


def make_checkpoint(
    catalog: Catalog, layout: Layout, *, retention_seconds: float = limits.RETENTION_SECONDS
) -> Checkpoint | None:
    """Write a checkpoint unless there is one of this sequence, and delete the records of the log that are older than
    the retention time before it. None for a store without commits."""
    heal_log(catalog, layout)
    with catalog.snapshot() as connection:
        seq: int = connection.execute(select(t.store.c.seq)).scalar_one()
        if not seq:
            return None
        made = read_checkpoint(layout, seq) if seq in log_files.checkpoints(layout) else None
        if made is None or not made.is_usable:
            log_files.write_checkpoint(layout, seq, _lines(connection, seq))
    made = newest_checkpoint(layout)
    if made is not None:
        _trim(catalog, layout, made, before_us=now_us() - int(retention_seconds * 1e6))
    return made


def restore_checkpoint(connection: Connection, layout: Layout, seq: int) -> None:
    """Fill the data tables, which are empty, with the rows of a checkpoint that is whole."""
    table: Table | None = None
    columns: list[str] = []
    rows: list[dict[str, Any]] = []
    for line in log_files.checkpoint_lines(layout, seq):
        found = msgspec.json.decode(line)
        if isinstance(found, list):
            rows.append(dict(zip(columns, found, strict=True)))
        if table is not None and rows and (isinstance(found, dict) or len(rows) == limits.CHECKPOINT_ROWS):
            connection.execute(insert(table), rows)
            rows = []
        if isinstance(found, dict) and "table" in found:
            table, columns = t.metadata.tables[found["table"]], found["columns"]
    if table is not None and rows:
        connection.execute(insert(table), rows)


def _lines(connection: Connection, seq: int) -> Iterator[bytes]:
    """The tables, each after a line with its name and columns. The last row is the log record of `seq`: the next one
    names its hash."""
    yield msgspec.json.encode(Checkpoint(seq, last_hash(connection, seq) or "", t.FORMAT_VERSION)) + b"\n"
    for table in (*t.DATA, t.log_record):
        columns = [str(column.name) for column in table.columns]
        yield msgspec.json.encode({"table": str(table.name), "columns": columns}) + b"\n"
        rows = select(table).order_by(*table.primary_key)
        if table is t.log_record:
            rows = rows.where(t.log_record.c.seq == seq)
        for row in connection.execute(rows.execution_options(yield_per=limits.CHECKPOINT_ROWS)):
            yield msgspec.json.encode(tuple(row)) + b"\n"


def _trim(catalog: Catalog, layout: Layout, made: Checkpoint, *, before_us: int) -> None:
    with catalog.transaction(durable=False) as connection:
        mark = connection.execute(select(t.store.c.logged_seq).with_for_update()).scalar_one()
        old = connection.execute(select(func.max(t.commit.c.seq)).where(t.commit.c.at_us <= before_us)).scalar() or 0
        before = min(old + 1, made.seq, mark)
        connection.execute(delete(t.log_record).where(t.log_record.c.seq < before))
    log_files.trim(layout, before=before, keep=limits.CHECKPOINTS_KEPT)

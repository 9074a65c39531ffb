"""The one Parquet writer: names files, fsyncs, hashes, collects statistics and answers with file records.

It runs in the server process for small batches and inside Spark executors for everything else. A file that it
wrote is nothing until a commit names it, so a task that dies or runs twice does no harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from headwater.base import limits
from headwater.base.blobs import write_whole
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.storage.conform import conform
from headwater.storage.file_record import FileRecord, LiveFile
from headwater.storage.key_text import KeyRange, joined_range, key_columns, key_range
from headwater.storage.part_file import PartFile
from headwater.storage.store_files import MANIFEST
from headwater.storage.system_columns import COMMIT_SEQ, CONTENT_HASH, SOURCE_ID, SOURCE_POS, arrow_fields

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Parts:
    """Rows in, files out: gathers row groups, rolls files, sums up what the records say."""

    root: Path
    directory: str
    _: KW_ONLY
    schema: TableSchema
    partition: int
    task_attempt: int
    statistics: bool = True
    merged: bool = False
    max_rows: int = limits.FILE_MAX_ROWS

    def __post_init__(self) -> None:
        self._keys = key_columns(self.schema) if self.statistics else []
        self._columns: dict[bool, pa.Schema] = {}
        self._positions = False
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._open: PartFile | None = None
        self._open_rows = 0
        self._sums: list[str] = []
        self._ranges: list[KeyRange | None] = []
        self._sources: Counter[str] = Counter()
        self._done: list[FileRecord] = []
        self._made: list[PartFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def columns(self, *, positions: bool) -> pa.Schema:
        """The columns of a file with or without source positions."""
        import pyarrow as pa

        if positions not in self._columns:
            system = arrow_fields(merged=self.merged, positions=positions)
            self._columns[positions] = pa.schema([*self.schema.to_arrow(), *system])
        return self._columns[positions]

    def take(self, arrays: Sequence[pa.Array], *, positions: bool) -> None:
        """A row group is written when half of another one waits behind it, so that no small one is left for the end:
        each costs a reader as much as a large one."""
        import pyarrow as pa

        if positions != self._positions:
            self._finish_file()
            self._positions = positions
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=self.columns(positions=positions))
        most = limits.ROW_GROUP_ROWS + limits.ROW_GROUP_ROWS // 2
        while batch.num_rows:
            room = min(most, self.max_rows - self._open_rows) - self._waiting_rows
            head, batch = batch.slice(0, room), batch.slice(room)
            self._wait(head)
            if self._waiting_bytes >= limits.ROW_GROUP_BYTES or self._open_rows + self._waiting_rows >= self.max_rows:
                self._write_group(self._waiting_rows)
            elif self._waiting_rows >= most:
                self._write_group(limits.ROW_GROUP_ROWS)
            if self._open_rows >= self.max_rows:
                self._close_file()

    def close(self) -> tuple[FileRecord, ...]:
        try:
            self._finish_file()
        except BaseException:
            self.abort()
            raise
        return tuple(self._done)

    def abort(self) -> None:
        self._waiting = []
        for part in self._made:
            part.abort()

    def _finish_file(self) -> None:
        if self._waiting:
            self._write_group(self._waiting_rows)
        if self._open is not None:
            self._close_file()

    def _wait(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes

    def _write_group(self, rows: int) -> None:
        """The first of the waiting rows."""
        import pyarrow as pa

        from headwater.storage.row_hash import content_sum

        columns = self.columns(positions=self._positions)
        waiting = pa.Table.from_batches(self._waiting, schema=columns)
        table = waiting.slice(0, rows)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        for batch in waiting.slice(rows).to_batches():
            self._wait(batch)
        if self._open is None:
            self._open = PartFile(self.root / self._next_path(), schema=self.schema, columns=columns)
            self._made.append(self._open)
        self._open.write_group(table)
        self._open_rows += table.num_rows
        if self.statistics:
            self._sums.append(content_sum(table.column(CONTENT_HASH.name)))
        self._ranges.append(key_range(table, self._keys))
        self._sources.update(_counted(table.column(SOURCE_ID.name)))

    def _close_file(self) -> None:
        from headwater.storage.row_hash import add_sums

        assert self._open is not None
        closed = self._open.close()
        first_key, last_key = joined_range(self._ranges) or (None, None)
        listed = len(self._sources) <= limits.FILE_SOURCE_IDS
        self._done.append(
            FileRecord(
                path=self._next_path(),
                rows=closed.rows,
                bytes=closed.bytes,
                ordinal=self.partition * limits.FILES_PER_PARTITION + len(self._done),
                sha256=closed.sha256,
                stats=closed.stats if self.statistics else None,
                sources=dict(sorted(self._sources.items())) if listed else {},
                source_count=0 if listed else len(self._sources),
                positions=self._positions,
                first_key=first_key,
                last_key=last_key,
                merged=self.merged,
                content_sum=add_sums(self._sums) if self.statistics else None,
            )
        )
        self._open, self._open_rows, self._sums, self._ranges, self._sources = None, 0, [], [], Counter()

    def _next_path(self) -> str:
        rolled = len(self._done)
        if rolled >= limits.FILES_PER_PARTITION:
            raise HeadwaterError(
                "HW-T05",
                f"partition {self.partition} of `{self.directory}` would need more than {rolled} files",
                hint="cut the source into more partitions",
            )
        name = f"part-{self.partition:05d}-{self.task_attempt}" + (f"-{rolled}" if rolled else "")
        return f"{self.directory}/{name}.parquet"


@dataclass
class PartWriter(_Parts):
    """Writes the rows of one partition, in the order they come, into `part-<partition>-<task attempt>.parquet`
    and, after every `max_rows` rows, or when rows with a source position follow rows without, into one more file. Holds
    up to one and a half row groups in memory.

    Nothing is durable before `close`, which answers with the records of all files (none, if no row came). `abort`
    removes every file; leaving a `with` block by an exception aborts, leaving it otherwise closes.
    Rows whose content hash is among `known_hashes` are dropped and counted in `rows_dropped`. Without
    `statistics` the records hold neither bounds nor content sums."""

    _: KW_ONLY
    run_id: str
    ingested_at_us: int
    known_hashes: pa.Array | None = None
    rows_dropped: int = field(default=0, init=False)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the columns of the schema by name, and `_source_id` and `_source_pos` where the batch has them. What
        `conform` refuses is raised as HW-S03, and the writer should then be aborted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from headwater.storage.row_hash import content_hash

        rows = conform(batch, self.schema)
        hashes = content_hash(rows)
        sources = [_source_ids(batch)]
        if SOURCE_POS.name in batch.schema.names:
            sources.append(batch.column(SOURCE_POS.name).cast(pa.int64()))
        if self.known_hashes is not None and len(self.known_hashes):
            fresh = pc.invert(pc.is_in(hashes, value_set=self.known_hashes))
            self.rows_dropped += fresh.false_count
            if fresh.false_count:
                rows, hashes = rows.filter(fresh), hashes.filter(fresh)
                sources = [column.filter(fresh) for column in sources]
        count = len(hashes)
        if count == 0:
            return
        run_ids = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([self.run_id]))
        ingested_at = pa.repeat(pa.scalar(self.ingested_at_us, pa.timestamp("us", tz="UTC")), count)
        system = [run_ids, ingested_at, hashes, *sources]
        self.take([*rows.columns, *system], positions=len(sources) > 1)


def stored_rows(root: Path, file: LiveFile, *, batch_rows: int = limits.ARROW_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a file with all their columns, and with each row's commit sequence beside it, also where only the
    catalog knows it. Raises HW-T04 for a file that cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(root / file.path) as source:
            for group in range(source.num_row_groups):  # of all of them at once, all would be decoded at once
                for batch in source.iter_batches(batch_rows, row_groups=[group]):
                    if COMMIT_SEQ.name not in batch.schema.names:
                        seqs = pa.repeat(pa.scalar(file.added_seq, pa.int64()), batch.num_rows)
                        batch = batch.append_column(COMMIT_SEQ.name, seqs)
                    yield batch
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file.path) from error


def rows_without(root: Path, file: LiveFile, source_ids: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The `stored_rows` of a file but for those of some sources."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dropped = pa.array(sorted(set(source_ids)), pa.string())
    for batch in stored_rows(root, file):
        found = pc.is_in(batch.column(SOURCE_ID.name).dictionary_decode(), value_set=dropped)
        yield batch.filter(pc.invert(found))


def rewrite(
    root: Path,
    batches: Iterable[pa.RecordBatch],
    *,
    schema: TableSchema,
    directory: str,
    partition: int,
    task_attempt: int,
    statistics: bool = True,
) -> tuple[FileRecord, ...]:
    """Rows that are in the store already, once more: same values, hashes, runs, times and commit sequences. The batches
    have the columns of `schema` and all that `stored_rows` gives. Answers nothing if no row came, and leaves nothing
    behind if it fails."""
    parts = _Parts(
        root,
        directory,
        schema=schema,
        partition=partition,
        task_attempt=task_attempt,
        statistics=statistics,
        merged=True,
    )
    with parts:
        for batch in batches:
            if batch.num_rows:
                positions = SOURCE_POS.name in batch.schema.names
                names = parts.columns(positions=positions).names
                parts.take(batch.select(names).columns, positions=positions)
    return parts.close()


def discard_files(root: Path, files: Sequence[FileRecord]) -> None:
    """Delete files that no commit will ever name: what is tried again must not fill the disk until gc comes."""
    for path in {root / file.path for file in files}:
        for gone in (path, path.parent / MANIFEST):
            with suppress(OSError):
                gone.unlink()


def write_manifest(root: Path, records: Sequence[FileRecord]) -> None:
    """Say in `_manifest.json` what the files beside it are, for people and for other programs: the catalog is the
    truth, and nothing of Headwater reads this."""
    if records:
        text = msgspec.json.format(msgspec.json.encode({"version": 1, "files": records}), indent=2)
        write_whole((root / records[0].path).parent / MANIFEST, text + b"\n")


def _source_ids(batch: pa.RecordBatch) -> Any:
    import pyarrow as pa

    arrow = pa.dictionary(pa.int32(), pa.string())
    if SOURCE_ID.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, arrow)
    column = batch.column(SOURCE_ID.name)
    if pa.types.is_dictionary(column.type):
        return column.cast(arrow)
    return column.cast(pa.string()).dictionary_encode()


def _counted(sources: pa.ChunkedArray) -> dict[str, int]:
    """Rows per source id; rows without one are not counted."""
    import pyarrow.compute as pc

    found: Counter[str] = Counter()
    for chunk in sources.chunks:
        names = chunk.dictionary
        for pair in pc.value_counts(chunk.indices.drop_null()):
            found[names[pair["values"].as_py()].as_py()] += pair["counts"].as_py()
    return found


def _unreadable(path: str) -> HeadwaterError:
    return HeadwaterError(
        "HW-T04",
        f"the file `{path}` is part of the table but is missing or damaged",
        hint="`headwater context verify` lists every such file; restore it from a copy of the store",
    )

"""Writes rows with the one writer, inside Spark's executors.

`write_read` runs a connector's own read and the writer in the same Python worker: rows never pass through the JVM.
`write_frame` does the same for any DataFrame. Both return what successful tasks reported; the files of failed, retried
or speculative tasks are never named, so they do no harm.

What a source reports (bad rows, unknown columns, a slice that is gone) comes back as data, not as a failed task: Spark
would only retry that, without a change. Bad rows that are kept come back too: those of a task that did not count are
never seen.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.coerce.row_errors import BadRow, RowError
from headwater.connectors.protocol import (
    ArrowRead,
    BadItem,
    BadRows,
    CursorRead,
    ItemRead,
    Observed,
    SliceGone,
    TransientError,
    UnknownColumns,
)
from headwater.spark.failure import translated
from headwater.spark.nanoseconds import with_nanoseconds
from headwater.spark.small_runs import small_result
from headwater.storage.file_record import FileRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import SparkSession as SparkSession  # the name that other packages use for it

_RESULT = "kind string, body binary"
_WRITES_HERE = count()
"""Numbers the writes of this process as Spark numbers the attempts of its tasks: an attempt at a job may write
again."""


@dataclass(frozen=True)
class WriteTarget:
    """Where a table's rows go, and in which form. `known_hashes` are content hashes (16 bytes each, joined) of rows
    that the table already has: such rows are dropped."""

    root: Path
    directory: str
    schema: TableSchema
    run_id: str
    ingested_at_us: int
    known_hashes: bytes = b""


@dataclass
class Written:
    """What the tasks reported. If `unknown`, `refused`, `gone`, `transient` or `bad_items` is set, the files must not
    be used. `bad` are the bad rows that can be kept; `refused` and `refused_total` are those of a task that had too
    many of them."""

    files: list[FileRecord] = field(default_factory=list)
    items: dict[str, Any] = field(default_factory=dict)
    cursor: CursorRead | None = None
    rows_dropped: int = 0
    unknown: list[Observed] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    refused: list[RowError] = field(default_factory=list)
    refused_total: int = 0
    gone: str | None = None
    transient: str | None = None
    bad_items: list[BadItem] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def write_read(spark: SparkSession, read: ArrowRead, target: WriteTarget) -> Written:
    """Read a slice and write its rows. Raises permanent errors of the source and the writer."""
    tasks = len(read.partitions)
    if not tasks:
        return Written()
    return _collect(_numbers(spark, tasks), _LandPartitions(read, target))


def write_frame(frame: DataFrame, target: WriteTarget, *, is_small: bool = False) -> Written:
    """Write all rows of a DataFrame; its columns are taken by name. A result that is expected to be small is brought to
    this process and written here, which takes half the time of a job with Python workers; if it turns out to be large,
    such a job computes it again."""
    written = _write_here(frame, target) if is_small else None
    return written if written is not None else _collect(frame, _LandRows(target))


def _write_here(frame: DataFrame, target: WriteTarget) -> Written | None:
    """Write a small result in this process; None, and nothing written, if it is not small."""
    with translated():
        table = small_result(frame)
    if table is None:
        return None
    return _written(_guarded(lambda: _write_batches(table.to_batches(), target, partition=0)))


def observe_read(spark: SparkSession, read: ArrowRead) -> list[Observed]:
    """Ask every partition for its columns."""
    assert read.observe is not None
    tasks = len(read.partitions)
    written = _collect(_numbers(spark, tasks), _ObservePartitions(read))
    check_written(written)
    return written.unknown


def _numbers(spark: SparkSession, tasks: int) -> DataFrame:
    """One row for each task, with its number."""
    with translated():
        return spark.range(0, tasks, 1, tasks)


def check_written(written: Written, *, max_bad_rows: int = 0) -> None:
    """Raises SliceGone and TransientError if a task met them, and BadRows if a task, or all tasks together, had too
    many bad rows. If items cannot be read, bad rows are only counted when the slice is read again without them."""
    if written.gone is not None:
        raise SliceGone(written.gone)
    if written.transient is not None:
        raise TransientError(written.transient)
    if written.bad_items:
        return
    if written.refused_total or len(written.bad) > max_bad_rows or _weight(written.bad) > limits.BAD_ROWS_BYTES:
        told = [*written.refused, *(row.error for row in written.bad)]
        told.sort(key=lambda error: (error.place, error.line))
        raise BadRows(tuple(told), written.refused_total + len(written.bad))


def _weight(rows: Sequence[BadRow]) -> int:
    return sum(len(row.source) for row in rows)


@dataclass(frozen=True)
class _LandPartitions:
    """Runs in an executor: each incoming row is the index of a partition to read and write."""

    read: ArrowRead
    target: WriteTarget

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in _indexes(batches):
            yield _report(_guarded(lambda index=index: self._land(index)))

    def _land(self, index: int) -> Iterator[tuple[str, Any]]:
        with _part_writer(self.target, index) as writer:
            for got in self.read.read(self.read.partitions[index], self.target.schema):
                match got:
                    case ItemRead():
                        yield "item", {got.source_id: got.version}
                    case CursorRead():
                        yield "cursor", got
                    case BadRow():
                        yield "bad", got
                    case BadItem():
                        yield "bad_item", got
                    case batch:
                        writer.write(batch)
            for record in writer.close():
                yield "file", msgspec.json.encode(record)
            yield "dropped", writer.rows_dropped


@dataclass(frozen=True)
class _LandRows:
    """Runs in an executor: writes the rows that come in."""

    target: WriteTarget

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _report(_guarded(lambda: self._land(batches)))

    def _land(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Any]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from _write_batches(batches, self.target, partition=context.partitionId())


@dataclass(frozen=True)
class _ObservePartitions:
    """Runs in an executor: reports the columns of the partitions whose indexes come in."""

    read: ArrowRead

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in _indexes(batches):
            yield _report(_guarded(lambda index=index: self._observe(index)))

    def _observe(self, index: int) -> Iterator[tuple[str, Any]]:
        assert self.read.observe is not None
        yield "unknown", self.read.observe(self.read.partitions[index])


def _write_batches(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, *, partition: int
) -> Iterator[tuple[str, Any]]:
    with _part_writer(target, partition) as writer:
        for batch in batches:
            writer.write(with_nanoseconds(batch))
        for record in writer.close():
            yield "file", msgspec.json.encode(record)


def _indexes(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _part_writer(target: WriteTarget, partition: int) -> Any:
    import pyarrow as pa
    from pyspark import TaskContext

    from headwater.storage.part_writer import PartWriter

    context = TaskContext.get()
    hashes = None
    if target.known_hashes:
        count = len(target.known_hashes) // 16
        hashes = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(target.known_hashes)])
    return PartWriter(
        target.root,
        target.directory,
        schema=target.schema,
        partition=partition,
        task_attempt=context.taskAttemptId() if context is not None else next(_WRITES_HERE),
        run_id=target.run_id,
        ingested_at_us=target.ingested_at_us,
        known_hashes=hashes,
    )


def _guarded(work: Any) -> Iterator[tuple[str, Any]]:
    """A source's report about its rows is an answer; only faults of the machine are left to Spark's retries."""
    try:
        yield from work()
    except UnknownColumns as error:
        yield "unknown", error.observed
    except BadRows as error:
        yield "refused", (error.errors, error.total)
    except SliceGone as error:
        yield "gone", str(error)
    except TransientError as error:
        yield "transient", str(error)
    except HeadwaterError as error:
        yield "error", error


def _report(results: Iterator[tuple[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    pairs = [(kind, body if isinstance(body, bytes) else pickle.dumps(body)) for kind, body in results]
    kinds, bodies = [kind for kind, _ in pairs], [body for _, body in pairs]
    return pa.record_batch({"kind": pa.array(kinds, pa.string()), "body": pa.array(bodies, pa.binary())})


def _collect(frame: DataFrame, work: Any) -> Written:
    with translated():
        rows = frame.mapInArrow(work, _RESULT).collect()
    return _written((kind, bytes(body) if kind == "file" else pickle.loads(bytes(body))) for kind, body in rows)


def _written(results: Iterable[tuple[str, Any]]) -> Written:
    written = Written()
    for kind, value in results:
        match kind:
            case "file":
                written.files.append(msgspec.json.decode(value, type=FileRecord))
            case "item":
                written.items.update(value)
            case "cursor":
                written.cursor = value  # tasks report in the order of their partitions
            case "dropped":
                written.rows_dropped += value
            case "unknown":
                written.unknown.append(value)
            case "bad":
                written.bad.append(value)
            case "bad_item":
                written.bad_items.append(value)
            case "refused":
                written.refused.extend(value[0])
                written.refused_total += value[1]
            case "gone":
                written.gone = value
            case "transient":
                written.transient = value
            case "error":
                raise value
    written.files.sort(key=lambda record: record.ordinal)
    return written

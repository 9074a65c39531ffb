"""One Parquet file of the store while it is being written, and what is known of it when it is durable."""

from __future__ import annotations

import hashlib
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from headwater.base.blobs import cannot_write, fsync_directory, make_directory
from headwater.base.crash import crash_point
from headwater.base.table_schema import TableSchema
from headwater.base.types import Type
from headwater.storage.file_record import BOUND_BYTES, ColumnStats
from headwater.storage.system_columns import COMMIT_SEQ

if TYPE_CHECKING:
    import pyarrow as pa

ZSTD_LEVEL = 1
"""Measured on 2M rows of 8 columns: level 3 makes files half a per cent smaller and writing 13% slower."""
ZSTD_SHARE = 2 / 3
"""A column is compressed with zstd where that makes it at most this share of what LZ4 makes of it. Measured in
DuckDB: LZ4 takes half of zstd's time to read, a column that does not compress a third of it."""
SAMPLE_ROWS = 10_000
"""Rows looked at to decide how a column is encoded and compressed."""
FEW_ROWS = 10_000
"""A file with fewer rows is compressed with zstd as a whole: trying would take longer than reading ever will. Most of
them are pushed batches, which are merged into larger files soon."""
PAGE_ROWS = 40_960
"""Twenty vectors of DuckDB: a page that ends within one makes it read two. A page is still small enough to find a
row in."""
BUFFER_BYTES = 1024 * 1024
FINGERPRINT_KEY = "headwater.schema_fingerprint"

_ENCODINGS = {
    **dict.fromkeys(("int32", "int64", "date32", "timestamp"), "DELTA_BINARY_PACKED"),
    "string": "DELTA_LENGTH_BYTE_ARRAY",
}
"""For columns without a dictionary. Measured in DuckDB: growing numbers take a hundredth of the space and a fifth of
the time to read, random ones and times half of both, texts two thirds of the time."""
_NO_BOUNDS = ("binary", "dynamic", "vector", "list", "struct")


@dataclass(frozen=True)
class ClosedPart:
    rows: int
    bytes: int
    sha256: str
    stats: dict[str, ColumnStats]


class PartFile:
    """Owns a file from its first byte to its fsync. `close` makes it durable and says what is in it; `abort`
    leaves nothing behind. Disk trouble is HW-T05."""

    def __init__(self, path: Path, *, schema: TableSchema, columns: pa.Schema):
        self.path = path
        self._table_schema = schema
        self.schema = columns.with_metadata({FINGERPRINT_KEY: schema.fingerprint})
        self._rows = 0
        self._nulls = [0] * len(schema.columns)
        self._micros = {place for place, column in enumerate(schema.columns) if column.type.kind == "timestamp"}
        self._footer: list[Any] = []
        self._writer: Any = None
        self._sink: _HashingSink | None = None
        self._buffered: Any = None

    def write_group(self, table: pa.Table) -> None:
        """One row group. The table has this file's schema."""
        try:
            if self._writer is None:
                self._open(table)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._rows += table.num_rows
        for place in range(len(self._nulls)):
            self._nulls[place] += table.column(place).null_count
        self._micros = {place for place in self._micros if _is_micros(table.column(place))}
        crash_point("part.mid")

    def close(self) -> ClosedPart:
        assert self._sink is not None, "a file without rows is never made"
        try:
            self._writer.close()
            self._buffered.close()
            crash_point("part.before_fsync")
            size, digest = self._sink.finish()
            fsync_directory(self.path.parent)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        crash_point("part.after_fsync")
        stats = _stats(self._table_schema, self._footer[0], self._nulls, self._micros)
        return ClosedPart(self._rows, size, digest, stats)

    def abort(self) -> None:
        if self._sink is not None:
            self._sink.abandon()
            self.path.unlink(missing_ok=True)
        if self._writer is not None:
            # Else pyarrow tries to finish the file when the writer is collected, and complains on stderr.
            self._writer.is_open = False

    def _open(self, first: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        make_directory(self.path.parent)
        # "x": a file that is there already may be named by a commit, and files are immutable.
        self._sink = _HashingSink(open(self.path, "xb"))  # noqa: SIM115 (closed by `finish` or `abandon`)
        # Parquet comes in many small pieces, and each that goes into Python waits for its turn there.
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), BUFFER_BYTES)
        options = _encoding(first)
        self._writer = pq.ParquetWriter(
            self._buffered,
            self.schema,
            **options,
            **_compression(first.slice(0, SAMPLE_ROWS), options),
            max_rows_per_page=PAGE_ROWS,
            write_page_index=True,
            metadata_collector=self._footer,
        )


class _HashingSink:
    """A file that hashes what passes through, so that nothing is read back. It is what pyarrow takes for a file."""

    def __init__(self, file: BinaryIO):
        self._file, self._digest, self._size = file, hashlib.sha256(), 0
        self.closed = False

    def write(self, data: bytes) -> int:
        if self._file.closed:
            return len(data)
        self._digest.update(data)
        self._size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """pyarrow's word for the end of its part; the file is closed by `finish` or `abandon`."""

    def finish(self) -> tuple[int, str]:
        self._file.flush()
        # No process ever changes a file of the store; on most systems none can by accident from now on.
        os.fchmod(self._file.fileno(), stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        os.fsync(self._file.fileno())
        self._file.close()
        return self._size, self._digest.hexdigest()

    def abandon(self) -> None:
        """Let go of the file; what pyarrow still has to say (a footer, when it is collected) is not heard."""
        with suppress(OSError):  # what could not be written is not wanted any more
            self._file.close()


def _encoding(first: pa.Table) -> dict[str, Any]:
    """How a file's columns are encoded, judged by its first rows."""
    repeating = [name for name in first.schema.names if _repeats(first.column(name))]
    encodings = {field.name: _ENCODINGS.get(str(field.type).split("[")[0]) for field in first.schema}
    return {
        "version": "2.6",
        "use_dictionary": repeating,
        "column_encoding": {n: e for n, e in encodings.items() if e is not None and n not in repeating},
        "store_decimal_as_integer": True,
    }


def _compression(sample: pa.Table, options: dict[str, Any]) -> dict[str, Any]:
    """The codec of each column, by writing a sample with both. The names are those of leaves, as pyarrow wants them."""
    if sample.num_rows < FEW_ROWS:
        return {"compression": "zstd", "compression_level": ZSTD_LEVEL}
    sizes = [_sizes(sample, compression=codec, **options) for codec in ("zstd", "lz4")]
    small = {name: zstd <= ZSTD_SHARE * sizes[1][name] for name, zstd in sizes[0].items()}
    return {
        "compression": {name: "zstd" if is_small else "lz4" for name, is_small in small.items()},
        "compression_level": {name: ZSTD_LEVEL for name, is_small in small.items() if is_small},
    }


def _sizes(sample: pa.Table, **options: Any) -> dict[str, int]:
    """Bytes of each leaf column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer: list[Any] = []
    with pq.ParquetWriter(pa.BufferOutputStream(), sample.schema, metadata_collector=footer, **options) as writer:
        writer.write_table(sample, row_group_size=sample.num_rows)
    group = footer[0].row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.total_compressed_size for column in columns}


def _is_micros(column: pa.ChunkedArray) -> bool:
    """Whether times in nanoseconds are all whole microseconds."""
    import pyarrow as pa

    try:
        column.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        return False
    return True


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary makes the column smaller, judged by its first rows. Nested columns go without."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return True
    if pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
        return False
    sample = column.slice(0, SAMPLE_ROWS)
    if isinstance(sample.type, pa.BaseExtensionType):
        sample = sample.cast(sample.type.storage_type)
    return len(sample.unique()) * 2 < len(sample)


def _stats(schema: TableSchema, footer: Any, nulls: list[int], micros: set[int]) -> dict[str, ColumnStats]:
    """Zone maps by column id, from the footer that was just written: its row groups know their bounds already."""
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    found = {}
    for place, column in enumerate(schema.columns):
        low, high = (
            (None, None) if column.type.kind in _NO_BOUNDS else _bounds(footer, places[column.name], column.type)
        )
        found[str(column.id)] = ColumnStats(nulls=nulls[place], min=low, max=high, micros=place in micros)
    if COMMIT_SEQ.name in places:
        low, high = _bounds(footer, places[COMMIT_SEQ.name], Type("long"))
        found[str(COMMIT_SEQ.id)] = ColumnStats(min=low, max=high)
    return found


Bound = bool | int | float | str | None


def _bounds(footer: Any, place: int, type_: Type) -> tuple[Bound, Bound]:
    """The least and the greatest value of all row groups, each None where one of them does not know."""
    lows, highs = [], []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        stats = chunk.statistics
        if stats is not None and stats.null_count == chunk.num_values:
            continue
        if stats is None or not stats.has_min_max:
            return None, None
        lows.append(_raw(stats.min_raw, type_))
        highs.append(_raw(stats.max_raw, type_))
    if not lows:
        return None, None
    low = None if None in lows else min(lows)
    high = None if None in highs else max(highs)
    return _shown(low, type_), _shown(high, type_)


def _raw(value: Any, type_: Type) -> Any:
    """A bound as the footer holds it, in a form that compares right; None for one that is not kept."""
    match type_.kind:
        case "string":
            return value if len(value) <= BOUND_BYTES else None
        case "decimal":
            return value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)
        case "real":
            return value if math.isfinite(value) else None
        case _:
            return value


def _shown(value: Any, type_: Type) -> Bound:
    match type_.kind:
        case "string" if value is not None:
            return str(value, "utf-8")
        case "decimal" if value is not None:
            return str(Decimal(value).scaleb(-type_.numbers[1], Context(prec=60)))
        case _:
            found: Bound = value
            return found

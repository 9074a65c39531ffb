"""Reads the rows of one range of a table as Arrow batches, in executors.

The driver's snapshot is imported, so that all ranges show one moment. The table is locked (as every SELECT does) and
checked again before a row is read: if it was rewritten or replaced after the snapshot, it would look empty, so
SliceGone is raised instead. The rows come by COPY in the binary format, a batch at a time; the server marks values that
a column's type cannot hold, and they are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import Type, to_arrow
from headwater.coerce.row_errors import RowError
from headwater.connectors.postgres.catalog import intact_sql
from headwater.connectors.postgres.pg_types import PgColumn, Transfer, quoted, transfer
from headwater.connectors.postgres.server_session import BEGIN, SETTINGS_SQL, translated
from headwater.connectors.postgres.slices import Range
from headwater.connectors.protocol import BadRows, Json, Observed, SliceGone, UnknownColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager import AdbcConnection, AdbcDatabase


@dataclass(frozen=True)
class Chosen:
    """A column that is read: its name, how it travels, what it becomes."""

    name: str
    type: Type
    transfer: Transfer


@dataclass(frozen=True)
class ReadPostgres:
    """Reads the ranges of one slice. Holds the secret of the connection, and never shows it."""

    info: str = field(repr=False)
    snapshot: str
    schema: str
    table: str
    oid: int
    columns: tuple[PgColumn, ...]
    fetch_rows: int

    def __call__(self, partition: Json, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        import adbc_driver_manager as adbc

        chosen = self._chosen(schema)
        try:
            with self._session() as connection:
                yield from self._batches(connection, Range(**partition), chosen)
        except (adbc.Error, OSError) as error:
            raise translated(error, info=self.info, table=self.table) from error

    @property
    def _relation(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def _chosen(self, schema: TableSchema) -> list[Chosen]:
        found: list[Chosen] = []
        for column in self.columns:
            wanted = schema.column(column.name)
            way = transfer(column, wanted.type) if wanted is not None else None
            if wanted is None or way is None:
                raise UnknownColumns(Observed({c.name: c.type for c in self.columns}, complete=True))
            found.append(Chosen(column.name, wanted.type, way))
        return found

    @contextmanager
    def _session(self) -> Iterator[AdbcConnection]:
        """A connection in a transaction at the snapshot, with the table locked and intact."""
        import adbc_driver_manager as adbc

        with adbc.AdbcConnection(_database(self.info)) as connection:
            _answer(connection, SETTINGS_SQL)
            _command(connection, BEGIN)
            try:
                _command(connection, f"set transaction snapshot '{self.snapshot}'")
            except adbc.ProgrammingError as error:
                raise SliceGone("the snapshot of the run has ended") from error
            _answer(connection, f"select 1 from {self._relation} limit 0")
            if _answer(connection, intact_sql(self._relation, self.oid)) != [True]:
                raise SliceGone(f"table `{self.table}` was rewritten or replaced after the run began")
            yield connection

    def _batches(self, connection: AdbcConnection, part: Range, chosen: list[Chosen]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        reasons = [(c.name, condition, reason) for c in chosen for condition, reason in c.transfer.wrong]
        schema = pa.schema([pa.field(c.name, to_arrow(c.type)) for c in chosen])
        rows_before = 0
        with _stream(connection, self._select(part, chosen, [condition for _, condition, _ in reasons])) as stream:
            for batch in stream:
                if reasons:
                    self._refuse(batch.column(len(chosen)), rows_before, [(name, why) for name, _, why in reasons])
                rows_before += batch.num_rows
                arrays = [batch.column(place).cast(field.type) for place, field in enumerate(schema)]
                whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
                for start in range(0, whole.num_rows, self.fetch_rows):
                    yield whole.slice(start, self.fetch_rows)

    def _select(self, part: Range, chosen: list[Chosen], conditions: list[str]) -> str:
        """The columns and, where a value can be wrong, the number of the first condition that holds."""
        terms = [f"{c.transfer.sql} as c{place}" for place, c in enumerate(chosen)]
        if conditions:
            cases = " ".join(f"when {condition} then {place}" for place, condition in enumerate(conditions))
            terms.append(f"(case {cases} end)::int2 as wrong")
        return f"select {', '.join(terms)} from {self._relation} where {part.where}"

    def _refuse(self, wrong: pa.Array, rows_before: int, reasons: list[tuple[str, str]]) -> None:
        """Raises BadRows if the server marked a row of this batch. A line is the row's place in its range."""
        total = len(wrong) - wrong.null_count
        if not total:
            return
        import pyarrow.compute as pc

        lines = pc.indices_nonzero(wrong.is_valid())[: limits.ERRORS_SHOWN].to_pylist()
        errors = []
        for line in lines:
            column, reason = reasons[wrong[line].as_py()]
            errors.append(RowError(rows_before + line + 1, column, reason, place=self.table))
        raise BadRows(tuple(errors), total)


@lru_cache(maxsize=limits.PG_DATABASES)
def _database(info: str) -> AdbcDatabase:
    """What the driver must know of a server before it connects. It reads every type of the catalog, which takes longer
    than reading a small range, and it holds no connection: so a process makes it once."""
    from adbc_driver_postgresql import connect

    database: AdbcDatabase = connect(info)
    return database


@contextmanager
def _stream(connection: AdbcConnection, text: str) -> Iterator[pa.RecordBatchReader]:
    import adbc_driver_manager as adbc
    import pyarrow as pa
    from adbc_driver_postgresql import StatementOptions

    with adbc.AdbcStatement(connection) as statement:
        statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(limits.PG_BATCH_BYTES)})
        statement.set_sql_query(text)
        handle, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(handle) as stream:
            yield stream


def _answer(connection: AdbcConnection, text: str) -> list[object]:
    """The first column of a query's rows."""
    with _stream(connection, text) as stream:
        found: list[object] = stream.read_all().column(0).to_pylist()
        return found


def _command(connection: AdbcConnection, text: str) -> None:
    import adbc_driver_manager as adbc

    with adbc.AdbcStatement(connection) as statement:
        statement.set_sql_query(text)
        statement.execute_update()

"""A store with tables to read, and ripples over them, in few words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.catalog import records as r
from headwater.catalog.commit import Store, open_store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.lookup import current_seq, table_entries, table_states
from headwater.catalog.table_state import TableState
from headwater.duck.query_session import connect
from headwater.runtime.land_ripple import (
    Closing,
    CutInput,
    LandedRipple,
    RippleOutcome,
    RippleTable,
    RippleWork,
    land_ripple,
    one_ripple_run,
)
from headwater.spark.frames import table_frame
from headwater.spark.ripples import TableInput
from headwater.spark.user_code import Code, PythonCode, SqlCode
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import PartWriter
from schemas import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]

ORDERS = {"id": "long", "amount": "real", "at": "timestamp"}
NANOS = 1_700_000_000_123_456_789


@contextmanager
def orders_landed(root: Path, spark: SparkSession) -> Iterator[Models]:
    """A store with two orders in it."""
    opened = Models(root, spark)
    opened.put("orders", ORDERS, [(1, 10.0, NANOS), (2, 20.0, -1)])
    yield opened
    opened.close()


@dataclass
class Models:
    """A store, and what ripples over it are told."""

    root: Path
    spark: SparkSession
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.root / "store", project="shop")

    def close(self) -> None:
        self.store.close()

    def seq(self) -> int:
        with self.store.catalog.snapshot() as connection:
            return current_seq(connection)

    def state(self, table: str, *, as_of: int | None = None) -> TableState:
        with self.store.catalog.snapshot() as connection:
            (found,) = table_states(connection, [table], as_of=as_of)
        return found

    def input(self, table: str, *, since_seq: int | None = None) -> dict[str, TableInput]:
        return {table: TableInput(self.store.root, self.state(table), since_seq)}

    def put(
        self, table: str, columns: dict[str, str], rows: Sequence[Row], *, mode: str = "append", key: str = ""
    ) -> int:
        """Land rows in a table of an Inlet, creating it first; the sequence at which they are visible."""
        schema = schema_of(columns, (key,) if key else ())
        run_id = uuid7()
        directory = attempt_directory(table, run_id=run_id, node="n", unit_id=uuid7(), attempt=1)
        writer = PartWriter(
            self.store.root,
            directory,
            schema=schema,
            partition=0,
            task_attempt=0,
            run_id=run_id,
            ingested_at_us=now_us(),
        )
        with writer:
            writer.write(_batch(schema, rows))
        changes: list[r.Change] = []
        with self.store.catalog.snapshot() as connection:
            known = table in table_entries(connection)
        if not known:
            changes.append(r.TableCreated(table=table, pipeline=f"{table}-inlet", mode=mode))
            changes.append(r.SchemaSet(table=table, schema_id=1, schema=schema.as_json()))
        changes.append(r.FilesAdded(table=table, schema_id=1, run_id=run_id, files=writer.close()))
        return self.commit(*changes)

    def commit(self, *changes: r.Change) -> int:
        return self.store.commit(r.Commit(changes=changes, actor="test"))

    def sql(self, text: str, *reads: CutInput | str, **more: Any) -> LandedRipple:
        """Land a query as the table `out`, over tables as they are now or as they are given."""
        return land_ripple(self.work(SqlCode(text), *reads, **more))

    def refused(self, sql: str, *reads: CutInput | str, **more: Any) -> HeadwaterError:
        """The error of a query that changes nothing."""
        before = self.seq()
        with pytest.raises(HeadwaterError) as caught:
            self.sql(sql, *reads, **more)
        if caught.value.code not in ("HW-S01", "HW-S02"):  # those are noted for `schema accept`
            assert self.seq() == before
        return caught.value

    def python(self, file: str, text: str, *reads: CutInput | str, **more: Any) -> LandedRipple:
        """Land the function `out` of a file with this text."""
        return land_ripple(self.work(self.code(file, text), *reads, **more))

    def code(self, file: str, text: str, function: str = "out") -> PythonCode:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return PythonCode(path, function, file)

    def work(
        self,
        code: Code,
        *reads: CutInput | str,
        mode: str = "replace",
        key: tuple[str, ...] = (),
        columns: Mapping[str, str] | None = None,
        requires: tuple[r.Requirement, ...] = (),
        closing: Callable[[RippleOutcome], Closing] | None = None,
        as_run: bool = True,
        job_id: str | None = None,
    ) -> RippleWork:
        declared = {name: DeclaredColumn(parse_type(type_)) for name, type_ in (columns or {}).items()}
        seq = self.seq()
        work = RippleWork(
            store=self.store,
            spark=lambda: self.spark,
            ripple=RippleTable("models", "out", code, mode, key, declared),
            inputs=tuple(read if isinstance(read, CutInput) else CutInput(read, seq) for read in reads),
            run_id=uuid7(),
            job_id=job_id or uuid7(),
            attempt=1,
            freshness_us=2_000_000,
            previous_freshness_us=1_000_000,
            actor="test",
            requires=requires,
        )
        if closing is not None:
            work = RippleWork(**{**vars(work), "closing": closing})
        return one_ripple_run(work, trigger="pulse", definition="sha256:1") if as_run else work

    def shown(self, columns: str = "*", table: str = "out", *, as_of: int | None = None) -> list[Row]:
        """Rows as DuckDB's view shows them, in their order; columns by name are those of the view with all of them."""
        with self.store.catalog.snapshot() as connection:
            states = table_states(connection, as_of=as_of)
        with connect(self.store.root, states, tables_info=()) as session:
            view = table if columns == "*" else f"meta.{table}"
            return session.sql(f"SELECT {columns} FROM {view} ORDER BY ALL").fetchall()

    def in_spark(self, columns: str, table: str = "out") -> list[Row]:
        """The same in Spark."""
        frame = table_frame(self.spark, self.store.root, self.state(table)).selectExpr(*columns.split(", "))
        return sorted(tuple(row) for row in frame.collect())

    def types(self, table: str = "out") -> dict[str, str]:
        return {column.name: str(column.type) for column in self.state(table).schema.columns}

    def data_files(self, table: str = "out") -> set[Path]:
        return set((self.store.root / "tables" / table).rglob("*.parquet"))


def _batch(schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows)) or [()] * len(schema.columns)
    arrays = []
    for values, column in zip(columns, schema.to_arrow()):
        if isinstance(column.type, pa.JsonType):
            texts = [value if value is None else json.dumps(value) for value in values]
            arrays.append(pa.array(texts, pa.string()))
        else:
            arrays.append(pa.array(list(values), column.type))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in schema.columns])

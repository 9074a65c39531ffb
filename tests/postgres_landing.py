"""Landing from PostgreSQL by hand: `by_hand.Table` with what an incremental source needs on top of it: upserts, the
dropping of rows that are there with equal content, and slices that are landed one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from by_hand import Row, Table, as_stored
from headwater.base.clock import from_text
from headwater.base.table_schema import TableSchema
from headwater.connectors.postgres.source import PostgresSource, open_source
from headwater.connectors.protocol import ArrowRead, Cursor, Slice, SlicePlan, TableAsk


def source_of(url: str, **config: object) -> PostgresSource:
    """A source whose URL comes by reference, as in a manifest."""
    found = {"env:PG_URL": url}
    return open_source({"url": "env:PG_URL", **config}, root=Path(), resolve=found.__getitem__, pipeline="p")


def schema_of(read: ArrowRead, ask: TableAsk) -> TableSchema:
    """The schema of a new table: what is declared, else what is observed."""
    assert read.observed is not None
    schema = TableSchema(primary_key=ask.primary_key or read.observed.primary_key)
    for name, type_ in read.observed.columns.items():
        schema = schema.added(name, ask.declared.get(name, type_))
    return schema


def rows_of(read: ArrowRead, ask: TableAsk) -> list[Row]:
    schema = schema_of(read, ask)
    expected = schema.to_arrow().remove_metadata()
    found: list[Row] = []
    for partition in read.partitions:
        for batch in read.read(partition, schema):
            assert batch.schema.types == expected.types
            assert batch.schema.names == expected.names
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


class Landing(Table):
    """A table that is landed from one database. `log` has the rows of each slice that landed, after the filter."""

    def __init__(self, url: str, ask: TableAsk, config: Mapping[str, object] | None = None):
        super().__init__(ask)
        self.url, self.config = url, config or {}
        self.log: list[list[Row]] = []

    def source(self) -> PostgresSource:
        return source_of(self.url, **self.config)

    def run(self, *, between: Callable[[int], None] = lambda done: None) -> SlicePlan:
        """A whole run in one process; `between` is called after each slice."""
        source = self.source()
        try:
            plan = self.plan(source)
            for done, slice_ in enumerate(plan.slices, 1):
                self.land_slice(source, slice_)
                between(done)
            return plan
        finally:
            source.close()

    def land_slice(self, source: PostgresSource, slice_: Slice) -> None:
        stored = as_stored(slice_)
        found, _ = self.read(source, stored)
        rows = self._filtered(found, source.read(self.ask, stored))
        if self.ask.mode == "upsert":
            keys = {self._key(row) for row in rows}
            self.rows = [row for row in self.rows if self._key(row) not in keys]
        self.rows += rows
        self.log.append(rows)
        version = self.cursor.version + 1 if self.cursor else 1
        self.cursor = Cursor(source.backfill_hint().cursor_kind, version, source.identity(self.ask), stored.end)

    def column(self, name: str) -> list[Any]:
        return sorted(row[name] for row in self.rows)

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.ask.primary_key)

    def _filtered(self, rows: list[Row], read: ArrowRead) -> list[Row]:
        column, least = read.key_filter_column, read.key_filter_from
        if column is None:
            return rows
        held = [row for row in self.rows if least is None or _comparable(row[column]) >= _comparable(least)]
        return [row for row in rows if row not in held]


def _comparable(value: Any) -> Any:
    """Times as nanoseconds and dates as text, as filters have them."""
    if isinstance(value, datetime):
        return from_text(value.isoformat()) * 1000
    return value.isoformat() if isinstance(value, date) else value

"""The least that a caller of the slice protocol does, in memory: plan, read, drop rows that are there, keep the
cursor of the longest done prefix. It lets connector tests say what has landed without Spark or a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.base.clock import from_text
from headwater.base.schema import TableSchema
from headwater.connectors.postgres import PostgresSource, open_source
from headwater.connectors.protocol import ArrowRead, Cursor, CursorKind, Slice, SlicePlan, TableAsk

Row = dict[str, Any]


def source_of(url: str, **config: object) -> PostgresSource:
    """A source whose URL comes by reference, as in a manifest."""
    return open_source(
        {"url": "env:PG_URL", **config}, root=Path(), resolve={"env:PG_URL": url}.__getitem__, pipeline="p"
    )


def schema_of(read: ArrowRead, ask: TableAsk) -> TableSchema:
    assert read.observed is not None
    schema = TableSchema(primary_key=ask.primary_key or read.observed.primary_key)
    for name, type_ in read.observed.columns.items():
        schema = schema.added(name, ask.declared.get(name, type_))
    return schema


def rows_of(read: ArrowRead, ask: TableAsk, partitions: Iterable[Any] | None = None) -> list[Row]:
    schema = schema_of(read, ask)
    expected = schema.to_arrow().remove_metadata()
    found: list[Row] = []
    for partition in read.partitions if partitions is None else partitions:
        for batch in read.read(partition, schema):
            assert batch.schema.types == expected.types
            assert batch.schema.names == expected.names
            found += batch.to_pylist()
    return found


@dataclass
class Landing:
    """A table and its cursor. `log` has the rows of each slice that landed, after the filter."""

    url: str
    ask: TableAsk
    config: Mapping[str, object] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    cursor: Cursor | None = None
    log: list[list[Row]] = field(default_factory=list)

    def source(self) -> PostgresSource:
        return source_of(self.url, **self.config)

    def plan(self, source: PostgresSource) -> SlicePlan:
        return source.slices(self.ask, self.cursor, source.bound(self.ask), {})

    def run(self, *, between: Callable[[int], None] = lambda done: None) -> SlicePlan:
        """A whole run in one process; `between` is called after each slice."""
        source = self.source()
        try:
            plan = self.plan(source)
            for done, slice_ in enumerate(plan.slices, 1):
                self.land(source, slice_)
                between(done)
            return plan
        finally:
            source.close()

    def land(self, source: PostgresSource, slice_: Slice) -> None:
        """Read a slice as it comes back from the catalog, where it was JSON, and commit it."""
        stored = Slice(
            **json.loads(json.dumps({name: getattr(slice_, name) for name in ("start", "end", "spec")})), describe=""
        )
        read = source.read(self.ask, stored)
        rows = self._filtered(rows_of(read, self.ask), read)
        if self.ask.mode == "upsert":
            keys = {self._key(row) for row in rows}
            self.rows = [row for row in self.rows if self._key(row) not in keys]
        self.rows += rows
        self.log.append(rows)
        version = self.cursor.version + 1 if self.cursor else 1
        self.cursor = Cursor(CursorKind.MONOTONIC, version, source.identity(self.ask), stored.end)

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
    """Times as microseconds: from Arrow they come as datetimes, from a filter as RFC 3339."""
    if isinstance(value, str):
        return from_text(value)
    return from_text(value.isoformat()) if hasattr(value, "isoformat") else value

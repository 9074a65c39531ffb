"""Landing by hand: what the runtime does with a source, in a few lines and in memory, for tests of connectors."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.base.table_schema import TableSchema
from headwater.base.types import Type
from headwater.coerce.row_errors import BadRow
from headwater.connectors.protocol import (
    ArrowRead,
    BadItem,
    Cursor,
    CursorKind,
    CursorRead,
    Item,
    ItemRead,
    Json,
    Observed,
    Slice,
    SlicePlan,
    Source,
    TableAsk,
    UnknownColumns,
)
from headwater.connectors.registry import CONNECTORS
from headwater.runtime.bad_items import check_bad_items, read_without
from headwater.runtime.inlet import merge_observed

Row = dict[str, Any]


def open_source(
    name: str, config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> Source:
    """A source by its connector's name."""
    return CONNECTORS[name].open(config, root=root, resolve=resolve, pipeline=pipeline)


@dataclass
class Table:
    """A table in memory: its rows in commit order, and what is remembered of its source."""

    ask: TableAsk
    rows: list[Row] = field(default_factory=list)
    landed: dict[str, Json] = field(default_factory=dict)
    cursor: Cursor | None = None
    schema: TableSchema = field(default_factory=TableSchema)
    bad: list[BadRow] = field(default_factory=list)
    bad_items: dict[str, BadItem] = field(default_factory=dict)
    reported: CursorRead | None = None
    """Where the last read got to, if it said so."""

    def plan(self, source: Source) -> SlicePlan:
        return source.slices(self.ask, self.cursor, source.bound(self.ask), self.landed)

    def land(self, source: Source) -> SlicePlan:
        """One run: plan, read every slice, commit each. Raises what the source raises."""
        plan = self.plan(source)
        self.note(plan.touched)
        staged: list[Row] = []
        for slice_ in plan.slices:
            stored = as_stored(slice_)
            for item in stored.items:
                self.bad_items.pop(item.source_id, None)
            rows, items = self.read(source, stored)
            if self.ask.mode == "replace":
                staged += rows
            else:
                gone = set(stored.replaces) - self.bad_items.keys()
                self.rows = [row for row in self.rows if row.get("_source_id") not in gone] + rows
            assert set(items) == {item.source_id for item in stored.items}
            self.landed.update(items)
            kind = source.backfill_hint().cursor_kind
            version = self.cursor.version + 1 if self.cursor else 1
            if self.reported is not None and kind is CursorKind.OPAQUE_TOKEN:
                assert slice_ is plan.slices[-1], "a slice after this one was planned from another end"
            end = stored.end if self.reported is None else self.reported.value
            self.cursor = Cursor(kind, version, source.identity(self.ask), end)
        if self.ask.mode == "replace" and plan.slices:
            self.rows = staged
        return plan

    def note(self, touched: tuple[Item, ...]) -> None:
        self.landed.update({item.source_id: item.version for item in touched})

    def read(self, source: Source, slice_: Slice) -> tuple[list[Row], dict[str, Json]]:
        """The rows and items of a slice, after the schema has learnt its columns."""
        read = source.read(self.ask, slice_)
        assert isinstance(read, ArrowRead)
        if read.observed is not None:
            self.learn(read.observed.columns)
            self._leave_out(read.observed.bad_items)
        elif not self.schema.columns:
            read = self._learn_from(read)
        for _ in range(10):
            try:
                rows, items, bad_items = self._read_all(read)
                if not bad_items:
                    kept = {item.source_id: item.version for item in self.bad_items.values()}
                    return rows, items | {key: version for key, version in kept.items() if key in _items_of(slice_)}
                self._leave_out(bad_items)
                read = read_without(read, self.bad_items)
            except UnknownColumns as unknown:
                assert unknown.observed.columns, "a source that names no column would be asked for ever"
                self.learn(unknown.observed.columns)
        raise AssertionError("the source goes on finding columns")

    def _learn_from(self, read: ArrowRead) -> ArrowRead:
        """Learn the columns of all partitions; the read without what cannot be read."""
        observed = observed_of(read)
        self.learn(observed.columns)
        self._leave_out(observed.bad_items)
        return read_without(read, self.bad_items) if observed.bad_items else read

    def _leave_out(self, found: Sequence[BadItem]) -> None:
        self.bad_items.update({item.source_id: item for item in found})
        check_bad_items(self.ask, self.bad_items.values())

    def _read_all(self, read: ArrowRead) -> tuple[list[Row], dict[str, Json], list[BadItem]]:
        rows: list[Row] = []
        items: dict[str, Json] = {}
        bad_items: list[BadItem] = []
        bad = []
        self.reported = None
        function = pickle.loads(pickle.dumps(read.read))
        for partition in read.partitions:
            for found in function(json.loads(json.dumps(partition)), self.schema):
                if isinstance(found, ItemRead):
                    assert found.source_id not in items, "an item is read once"
                    items[found.source_id] = json.loads(json.dumps(found.version))
                elif isinstance(found, CursorRead):
                    assert json.loads(json.dumps(found.value)) == found.value
                    self.reported = found
                elif isinstance(found, BadRow):
                    bad.append(found)
                elif isinstance(found, BadItem):
                    bad_items.append(found)
                else:
                    names = [name for name in found.schema.names if name != "_source_id"]
                    assert found.select(names).schema.types == self.schema.to_arrow().types
                    found.validate(full=True)
                    rows += found.to_pylist()
        self.bad += bad if not bad_items else []
        return rows, items, bad_items

    def learn(self, columns: Mapping[str, Type]) -> None:
        for name, type_ in {**self.ask.declared, **columns}.items():
            if self.schema.column(name) is None:
                self.schema = self.schema.added(name, type_)


def observed_columns(read: ArrowRead) -> dict[str, Type]:
    """The columns of all partitions together."""
    return dict(observed_of(read).columns)


def observed_of(read: ArrowRead) -> Observed:
    """What all partitions show together."""
    assert read.observe is not None
    observe = pickle.loads(pickle.dumps(read.observe))
    return merge_observed([observe(json.loads(json.dumps(partition))) for partition in read.partitions])


def _items_of(slice_: Slice) -> set[str]:
    return {item.source_id for item in slice_.items}


def as_stored(slice_: Slice) -> Slice:
    """The slice as another process finds it in the catalog: everything in it has been JSON."""
    return Slice(
        start=json.loads(json.dumps(slice_.start)),
        end=json.loads(json.dumps(slice_.end)),
        spec=json.loads(json.dumps(slice_.spec)),
        describe=slice_.describe,
        estimated_rows=slice_.estimated_rows,
        estimated_bytes=slice_.estimated_bytes,
        items=tuple(Item(item.source_id, json.loads(json.dumps(item.version))) for item in slice_.items),
        replaces=slice_.replaces,
    )


def batches(source: Source, ask: TableAsk, schema: TableSchema) -> Iterator[Any]:
    """All that a source yields in its first run, read with one schema."""
    for slice_ in source.slices(ask, None, source.bound(ask), {}).slices:
        read = source.read(ask, as_stored(slice_))
        assert isinstance(read, ArrowRead)
        for partition in read.partitions:
            yield from read.read(partition, schema)

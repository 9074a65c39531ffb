"""Whatever was committed, the log says it all: a rebuilt catalog is equal, and the past reads as it did then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog_rows import dump
from contract.stores import (
    ACTOR,
    PROJECT,
    Place,
    attempt_path,
    begin_run,
    claim,
    commit,
    create_table,
    done,
    quick_directory,
)
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RunId
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.database import open_catalog
from headwater.catalog.evolution import Shown, evolve
from headwater.catalog.lookup import table_states
from headwater.catalog.rebuild import replay_log
from headwater.catalog.schema_decisions import accept_change, refuse_change
from headwater.catalog.slice_jobs import SliceLease
from headwater.catalog.table_state import TableState
from headwater.storage.file_record import ColumnStats, FileRecord

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
BOUND = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
STATS = st.dictionaries(
    st.sampled_from(["1", "2"]), st.builds(ColumnStats, nulls=st.integers(0, 9), min=BOUND, max=BOUND), max_size=2
)
OPS = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 3)),
    st.tuples(st.just("land"), STATS),
    st.tuples(st.just("stage"), STATS),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("give_up"), st.text(max_size=5).filter(lambda text: "\0" not in text)),
    st.tuples(st.just("items"), st.dictionaries(st.sampled_from("abc"), JSON, max_size=2)),
    st.tuples(st.just("cursor"), JSON),
    st.tuples(st.just("column"), st.none()),
    st.tuples(st.just("key"), st.tuples(st.sampled_from("abcä"), st.none() | st.integers(0, 9))),
    st.tuples(st.just("clear_keys"), st.none() | st.lists(st.sampled_from("abx"), max_size=2)),
    st.tuples(st.just("sweep"), st.integers(0, 9)),
    st.tuples(st.just("mode"), st.sampled_from(["append", "upsert", "replace"])),
)


@dataclass
class Past:
    """A store under random commits, and how its table read after each of them."""

    store: Store
    run_id: RunId | None = None
    files: int = 0
    states: dict[int, TableState] = field(default_factory=dict)

    def table(self) -> TableState:
        with self.store.catalog.snapshot() as connection:
            (state,) = table_states(connection)
        return state

    def do(self, op: str, value: Any) -> None:
        getattr(self, op)(value)
        state = self.table()
        self.states[state.seq] = state

    def run(self, units: int) -> None:
        self.run_id = begin_run(self.store, units)

    def lease(self) -> SliceLease | None:
        return None if self.run_id is None else claim(self.store.catalog, self.run_id, holder="w")

    def file(self, lease: SliceLease, stats: dict[str, ColumnStats]) -> FileRecord:
        self.files += 1
        return FileRecord(path=attempt_path(lease, f"{self.files}"), rows=1, bytes=1, ordinal=self.files, stats=stats)

    def land(self, stats: dict[str, ColumnStats]) -> None:
        if (lease := self.lease()) is not None:
            schema_id, file = self.table().schema_id, self.file(lease, stats)
            added = r.FilesAdded(table="orders", schema_id=schema_id, run_id=lease.run_id, files=(file,))
            commit(self.store, added, *done(lease), requires=[lease.fence])

    def stage(self, stats: dict[str, ColumnStats]) -> None:
        if (lease := self.lease()) is not None:
            file = self.file(lease, stats)
            commit(self.store, *done(lease, staged=(file,), staged_schema_id=1), requires=[lease.fence])

    def remove(self, place: int) -> None:
        paths = tuple(file.path for file in self.table().files[place : place + 2])
        if paths:
            commit(self.store, r.FilesRemoved(table="orders", paths=paths))

    def restore(self, place: int) -> None:
        live = {file.path for file in self.table().files}
        gone = sorted({row["path"] for row in dump(self.store.catalog)["file_entry"]} - live)
        if gone:
            file = FileRecord(path=gone[place % len(gone)], rows=1, bytes=1, ordinal=place)
            commit(self.store, r.FilesAdded(table="orders", schema_id=1, run_id="r", files=(file,)))

    def forget(self, _: None) -> None:
        gone = [row for row in dump(self.store.catalog)["file_entry"] if row["removed_seq"] is not None]
        if gone:
            oldest = max(row["removed_seq"] for row in gone)
            paths = tuple(row["path"] for row in gone)
            commit(self.store, r.FilesForgotten(table="orders", paths=paths, oldest_seq=oldest))

    def give_up(self, message: str) -> None:
        if self.run_id is not None:
            error = r.RunError(run_id=self.run_id, error_kind="HW-C02", error_message=message)
            commit(self.store, error, r.UnitsAbandoned(run_id=self.run_id), r.RunSettled(run_id=self.run_id))

    def items(self, items: dict[str, Any]) -> None:
        commit(self.store, r.ItemsLanded(pipeline=PROJECT, table="orders", items=items))

    def cursor(self, value: Any) -> None:
        moved = r.CursorSet(pipeline=PROJECT, table="orders", kind="opaque-token", source_identity="s", value=value)
        commit(self.store, moved)

    def key(self, value: tuple[str, int | None]) -> None:
        key, expires_us = value
        answer = {"fingerprint": f"sha256:{self.files}", "rows": self.files, "bytes": 0}
        commit(self.store, r.LedgerKeySet(table="orders", key=key, expires_us=expires_us, **answer))

    def clear_keys(self, keys: list[str] | None) -> None:
        commit(self.store, r.LedgerKeysCleared(table="orders", keys=None if keys is None else tuple(keys)))

    def sweep(self, before_us: int) -> None:
        commit(self.store, r.LedgerSwept(before_us=before_us))

    def column(self, _: None) -> None:
        state = self.table()
        name = f"c{state.schema.next_id}"
        evolution = evolve(state.schema, Shown({name: LONG}), declared={}, primary_key=())
        body = evolution.schema.as_json()
        commit(
            self.store, r.SchemaSet(table="orders", schema_id=state.schema_id + 1, schema=body, events=evolution.events)
        )

    def mode(self, mode: str) -> None:
        state = self.table()
        evolution = evolve(state.schema, Shown({}), declared={}, primary_key=(), modes=(state.mode, mode))
        if evolution.refused:
            refuse_change(self.store, "orders", evolution, mode=mode, actor=ACTOR)
            accept_change(self.store, "orders", actor=ACTOR)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPS, min_size=1, max_size=12))
def test_a_rebuilt_catalog_is_equal_and_the_past_reads_as_it_did(ops: list[tuple[str, Any]]) -> None:
    with quick_directory() as directory:
        past = Past(Place(directory, "sqlite").open())
        create_table(past.store, schema=TableSchema().added("id", LONG))
        for op, value in ops:
            past.do(op, value)
        rebuilt = open_catalog("sqlite", sqlite_path=directory / "rebuilt.sqlite", project=PROJECT)
        assert rebuilt is not None
        replay_log(rebuilt, past.store.layout)
        assert dump(rebuilt) == dump(past.store.catalog)
        for seq, state in past.states.items():
            with rebuilt.snapshot() as connection:
                try:
                    (then,) = table_states(connection, as_of=seq)
                except HeadwaterError as gone:
                    assert gone.code == "HW-T07"
                    assert any(op == "forget" for op, _ in ops)
                    continue
            assert then == state

"""Any history of an upsert table, read through its view, is a Python dict that was written in the same order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.stores import ACTOR, Place, commit, create_table, quick_directory
from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.inferred_levels import inferred_base
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_states
from headwater.catalog.push_writers import new_writer
from headwater.catalog.table_state import TableState
from headwater.duck.merge_files import Merge, merge_files
from headwater.duck.table_select import view_select
from headwater.storage.part_writer import PartWriter
from schemas import schema_of
from unit.duck.tables import HandMade, database
from unit.storage.batches import batch_of

KEYS = st.tuples(st.integers(-4, 12), st.sampled_from([None, "a", "b"]))
NANOS = st.integers(-(2**63) + 2, 2**63 - 2)
COMMITS = st.lists(st.lists(KEYS, min_size=1, max_size=6), min_size=1, max_size=6)


@given(COMMITS, st.booleans(), st.integers(0, 6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_view_is_the_dict(
    commits: list[list[tuple[int, str | None]]], statistics: bool, widened_at: int, told: bool
) -> None:
    """`told`: commits whose keys are unique say so. The first key column is an int that becomes a long."""
    model: dict[tuple[int, str | None], tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        schema = schema_of({"n": "int", "s": "string", "v": "long"}, ("n", "s"))
        schema = replace(schema, columns=tuple(replace(column, nullable=True) for column in schema.columns))
        table = HandMade(root, schema, mode="upsert")
        value = 0
        for place, keys in enumerate(commits):
            if place == widened_at:
                table.evolve(schema.with_column(replace(schema.columns[0], type=parse_type("long"))))
            rows: list[dict[str, Any]] = []
            for n, s in keys:
                value += 1
                rows.append({"n": n, "s": s, "v": value})
                model[n, s] = (value, place + 1)
            table.commit(rows, unique_keys=told and len(set(keys)) == len(keys))
        files = tuple(table.files if statistics else [replace(file, stats={}) for file in table.files])
        state = table.state(files=files)
        with database().cursor() as connection:
            select = view_select(state, root=str(root))
            found = connection.execute(f"SELECT n, s, v, _commit_seq FROM ({select})").fetchall()
        assert len(found) == len(model)
        assert {(n, s): (v, seq) for n, s, v, seq in found} == model
        if all(file.level for file in files):
            assert sum(file.rows for file in files) == len(model)


@dataclass
class History:
    """An upsert table under random commits and merges, and what it must show after each commit."""

    store: Store
    schema: TableSchema
    schema_id: int = 1
    value: int = 0
    rows: dict[tuple[int, str | None], int] = field(default_factory=dict)
    seen: dict[int, dict[tuple[int, str | None], int]] = field(default_factory=dict)

    def state(self, as_of: int | None = None) -> TableState:
        with self.store.catalog.snapshot() as connection:
            return table_states(connection, ["orders"], as_of=as_of)[0]

    def write(self, keys: list[tuple[int, str | None]]) -> None:
        rows = [{"n": n, "s": s, "v": self.value + place} for place, (n, s) in enumerate(keys)]
        self.rows |= {(row["n"], row["s"]): row["v"] for row in rows}
        self.value += len(keys)
        values: dict[str, Any] = {"partition": 0, "task_attempt": 0, "run_id": "r", "ingested_at_us": 1}
        directory = f"tables/orders/data/{self.value}"
        writer = PartWriter(self.store.root, directory, schema=self.schema, max_rows=3, **values)
        with writer, Landing(self.store, ACTOR) as landing:
            types = {column.name: str(column.type) for column in self.schema.columns}
            writer.write(batch_of(rows, types))
            unique = len(set(keys)) == len(keys)
            landing.add_files("orders", self.schema_id, "r", writer.close(), unique_keys=unique)
            landing.commit()
        self.note()

    def merge(self, chosen: set[int]) -> None:
        """Some of the commits, whole, with one another."""
        state = self.state()
        seqs = sorted({file.added_seq for file in state.files})
        seqs = [seq for place, seq in enumerate(seqs) if place in chosen]
        files = tuple(file for file in state.files if file.added_seq in seqs)
        if len({file.schema_id for file in files}) == 1:
            self.value += 1
            writer, merge = new_writer(self.store.catalog), Merge(files, files[0].schema_id)
            directory = f"tables/orders/data/{self.value}"
            merge_files(self.store, state, merge, directory=directory, number=0, writer=writer, actor=ACTOR)
        self.note()

    def widen(self) -> None:
        self.schema = self.schema.with_column(replace(self.schema.columns[0], type=parse_type("long")))
        self.schema_id += 1
        change = r.SchemaSet(table="orders", schema_id=self.schema_id, schema=self.schema.as_json())
        commit(self.store, change)
        self.note()

    def note(self) -> None:
        self.seen[self.state().seq] = dict(self.rows)


def shown_rows(root: Path, state: TableState) -> dict[tuple[int, str | None], int]:
    with database().cursor() as connection:
        found = connection.execute(f"SELECT n, s, v FROM ({view_select(state, root=str(root))})").fetchall()
    assert len(found) == len({(n, s) for n, s, _ in found})
    return {(n, s): v for n, s, v in found}


RANGES = st.builds(lambda start, keys: [(start + n, s) for n, s in keys], st.integers(0, 9).map(lambda n: 20 * n),
                   st.lists(KEYS, min_size=1, max_size=5))  # fmt: skip
STEPS = st.lists(RANGES | st.sets(st.integers(0, 8), min_size=1, max_size=5) | st.none(), min_size=2, max_size=9)


@given(STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_decided_levels_show_the_rows_that_inferred_ones_showed(
    steps: list[list[tuple[int, str | None]] | set[int] | None],
) -> None:
    with quick_directory() as directory:
        schema = schema_of({"n": "int", "s": "string", "v": "long"}, ("n", "s"))
        schema = replace(schema, columns=tuple(replace(column, nullable=True) for column in schema.columns))
        history = History(Place(directory, "sqlite").open(), schema)
        create_table(history.store, mode="upsert", schema=schema)
        for step in steps:
            if step is None:
                history.widen()
            elif isinstance(step, set):
                history.merge(step)
            else:
                history.write(step)
        for seq, rows in history.seen.items():
            state = history.state(seq)
            base = {file.path for file in inferred_base(state.files, state.schema, state.schemas)}
            inferred = tuple(replace(file, level=int(file.path in base)) for file in state.files)
            assert shown_rows(directory, state) == shown_rows(directory, replace(state, files=inferred)) == rows
        history.store.close()


@given(st.lists(NANOS, min_size=1, max_size=20), st.booleans(), st.integers(-(2**53), 2**53))
@settings(max_examples=30, deadline=None)
def test_times_are_floored_and_filtered_right(values: list[int], whole: bool, bound_us: int) -> None:
    """`whole`: all of them are whole microseconds, which a view reads in another way."""
    if whole:
        values = [value + -value % 1000 if value < 0 else value - value % 1000 for value in values]
    with tempfile.TemporaryDirectory() as directory:
        table = HandMade(Path(directory), schema_of({"seen": "timestamp"}))
        table.commit([{"seen": value} for value in values])
        with database().cursor() as connection:
            connection.execute(f"CREATE TEMP VIEW t AS {view_select(table.state(), root=directory)}")
            shown = connection.execute("SELECT epoch_us(seen), seen_ns FROM t").fetchall()
            later = connection.execute("SELECT seen_ns FROM t WHERE seen >= make_timestamptz(?)", [bound_us]).fetchall()
    assert shown == [(value // 1000, value) for value in values]
    assert sorted(v for (v,) in later) == sorted(value for value in values if value // 1000 >= bound_us)

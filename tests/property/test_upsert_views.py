"""Any history of an upsert table, read through its view, is a Python dict that was written in the same order."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.table_schema import schema_of
from headwater.base.types import parse_type
from headwater.duck.table_select import view_select
from unit.duck.tables import HandMade, database

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

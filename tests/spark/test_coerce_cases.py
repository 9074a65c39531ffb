"""Every case of coercion, read from files by Spark: the rows and errors that the pure function and HTTP give.

The doors differ on purpose in two things. A file's bad rows become dead letters while its good ones land, where a
pushed batch is refused whole; and a letter tells the first thing that is wrong with a row, not all of them. A key that
no column is declared for is the connector's own matter, and not looked at here.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.app.workspace import workspace
from headwater.base.types import to_arrow
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.lookup import table_states
from spark.scenario import command
from unit.coerce.test_cases import bytes_in, rows, schema_in
from unit.interfaces.http.test_ingest_cases import CASES, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST = 150
OLD_NS = 1_700_000_000_000_000_000
"""Old enough that size and time of a file prove that it has not changed."""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[dict[str, pa.Table], list[Json]]:
    """The stored rows of each table, and the letters: all cases in one apply, a file for each, a table for each
    schema."""
    root = tmp_path_factory.mktemp("cases")
    (root / "headwater.toml").write_text('[project]\nname = "cases"\n')
    (root / "pipelines").mkdir()
    for name, case in {table_of(case): case for case in CASES}.items():
        source = {"connector": "files", "config": {"path": f"data/{name}/*.ndjson"}}
        tables = [{"name": name, **case["schema"]}]
        pipeline = {"id": name, "source": source, "max_bad_rows": 1_000, "tables": tables}
        (root / "pipelines" / f"{name}.json").write_text(json.dumps(pipeline))
    for number, case in enumerate(CASES):
        path = root / "data" / table_of(case) / file_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_in(case))
        os.utime(path, ns=(OLD_NS, OLD_NS))
    answer = command(root, "apply", "--json")
    assert answer.exit == 0, answer.err
    with workspace(root) as opened:
        store = opened.store()
        return {name: stored(store, name) for name in map(table_of, CASES)}, stored(store, LETTERS).to_pylist()


def file_of(number: int) -> str:
    return f"{number:03d}.ndjson"


def stored(store: Store, table: str) -> pa.Table:
    with store.catalog.snapshot() as connection:
        states = table_states(connection, [table])
    found = [pq.read_table(store.root / file.path) for state in states for file in state.files]
    return pa.concat_tables(found) if found else pa.table({"_source_id": pa.array([], pa.string())})


def test_every_case_has_the_same_rows_and_errors(landed: tuple[dict[str, pa.Table], list[Json]]) -> None:
    tables, letters = landed
    assert len(CASES) >= LEAST
    for number, case in enumerate(CASES):
        place = f"data/{table_of(case)}/{file_of(number)}"
        assert rows_of(tables[table_of(case)], case, place) == case["rows"], case["why"]
        told = sorted(
            (letter["line"], letter["column_name"], letter["reason"]) for letter in letters if letter["place"] == place
        )
        first = {error["line"]: error for error in reversed(case.get("errors", []))}
        assert told == [(line, first[line]["column"], first[line]["reason"]) for line in sorted(first)], case["why"]
    assert {letter["place"] for letter in letters} <= {
        f"data/{table_of(case)}/{file_of(number)}" for number, case in enumerate(CASES) if "errors" in case
    }


def rows_of(table: pa.Table, case: Json, place: str) -> list[Json]:
    """What a file has become, in the form of the cases."""
    schema = schema_in(case)
    mine = table.filter(pa.compute.equal(table.column("_source_id"), place)).combine_chunks()
    if not mine.num_rows:
        return []
    arrays = []
    for column in schema.columns:
        array, type_ = mine.column(column.name).combine_chunks(), to_arrow(column.type)
        arrays.append(array if array.type.equals(type_) else array.cast(type_))
    return rows(pa.RecordBatch.from_arrays(arrays, names=list(schema.names())), schema)

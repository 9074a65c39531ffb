"""Every case of coercion, pushed over HTTP into a declared table: the same rows, the same errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.app.workspace import Workspace, workspace
from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import to_arrow
from headwater.catalog.lookup import table_states
from unit.coerce.test_cases import bytes_in, cases, rows, schema_in
from unit.interfaces.http.served import serving


def can_be_declared(schema: dict[str, Any]) -> bool:
    """A manifest refuses a column without a name, and a key that cannot be compared; a table that declares no column
    gets some."""
    kinds = {schema["columns"].get(name) for name in schema["primary_key"]}
    return bool(schema["columns"]) and "" not in schema["columns"] and "dynamic" not in kinds


ALL: list[dict[str, Any]] = [each.values[0] for each in [*cases("schema", "input"), *cases("schema", "input_base64")]]
CASES = [case for case in ALL if can_be_declared(case["schema"])]


@dataclass(frozen=True)
class Served:
    client: httpx.Client
    opened: Workspace


def table_of(case: dict[str, Any]) -> str:
    """Cases of one schema share a table."""
    return f"s{[other['schema'] for other in CASES].index(case['schema'])}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("cases")
    (root / "headwater.toml").write_text('[project]\nname = "cases"\n')
    (root / "pipelines").mkdir()
    for name, case in {table_of(case): case for case in CASES}.items():
        table = {"name": name, **case["schema"]}
        pipeline = {"id": name, "source": {"connector": "push"}, "tables": [table]}
        (root / "pipelines" / f"{name}.json").write_text(json.dumps(pipeline))
    with workspace(root) as opened, serving(opened) as client:
        yield Served(client, opened)


@pytest.mark.parametrize("part", range(8))
def test_a_case_is_the_same_over_http(served: Served, part: int) -> None:
    found = CASES[part::8]
    assert len(found) > 20 and len(ALL) - len(CASES) < 5
    for case in found:
        answer = served.client.post(f"/v1/ingest/{table_of(case)}", content=bytes_in(case))
        if "errors" in case:
            must_be_refused(answer, case)
        else:
            assert answer.status_code == 200, (case["why"], answer.text)
            assert answer.json()["rows_ingested"] == len(case["rows"]), case["why"]
            landed = landed_rows(served.opened, schema_in(case), table_of(case), int(answer.json()["snapshot_id"]))
            assert landed == case["rows"], case["why"]


def must_be_refused(answer: httpx.Response, case: dict[str, Any]) -> None:
    told = [(row["line"], row["column"], row["reason"]) for row in answer.json()["error"]["detail"]["rows"]]
    expected = [(e["line"], e["column"], e["reason"]) for e in case["errors"]]
    assert (answer.status_code, told) == (422, expected[: limits.ERRORS_SHOWN]), case["why"]


def landed_rows(opened: Workspace, schema: TableSchema, table: str, seq: int) -> list[dict[str, Any]]:
    """What the commit has put into the table, in the form of the cases."""
    store = opened.store()
    with store.catalog.snapshot() as connection:
        states = table_states(connection, [table])
    files: list[Path] = [store.root / f.path for state in states for f in state.files if f.added_seq == seq]
    found: list[dict[str, Any]] = []
    for file in files:
        stored = pq.read_table(file).select(list(schema.names()))
        arrays = [_as(stored.column(c.name).combine_chunks(), to_arrow(c.type)) for c in schema.columns]
        found += rows(pa.RecordBatch.from_arrays(arrays, names=list(schema.names())), schema)
    return found


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)

"""Whatever is pushed is taken or refused; nothing breaks; and what was taken is read from the store as it was sent."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.stores import ACTOR, PROJECT, quick_directory
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING, Type, to_arrow
from headwater.catalog.commit import Store, open_store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.lookup import table_states
from headwater.catalog.table_state import TableState
from headwater.coerce.batches import coerce_lines
from headwater.duck.query_session import connect
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import OnBadRow, Push, PushTable
from property.test_coerce import TYPES, array, containers, lines, number_texts, schemas, times
from schemas import schema_of
from unit.coerce.test_cases import rows, shown

MODES: tuple[OnBadRow, ...] = ("refuse", "leave_out", "dead_letter")
NESTED = frozenset({"list", "struct"})
_numbers = itertools.count()

GOOD = {
    "bool": st.sampled_from(["true", "false"]),
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "long": st.integers(-(2**63), 2**63 - 1).map(str),
    "real": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "string": st.one_of(st.text(max_size=5).map(json.dumps), number_texts, st.just("[1,  2]")),
    "timestamp": st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), times.map(json.dumps)),
    "date": st.dates().map(lambda day: f'"{day}"'),
    "decimal(7,2)": st.decimals(-10000, 10000, places=2).map(str),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10).map(lambda number: f'"{number:f}"'),
    "binary": st.binary(max_size=6).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    "dynamic": containers,
    "vector(1)": st.integers(-9, 9).map(lambda number: f"[{number}.5]"),
    "vector(2)": st.lists(st.integers(-9, 9).map(str), min_size=2, max_size=2).map(array),
    "list<long>": st.lists(st.integers(-(2**63), 2**63 - 1).map(str), max_size=3).map(array),
    "list<timestamp>": st.lists(st.integers(-(2**63), 2**63 - 1).map(str), max_size=3).map(array),
}
"""Values that fit, of the types that the case of a whole row is made of."""


@st.composite
def fitting(draw: st.DrawFn) -> tuple[list[str], TableSchema]:
    """Rows that mostly fit their table, some with a key that it does not know, now and then one that does not fit."""
    types = draw(st.lists(st.sampled_from([type_ for type_ in TYPES if type_ in GOOD]), min_size=1, max_size=3))
    schema = schema_of(dict(zip("xyw", types)))
    members = st.tuples(*(st.one_of(GOOD[type_], GOOD[type_], st.just("null")) for type_ in types))
    found = []
    for values in draw(st.lists(members, min_size=1, max_size=5)):
        row = [f'"{name}": {value}' for name, value in zip("xyw", values)]
        row += [f'"z": {value}' for value in draw(st.lists(containers, max_size=1))]
        found.append("{" + ", ".join(row) + "}")
    return found + draw(st.lists(st.sampled_from(["", "7", '{"x":']), max_size=1)), schema


anything = st.tuples(lines, schemas)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with quick_directory() as directory:
        opened = open_store(directory / "store", project=PROJECT)
        yield opened
        opened.close()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(fitting(), fitting(), anything), st.sampled_from(MODES), st.booleans())
@example((['{"z":"\\ud800"}', '{"z":1}'], schema_of({"x": "string"})), "leave_out", True)
def test_what_is_taken_is_read_back_as_it_was_sent(
    store: Store, pushed: tuple[list[str], TableSchema], on_bad_row: OnBadRow, evolve: bool
) -> None:
    """The pure function says what each row is; the store must give that, exactly, from its files and to a query."""
    sent, schema = pushed
    body = "\n".join(sent).encode("utf-8", "surrogatepass")
    pure = coerce_lines(body, schema)
    target = target_for(schema)
    push = Push(target=target, body=body, actor=ACTOR, evolve=evolve, on_bad_row=on_bad_row, source="sent")
    try:
        answer = Acceptor(store).accept(push)
    except HeadwaterError as error:
        assert (error.code, on_bad_row, bool(pure.bad)) == ("HW-I02", "refuse", True)
        assert error.detail["total"] == pure.error_total
        assert state_of(store, target.table) is None, "a batch that was refused makes no table"
        return
    assert (answer.rows_ingested, answer.rows_refused) == (pure.rows, len(pure.bad))
    state = state_of(store, target.table)
    if not pure.rows:
        assert state is None or not state.files
        return
    assert state is not None
    kept = stored(store, state, schema)
    assert repr(rows(kept, schema)) == repr(rows(pure.batch, schema))
    must_be_queried(store, state, schema, rows(pure.batch, schema))
    must_keep_unknown(store, state, schema, body, evolve=evolve)


def target_for(schema: TableSchema) -> PushTable:
    declared = {column.name: DeclaredColumn(column.type, nullable=column.nullable) for column in schema.columns}
    name = f"t{next(_numbers)}"
    return PushTable(name, name, declared=declared, in_manifest=True)


def state_of(store: Store, table: str) -> TableState | None:
    with store.catalog.snapshot() as connection:
        return next(iter(table_states(connection, [table])), None)


def stored(store: Store, state: TableState, schema: TableSchema) -> pa.RecordBatch:
    """The columns of a schema from the files of the table."""
    found = pa.concat_tables([pq.read_table(Path(store.root) / file.path) for file in state.files]).combine_chunks()
    arrays = []
    for column in schema.columns:
        array, type_ = found.column(column.name).combine_chunks(), to_arrow(column.type)
        arrays.append(array if array.type.equals(type_) else array.cast(type_))
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.names()))


def must_be_queried(store: Store, state: TableState, schema: TableSchema, expected: Sequence[dict[str, Any]]) -> None:
    """DuckDB gives the same, in the order of the file; a time by its nanoseconds, a `dynamic` value by its text."""
    columns = [column for column in schema.columns if column.type.kind not in NESTED]
    asked = ", ".join(_asked(column.name, column.type) for column in columns)
    if not asked:
        return
    with connect(store.root, [state], tables_info=[]) as session:
        found = session.execute(f"SELECT {asked} FROM meta.{state.name}").fetchall()
    got = [{c.name: _value(value, c.type) for c, value in zip(columns, row)} for row in found]
    assert repr(got) == repr([{c.name: row[c.name] for c in columns} for row in expected])


def _asked(name: str, type_: Type) -> str:
    match type_.kind:
        case "timestamp":
            return f'"{name}_ns"'
        case "dynamic":
            return f'CAST("{name}" AS VARCHAR)'
        case _:
            return f'"{name}"'


def _value(value: Any, type_: Type) -> Any:
    if value is None:
        return None
    return list(value) if type_.kind == "vector" else shown(value, type_)


def must_keep_unknown(store: Store, state: TableState, schema: TableSchema, body: bytes, *, evolve: bool) -> None:
    """Keys that no column was declared for: texts in columns of their own, or all of a row in `_rescued`."""
    unknown = [name for name in coerce_lines(body, schema).unknown_seen if evolve]
    wider = schema
    for name in unknown:
        wider = wider.added(name, STRING)
    here = [column for column in wider.columns if state.schema.column(column.name) is not None]
    wider = replace(schema, columns=tuple(here))
    assert repr(rows(stored(store, state, wider), wider)) == repr(rows(coerce_lines(body, wider).batch, wider))
    if evolve:
        assert state.schema.column(RESCUED) is None
    elif state.schema.column(RESCUED) is not None:
        rescued = TableSchema().added(RESCUED, state.schema.columns[-1].type)
        texts = [row[RESCUED] for row in rows(stored(store, state, rescued), rescued)]
        kept = [set(json.loads(text)) if text is not None else set() for text in texts]
        assert any(kept) and not any(names & set(schema.names()) for names in kept)

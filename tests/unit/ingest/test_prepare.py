"""A pushed batch as columns: the case files of coercion hold for it, and no key is lost."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.ingest.prepare import DEFAULT_COLUMNS, Prepared, TooManyCells, may_be_added, prepare
from schemas import schema_of
from unit.coerce.test_cases import bytes_in, cases, rows, schema_in

DEFAULT = schema_of({name: str(type_) for name, type_ in DEFAULT_COLUMNS.items()})
NOON = 1_767_268_800_000_000_000


def prepared(*objects: dict[str, Any], schema: TableSchema = DEFAULT, evolve: bool = True) -> Prepared:
    return prepare("".join(json.dumps(each) + "\n" for each in objects).encode(), schema, table="t", evolve=evolve)


def values(found: Prepared, name: str) -> list[Any]:
    return found.batch.column(name).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["lines", "scalars", "times", "more_types"])
def test_a_batch_is_taken_or_refused_as_its_rows_are(name: str) -> None:
    """All cases of a file in one test: there are hundreds, and each takes less than what a test costs."""
    found = [*cases("schema", "input", of=(name,)), *cases("schema", "input_base64", of=(name,))]
    assert len(found) > 5
    for each in found:
        must_agree(each.values[0])


def must_agree(case: dict[str, Any]) -> None:
    schema, why = schema_in(case), case["why"]
    expected = [(e["line"], e["column"], e["reason"]) for e in case.get("errors", [])]
    try:
        found = prepare(bytes_in(case), schema, table="t", evolve=True)
    except HeadwaterError as error:
        shown = error.detail["rows"]
        assert isinstance(shown, list)
        told = [(row["line"], row["column"], row["reason"]) for row in shown]
        assert (error.code, told) == ("HW-I02", expected[: limits.ERRORS_SHOWN]), why
        assert (error.detail["total"], bool(expected)) == (len(expected), True), why
        return
    assert not expected, why
    assert rows(found.batch.select(list(schema.names())), schema) == case["rows"], why
    unknown = {name if may_be_added(name) else "?" for name in case.get("unknown", {})}
    assert {*found.added, *(["?"] if found.rescues else [])} == unknown, why


@pytest.mark.parametrize("most_bad", [0, None])
def test_a_batch_looked_at_line_by_line_becomes_what_it_becomes_as_a_whole(
    most_bad: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [*cases("schema", "input", of=("lines",)), *cases("schema", "input_base64", of=("lines",))]
    batches = [(bytes_in(each.values[0]), schema_in(each.values[0])) for each in found]
    batches.append((MIXED, DEFAULT))
    whole = [outcome(body, schema, most_bad) for body, schema in batches]
    monkeypatch.setattr(limits, "PUSH_SMALL_BYTES", 1)
    for (body, schema), expected in zip(batches, whole):
        assert outcome(body, schema, most_bad) == expected


MIXED = b"\n".join(
    [
        b'\xef\xbb\xbf{"at": "2026-01-01", "Odd": 1}',
        b'{"at": "soon", "b": 1}',
        b"",
        b'{"at": "2026-01-02", "label": {"x": 1}}\r',
        *(b'{"k%d": %d, "b": [1, 2]}' % (n, n) for n in range(40)),
        b'{"k39": 1, "k0": true, "ts": 1, "no json',
        b'{"k39": 1, "k0": true, "ts": 1, "at": null}',
    ]
)


def outcome(body: bytes, schema: TableSchema, most_bad: int | None) -> object:
    try:
        found = prepare(body, schema, table="t", evolve=True, most_bad=most_bad)
    except HeadwaterError as error:
        return error.as_json()
    assert found.batch.num_rows == found.rows
    types = {field.name: field.type for field in found.batch.schema}
    return found.bad, found.added, found.rescues, found.rows_rescued, found.batch.to_pylist(), types


def test_many_rows_are_not_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row costs hundreds of bytes while it is looked at: the largest batch would take many gigabytes."""
    monkeypatch.setattr(limits, "PUSH_SMALL_BYTES", 1_000)
    for line in (b"1\n", b'{"ts":1.5}\n', b"{}\n", b'{"A":1}\n', b'{"at":1}\n'):
        body = line * (20_000 // len(line))
        tracemalloc.start()
        with suppress(HeadwaterError):
            prepare(body, DEFAULT, table="t", evolve=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        assert peak < 20 * len(body), line


def test_a_batch_that_is_refused_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUSH_SMALL_BYTES", 1_000)
    with pytest.raises(HeadwaterError, match=r"line 1: expected_object.*, and at least 500 more") as refused:
        prepare(b"1\n" * 5_000, DEFAULT, table="t", evolve=True)
    assert refused.value.detail["total"] == 501


def test_unknown_keys_become_columns_of_text_in_the_order_they_came() -> None:
    found = prepared({"b": 1.50, "a": {"x": [1]}}, {"c": None, "b": "two"})
    assert found.added == ("b", "a", "c")
    assert [values(found, name) for name in found.added] == [["1.5", "two"], ['{"x": [1]}', None], [None, None]]
    assert not found.rescues


@pytest.mark.parametrize(
    "name",
    ["Upper", "with-dash", "1st", "ä", "", "a b", "_run_id", "_hw_x", "_rescued", "x" * 64],
)
def test_keys_that_no_column_can_have_are_rescued_as_they_were_written(name: str) -> None:
    found = prepared({name: {"b": 1, "a": 2.50}, "label": "kept"}, {"label": "whole"})
    assert found.added == ()
    assert values(found, "_rescued") == [
        json.dumps({name: {"b": 1, "a": 2.50}}, ensure_ascii=False).replace(": {", ":{"),
        None,
    ]
    assert (found.rows, found.rows_rescued) == (2, 1)


def test_the_thirty_third_new_column_is_rescued() -> None:
    found = prepared({f"k{n}": n for n in range(34)})
    assert found.added == tuple(f"k{n}" for n in range(32))
    assert values(found, "_rescued") == ['{"k32":32,"k33":33}']


def test_a_table_does_not_grow_for_ever() -> None:
    """Keys that are values of some kind make a new column with each row."""
    columns = {f"c{n}": "long" for n in range(limits.TABLE_COLUMNS - 1)}
    assert prepared({"new": 1}, schema=schema_of(columns)).added == ("new",)
    found = prepared({"new": 1, "c1": 2}, schema=schema_of({**columns, "last": "long"}))
    assert (found.added, values(found, "_rescued"), values(found, "c1")) == ((), ['{"new":1}'], [2])


def test_short_rows_in_a_wide_table_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_CELLS", 60)
    assert prepared(*[{"a": 1}] * 12).rows == 12
    with pytest.raises(TooManyCells, match="more than 12 rows, in a table of 5 columns"):
        prepared(*[{"a": 1}] * 13)


def test_without_evolution_every_unknown_key_is_rescued() -> None:
    found = prepared({"a": 1, "label": "x"}, evolve=False)
    assert (found.added, values(found, "_rescued"), values(found, "label")) == ((), ['{"a":1}'], ["x"])


def test_a_key_named_as_the_rescued_column_does_not_write_into_it() -> None:
    from headwater.base.types import DYNAMIC

    found = prepared({"_rescued": 1, "a": 2}, schema=DEFAULT.added("_rescued", DYNAMIC), evolve=False)
    assert values(found, "_rescued") == ['{"_rescued":1,"a":2}']


def test_a_rescued_value_may_be_as_deep_as_any_other() -> None:
    deep = "[" * limits.MAX_JSON_DEPTH + "]" * limits.MAX_JSON_DEPTH
    found = prepare(f'{{"X": {deep}}}\n'.encode(), DEFAULT, table="t", evolve=True)
    assert values(found, "_rescued") == [f'{{"X":{deep}}}']


@pytest.mark.parametrize(
    ("row", "added"),
    [
        ({"at": "2026-01-01T12:00:00Z"}, ()),
        ({"ts": None, "timestamp": NOON}, ()),
        ({"_timestamp": "2026-01-01 12:00:00"}, ()),
        ({"time_unix_nano": str(NOON), "at": "2026-01-01T12:00:00Z"}, ("time_unix_nano",)),
        ({"at": "soon", "observed_time_unix_nano": NOON}, ("at",)),
        ({"ts": NOON, "at": "2026-01-02"}, ("at",)),
    ],
    ids=str,
)
def test_an_empty_ts_is_filled_from_the_first_key_that_holds_a_time(
    row: dict[str, Any], added: tuple[str, ...]
) -> None:
    found = prepared(row)
    assert found.batch.column("ts").cast("int64").to_pylist() == [NOON]
    assert found.added == added


def test_a_key_that_fills_ts_and_is_a_column_keeps_its_value_there() -> None:
    from headwater.base.types import STRING

    found = prepared({"at": "2026-01-01T12:00:00Z"}, {"label": "none"}, schema=DEFAULT.added("at", STRING))
    assert found.batch.column("ts").cast("int64").to_pylist() == [NOON, None]
    assert values(found, "at") == ["2026-01-01T12:00:00Z", None]


def test_a_table_with_declared_columns_fills_no_ts() -> None:
    found = prepared({"at": "2026-01-01T12:00:00Z"}, schema=schema_of({"ts": "timestamp", "n": "long"}))
    assert (values(found, "ts"), found.added) == ([None], ("at",))

"""Promoted columns: what views find inside JSON, which promotions are refused, and that nothing takes one away."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import PROMOTABLE, TableSchema
from headwater.base.types import parse_type
from headwater.catalog.evolution import DeclaredColumn, Shown, check_key, evolve
from headwater.coerce.at_path import value_at
from headwater.duck.promote_column import with_promoted
from schemas import schema_of
from unit.duck.tables import HandMade, ask
from unit.storage.awkward import DOCUMENTS, STEPS, promoting

EPOCH = date(1970, 1, 1)


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> HandMade:
    table = HandMade(tmp_path_factory.mktemp("awkward"), schema_of({"n": "long", "props": "dynamic"}))
    table.commit([{"n": n, "props": text} for n, text in enumerate(DOCUMENTS)])
    return table


@pytest.mark.parametrize("kind", PROMOTABLE)
def test_a_view_finds_what_pushing_the_value_would_store(awkward: HandMade, kind: str) -> None:
    """The rules of coercion decide, in SQL as in Python; what they refuse is null, and so are objects and arrays."""
    shown = "as_timestamp_ns" if kind == "timestamp" else f"as_{kind}"
    state = awkward.state(schema=promoting(kind))
    found = [value for (value,) in ask(awkward.root, state, f"SELECT {shown} FROM t ORDER BY n")]
    if kind == "date":
        found = [None if value is None else (value - EPOCH).days for value in found]
    expected = [value_at(text, STEPS, parse_type(kind)) for text in DOCUMENTS]
    assert dict(zip(DOCUMENTS, map(repr, found))) == dict(zip(DOCUMENTS, map(repr, expected)))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("9007199254740993.0", "long", 9007199254740993),
        ("1e3", "long", 1000),
        ('"42"', "long", 42),
        ("1.5", "long", None),
        ("true", "long", None),
        ("2147483648", "int", None),
        ("1.50", "string", "1.50"),
        ("true", "string", "true"),
        ('{"a": 1}', "string", None),
        ('"true"', "bool", None),
        ("1E400", "real", None),
        ('"2024-05-06T07:08:09.123456789+02:00"', "timestamp", 1714972089123456789),
        ('"2024-05-06"', "date", 19849),
    ],
)
def test_a_value_becomes_what_it_says(value: str, kind: str, expected: Any) -> None:
    assert value_at(f'{{"user": {{"id": {value}}}}}', STEPS, parse_type(kind)) == expected


@pytest.mark.parametrize(
    "key", ['a"b', "a\\b", "a'b", "a.b", "a[0]", "0", "#", "$", "**", "größe", "日本", "a b", '\\"']
)
def test_a_key_may_be_called_anything(tmp_path: Path, key: str) -> None:
    table = HandMade(tmp_path, promoting("long", steps=("x", key, 1)))
    table.commit([{"n": 1, "props": json.dumps({"x": {key: [5, 6]}})}, {"n": 2, "props": json.dumps({"x": [[5, 6]]})}])
    assert ask(tmp_path, table.state(), "SELECT as_long FROM t ORDER BY n") == [(6,), (None,)]


def test_a_rows_own_value_comes_before_the_one_inside(tmp_path: Path) -> None:
    """In old files and in new ones; times are rounded down as all times are."""
    table = HandMade(tmp_path, schema_of({"n": "long", "props": "dynamic"}))
    before = '{"user": {"id": "1969-12-31T23:59:59.9999995Z"}}'
    table.commit([{"n": 1, "props": before}])
    table.evolve(promoting("timestamp"))
    table.commit([{"n": 2, "props": before, "as_timestamp": -1500}, {"n": 3, "props": before}, {"n": 4}])
    asked = "SELECT n, epoch_us(as_timestamp), as_timestamp_ns FROM t ORDER BY n"
    assert ask(tmp_path, table.state(), asked) == [(1, -1, -500), (2, -2, -1500), (3, -1, -500), (4, None, None)]
    assert ask(tmp_path, table.state(), "SELECT n FROM t WHERE as_timestamp_ns = -500 ORDER BY n") == [(1,), (3,)]


def test_a_filter_on_a_promoted_column_sees_every_row(tmp_path: Path) -> None:
    """Bounds of the stored values say nothing of rows that are found inside. Of each key the last write counts."""
    inside = '{"user": {"id": 3}}'
    table = HandMade(tmp_path, replace(promoting("long"), primary_key=("n",)), mode="upsert")
    table.commit([{"n": 1, "as_long": 500}, {"n": 2, "props": inside}, {"n": 3, "props": inside}], unique_keys=True)
    table.commit([{"n": 3, "as_long": 400, "props": inside}, {"n": 4, "as_long": 500}], unique_keys=True)
    assert ask(tmp_path, table.state(), "SELECT n FROM t WHERE as_long < 400") == [(2,)]
    assert ask(tmp_path, table.state(), "SELECT n FROM t WHERE as_long >= 400 ORDER BY n") == [(1,), (3,), (4,)]
    assert ask(tmp_path, table.state(), "SELECT min(as_long), max(as_long), count(as_long) FROM t") == [(3, 500, 4)]


def test_a_value_is_found_whatever_becomes_of_the_columns(tmp_path: Path) -> None:
    """The dynamic column is renamed, or read by its id; the promoted one becomes wider, or gets a default."""
    table = HandMade(tmp_path, schema_of({"n": "long", "props": "dynamic", "filename": "string"}))
    table.commit([{"n": 1, "props": '{"user": {"id": 5000000000}}'}, {"n": 2}])
    schema = with_promoted(table.schema, "t", "props.user.id", name="who", type_=parse_type("int"))
    props, who = schema.columns[1], schema.columns[-1]
    shown = "SELECT n, who FROM t ORDER BY n"
    assert ask(tmp_path, table.state(schema=schema), shown) == [(1, None), (2, None)]
    schema = schema.with_column(replace(props, name="attributes"))
    schema = schema.with_column(replace(who, type=parse_type("long"), default="7"))
    assert ask(tmp_path, table.state(schema=schema), shown) == [(1, 5_000_000_000), (2, 7)]
    table.evolve(schema)
    table.commit([{"n": 3, "attributes": '{"user": {"id": 8}}'}])
    assert ask(tmp_path, table.state(), shown) == [(1, 5_000_000_000), (2, 7), (3, 8)]


def test_where_the_source_is_no_json_any_more_only_old_files_are_looked_into(tmp_path: Path) -> None:
    table = HandMade(tmp_path, promoting("long"))
    table.commit([{"n": 1, "props": '{"user": {"id": 1}}'}])
    table.evolve(table.schema.with_column(replace(table.schema.columns[1], type=parse_type("string"))))
    table.commit([{"n": 2, "props": '{"user": {"id": 1}}'}])
    assert ask(tmp_path, table.state(), "SELECT n, as_long FROM t ORDER BY n") == [(1, 1), (2, None)]


STORED = schema_of({"id": "long", "label": "string", "ts": "timestamp", "props": "dynamic"}, ("id",))


def promoted(schema: TableSchema = STORED, **changed: str) -> TableSchema:
    asked = {"path": "props.user.id", "name": "user_id", "type": "long"} | changed
    return with_promoted(schema, "events", asked["path"], name=asked["name"], type_=parse_type(asked["type"]))


def test_a_promoted_column_is_the_last_one_and_is_kept_in_json() -> None:
    schema = promoted()
    assert schema.names() == (*STORED.names(), "user_id")
    assert schema.columns[-1].as_json() == {
        "id": 5, "name": "user_id", "type": "long", "promoted": {"column": 4, "path": ["user", "id"]},
    }  # fmt: skip
    assert TableSchema.from_json(schema.as_json()) == schema
    assert promoted(schema) is schema
    assert promoted(schema, name="other").names()[-1] == "other"


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        ({"path": "prop.user.id"}, "no column `prop`", "`props`"),
        ({"path": "label.user"}, "is `string`, not `dynamic`", "props"),
        ({"path": "props"}, "not understood", "props.user.id"),
        ({"name": "label"}, "has a column `label`", "another name"),
        ({"name": "Label"}, "has a column `label`", "another name"),
        ({"name": "ts_ns"}, "has a column `ts_ns`", "another name"),
        ({"name": "_run_id"}, "cannot be the name", "_hw_"),
        ({"type": "decimal(8,2)"}, "cannot be `decimal(8,2)`", "long"),
        ({"type": "dynamic"}, "cannot be `dynamic`", "string"),
    ],
)
def test_what_cannot_be_promoted_is_refused_with_a_hint(changed: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        promoted(**changed)
    assert refused.value.code == "HW-S03"
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("changed", [{"name": "user_id", "type": "int"}, {"path": "props.user.name"}])
def test_a_promoted_column_is_not_promoted_as_something_else(changed: dict[str, str]) -> None:
    with pytest.raises(HeadwaterError, match="has a column `user_id`"):
        promoted(promoted(), **changed)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("declared", [{}, {"id": "long"}, {"id": "long", "user_id": "long"}])
def test_an_apply_after_a_promotion_changes_nothing(complete: bool, declared: dict[str, str]) -> None:
    """Whether the source tells of all its columns, and whether the manifest declares some."""
    schema = promoted()
    shown = Shown({column.name: column.type for column in STORED.columns}, complete=complete)
    columns = {name: DeclaredColumn(parse_type(text)) for name, text in declared.items()}
    found = evolve(schema, shown, declared=columns, primary_key=("id",))
    assert (found.schema, found.events, found.refused) == (schema, (), ())


def test_the_manifest_may_widen_a_promoted_column() -> None:
    columns = {"user_id": DeclaredColumn(parse_type("long"))}
    found = evolve(promoted(type="int"), Shown({}), declared=columns, primary_key=("id",))
    assert found.schema == promoted()
    assert [event.kind for event in found.events] == ["widen_type"]


def test_a_promoted_column_is_no_key() -> None:
    asked = evolve(promoted(), Shown({}), declared={}, primary_key=("user_id",))
    assert [event.kind for event in asked.refused] == ["change_key"]
    assert asked.proposal is not None
    with pytest.raises(HeadwaterError, match="`user_id`, which is promoted"):
        check_key(asked.proposal)

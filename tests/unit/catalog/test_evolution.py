from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import Type, parse_type
from headwater.catalog.evolution import DeclaredColumn, Evolution, Shown, check_key, evolve, refusal
from schemas import schema_of


def types(texts: dict[str, str]) -> dict[str, Type]:
    return {name: parse_type(text) for name, text in texts.items()}


@dataclass(frozen=True)
class Case:
    """`stored` marks a dropped column by `-` before its type. `after` and `proposal` are columns with their ids."""

    stored: dict[str, str]
    shown: dict[str, str] = field(default_factory=dict)
    declared: dict[str, DeclaredColumn] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    new_key: tuple[str, ...] | None = None
    complete: bool = False
    renamed: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, str] | None = None
    events: list[tuple[str, str | None]] = field(default_factory=list)
    refused: list[tuple[str, str | None]] = field(default_factory=list)
    after: str = ""
    proposal: str | None = None

    def schema(self) -> TableSchema:
        schema = schema_of({name: text.lstrip("-") for name, text in self.stored.items()}, self.key)
        for name, text in self.stored.items():
            column = schema.column(name)
            if text.startswith("-") and column is not None:
                schema = schema.with_column(replace(column, dropped=True))
        return schema

    def evolve(self, stored: TableSchema) -> Evolution:
        key = self.key if self.new_key is None else self.new_key
        shown = Shown(types(self.shown), complete=self.complete, renamed=self.renamed)
        return evolve(stored, shown, declared=self.declared, primary_key=key, modes=self.modes)


def declared(text: str, **more: Any) -> DeclaredColumn:
    return DeclaredColumn(parse_type(text), **more)


def written_out(schema: TableSchema | None) -> str | None:
    """`1 a long, 2 b -string`"""
    if schema is None:
        return None
    return ", ".join(f"{c.id} {c.name} {'-' if c.dropped else ''}{c.type}" for c in schema.columns)


CASES = {
    "nothing new": Case({"a": "long"}, {"a": "long"}, after="1 a long"),
    "a new column": Case(
        {"a": "long"}, {"b": "string", "a": "long"}, events=[("add_column", "b")], after="1 a long, 2 b string"
    ),
    "a new declared column with a default": Case(
        {"a": "long"},
        declared={"b": declared("int", default="7")},
        events=[("add_column", "b")],
        after="1 a long, 2 b int",
    ),
    "a column is gone at a typed source": Case(
        {"a": "long", "b": "string"},
        {"a": "long"},
        complete=True,
        events=[("drop_column", "b")],
        after="1 a long, 2 b -string",
    ),
    "rescued keys": Case(
        {"a": "long"},
        {"_rescued": "dynamic"},
        events=[("add_column", "_rescued")],
        after="1 a long, 2 _rescued dynamic",
    ),
    "a typed source has nothing to rescue": Case(
        {"a": "long", "_rescued": "dynamic"}, {"a": "long"}, complete=True, after="1 a long, 2 _rescued dynamic"
    ),
    "a column is not shown by a text": Case({"a": "long", "b": "string"}, {"a": "long"}, after="1 a long, 2 b string"),
    "a key column is never dropped": Case({"a": "long"}, {}, key=("a",), complete=True, after="1 a long"),
    "a declared column is never dropped": Case(
        {"a": "long"}, {}, declared={"a": declared("long")}, complete=True, after="1 a long"
    ),
    "a dropped column is back, same type": Case(
        {"a": "long", "b": "-string"},
        {"a": "long", "b": "string"},
        complete=True,
        events=[("restore_column", "b")],
        after="1 a long, 2 b string",
    ),
    "a dropped column is back, wider": Case(
        {"a": "long", "b": "-int"},
        {"a": "long", "b": "long"},
        events=[("restore_column", "b"), ("widen_type", "b")],
        after="1 a long, 2 b long",
    ),
    "a dropped name is back as something else": Case(
        {"a": "long", "b": "-string"},
        {"b": "date"},
        refused=[("replace_column", "b")],
        after="1 a long, 2 b -string",
        proposal="1 a long, 3 b date",
    ),
    "a wider type": Case({"a": "int"}, {"a": "long"}, events=[("widen_type", "a")], after="1 a long"),
    "a wider decimal": Case(
        {"a": "decimal(5,2)"}, {"a": "decimal(9,2)"}, events=[("widen_type", "a")], after="1 a decimal(9,2)"
    ),
    "a narrower type": Case(
        {"a": "long"}, {"a": "int"}, refused=[("change_type", "a")], after="1 a long", proposal="1 a int"
    ),
    "a type that only a person may choose": Case(
        {"a": "date"}, {"a": "timestamp"}, refused=[("change_type", "a")], after="1 a date", proposal="1 a timestamp"
    ),
    "long to real is refused": Case(
        {"a": "long"}, {"a": "real"}, refused=[("change_type", "a")], after="1 a long", proposal="1 a real"
    ),
    "a declared type is stronger than the source's": Case(
        {"a": "long"}, {"a": "string"}, declared={"a": declared("long")}, after="1 a long"
    ),
    "a declared type that is wider": Case(
        {"a": "int"}, declared={"a": declared("real")}, events=[("widen_type", "a")], after="1 a real"
    ),
    "a declared rename": Case(
        {"a": "long"},
        declared={"b": declared("long", renamed_from="a")},
        events=[("rename_column", "b")],
        after="1 b long",
    ),
    "a rename by the source": Case(
        {"a": "long"},
        {"b": "long"},
        complete=True,
        renamed={"b": "a"},
        events=[("rename_column", "b")],
        after="1 b long",
    ),
    "a rename and a wider type": Case(
        {"a": "int"},
        declared={"b": declared("long", renamed_from="a")},
        events=[("rename_column", "b"), ("widen_type", "b")],
        after="1 b long",
    ),
    "a rename of a key column": Case(
        {"a": "long"},
        {"b": "long"},
        key=("a",),
        new_key=("b",),
        renamed={"b": "a"},
        events=[("rename_column", "b")],
        after="1 b long",
    ),
    "a chain of renames": Case(
        {"a": "long", "b": "long"},
        {"b": "long", "c": "long"},
        complete=True,
        renamed={"b": "a", "c": "b"},
        events=[("rename_column", "c"), ("rename_column", "b")],
        after="1 b long, 2 c long",
    ),
    "a rename onto a column that is there": Case(
        {"a": "long", "b": "long"}, declared={"b": declared("long", renamed_from="a")}, after="1 a long, 2 b long"
    ),
    "an undeclared rename": Case(
        {"a": "long"},
        {"b": "long"},
        complete=True,
        events=[("add_column", "b"), ("drop_column", "a")],
        after="1 a -long, 2 b long",
    ),
    "another primary key": Case(
        {"a": "long", "b": "long"},
        key=("a",),
        new_key=("b",),
        refused=[("change_key", None)],
        after="1 a long, 2 b long",
        proposal="1 a long, 2 b long",
    ),
    "another mode": Case(
        {"a": "long"},
        modes=("append", "replace"),
        refused=[("change_mode", None)],
        after="1 a long",
        proposal="1 a long",
    ),
    "a new default": Case(
        {"a": "long"}, declared={"a": declared("long", default="1")}, events=[("set_default", "a")], after="1 a long"
    ),
    "a new default with a refused type": Case(
        {"a": "long"},
        declared={"a": declared("string", default='"x"')},
        events=[("set_default", "a")],
        refused=[("change_type", "a")],
        after="1 a long",
        proposal="1 a string",
    ),
    "a refused change holds up the others": Case(
        {"a": "long", "b": "long"},
        {"a": "string", "c": "long"},
        complete=True,
        events=[("add_column", "c"), ("drop_column", "b")],
        refused=[("change_type", "a")],
        after="1 a long, 2 b -long, 3 c long",
        proposal="1 a string, 2 b -long, 3 c long",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_row_of_the_table_happens_as_it_says(name: str) -> None:
    case = CASES[name]
    found = case.evolve(case.schema())
    assert [(event.kind, event.column) for event in found.events] == case.events
    assert [(event.kind, event.column) for event in found.refused] == case.refused
    assert (written_out(found.schema), written_out(found.proposal)) == (case.after, case.proposal)


@pytest.mark.parametrize("name", CASES)
def test_what_was_done_is_not_done_again(name: str) -> None:
    case = CASES[name]
    first = case.evolve(case.schema())
    again = case.evolve(first.schema)
    assert (again.events, again.schema) == ((), first.schema)
    assert again.refused == first.refused


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refused])
def test_what_was_accepted_is_not_refused_again(name: str) -> None:
    case = CASES[name]
    proposal = case.evolve(case.schema()).proposal
    assert proposal is not None
    accepted = replace(case, modes=None).evolve(proposal)
    assert (accepted.events, accepted.refused, accepted.schema) == ((), (), proposal)


def test_a_first_schema_has_the_declared_columns_first_and_the_key_without_nulls() -> None:
    declarations = {"b": declared("int", nullable=False), "c": declared("string", default='"x"')}
    found = evolve(None, Shown(types({"a": "long", "b": "string"})), declared=declarations, primary_key=("a",))
    assert written_out(found.schema) == "1 b int, 2 c string, 3 a long"
    assert [column.nullable for column in found.schema.columns] == [False, True, False]
    assert [column.default for column in found.schema.columns] == [None, '"x"', None]
    assert (found.schema.primary_key, found.schema.next_id) == (("a",), 4)
    (event,) = found.events
    assert (event.kind, event.after) == ("created", found.schema.as_json())


def test_a_first_key_that_is_no_column_is_refused_with_the_columns_there_are() -> None:
    with pytest.raises(HeadwaterError) as refused:
        evolve(None, Shown(types({"a": "long"})), declared={}, primary_key=("id",))
    assert (refused.value.code, refused.value.hint) == ("HW-S03", "columns: a")
    check_key(schema_of({"a": "long"}, ("a",)))


@pytest.mark.parametrize("name", ["", "_run_id", "_hw_x", "a\nb", "x" * 256])
def test_a_name_that_no_column_can_have_is_refused(name: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        evolve(None, Shown(types({name: "long"})), declared={}, primary_key=())
    assert refused.value.code == "HW-S03"


def test_a_column_that_becomes_null_for_new_rows_may_be_null() -> None:
    stored = schema_of({"a": "long", "b": "long"}, ("b",))
    stored = replace(stored, primary_key=())
    dropped = evolve(stored, Shown(types({"a": "long"}), complete=True), declared={}, primary_key=()).schema.column("b")
    assert dropped is not None
    assert (dropped.dropped, dropped.nullable) == (True, True)


def test_a_column_that_leaves_the_key_may_be_null_again() -> None:
    stored = schema_of({"a": "long", "b": "long"}, ("a",))
    proposal = evolve(stored, Shown({}), declared={}, primary_key=("b",)).proposal
    assert proposal is not None
    assert [column.nullable for column in proposal.columns] == [True, True]


def test_a_replaced_column_has_the_declared_default() -> None:
    case = Case({"b": "-string"}, {"b": "date"}, declared={"b": declared("date", default='"2024-01-01"')})
    proposal = case.evolve(case.schema()).proposal
    assert proposal is not None
    assert [(column.id, column.default) for column in proposal.columns] == [(2, '"2024-01-01"')]


NOTES = {
    "a narrower type": "column `a` became narrower, from long to int",
    "long to real is refused": "column `a` changed its type, from long to real",
    "a dropped name is back as something else": "column `b` was dropped as string and came back as date",
    "another primary key": "the primary key changed from (a) to (b)",
    "another mode": "the mode changed from append to replace",
}


@pytest.mark.parametrize("name", NOTES)
def test_a_refusal_says_what_and_how_to_go_on(name: str) -> None:
    error = refusal("orders", CASES[name].evolve(CASES[name].schema()).refused)
    assert error.message == f"`orders` was not changed: {NOTES[name]}"
    assert "`headwater schema accept orders`" in error.hint
    assert error.code == ("HW-S02" if name in ("another primary key", "another mode") else "HW-S01")
    assert ("columns = {" in error.hint) == (error.code == "HW-S01")


def test_a_type_that_old_rows_cannot_be_shown_as_says_so() -> None:
    case = Case({"a": "string"}, {"a": "long"})
    (event,) = case.evolve(case.schema()).refused
    assert "they will show null" in event.note


# --- properties

NAMES = st.sampled_from(["a", "b", "c", "d"])
TYPES = st.sampled_from(["int", "long", "real", "string", "decimal(5,2)", "decimal(9,2)", "date"]).map(parse_type)
DECLARED = st.dictionaries(
    NAMES,
    st.builds(
        DeclaredColumn,
        type=TYPES,
        default=st.sampled_from([None, "1", "2"]),
        renamed_from=st.sampled_from([None, "a", "b", "x"]),
    ),
    max_size=3,
)
SHOWN = st.builds(
    Shown,
    columns=st.dictionaries(NAMES, TYPES, max_size=4),
    complete=st.booleans(),
    renamed=st.dictionaries(NAMES, NAMES, max_size=1),
)
STEPS = st.lists(st.tuples(SHOWN, DECLARED, st.booleans()), min_size=1, max_size=6)


@given(STEPS)
def test_ids_are_never_reused_names_are_unique_and_steps_are_idempotent(
    steps: list[tuple[Shown, dict[str, DeclaredColumn], bool]],
) -> None:
    schema = TableSchema()
    seen: set[int] = set()
    for shown, declarations, accept in steps:
        found = evolve(schema, shown, declared=declarations, primary_key=())
        again = evolve(found.schema, shown, declared=declarations, primary_key=())
        assert (again.schema, again.events) == (found.schema, ())
        following = found.proposal if accept and found.proposal is not None else found.schema
        kept = {column.id for column in schema.columns}
        ids = [column.id for column in following.columns]
        assert len(set(ids)) == len(ids)
        assert len(set(following.names())) == len(ids)
        assert set(ids) - kept <= set(range(schema.next_id, following.next_id))
        assert not (set(ids) - kept) & seen
        if not accept:
            assert kept <= set(ids)
        assert (found.events == ()) == (found.schema == schema)
        assert TableSchema.from_json(following.as_json()) == following
        seen |= set(ids)
        schema = following

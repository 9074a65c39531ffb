"""Random JSON, random places, every type: what DuckDB's SQL finds is what coercion makes of the value that is there."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.base.json_path import Steps, parse_path, path_text
from headwater.base.table_schema import PROMOTABLE
from headwater.base.types import parse_type
from headwater.coerce.at_path import value_at
from headwater.duck import json_paths
from unit.duck.tables import database
from unit.storage.awkward import NUMBERS, OTHERS, TEXTS, TIMES

KEYS = st.text(min_size=1, max_size=8).filter(lambda key: key.isprintable() and key != "*")
FEW = st.sampled_from(["id", "a.b", "é", 'say "x"', "it's", "back\\slash", "12"])
NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
TIME = st.from_regex(
    r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{1,12})?(Z|[+-]0[0-9]:[0-5]0)?",
    fullmatch=True,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS, *TIMES, *OTHERS]),
    NUMBER,
    st.one_of(TIME, NUMBER, TEXT).map(json.dumps),
    TEXT.map(lambda text: json.dumps(text, ensure_ascii=False)),
)
SPACE = st.sampled_from(["", "", " ", "\n\t"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """The text of an object; keys stand twice, and are written with and without escapes."""
    members = []
    for key, value in draw(st.lists(st.tuples(FEW, inner), max_size=5)):
        name = json.dumps(key, ensure_ascii=draw(st.booleans()))
        if draw(st.booleans()):
            name = "".join(f"\\u{ord(c):04x}" for c in key).join('""')
        members.append(f"{draw(SPACE)}{name}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}")
    return "{" + ",".join(members) + "}"


VALUE = st.recursive(
    SCALAR,
    lambda inner: objects(inner) | st.lists(inner, max_size=3).map(",".join).map(lambda t: f"[{t}]"),
    max_leaves=12,
)
STEPS = st.lists(FEW | st.integers(0, 2), min_size=1, max_size=2).map(tuple)


def found(documents: list[str], steps: Steps, kind: str) -> list[Any]:
    sql = json_paths.value_at("j", steps, parse_type(kind))
    query = f"SELECT {sql} FROM (SELECT unnest(?::JSON[]) AS j)"
    return [value for (value,) in database().execute(query, [documents]).fetchall()]


@given(documents=st.lists(objects(VALUE), min_size=1, max_size=20), steps=STEPS, kind=st.sampled_from(PROMOTABLE))
def test_sql_and_python_find_the_same(documents: list[str], steps: Steps, kind: str) -> None:
    in_sql = found(documents, steps, kind)
    if kind == "date":
        in_sql = [None if value is None else (value - date(1970, 1, 1)).days for value in in_sql]
    assert list(map(repr, in_sql)) == [repr(value_at(text, steps, parse_type(kind))) for text in documents]


@given(column=KEYS, steps=st.lists(KEYS | st.integers(0, 999_999_999), min_size=1, max_size=5))
def test_every_path_can_be_written(column: str, steps: list[str | int]) -> None:
    assert parse_path(path_text(column, tuple(steps))) == (column, tuple(steps))


@given(keys=st.lists(KEYS, min_size=1, max_size=3), ascii_=st.booleans())
def test_every_key_is_found(keys: list[str], ascii_: bool) -> None:
    value: Any = 7
    for key in reversed(keys):
        value = {"x": 1, key: value}
    document = json.dumps(value, ensure_ascii=ascii_)
    assert found([document], tuple(keys), "long") == [7] == [value_at(document, tuple(keys), parse_type("long"))]

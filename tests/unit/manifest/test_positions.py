"""Positions are true: what stands at a path's span reads as the value at that path."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.manifest.positions import Path, Positions
from headwater.manifest.render import json_text, pipeline_as_toml
from headwater.manifest.scan_json import JsonFault, scan_json
from headwater.manifest.scan_toml import scan_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=12
)
TABLES = st.dictionaries(TEXT, VALUES, max_size=5)


def values_of(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    found = [(path, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += values_of(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += values_of(inner, (*path, index))
    return found


@given(TABLES, st.sampled_from([None, 1, 2, "\t"]))
def test_every_json_span_reads_as_its_value(data: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=indent is None)
    found = scan_json(text)
    for path, value in values_of(data):
        span = found.values[path]
        assert json.loads(text[span.start : span.end]) == value
        if path and isinstance(path[-1], str):
            key = found.keys[path]
            assert json.loads(text[key.start : key.end]) == path[-1]


@given(TABLES)
def test_rendered_json_reads_as_its_value(data: dict[str, Any]) -> None:
    assert json.loads(json_text(data)) == data


@given(TABLES)
def test_every_toml_span_reads_as_its_value(data: dict[str, Any]) -> None:
    text = pipeline_as_toml(data, inline=False)
    assert tomllib.loads(text) == data
    found = scan_toml(text)
    for path, value in values_of(data):
        assert path in found.values
        if path in found.written:
            span = found.values[path]
            assert tomllib.loads("k = " + text[span.start : span.end])["k"] == value


@given(st.text(alphabet="{}[]\",:\\ \n\t0123456789.eE+-truefalsn'#/", max_size=40))
def test_the_json_scanner_accepts_exactly_what_json_accepts(text: str) -> None:
    try:
        json.loads(text, parse_constant=_refuse)
        accepted = True
    except ValueError:
        accepted = False
    try:
        scan_json(text)
        assert accepted
    except JsonFault as fault:
        assert not accepted
        assert 0 <= fault.offset <= len(text)


def _refuse(word: str) -> object:
    raise ValueError(word)


TOML = (
    '''# first
a = 1 # one
"b c".d = "x" # dotted
multi = """
# not a comment
"""
lit = \'\'\'a "quoted" # text\'\'\'
list = [ 1, # one
  [2, 3], { k = "v" },
]
when = 2024-05-01 10:00:00

[t.u]
k.l.m = true
[[many]]
n = 1
[[many.inner]]
o = "ü" ; '''.replace(" ; ", "\n")
    + """
[[many.inner]]
[many.inner.deep]
p = 'x'
[[many]]
q = {}
"""
)


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("a",), 2, 5),
        (("b c", "d"), 3, 11),
        (("multi",), 4, 9),
        (("lit",), 7, 7),
        (("list", 0), 8, 10),
        (("list", 1, 1), 9, 7),
        (("list", 2, "k"), 9, 17),
        (("when",), 11, 8),
        (("t", "u"), 13, 1),
        (("t", "u", "k", "l", "m"), 14, 9),
        (("many", 0), 15, 1),
        (("many", 0, "inner", 0, "o"), 18, 5),
        (("many", 0, "inner", 1, "deep", "p"), 22, 5),
        (("many", 1, "q"), 24, 5),
        (("many", 1, "missing"), 23, 1),
        (("nothing",), 1, 1),
    ],
)
def test_toml_values_are_where_they_are(path: Path, line: int, column: int) -> None:
    tomllib.loads(TOML)
    place = scan_toml(TOML).of_value("f", path)
    assert (place.line, place.column) == (line, column)


def test_toml_comments_are_found_and_only_those() -> None:
    found = scan_toml(TOML)
    assert [TOML[c.start : c.end] for c in found.comments] == ["# first", "# one", "# dotted", "# one"]


def test_a_place_counts_characters_from_one() -> None:
    found = Positions("ab\nüx\n")
    assert [(p.line, p.column) for p in (found.position("f", at) for at in (0, 2, 3, 4))] == [
        (1, 1),
        (1, 3),
        (2, 1),
        (2, 2),
    ]

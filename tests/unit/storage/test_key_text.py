"""Keys as text: in the order of the keys, for all that a key can hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.storage.file_record import ColumnStats
from headwater.storage.key_text import joined_range, key_columns, key_of, key_range, stats_range
from schemas import schema_of

TEXT = st.text(alphabet=st.sampled_from("\0\1\2\3aäzZ\U0001f300"), max_size=3)
KEYS = st.lists(
    st.tuples(st.none() | TEXT, st.none() | st.integers(-(2**63), 2**63 - 1), st.booleans()), min_size=1, max_size=5
)
TYPES = {"s": "string", "n": "long", "b": "bool"}


def in_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value if value is not None else 0) for value in key)


def text_of(keys: list[tuple[Any, ...]], types: dict[str, str] | None = None) -> tuple[str, str] | None:
    schema = schema_of(types or TYPES, tuple(types or TYPES))
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*keys), schema.to_arrow())]
    return key_range(pa.table(arrays, names=list(schema.names())), key_columns(schema))


@given(KEYS, KEYS)
@settings(max_examples=200, deadline=None)
def test_texts_stand_in_the_order_of_the_keys(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> None:
    first, last = min(some, key=in_order), max(some, key=in_order)
    mine, theirs = text_of(some), text_of(others)
    assert mine is not None
    assert theirs is not None
    assert mine == ((text_of([first]) or ("", ""))[0], (text_of([last]) or ("", ""))[0])
    lowest = min(others, key=in_order)
    assert (mine[1] < theirs[0]) == (in_order(last) < in_order(lowest))
    assert (mine[1] == theirs[0]) == (in_order(last) == in_order(lowest))
    assert "\0" not in "".join(mine)


def test_numbers_and_times_of_all_sizes_compare() -> None:
    for type_ in ("int", "long", "date", "timestamp"):
        low, high = text_of([(-(2**31),), (2**31 - 1,)], {"id": type_}) or ("", "")
        assert low < (text_of([(-1,)], {"id": type_}) or ("", ""))[0] < (text_of([(0,)], {"id": type_}) or ("", ""))[0]
        assert (text_of([(10,)], {"id": type_}) or ("", ""))[0] < high


@pytest.mark.parametrize(
    ("types", "key"),
    [({"id": "real"}, (1.0,)), ({"id": "string"}, ("x" * 65,)), ({"a": "long", "id": "binary"}, (1, b""))],
)
def test_what_has_no_order_or_is_too_long_is_not_known(types: dict[str, str], key: tuple[Any, ...]) -> None:
    assert text_of([key], types) is None
    assert joined_range([("a", "b"), None]) is None


def test_bounds_of_columns_hold_the_key_between_them() -> None:
    schema = schema_of({"day": "date", "shop": "string"}, ("day", "shop"))
    stats = {"1": ColumnStats(min=1, max=2), "2": ColumnStats(nulls=1, min="a", max="c")}
    found = stats_range(stats, 9, schema, key_columns(schema))
    exact = text_of([(1, "b"), (2, "a")], {"day": "date", "shop": "string"})
    assert found is not None
    assert exact is not None
    assert found[0] < exact[0] < exact[1] < found[1]
    assert stats_range({"1": stats["1"]}, 9, schema, key_columns(schema)) is None


def test_a_key_is_the_same_if_only_its_numbers_are_wider() -> None:
    keys = [key_of(schema_of({"id": type_}, ("id",))) for type_ in ("int", "long", "string")]
    assert keys[0] == keys[1] != keys[2]
    assert key_of(schema_of({"id": "long"})) == []

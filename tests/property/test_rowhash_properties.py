from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.types import parse_type
from headwater.storage.row_hash import add_sums, content_hash, content_sum
from unit.storage.batches import batch_of
from unit.storage.row_hash_by_hand import row_hash

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": LONGS,
    "real": st.floats(),
    "string": TEXTS,
    "timestamp": LONGS,
    "date": st.integers(-(2**31), 2**31 - 1),
    "decimal(38,4)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-4")),
    "binary": st.binary(max_size=40),
    "dynamic": TEXTS,
    "vector(2)": st.lists(st.floats(width=32), min_size=2, max_size=2),
    "list<string>": st.lists(st.none() | TEXTS, max_size=4),
    "struct<a:long,b:list<real>>": st.fixed_dictionaries(
        {"a": st.none() | LONGS, "b": st.none() | st.lists(st.none() | st.floats(), max_size=3)}
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    names = draw(
        st.lists(st.text(min_size=1, max_size=12).filter(str.isprintable), min_size=1, max_size=5, unique=True)
    )
    types = {name: draw(st.sampled_from(list(VALUES))) for name in names}
    row = st.fixed_dictionaries({name: st.none() | VALUES[text] for name, text in types.items()})
    return types, draw(st.lists(row, min_size=1, max_size=8))


@given(tables(), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_rows_hash_as_described_however_they_are_cut(
    table: tuple[dict[str, str], list[dict[str, Any]]], start: int, random: Any
) -> None:
    types, rows = table
    expected = [row_hash(row, {name: parse_type(text) for name, text in types.items()}) for row in rows]
    batch = batch_of(rows, types)
    assert content_hash(batch).to_pylist() == expected
    assert content_hash(batch.slice(start)).to_pylist() == expected[start:]
    order = list(types)
    random.shuffle(order)
    assert content_hash(batch.select(order)).to_pylist() == expected


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=30), st.integers(0, 30))
def test_sums_are_sums(hashes: list[bytes], cut: int) -> None:
    array = pa.array(hashes, pa.binary(16))
    expected = sum(int.from_bytes(value, "big") for value in hashes) % 2**128
    assert int(content_sum(array), 16) == expected
    assert add_sums([content_sum(array.slice(0, cut)), content_sum(array.slice(cut))]) == content_sum(array)

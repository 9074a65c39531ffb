"""Microseconds and a remainder are one value again: for every instant that a table can hold."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.coerce.times import FIRST_NS, LAST_NS
from headwater.spark.nanoseconds import REMAINDER, with_nanoseconds

INSTANTS = st.one_of(
    st.integers(FIRST_NS, LAST_NS), st.integers(FIRST_NS, FIRST_NS + 2000), st.integers(LAST_NS - 2000, LAST_NS)
)


def batch(micros: list[int | None], remainders: list[int | None]) -> pa.RecordBatch:
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict({"t": times, "n": times, f"{REMAINDER}t": pa.array(remainders, pa.int32())})


@given(st.lists(st.one_of(st.none(), INSTANTS), max_size=8))
def test_an_instant_is_whole_again(instants: list[int | None]) -> None:
    micros = [None if ns is None else ns // 1000 for ns in instants]
    found = with_nanoseconds(batch(micros, [None if ns is None else ns % 1000 for ns in instants]))
    assert found.schema.names == ["t", "n"]
    assert found.column("t").cast(found.column("t").type).cast(pa.int64()).to_pylist() == (
        instants if any(ns is not None for ns in instants) else [None] * len(instants)
    )


def test_a_row_without_a_remainder_has_whole_microseconds() -> None:
    assert with_nanoseconds(batch([5, -5], [None, None])).column("t").cast(pa.int64()).to_pylist() == [5000, -5000]


def test_a_time_that_64_bits_cannot_hold_is_left_to_the_writer() -> None:
    for micros, rest in ((FIRST_NS // 1000, 193), (LAST_NS // 1000, 807), (LAST_NS, 0)):
        given_ = batch([1, micros], [0, rest])
        assert with_nanoseconds(given_).column("t").equals(given_.column("t"))


def test_a_batch_without_remainders_is_the_same_batch() -> None:
    plain = batch([1], [1]).select(["t", "n"])
    assert with_nanoseconds(plain) is plain

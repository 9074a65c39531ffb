from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.types import parse_type
from headwater.storage import row_hash as row_hash_module
from headwater.storage.row_hash import add_sums, content_hash, content_sum
from unit.storage.batches import batch_of
from unit.storage.row_hash_by_hand import row_hash

EVERY_TYPE = {
    "yes": "bool",
    "few": "int",
    "many": "long",
    "share": "real",
    "name": "string",
    "at": "timestamp",
    "day": "date",
    "price": "decimal(20,3)",
    "raw": "binary",
    "props": "dynamic",
    "v": "vector(3)",
    "tags": "list<string>",
    "deep": "list<list<long>>",
    "who": 'struct<id:long,"full name":string,spans:list<date>>',
}
ROWS: list[dict[str, Any]] = [
    {
        "yes": True,
        "few": -7,
        "many": 2**53 + 1,
        "share": -0.0,
        "name": "Zoë, a name of more than eight bytes",
        "at": -1,
        "day": -1,
        "price": Decimal("-12345678901234567.891"),
        "raw": b"\x00\x01",
        "props": '{"b":1, "a":2}',
        "v": [1.0, -0.0, 0.5],
        "tags": ["a", None, ""],
        "deep": [[1], [], None, [2, 3]],
        "who": {"id": 1, "full name": None, "spans": [1, 2]},
    },
    dict.fromkeys(EVERY_TYPE),
    {"yes": False, "many": 0, "share": float("nan"), "name": "", "raw": b"", "tags": [], "who": {}, "deep": [None]},
    {"name": "exactly8", "raw": b"\x00" * 8, "price": Decimal("0.001"), "props": "null", "at": 2**63 - 1},
]
GOLDEN = [
    "3822e04a988a640b4f68bdcb083ffeef",
    "d5e26c2d02e0884e041af7d9405dd98a",
    "16fe3fa28ece77db20a8df140d15173b",
    "24e82ee60650a85559e094f1a8f52ff1",
]


def hexes(batch: pa.RecordBatch) -> list[str]:
    return [value.hex() for value in content_hash(batch).to_pylist()]


def test_the_hash_is_what_it_always_was() -> None:
    assert hexes(batch_of(ROWS, EVERY_TYPE)) == GOLDEN


def test_the_hash_follows_its_written_description() -> None:
    types = {name: parse_type(text) for name, text in EVERY_TYPE.items()}
    assert [row_hash(row, types).hex() for row in ROWS] == GOLDEN


def test_column_order_and_null_columns_do_not_matter() -> None:
    batch = batch_of(ROWS, EVERY_TYPE)
    turned = batch.select(list(reversed(batch.schema.names)))
    wider = turned.append_column("added", pa.nulls(len(ROWS), pa.int64())).append_column("void", pa.nulls(len(ROWS)))
    assert hexes(wider) == GOLDEN


@pytest.mark.parametrize("block", [1, 2, 3])
def test_slices_and_block_sizes_do_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_hash_module, "BLOCK_ROWS", block)
    batch = batch_of(ROWS * 3, EVERY_TYPE)
    for start in range(len(ROWS)):
        assert hexes(batch.slice(start, 5)) == (GOLDEN * 3)[start : start + 5]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, -1], pa.int32()), pa.array([1, -1], pa.int64())),
        (pa.array([1, 2], pa.uint8()), pa.array([1, 2], pa.int64())),
        (pa.array([0.5, None], pa.float32()), pa.array([0.5, None], pa.float64())),
        (pa.array(["ab", ""], pa.string()), pa.array(["ab", ""], pa.large_string())),
        (pa.array(["ab", ""], pa.string()), pa.array(["ab", ""]).dictionary_encode()),
        (pa.array(["ab", ""], pa.string()), pa.array(["ab", ""], pa.string_view())),
        (pa.array([b"ab", b"cd"], pa.binary(2)), pa.array([b"ab", b"cd"], pa.binary())),
        (pa.array([1, -1], pa.timestamp("us")), pa.array([1000, -1000], pa.timestamp("ns", "UTC"))),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 2)), pa.array([Decimal("1.5")], pa.decimal128(30, 2))),
        (pa.array([[1, 2], None], pa.list_(pa.int32())), pa.array([[1, 2], None], pa.large_list(pa.int64()))),
        (pa.array([[1, 2], None], pa.list_(pa.float32(), 2)), pa.array([[1, 2], None], pa.list_(pa.float64()))),
        (pa.array([-0.0, float("nan")]), pa.array([0.0, -float("nan")])),
    ],
)
def test_the_same_values_in_another_layout_hash_equal(left: pa.Array, right: pa.Array) -> None:
    assert hexes(pa.record_batch({"c": left})) == hexes(pa.record_batch({"c": right}))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"c": pa.array(["1"])}, {"c": pa.array([1])}),
        ({"c": pa.array([1.0])}, {"c": pa.array([1])}),
        ({"c": pa.array([True])}, {"c": pa.array([1])}),
        ({"c": pa.array([1], pa.date32())}, {"c": pa.array([1], pa.timestamp("ns"))}),
        ({"c": pa.array([""])}, {"c": pa.array([None], pa.string())}),
        ({"c": pa.array(["a"])}, {"c": pa.array(["a\0"])}),
        ({"c": pa.array([[]], pa.list_(pa.int64()))}, {"c": pa.array([[None]], pa.list_(pa.int64()))}),
        ({"c": pa.array([[1, 2]])}, {"c": pa.array([[2, 1]])}),
        (
            {"c": pa.array([Decimal("1.5")], pa.decimal128(9, 1))},
            {"c": pa.array([Decimal("1.50")], pa.decimal128(9, 2))},
        ),
        ({"c": pa.array([{"x": None}], pa.struct([("x", pa.int64())]))}, {"c": pa.nulls(1)}),
        ({"x": pa.array([1]), "y": pa.array([2])}, {"x": pa.array([2]), "y": pa.array([1])}),
        ({"x": pa.array(["ab"]), "y": pa.array(["c"])}, {"x": pa.array(["a"]), "y": pa.array(["bc"])}),
    ],
)
def test_different_rows_hash_differently(left: dict[str, pa.Array], right: dict[str, pa.Array]) -> None:
    assert hexes(pa.record_batch(left)) != hexes(pa.record_batch(right))


def test_an_empty_batch_has_no_hashes() -> None:
    assert len(content_hash(batch_of([], EVERY_TYPE))) == 0


def test_a_column_of_no_known_type_is_named() -> None:
    with pytest.raises(HeadwaterError, match="column `took`") as raised:
        content_hash(pa.record_batch({"took": pa.array([1], pa.duration("s"))}))
    assert raised.value.code == "HW-S03"


def test_a_sum_counts_rows_in_any_order_but_not_swapped_values() -> None:
    batch = batch_of(ROWS, EVERY_TYPE)
    hashes = content_hash(batch)
    assert int(content_sum(hashes), 16) == sum(int(text, 16) for text in GOLDEN) % 2**128
    assert content_sum(hashes.take(pa.array([3, 1, 0, 2]))) == content_sum(hashes)
    assert add_sums([content_sum(hashes.slice(0, 1)), content_sum(hashes.slice(1))]) == content_sum(hashes)
    assert content_sum(pa.chunked_array([hashes, hashes.slice(0, 0)])) == content_sum(hashes)
    swapped = pa.record_batch({"a": pa.array([1, 2]), "b": pa.array([4, 3])})
    straight = pa.record_batch({"a": pa.array([1, 2]), "b": pa.array([3, 4])})
    assert content_sum(content_hash(swapped)) != content_sum(content_hash(straight))

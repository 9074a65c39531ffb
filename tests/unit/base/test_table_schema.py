from __future__ import annotations

import pyarrow as pa

from headwater.base.table_schema import Column, TableSchema
from headwater.base.types import LONG, STRING
from schemas import schema_of

ORDERS = schema_of({"id": "long", "größe": "decimal(9,2)", "tags": "list<string>"}, ("id",))


def test_the_fingerprint_is_the_same_in_every_version() -> None:
    """A golden value: views, files and other machines know schemas by it."""
    assert ORDERS.fingerprint == "sha256:f5fc4aa8ddf26b7dddfff0e1ccf343d667a49c154cd3d070af79ca01f1cf6079"
    assert TableSchema().fingerprint == "sha256:01799d3b534bacc21635311406d35de001dcccf0de642471060e0eb4e3736181"


def test_every_part_of_a_schema_counts_in_its_fingerprint() -> None:
    others = [
        schema_of({"id": "long", "größe": "decimal(9,2)", "tags": "list<string>"}),
        schema_of({"id": "long", "größe": "decimal(9,3)", "tags": "list<string>"}, ("id",)),
        ORDERS.added("more", LONG),
        ORDERS.with_column(Column(3, "labels", ORDERS.columns[2].type)),
        ORDERS.with_column(Column(3, "tags", ORDERS.columns[2].type, dropped=True)),
        ORDERS.with_column(Column(3, "tags", ORDERS.columns[2].type, nullable=False)),
        ORDERS.with_column(Column(3, "tags", ORDERS.columns[2].type, default="[]")),
        TableSchema(ORDERS.columns, ORDERS.primary_key, next_id=9),
    ]
    assert len({ORDERS.fingerprint, *(other.fingerprint for other in others)}) == len(others) + 1


def test_a_schema_comes_back_from_json() -> None:
    schema = ORDERS.added("x", STRING, default='"-"').with_column(Column(2, "y", LONG, dropped=True))
    assert TableSchema.from_json(schema.as_json()) == schema
    assert TableSchema.from_json(schema.as_json()).fingerprint == schema.fingerprint


def test_ids_count_up_and_are_found() -> None:
    assert [column.id for column in ORDERS.columns] == [1, 2, 3]
    assert ORDERS.next_id == 4
    assert ORDERS.by_id(2) is ORDERS.column("größe")
    assert (ORDERS.by_id(9), ORDERS.column("none")) == (None, None)


def test_key_columns_hold_no_null() -> None:
    assert [column.nullable for column in ORDERS.columns] == [False, True, True]


def test_arrow_fields_carry_the_permanent_ids() -> None:
    arrow = ORDERS.to_arrow()
    assert arrow.field("id").type == pa.int64()
    assert [field.metadata[b"PARQUET:field_id"] for field in arrow] == [b"1", b"2", b"3"]
    assert [field.nullable for field in arrow] == [False, True, True]

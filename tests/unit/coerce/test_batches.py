"""What the record of a coerced piece promises beyond the case files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Raw

from headwater.base.limits import MAX_BAD_ROWS
from headwater.base.types import LONG, STRING
from headwater.coerce.batches import coerce_document, coerce_lines
from headwater.coerce.infer import infer_lines, infer_members
from headwater.coerce.objects import typed_document, typed_lines
from headwater.coerce.row_errors import RowError
from headwater.coerce.row_types import row_type
from headwater.coerce.text_columns import coerce_strings, infer_csv_strings
from headwater.connectors.files.convert_columns import convert_batch, without_rows
from schemas import schema_of

CASES = Path(__file__).parents[2] / "scenarios" / "coerce"


def test_lines_are_counted_over_pieces_and_a_mark_is_skipped_only_at_the_start() -> None:
    schema = schema_of({"a": "long"})
    first = coerce_lines(b'\xef\xbb\xbf{"a":1}\n\n', schema)
    assert (first.rows, first.lines) == (1, 2)
    second = coerce_lines(b'{"a":2}\n{"a":"x"}\n', schema, first_line=3)
    assert (second.errors[0].line, second.lines) == (4, 2)
    third = coerce_lines(b'\xef\xbb\xbf{"a":3}\n', schema, first_line=5, place="orders.ndjson")
    (error,) = third.errors
    assert (error.line, error.reason, error.place) == (5, "invalid_json", "orders.ndjson")
    assert third.lines == 1


def test_only_the_first_errors_are_listed_and_all_are_counted() -> None:
    found = coerce_lines(b'{"a":"x","b":"y"}\n' * 200, schema_of({"a": "long", "b": "bool"}))
    assert len(found.errors) == MAX_BAD_ROWS
    assert (found.error_total, len(found.bad), found.rows) == (400, 200, 0)
    assert [error.line for error in found.errors] == [line for line in range(1, 51) for _ in "ab"]


def test_an_error_names_the_type_and_never_the_value() -> None:
    schema = schema_of({"a": "long", "v": "vector(2)", "s": "struct<x:date>", "id": "string"}, ("id",))
    secret = "hunter2"
    line = {"a": secret, "v": [1, secret], "s": {"x": secret}, "id": None}
    found = coerce_lines(json.dumps(line).encode() + b"\n{}", schema)
    assert [(error.column, error.value_type, error.detail) for error in found.errors] == [
        ("a", "string", ""),
        ("v", "string", "index 1"),
        ("s", "string", ".x: expected YYYY-MM-DD"),
        ("id", "null", ""),
        ("id", "absent", ""),
    ]
    assert secret not in repr(found.errors)


def test_ordinary_lines_and_documents_are_decoded_in_one_go() -> None:
    row = row_type((("a", LONG), ("b", STRING)))
    for data in (b'{"a":1,"b":"x"}\n{"b":"y"}\n', b'{"a":1}\r\n{"a":2}\r\n', b'{"a":1}\n{"a":2}', b'{"a":1}'):
        assert typed_lines(data, msgspec.json.Decoder(row)) is not None
    assert typed_document(b' [{"a":1},\n{"a":2}]', msgspec.json.Decoder(list[row])) is not None  # type: ignore[valid-type]


def test_values_on_lines_of_their_own_are_never_taken_for_rows() -> None:
    row = row_type((("a", LONG),))
    for data in (b'{"a":\n1}\n', b'{"a":1}{"a":2}\n', b'{"a":1} {"a":2}', b'{"a":\n1}\n{"a":2}{"a":3}\n'):
        assert typed_lines(data, msgspec.json.Decoder(row)) is None


def test_a_result_and_a_schema_survive_the_way_to_another_process() -> None:
    schema = pickle.loads(pickle.dumps(schema_of({"a": "long", "d": "dynamic"})))
    found = coerce_lines(b'{"a":1,"d":[1, 2],"z":null}\n{"a":"x"}\n', schema)
    assert pickle.loads(pickle.dumps(found)) == found


def test_an_unknown_key_that_was_always_null_can_be_told_from_a_string() -> None:
    found = coerce_lines(b'{"n":null,"s":"x"}\n', schema_of({}))
    assert found.unknown_seen == {"n": None, "s": STRING}


def test_inference_counts_rows_and_errors() -> None:
    found = infer_lines(b'{"a":1}\n\nnull\n{"a":2}\n')
    assert (found.rows, len(found.errors)) == (2, 1)


def test_every_dynamic_value_that_is_taken_can_be_read_by_duckdb(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (CASES / "more_types.jsonl").read_text().splitlines()]
    values = "".join(case["input"] for case in lines)
    schema = schema_of({"c": "dynamic"})
    found = coerce_lines(values.encode(), schema)
    assert found.rows > 60 and found.bad
    pq.write_table(pa.Table.from_batches([found.batch]), tmp_path / "values.parquet")
    with duckdb.connect() as connection:
        sql = "select count(*), count(json_type(c)) from read_parquet(?)"
        answer = connection.execute(sql, [str(tmp_path / "values.parquet")]).fetchall()
    assert answer == [(found.rows, found.rows - found.batch.column(0).null_count)]


def test_text_columns_are_coerced_by_name_with_bad_rows_left_out() -> None:
    schema = schema_of({"id": "long", "at": "timestamp", "note": "string"}, ("id",))
    batch = pa.record_batch({
        "at": pa.array(["2024-01-01", "nope", "", ""]),
        "id": pa.array(["1", "2", "x", "4"]),
        "extra": pa.array(["1.5", "2", "", "3"]),
    })  # fmt: skip
    found, errors = convert_batch(batch, schema, coerce_strings)
    assert [(e.line, e.column, e.reason) for e in errors] == [(1, "at", "bad_timestamp"), (2, "id", "not_a_number")]
    good = without_rows(found, errors)
    assert good.schema.equals(schema.to_arrow(), check_metadata=True)
    assert good.column(0).to_pylist() == [1, 4]
    assert good.column(2).to_pylist() == [None, None]
    assert str(infer_csv_strings(batch.column(2))) == "real"


def test_an_empty_text_in_a_key_column_is_a_missing_key() -> None:
    batch = pa.record_batch({"id": pa.array(["", "1"])})
    _, errors = convert_batch(batch, schema_of({"id": "long"}, ("id",)), coerce_strings)
    assert errors == [RowError(0, "id", "null_in_non_null", "null")]


def test_a_document_of_one_object_and_an_array_of_it_give_the_same_row() -> None:
    schema = schema_of({"a": "long"})
    one, many = coerce_document(b'{"a":1}', schema), coerce_document(b'[{"a":1}]', schema)
    assert one == many and one.rows == 1


def test_rows_with_keys_of_their_own_are_each_looked_at_a_few_times() -> None:
    """Objects that should have been values of one key: their keys are many, and not to be looked for in each row."""
    looks = 0

    class Row(dict[str, Raw]):
        def __contains__(self, key: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(key)

    found = infer_members([Row({f"id_{n}": Raw(b"1")}) for n in range(1_000)])
    assert (len(found), looks <= 5_000) == (1_000, True)

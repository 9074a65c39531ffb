"""The case files of tests/scenarios/coerce: what each input becomes, on the quick way and on the exact one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import STRING, Type, parse_type
from headwater.coerce.batches import Coerced, coerce_document, coerce_lines, coerce_objects
from headwater.coerce.infer import infer_document, infer_lines
from headwater.coerce.objects import read_document, read_lines, without_bom
from headwater.coerce.row_errors import RowError
from headwater.coerce.text_columns import coerce_strings, infer_csv_strings
from schemas import schema_of

CASES = Path(__file__).parents[2] / "scenarios" / "coerce"


def cases(*needed: str, of: tuple[str, ...] = ("*",)) -> Iterator[Any]:
    for path in sorted(found for name in of for found in CASES.glob(f"{name}.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            case = json.loads(line)
            if all(key in case for key in needed):
                yield pytest.param(case, id=f"{path.stem}:{number}:{case['why']}")


def shown(value: Any, type_: Type) -> Any:
    """A value as the case files write it."""
    if value is None:
        return None
    match type_.kind:
        case "date":
            return value.isoformat()
        case "decimal":
            return str(value)
        case "binary":
            return base64.b64encode(value).decode()
        case "list":
            return [shown(item, type_.fields[0][1]) for item in value]
        case "struct":
            return {name: shown(value[name], part) for name, part in type_.fields}
    return value


def column(array: pa.Array, type_: Type) -> list[Any]:
    """The values of an array as the case files write them; times are integers, so that none is rounded."""
    return [shown(value, type_) for value in times_as_integers(array).to_pylist()]


def times_as_integers(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, times_as_integers(array.values), mask=array.is_null())
    return array


def rows(batch: pa.RecordBatch, schema: TableSchema) -> list[dict[str, Any]]:
    columns = {c.name: column(batch.column(index), c.type) for index, c in enumerate(schema.columns)}
    return [{name: columns[name][row] for name in columns} for row in range(batch.num_rows)]


def agrees(errors: tuple[RowError, ...], expected: list[dict[str, Any]]) -> bool:
    return len(errors) == len(expected) and all(
        (error.line, error.column, error.reason) == (wanted["line"], wanted["column"], wanted["reason"])
        and error.detail == wanted.get("detail", error.detail)
        for error, wanted in zip(errors, expected)
    )


def check(found: Coerced, case: dict[str, Any], schema: TableSchema) -> None:
    found.batch.validate(full=True)
    assert found.batch.schema.equals(schema.to_arrow(), check_metadata=True)
    assert agrees(found.errors, case.get("errors", [])), found.errors
    assert found.error_total == len(found.errors)
    assert len(found.bad) == len({error.line for error in found.errors})
    assert rows(found.batch, schema) == case["rows"]
    assert found.rows == found.batch.num_rows == len(case["rows"])
    assert {name: str(type_ or STRING) for name, type_ in found.unknown_seen.items()} == case.get("unknown", {})
    assert list(found.unknown_seen) == list(case.get("unknown", {}))
    assert found.lines == case.get("lines", found.lines)


def schema_in(case: dict[str, Any]) -> TableSchema:
    return with_forms(case["schema"]["columns"], tuple(case["schema"]["primary_key"]))


def with_forms(columns: dict[str, Any], primary_key: tuple[str, ...] = ()) -> TableSchema:
    """Columns as a manifest declares them, some of them with the form of their texts."""
    types = {name: column if isinstance(column, str) else column["type"] for name, column in columns.items()}
    said = {name: dict(column) for name, column in columns.items() if not isinstance(column, str)}
    forms = {
        name: TextForm(**{key: text for key, text in each.items() if key != "type"}) for name, each in said.items()
    }
    return schema_of(types, primary_key).formed(forms)


def bytes_in(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["input_base64"]) if "input_base64" in case else case["input"].encode()


@pytest.mark.parametrize("case", [*cases("schema", "input"), *cases("schema", "input_base64")])
def test_lines_become_the_rows_and_errors_of_the_case(case: dict[str, Any]) -> None:
    schema, data = schema_in(case), bytes_in(case)
    check(coerce_lines(data, schema), case, schema)
    check(coerce_lines(memoryview(data), schema), case, schema)
    taken_apart = read_lines(without_bom(data), first_line=1, place="")
    check(coerce_objects(taken_apart, schema, exactly=True), case, schema)


@pytest.mark.parametrize("case", [*cases("schema", "input", of=("scalars", "times", "more_types", "forms"))])
def test_the_verdict_on_a_row_does_not_depend_on_other_rows_and_columns(case: dict[str, Any]) -> None:
    columns = {"before": "string", **case["schema"]["columns"], "after": "dynamic"}
    schema = with_forms(columns)
    data = b'{"before":"x"}\n' + bytes_in(case) + b'{"after":[1, 2]}\n{"before":1.50}\n'
    found = coerce_lines(data, schema, place="f")
    blank = dict.fromkeys(columns)
    expected = [
        {**blank, "before": "x"},
        *({**blank, **row} for row in case["rows"]),
        {**blank, "after": "[1, 2]"},
        {**blank, "before": "1.50"},
    ]
    assert rows(found.batch, schema) == expected
    assert agrees(found.errors, [{**error, "line": 2} for error in case.get("errors", [])])
    assert all(error.place == "f" for error in found.errors)


@pytest.mark.parametrize("case", [*cases("schema", "document")])
def test_documents_become_the_rows_and_errors_of_the_case(case: dict[str, Any]) -> None:
    schema, data = schema_in(case), case["document"].encode()
    check(coerce_document(data, schema), case, schema)
    check(coerce_objects(read_document(data, place=""), schema, exactly=True), case, schema)


@pytest.mark.parametrize("case", [*cases("input", "inferred")])
def test_lines_show_the_columns_of_the_case(case: dict[str, Any]) -> None:
    found = infer_lines(case["input"].encode())
    assert {name: type_ and str(type_) for name, type_ in found.columns.items()} == case["inferred"]
    assert list(found.columns) == list(case["inferred"])
    assert agrees(found.errors, case.get("errors", []))


@pytest.mark.parametrize("case", [case for case in cases("input", "inferred") if "errors" not in case.values[0]])
def test_a_document_shows_the_same_columns_as_the_same_rows_on_lines(case: dict[str, Any]) -> None:
    document = "[" + ",".join(case["input"].splitlines()) + "]"
    found = infer_document(document.encode())
    assert {name: type_ and str(type_) for name, type_ in found.columns.items()} == case["inferred"]


@pytest.mark.parametrize("case", [*cases("type", "texts")])
def test_texts_become_the_values_and_errors_of_the_case(case: dict[str, Any]) -> None:
    type_ = parse_type(case["type"])
    form = TextForm(**case["form"]) if "form" in case else None
    array, refused = coerce_strings(pa.array(case["texts"], pa.string()), type_, form)
    errors = tuple(replace(error, line=error.line + 1, column="c") for error in refused)
    array.validate(full=True)
    assert repr(column(array, type_)) == repr(case["values"])
    assert agrees(errors, case.get("errors", []))


@pytest.mark.parametrize("case", [*cases("texts", "inferred")])
def test_texts_show_the_type_of_the_case(case: dict[str, Any]) -> None:
    found = infer_csv_strings(pa.array(case["texts"], pa.string()))
    assert (found and str(found)) == case["inferred"]

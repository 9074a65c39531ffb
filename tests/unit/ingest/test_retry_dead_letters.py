"""Letters coerced again: what fits the table now is rows of it, and the others stay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.base.table_schema import TableSchema
from headwater.base.types import DYNAMIC
from headwater.catalog.dead_letters import DeadLetter
from headwater.ingest.retry_dead_letters import RetriedRows, retry_coercion
from schemas import schema_of

SCHEMA = schema_of({"id": "long", "note": "string", "v": "vector(2)"})


def letter(source: str | bytes | dict[str, Any], *, format_: str = "ndjson", place: str = "in/a") -> DeadLetter:
    text = json.dumps(source) if isinstance(source, dict) else source
    data = text if isinstance(text, bytes) else text.encode()
    return DeadLetter("t", "p", place, 1, "id", "not_a_number", "string", "", format_, data)


def rows(found: RetriedRows) -> list[dict[str, Any]]:
    return [row for each in found.batches for row in each.batch.to_pylist()]


def again(*letters: DeadLetter, schema: TableSchema = SCHEMA, pushed: bool = False) -> RetriedRows:
    found = retry_coercion(letters, schema, pushed=pushed)
    assert sum(each.rows for each in found.batches) == len(found.fits) == len(rows(found))
    return found


def test_rows_that_fit_by_now_come_from_where_they_were() -> None:
    found = again(
        letter('{"id": 1, "note": "x"}', place="in/a"),
        letter('{"id": "one"}'),
        letter("not json"),
        letter('[{"id": 5}]'),
        letter(b"\xff"),
        letter('{"id":\n 2}', format_="json", place="in/b"),
    )
    assert found.fits == {0, 5}
    assert [(row["id"], row["note"], row["_source_id"]) for row in rows(found)] == [(1, "x", "in/a"), (2, None, "in/b")]


def test_a_row_with_a_key_that_has_no_column_stays_unless_it_is_null() -> None:
    found = again(letter('{"id": 1, "more": 1}'), letter('{"id": 2, "more": null}'))
    assert (found.fits, [row["id"] for row in rows(found)]) == ({1}, [2])


@pytest.mark.parametrize("format_", ["ndjson", "csv"])
def test_a_key_that_no_column_can_have_is_rescued_where_there_is_room_for_it(format_: str) -> None:
    kept = [letter({"id": "1", "": "x", "_rescued": None}, format_=format_), letter({"id": "2"}, format_=format_)]
    assert again(*kept).fits == {1}
    found = again(*kept, schema=SCHEMA.added("_rescued", DYNAMIC))
    value = '{"":"x","_rescued":null}' if format_ == "ndjson" else '{"":"x"}'
    assert [(row["id"], row["_rescued"]) for row in rows(found)] == [(1, value), (2, None)]


def test_a_pushed_row_brings_its_columns_as_a_push_does() -> None:
    found = again(letter('{"id": 1, "more": [1]}'), letter('{"id": "x"}'), letter('{"id": 3}'), pushed=True)
    assert found.fits == {0, 2}
    assert found.batches[0].added == ("more",)
    assert [(row["id"], row["more"]) for row in rows(found)] == [(1, "[1]"), (3, None)]
    assert "_source_id" not in found.batches[0].batch.schema.names


@pytest.mark.parametrize("pushed", [False, True])
def test_cells_are_coerced_by_the_rules_of_texts(pushed: bool) -> None:
    found = again(
        letter({"id": "1", "note": "007", "v": "[1, 2]"}, format_="csv"),
        letter({"id": "x", "note": ""}, format_="csv"),
        letter({"id": "", "note": None}, format_="csv"),
        letter('"a record of another width"', format_="csv"),
        letter({"id": "2", "note": "\udcff"}, format_="csv"),
        letter({"id": "3", "more": "unknown"}, format_="csv"),
        letter({"id": "4", "more": ""}, format_="csv"),
        letter('{"id": 5}'),
        pushed=pushed,
    )
    assert found.fits == {0, 2, 6, 7}
    shown = {(row["id"], row["note"]) for row in rows(found)}
    assert shown == {(1, "007"), (None, None), (4, None), (5, None)}


def test_nothing_that_fits_is_nothing_to_write() -> None:
    assert again(letter("x"), letter('"y"', format_="csv")) == RetriedRows((), frozenset())


@pytest.mark.parametrize("pushed", [True, False])
def test_a_byte_order_mark_is_no_row_and_begins_none(pushed: bool) -> None:
    mark = b"\xef\xbb\xbf"
    for first in (mark, mark + b'{"id": 1}'):
        assert again(letter(first), letter('{"id": 2}'), pushed=pushed).fits == {1}

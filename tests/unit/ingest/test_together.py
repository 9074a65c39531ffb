"""Batches that are coerced together become what each becomes by itself."""

from __future__ import annotations

import json
from collections import defaultdict

from headwater.base.table_schema import TableSchema
from headwater.ingest.first_columns import DEFAULT_COLUMNS
from headwater.ingest.prepare import prepare, prepare_together
from schemas import schema_of
from unit.coerce.test_cases import bytes_in, cases, schema_in

FILES = ("lines", "scalars")


def test_what_is_said_of_a_batch_among_others_is_what_is_said_of_it_alone() -> None:
    bodies: dict[TableSchema, list[bytes]] = defaultdict(list)
    for case in (each.values[0] for kind in ("input", "input_base64") for each in cases("schema", kind, of=FILES)):
        bodies[schema_in(case)].append(bytes_in(case))
    quick = 0
    for schema, group in bodies.items():
        for body, found in zip(group, prepare_together(group, schema), strict=True):
            if found is not None:
                assert found == prepare(body, schema, table="t", evolve=True)
                quick += 1
    assert quick > 20, "else this says nothing"


def test_a_bad_batch_and_one_with_a_new_key_do_not_slow_the_others() -> None:
    schema = schema_of({"id": "long", "name": "string"})
    bodies = [b'{"id": 1}\n', b'{"id": "x"}\n', b'{"id": 2, "new": 1}\n', b"", b'\xef\xbb\xbf{"id": 3}\n{"id": 4}']
    found = prepare_together(bodies, schema)
    assert [None if each is None else each.batch.column("id").to_pylist() for each in found] == [
        [1], None, None, None, [3, 4]
    ]  # fmt: skip


def test_times_that_other_keys_hold_are_looked_for_in_each_batch() -> None:
    schema = schema_of({**{name: str(type_) for name, type_ in DEFAULT_COLUMNS.items()}, "at": "string"})
    told, untold = ({"ts": "2026-01-07", "at": "x"}, {"at": "2026-01-07"})
    whole, lacking = prepare_together([json.dumps(told).encode(), json.dumps(untold).encode()], schema)
    assert (whole is None, lacking is None) == (False, True)

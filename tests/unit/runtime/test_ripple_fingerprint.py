"""Fingerprints of definitions: one that uses no new key keeps the one that it had, so nothing is due by an upgrade."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.manifest.spec import PipelineSpec, definition_fingerprint
from headwater.runtime.ripple_fingerprint import landing_fingerprint

COLUMNS: dict[str, Any] = {
    "id": "long",
    "at": {"type": "timestamp", "nullable": False},
    "n": {"type": "decimal(5,2)", "default": 1},
}
FILES: dict[str, Any] = {
    "id": "orders",
    "source": {"connector": "files", "config": {"path": "in/*.csv", "nulls": ["", "NA"]}},
    "tables": [{"name": "orders", "primary_key": ["id"], "columns": COLUMNS}],
    "max_bad_rows": 7,
}
PUSH: dict[str, Any] = {"id": "p", "source": {"connector": "push"}, "tables": ["t"]}


def fingerprints(data: dict[str, Any]) -> tuple[str, str]:
    spec = PipelineSpec.model_validate(data)
    return definition_fingerprint(spec), landing_fingerprint(spec, spec.tables[0])


@pytest.mark.parametrize(
    ("data", "definition", "landing"),
    [
        (
            FILES,
            "sha256:ea99cd2188a8b2ac9f165752934fd3cafbee6325ad7fc3522667ef805a24f6dc",
            "sha256:50a4d4210279c3f7cca97d73e817024f82885da64ce8acc0b894c35818cd83fc",
        ),
        (
            PUSH,
            "sha256:6b1817114f23752cb8361141d3812869822d4958a3a18a4ed852acee9919169c",
            "sha256:735be9bf727b68a7c2ad2fac408829703258b1d9467a814fea306e6716cc7856",
        ),
    ],
)
def test_a_definition_keeps_the_fingerprint_that_it_was_stored_with(
    data: dict[str, Any], definition: str, landing: str
) -> None:
    assert fingerprints(data) == (definition, landing)


@pytest.mark.parametrize(
    "setting",
    [
        {"exclude": ["x"]},
        {"columns": {**COLUMNS, "at": {**COLUMNS["at"], "format": "%Y/%m/%d"}}},
        {"columns": {**COLUMNS, "at": {**COLUMNS["at"], "timezone": "Europe/Berlin"}}},
        {"columns": {**COLUMNS, "n": {**COLUMNS["n"], "decimal": ","}}},
    ],
)
def test_a_new_setting_makes_another_definition(setting: dict[str, Any]) -> None:
    changed = {**FILES, "tables": [{**FILES["tables"][0], **setting}]}
    assert all(one != other for one, other in zip(fingerprints(FILES), fingerprints(changed)))

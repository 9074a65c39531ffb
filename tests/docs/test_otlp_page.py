"""The reference of OTLP lists the columns that its tables are made with, in their order."""

from __future__ import annotations

import pytest

from docs.test_reference import rows, sections
from headwater.ingest.otlp.tables import COLUMNS, SENDER, TABLES, Signal


@pytest.mark.parametrize("signal", TABLES)
def test_every_column_is_documented_with_its_type(signal: Signal) -> None:
    page = sections("otlp.md")
    documented = [*rows(page[TABLES[signal]]), *rows(page["The sender"])]
    assert [(row[0].strip("`"), row[1].strip("`")) for row in documented] == [
        (name, str(type_)) for name, type_ in COLUMNS[signal].items()
    ]
    assert len(rows(page["The sender"])) == len(SENDER)

"""How often a small apply writes the catalog: each write is a wait for the disk, or for the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, event

from headwater.base import limits
from spark.scenario import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 4
MANIFEST = """\
[project]
name = "{name}"

[context]
catalog = "{catalog}"

[[pipeline]]
id = "orders"
poll = "1ms"
source = {{ connector = "files", config = {{ path = "data/*.ndjson" }} }}
tables = ["orders"]
"""


@contextmanager
def writes() -> Iterator[list[str]]:
    """The write transactions of this process that are committed inside. Reads are rolled back."""
    found: list[str] = []

    def on_statement(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement == "COMMIT":
            found.append("sqlite")

    def on_commit(_connection: object) -> None:
        found.append("postgresql")

    event.listen(Engine, "before_cursor_execute", on_statement)
    event.listen(Engine, "commit", on_commit)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", on_statement)
        event.remove(Engine, "commit", on_commit)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_apply_of_one_slice_writes_the_catalog_four_times(
    tmp_path: Path, spark: SparkSession, postgres_url: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OWNER_LEASE_SECONDS", limits.LEASE_SECONDS)  # a slow machine must not renew
    catalog = "sqlite" if database == "sqlite" else postgres_url
    (tmp_path / "headwater.toml").write_text(MANIFEST.format(name="few", catalog=catalog))
    (tmp_path / "data").mkdir()
    for number in range(2):
        (tmp_path / "data" / f"{number}.ndjson").write_text(f'{{"id": {number}}}\n')
        with writes() as found:
            answer = command(tmp_path, "apply")
        assert answer.exit == 0, answer.err
    assert found == [database] * MOST
    with writes() as found:
        assert command(tmp_path, "apply").exit == 0
    assert found == [], "nothing to do writes nothing"

"""The connectors that `test_connectors.py` runs over: to add one, write a function and name it in `CASES`.

A function gets pytest's request (for fixtures such as `postgres_url`) and an empty project directory, and returns a
`Case`: a source with `rows` rows that has a key column `id`, and how to add `grown_rows` more to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headwater.connectors.protocol import TableAsk


@dataclass
class Case:
    connector: str
    root: Path
    config: dict[str, object]
    ask: TableAsk
    rows: int
    grown_rows: int
    grow: Callable[[], None]
    """Makes the source have `grown_rows` more rows. It may change `config`."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What secret references in `config` stand for."""


def files(request: pytest.FixtureRequest, root: Path) -> Case:
    def write(name: str, first: int, count: int) -> None:
        lines = (f'{{"id": {id_}, "name": "name {id_}"}}\n' for id_ in range(first, first + count))
        (root / name).write_text("".join(lines))

    write("a.ndjson", 0, 5)
    write("b.ndjson", 5, 3)
    ask = TableAsk("things", "things", "append")
    return Case("files", root, {"path": "*.ndjson"}, ask, 8, 4, lambda: write("c.ndjson", 8, 4))


def flaky(request: pytest.FixtureRequest, root: Path) -> Case:
    config: dict[str, object] = {"rows": 20, "slices": 3}
    ask = TableAsk("things", "rows", "append")
    return Case("flaky", root, config, ask, 20, 5, lambda: config.update(rows=25))


def flaky_token(request: pytest.FixtureRequest, root: Path) -> Case:
    """A cursor that only reading tells."""
    case = flaky(request, root)
    case.config.update(token=True)
    return case


def postgres(request: pytest.FixtureRequest, root: Path) -> Case:
    import psycopg

    url: str = request.getfixturevalue("postgres_url")

    def insert(first: int, last: int) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(
                "insert into things select g, 'name ' || g from generate_series(%s::int, %s) g", (first, last)
            )

    with psycopg.connect(url) as connection:
        connection.execute("create table things (id int primary key, name text)")
    insert(1, 8)
    ask = TableAsk("things", "things", "replace")
    return Case("postgres", root, {"url": "env:PG"}, ask, 8, 4, lambda: insert(9, 12), {"env:PG": url})


CASES: dict[str, Callable[[pytest.FixtureRequest, Path], Case]] = {
    "files": files,
    "flaky": flaky,
    "flaky, with a token": flaky_token,
    "postgres": postgres,
}

"""A store that the version before slices were jobs made, and whose last apply it did not finish, goes on here.

What must be in the tables is computed from the sources that the archive holds."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from catalog_rows import dump
from contract.old_stores import unpack_project
from crash.harness import Project, Resident, must_be_whole
from headwater.base import limits
from headwater.catalog import sql_tables as t
from headwater.catalog.lookup import table_states

Row = tuple[Any, ...]
SEEN = 12 + 15
"""The rows that landed before the run, and those of its slices: `seen` has a row for each that arrived."""


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    url = "sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    monkeypatch.setenv("HEADWATER_CONTEXT__CATALOG", url)
    monkeypatch.setenv(
        "HEADWATER_NODE", "fixture"
    )  # the machine whose process was killed: its leases are known to be dead
    project = Project(tmp_path / "project", url)
    assert unpack_project(project.root, url) == project.store_root
    return project


def lines(root: Path, pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(root.glob(pattern)):
        for line in path.read_text().splitlines():
            yield path, json.loads(line)


def money(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def orders(root: Path) -> dict[int, tuple[Decimal, str]]:
    """The rows of all files that are no dead letters."""
    rows = {
        row["id"]: (money(row["amount"]), row["customer"])
        for _, row in lines(root, "data/orders/*")
        if "customer" in row
    }
    return {id_: (amount, customer) for id_, (amount, customer) in rows.items() if amount is not None}


def payments(root: Path) -> dict[int, Decimal]:
    """The last row of each key, in the order in which rows came: dropped on Monday, pushed, dropped on Tuesday."""
    monday, tuesday = (
        list(csv.DictReader((root / "drop/payments" / name).open())) for name in ("monday.csv", "tuesday.csv")
    )
    pushed = [row for _, row in lines(root, "pushed/payments/*")]
    found = [(int(row["id"]), money(row["amount"])) for row in (*monday, *pushed, *tuesday)]
    return {id_: amount for id_, amount in found if amount is not None}


def events(root: Path) -> list[Row]:
    dropped = [row for _, row in lines(root, "drop/events/*")]
    return sorted(
        (row["label"], row["body"]) for row in [*dropped, *(row for _, row in lines(root, "pushed/events/*"))]
    )


def revenue(root: Path) -> dict[str, Decimal]:
    country = {row["name"]: row["country"] for _, row in lines(root, "data/customers/*")}
    found: Counter[str] = Counter()
    for amount, customer in orders(root).values():
        found[country[customer]] += amount  # type: ignore[assignment]
    return dict(found)  # type: ignore[arg-type]


class Asked:
    """Commands in a project, and their answers."""

    def __init__(self, project: Project, resident: Resident):
        self.project, self.resident = project, resident

    def __call__(self, *arguments: str) -> str:
        ran = self.resident.run(self.project, *arguments).ended()
        return ran.out + ran.err

    def rows(self, sql: str) -> list[Row]:
        ran = self.resident.run(self.project, "query", "--json", sql).ended()
        return [tuple(row.values()) for row in ran.answer["rows"]]

    def amounts(self, sql: str) -> dict[Any, Any]:
        return {key: Decimal(amount) for key, amount in self.rows(sql)}

    def dead(self, table: str) -> Counter[str]:
        ran = self.resident.run(self.project, "deadletters", table, "list", "--json").ended()
        return Counter(letter["place"] for letter in ran.answer["letters"])


def must_hold_its_sources(ask: Asked) -> None:
    root = ask.project.root
    found = ask.rows("SELECT id, amount, customer FROM orders ORDER BY id")
    assert [(id_, (Decimal(amount), customer)) for id_, amount, customer in found] == sorted(orders(root).items())
    assert ask.amounts("SELECT id, amount FROM payments") == payments(root)
    assert sorted(ask.rows("SELECT label, body FROM events")) == events(root)
    assert dict(ask.rows("SELECT name, country FROM customers")) == {"ada": "DE", "bob": "IT", "eve": "ES"}
    assert ask.amounts("SELECT country, revenue FROM by_country") == revenue(root)
    assert ask.amounts("SELECT id, amount FROM big_orders") == {
        id_: amount for id_, (amount, _) in orders(root).items() if amount > 5
    }
    seen = [id_ for (id_,) in ask.rows("SELECT id FROM seen")]
    assert (len(seen), set(seen)) == (SEEN, set(orders(root)))


def live_files(connection: Connection, run_id: str) -> set[str]:
    """The files of `orders` that a run wrote."""
    (state,) = table_states(connection, ["orders"])
    return {file.path for file in state.files if run_id in file.path}


def test_an_old_store_finishes_its_run(old: Project, resident: Resident) -> None:
    ask = Asked(old, resident)
    with old.store() as store, store.catalog.snapshot() as connection:
        (begun,) = connection.execute(select(t.run.c.run_id).where(t.run.c.ended_us.is_(None))).scalars()
        files = live_files(connection, begun)
    assert files, "a slice had landed"
    triggers = ask("trigger", "list")
    assert "launch" in triggers and "ten" in triggers
    assert "1 done, 3 to go" in ask("plan")
    ask("apply")
    must_hold_its_sources(ask)
    assert ask("trigger", "list") == triggers
    with old.store() as store, store.catalog.snapshot() as connection:
        states = dict(list(connection.execute(select(t.run.c.run_id, t.run.c.state))))
        assert states[begun] == "success" and set(states.values()) == {"success"}
        assert files < live_files(connection, begun), "what had landed stays"
    must_be_whole(old, resident)
    before, known = old.tree(), old.catalog_rows()
    assert "nothing to do" in ask("apply")
    assert (old.tree(), old.catalog_rows()) == (before, known)
    ask("context", "rebuild-catalog")
    assert old.catalog_rows() == known
    must_hold_its_sources(ask)


def test_what_was_pushed_dropped_and_refused_before_goes_on(old: Project, resident: Resident) -> None:
    ask = Asked(old, resident)
    place = "data/orders/2026-04.ndjson"
    assert ask.dead("orders") == {place: 2, "data/orders/2026-05.ndjson": 1}
    assert sum(ask.dead("payments").values()) == 4
    (old.root / "drop/payments/copy.csv").write_bytes((old.root / "drop/payments/monday.csv").read_bytes())
    for number in range(12, 22):
        path = old.root / f"pushed/events/{number}.ndjson"
        path.write_text(json.dumps({"label": "pushed", "body": f"{number}.0"}) + "\n")
        ask("ingest", "events", str(path), "--key", f"batch-{number}")
    ask("apply")
    must_hold_its_sources(ask)
    with old.store() as store, store.catalog.snapshot() as connection:
        (state,) = table_states(connection, ["events"])
        assert len(state.files) < limits.TAIL_CLASS_FILES, "the tail was merged again"
    manifest = old.root / "headwater.toml"
    manifest.write_text(manifest.read_text().replace('note = "long"', 'note = "string"'))
    assert "HW-S01" in resident.run(old, "apply", "orders").ended(1).err
    ask("schema", "accept", "orders")
    assert "1 row landed, 2 still bad" in ask("deadletters", "orders", "retry")
    assert ask.rows("SELECT id, note FROM orders WHERE note IS NOT NULL") == [(38, "gift")]
    assert ask.dead("orders") == {place: 1, "data/orders/2026-05.ndjson": 1}
    ask("context", "gc")
    must_be_whole(old, resident)
    known = old.catalog_rows()
    ask("context", "rebuild-catalog")
    with old.store() as store:
        assert dump(store.catalog) == known

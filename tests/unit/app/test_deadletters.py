"""list, retry, drop: letters of a pulled and of a pushed table, at once, filtered, and killed on the way. No JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_rows import dump
from forked import exit_code
from headwater.app.deadletters import drop, list_dead_letters, retry
from headwater.app.ingest import Ingestor
from headwater.app.query import reader
from headwater.app.schema import accept
from headwater.app.workspace import Workspace, workspace
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RunId, uuid7
from headwater.catalog import dead_letters as d
from headwater.catalog.dead_letters import count_dead_letters
from headwater.catalog.gc import collect
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_states
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.verify import verify
from headwater.storage.layout import attempt_directory
from headwater.storage.store_files import data_files
from unit.interfaces.landed import landed_project

PUSHED = """
[[pipeline]]
id = "numbers"
source = { connector = "push" }
[[pipeline.tables]]
name = "numbers"
primary_key = ["id"]
columns = { id = "long", n = "long" }
"""
FITS = b'{"id": %d, "name": "late"}'


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workspace]:
    """A landed project whose table `orders` has two files of letters: of each the first row fits."""
    root = landed_project(tmp_path / "shop")
    with (root / "headwater.toml").open("a") as manifest:
        manifest.write(PUSHED)
    with workspace(root) as opened:
        for number in range(2):
            keep(opened, "orders", f"data/{number}.ndjson", FITS % (10 + number), b"never")
        yield opened


def keep(opened: Workspace, table: str, place: str, *sources: bytes) -> None:
    """Letters as a slice leaves them."""
    store, run_id = opened.store(), RunId(uuid7())
    letters = [
        d.DeadLetter(table, "orders", place, line, "id", "not_a_number", "string", "", "ndjson", source)
        for line, source in enumerate(sources, 1)
    ]
    directory = attempt_directory(d.TABLE, run_id=run_id, node="node", unit_id=uuid7(), attempt=1)
    files = d.write_dead_letters(store.root, directory, letters, run_id=run_id, number=0)
    with Landing(store, "operator:ada") as landing:
        d.add_dead_letters(landing, files, run_id=run_id)
        landing.commit()


def rows(opened: Workspace, sql: str) -> list[tuple[Any, ...]]:
    with reader(opened) as session:
        return session.sql(sql).fetchall()


def orders(opened: Workspace) -> list[tuple[Any, ...]]:
    return rows(opened, "SELECT id, name, _source_id FROM meta.orders WHERE id >= 10 ORDER BY id")


LANDED = [(10, "late", "data/0.ndjson"), (11, "late", "data/1.ndjson")]


def test_rows_that_fit_land_once_from_where_they_were_and_the_others_stay_as_they_are(shop: Workspace) -> None:
    before = {
        letter.place: letter for letter in list_dead_letters(shop, "orders", rows=True).letters if letter.line == 2
    }
    first = retry(shop, "orders")
    assert (first.landed, first.still_bad, first.warnings) == (2, 2, ())
    again = retry(shop, "orders")
    assert (again.landed, again.still_bad, again.snapshot_id) == (0, 2, None)
    assert orders(shop) == LANDED
    left = list_dead_letters(shop, "orders", rows=True)
    assert {letter.place: letter for letter in left.letters} == before
    assert not verify(shop.store()).problems
    known = dump(shop.store().catalog)
    root = shop.store().root
    shop.close()
    rebuild_catalog(root, project="shop")
    assert dump(shop.store().catalog) == known


def test_the_values_of_a_row_are_shown_only_to_who_asks_for_them(shop: Workspace) -> None:
    hidden = list_dead_letters(shop, "orders", limit=1)
    assert (hidden.total, len(hidden.letters), hidden.letters[0].row) == (4, 1, None)
    assert (hidden.letters[0].place, hidden.letters[0].line, hidden.letters[0].reason) == (
        "data/1.ndjson",
        2,
        "not_a_number",
    )
    shown = list_dead_letters(shop, "orders", place="data/0.ndjson", rows=True)
    assert [letter.row for letter in shown.letters] == [(FITS % 10).decode(), "never"]


def test_one_place_can_be_dropped_and_the_rest_stays(shop: Workspace) -> None:
    assert drop(shop, "orders", place="data/0.ndjson") == 2
    assert {letter.place for letter in list_dead_letters(shop, "orders").letters} == {"data/1.ndjson"}
    assert drop(shop, "orders", place="nowhere") == 0
    assert drop(shop, "orders") == 2
    assert drop(shop, "orders") == 0
    assert rows(shop, "SELECT count(*) FROM _dead_letters") == [(0,)]
    with pytest.raises(HeadwaterError, match="no table `nobody`"):
        drop(shop, "nobody")


def test_very_many_letters_are_landed_in_parts_and_counted_once(
    shop: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LETTERS_AT_ONCE", 3)
    keep(shop, "orders", "data/2.ndjson", *[FITS % number for number in range(12, 20)])
    listed = list_dead_letters(shop, "orders", limit=2, rows=True)
    assert (listed.total, [letter.line for letter in listed.letters]) == (12, [7, 8])
    done = retry(shop, "orders")
    assert (done.landed, done.still_bad) == (10, 2)
    assert rows(shop, "SELECT count(*), count(DISTINCT id) FROM orders WHERE id >= 10") == [(10, 10)]
    assert [row[0] for row in rows(shop, "SELECT max(_commit_seq) FROM meta.orders")] == [int(done.snapshot_id or 0)]
    assert [(letter.place, letter.line) for letter in list_dead_letters(shop, "orders").letters] == [
        ("data/0.ndjson", 2),
        ("data/1.ndjson", 2),
    ]


def test_letters_of_a_pipeline_that_is_gone_stay_and_it_is_said_what_helps(shop: Workspace) -> None:
    root = shop.project.root
    (root / "headwater.toml").write_text('[project]\nname = "shop"\n')
    with workspace(root) as opened:
        with pytest.raises(HeadwaterError, match="belongs to pipeline `orders`") as refused:
            retry(opened, "orders")
        assert "drop the dead letters" in (refused.value.hint or "")
        assert list_dead_letters(opened, "orders").total == 4


def test_of_several_retries_at_once_one_lands_a_row(shop: Workspace) -> None:
    root, found = shop.project.root, []
    ready = threading.Barrier(4)

    def work() -> None:
        with workspace(root) as opened:
            opened.store()
            ready.wait()
            found.append(retry(opened, "orders").landed)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 0, 0, 2]
    assert orders(shop) == LANDED
    assert list_dead_letters(shop, "orders").total == 2


@pytest.mark.parametrize("point", ["part.after_fsync", "part.after_fsync@2", "commit.inside", "commit.after"])
def test_a_retry_that_was_killed_has_done_all_or_nothing(shop: Workspace, point: str) -> None:
    root = shop.project.root
    shop.close()
    assert exit_code(retry_in, root, crash_at=point) == -9
    with workspace(root) as opened:
        landed = point == "commit.after"
        assert orders(opened) == (LANDED if landed else [])
        assert list_dead_letters(opened, "orders").total == (2 if landed else 4)
        assert retry(opened, "orders").landed == (0 if landed else 2)
        assert orders(opened) == LANDED
        store = opened.store()
        collect(store, actor="operator:ada", retention_seconds=-1)
        with store.catalog.snapshot() as connection:
            named = {file.path for state in table_states(connection) for file in state.files}
        assert set(data_files(store.layout)) == named


def retry_in(root: Path) -> None:
    with workspace(root) as opened:
        retry(opened, "orders")


def test_letters_of_a_pushed_table_are_taken_as_pushes_are(shop: Workspace) -> None:
    ingestor = Ingestor()
    body = b'{"id": 1, "n": 1}\n{"id": 2, "n": "two", "more": "x"}\n{"n": 3}\n'
    found = ingestor.ingest(shop, "numbers", body, on_bad_row="dead_letter", source="drop/numbers/a.ndjson")
    ingestor.close()
    assert (found.rows_ingested, found.rows_refused) == (1, 2)
    manifest = shop.project.root / "headwater.toml"
    manifest.write_text(manifest.read_text().replace('n = "long"', 'n = "string"'))
    with workspace(shop.project.root) as opened:
        with pytest.raises(HeadwaterError) as refused:
            retry(opened, "numbers")
        assert refused.value.code == "HW-S01"
        assert "schema accept numbers" in refused.value.hint
        accept(opened, "numbers")
        done = retry(opened, "numbers")
        assert (done.landed, done.still_bad, len(done.warnings)) == (1, 1, 1)
        assert rows(opened, "SELECT id, n, more, _source_id FROM meta.numbers ORDER BY id") == [
            (1, "1", None, None),
            (2, "two", "x", None),
        ]
        with opened.store().catalog.snapshot() as connection:
            assert count_dead_letters(connection) == {"orders": 4, "numbers": 1}

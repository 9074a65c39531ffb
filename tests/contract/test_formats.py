"""A store of an older format is brought up when it is opened. `formats/` holds dumps of stores that older versions of
Headwater made, one for each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, inspect, select

from catalog_rows import dump
from contract.engine_home import a_job, arrived, claimed, owned, pulse, queue, save_step, step_of, transient_rows
from contract.old_stores import FORMATS, load_catalog, unpack_project
from contract.stores import PROJECT, Place, commit
from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store, open_store
from headwater.catalog.database import Catalog, open_catalog
from headwater.catalog.inbox import send
from headwater.catalog.lookup import table_states
from headwater.catalog.migrations import MIGRATIONS
from headwater.catalog.queue import finish_job
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.statements import json_text
from headwater.freshness.events import Completed

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"b": 1})


@pytest.fixture
def old(place: Place) -> Place:
    """Where a store of format 1 is: a table, a run with three slices of which one has landed, an item."""
    place.root.mkdir(parents=True)
    (place.root / "config.toml").write_text('format_version = 1\nproject = "shop"\npartitioning = "none"\n')
    database = "sqlite" if place.is_sqlite else "postgresql"
    load_catalog((FORMATS / f"1.{database}.sql").read_text(), place.root, place.url)
    return place


@pytest.fixture
def interrupted(place: Place) -> Place:
    """Where a store of format 4 is whose last run was killed."""
    return Place(unpack_project(place.root, place.url), place.url)


def unopened(place: Place) -> Catalog:
    """The catalog of an old store as it is."""
    path = place.root / "meta.sqlite"
    catalog = open_catalog(place.url, sqlite_path=path, project=PROJECT, upgrade=False)
    assert catalog is not None
    return catalog


def shape(store: Store) -> dict[str, Any]:
    """Every table as the database knows it."""
    schema = store.catalog.schema
    with store.catalog.engine.connect() as connection:
        found = inspect(connection)
        return {
            name: (
                {
                    column["name"]: (str(column["type"]), column["nullable"], _plain(column["default"], schema))
                    for column in found.get_columns(name, schema)
                },
                found.get_pk_constraint(name, schema)["constrained_columns"],
                sorted((index["name"] or "", index["column_names"]) for index in found.get_indexes(name, schema)),
            )
            for name in found.get_table_names(schema)
        }


def _plain(default: str | None, schema: str | None) -> str | None:
    return None if default is None else default.replace(f'"{schema}".', "")


def test_an_old_store_has_the_tables_of_a_new_one_once_it_was_opened(old: Place, tmp_path: Path) -> None:
    store, new = old.open(), open_store(tmp_path / "new", project="other", catalog_url=old.url)
    found, expected = shape(store), shape(new)
    assert found == expected
    assert found.keys() == t.metadata.tables.keys()
    assert (old.root / "config.toml").read_text().startswith(f"format_version = {t.FORMAT_VERSION}\n")
    store.close()
    new.close()


def test_a_store_of_format_4_has_the_tables_of_a_new_one(interrupted: Place, tmp_path: Path) -> None:
    store, new = interrupted.open(), open_store(tmp_path / "new", project="other", catalog_url=interrupted.url)
    assert shape(store) == shape(new)
    store.close()
    new.close()


def test_an_old_store_is_brought_up_in_one_transaction(interrupted: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    last = t.FORMAT_VERSION - 1
    assert last > 4
    with monkeypatch.context() as broken:
        broken.setitem(MIGRATIONS, last, (*MIGRATIONS[last], "UPDATE no_such_table SET a = 1"))
        with pytest.raises(HeadwaterError):
            interrupted.open()
    as_it_was = unopened(interrupted)
    with as_it_was.snapshot() as connection:
        assert connection.execute(select(t.store.c.format_version)).scalar_one() == 4
        assert connection.exec_driver_sql("SELECT count(*) FROM engine_owner").scalar_one() == 1
    as_it_was.close()
    interrupted.open().close()


def test_a_process_that_knows_only_the_old_format_is_refused(
    interrupted: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = interrupted.open()
    monkeypatch.setattr(t, "FORMAT_VERSION", 4)
    with pytest.raises(HeadwaterError, match="has format") as opened:
        interrupted.open()
    with pytest.raises(HeadwaterError, match="upgraded while it was open") as committed:
        commit(store, NOTE)
    assert (opened.value.code, committed.value.code) == ("HW-T01", "HW-T02")
    store.close()


def test_a_catalog_that_was_brought_up_equals_one_that_is_rebuilt_from_the_log(interrupted: Place) -> None:
    store = interrupted.open()
    known = dump(store.catalog)
    store.close()
    assert [run["state"] for run in known["run"] if run["ended_us"] is None] == ["writing"]
    rebuild_catalog(interrupted.root, project=PROJECT, catalog_url=interrupted.url)
    store = interrupted.open()
    assert dump(store.catalog) == known
    store.close()


def test_a_completion_that_no_engine_had_taken_is_not_lost(interrupted: Place) -> None:
    """Completions had a field `changed`."""
    body = {"changed": True, "freshness": 7, "pond": "orders", "ripple": "orders", "version": 0}
    with unopened(interrupted).transaction() as connection:
        connection.execute(
            insert(t.inbox).values(at_us=1, kind="completed", body=json_text({"body": body}), actor="test")
        )
    store = interrupted.open()
    assert [event.event for event in arrived(store)] == [Completed("orders", "orders", 7)]
    store.close()


def test_opening_an_old_store_keeps_what_it_holds(old: Place) -> None:
    store = old.open()
    rows = dump(store.catalog)
    assert [row["seq"] for row in rows["commit_record"]] == [1, 2, 3, 4]
    assert [row["state"] for row in rows["work_unit"]] == ["done", "pending", "pending"]
    with store.catalog.snapshot() as connection:
        (orders,) = table_states(connection)
    assert (orders.name, orders.seq, sum(file.rows for file in orders.files)) == ("orders", 4, 10)
    (left,) = transient_rows(store)["job"]
    assert (left["job_id"], left["state"], left["attempt"]) == (rows["work_unit"][1]["unit_id"], "cancelled", 1)
    (counted,) = rows["run_table"]
    assert [counted[name] for name in ("slices", "pending", "done", "prefix", "rows")] == [3, 2, 1, 1, 10]
    assert [row["planned_seq"] for row in rows["work_unit"]] == [2, 2, 2]
    assert [(row["level"], row["added_seq"]) for row in rows["file_entry"]] == [(0, 3)]
    assert commit(store, NOTE) == 5
    store.close()
    assert rebuild_catalog(old.root, project=PROJECT, catalog_url=old.url).commits == 5
    store = old.open()
    after = dump(store.catalog)
    for name in ("file_entry", "table_entry", "work_unit", "run_table"):
        assert after[name] == rows[name]
    store.close()


def test_a_reader_brings_an_old_store_up_too(old: Place) -> None:
    store = old.existing()
    assert store is not None
    assert arrived(store) == []
    store.close()


def test_several_that_open_an_old_store_at_once_all_find_it_brought_up(old: Place) -> None:
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: old.open(), range(4)))
    assert [commit(store, NOTE) for store in stores] == [5, 6, 7, 8]
    for store in stores:
        store.close()


def test_the_engine_lives_in_a_store_that_was_old(old: Place) -> None:
    store = old.open()
    owner, first = owned(store), send(store.catalog, pulse())
    save_step(store.catalog, step_of(owner, ponds={"orders": {"n": 1}}, consumed=(first,), new_jobs=(a_job(),)))
    save_step(store.catalog, step_of(owner, ponds={"orders": {"n": 2}}))
    assert send(store.catalog, pulse()) > first
    queue(store, a_job())
    finish_job(store.catalog, claimed(store).done())
    store.close()

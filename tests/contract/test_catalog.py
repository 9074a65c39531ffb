"""The catalog's promises, on SQLite and on PostgreSQL: opening, committing, refusing."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from catalog_rows import dump
from contract.children import commit_items, pool
from contract.stores import (
    ACTOR,
    PROJECT,
    Place,
    begin_run,
    claim,
    commit,
    create_table,
    landed,
    quick_directory,
    tree,
    written,
)
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import migrations
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store, open_store
from headwater.catalog.database import open_catalog
from headwater.catalog.lease import Lease
from headwater.catalog.lookup import current_seq
from headwater.storage.file_record import FileRecord
from postgres_server import PostgresServer

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"a": 1})


def code_of(error: pytest.ExceptionInfo[HeadwaterError]) -> str:
    return error.value.code


def test_who_finds_no_free_connection_hears_that_it_can_try_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CATALOG_BUSY_SECONDS", 0.05)
    store = place.open()
    with ExitStack() as held:
        with pytest.raises(NoConnectionFree):
            while True:
                held.enter_context(store.catalog.engine.connect())
        with pytest.raises(HeadwaterError) as error, store.catalog.snapshot():
            pass
    assert (error.value.code, error.value.retryable) == ("HW-T06", True)
    with store.catalog.snapshot() as connection:
        assert current_seq(connection) == 0
    store.close()


# --- commit: all or nothing, one after the other


def test_the_first_commit_is_sequence_one_and_the_next_is_two(store: Store) -> None:
    assert [commit(store, NOTE), commit(store, NOTE)] == [1, 2]
    assert [path.name for path in sorted(store.layout.log.iterdir())] == ["000000000001.json", "000000000002.json"]


def test_an_error_in_the_middle_of_a_commit_leaves_nothing(store: Store) -> None:
    create_table(store)
    file = FileRecord(path="tables/orders/a", rows=1, bytes=1, ordinal=0)
    added = r.FilesAdded(table="orders", schema_id=1, run_id="r", files=(file,))
    commit(store, added)
    before, files = dump(store.catalog), tree(store.layout.log)
    with pytest.raises(IntegrityError):
        commit(store, NOTE, r.TableModeSet(table="orders", mode="upsert"), added)
    assert (dump(store.catalog), tree(store.layout.log)) == (before, files)
    assert commit(store, NOTE) == 3


def broken_requirements() -> dict[str, tuple[r.Requirement, str]]:
    """Each against a store with a table of schema 1, a live file, a cursor of version 1 and an open run."""
    return {
        "cursor moved": (r.CursorIs(pipeline=PROJECT, table="orders", version=0), "HW-T02"),
        "cursor that is not there": (r.CursorIs(pipeline=PROJECT, table="other", version=1), "HW-T02"),
        "schema moved": (r.SchemaIs(table="orders", schema_id=0), "HW-T02"),
        "table that is not there": (r.SchemaIs(table="other", schema_id=1), "HW-T02"),
        "a slice that no worker has claimed": (Lease(kind="job", id="u", attempt=1, epoch=1), "HW-T03"),
        "open run": (r.NoOpenRun(pipeline=PROJECT), "HW-T02"),
        "file that is not there": (r.FilesLive(table="orders", paths=("live", "gone")), "HW-T02"),
        "file of another table": (r.FilesLive(table="other", paths=("live",)), "HW-T02"),
        "run that has ended": (r.UnitsOpen(run_id="no such run"), "HW-T02"),
    }


def kept_requirements() -> tuple[r.Requirement, ...]:
    return (
        r.CursorIs(pipeline=PROJECT, table="orders", version=1),
        r.CursorIs(pipeline=PROJECT, table="other", version=0),
        r.SchemaIs(table="orders", schema_id=1),
        r.SchemaIs(table="other", schema_id=0),
        r.NoOpenRun(pipeline="other"),
        r.FilesLive(table="orders", paths=("live",)),
    )


def furnish(store: Store) -> str:
    create_table(store)
    run_id = begin_run(store)
    file = FileRecord(path="live", rows=1, bytes=1, ordinal=0)
    cursor = r.CursorSet(pipeline=PROJECT, table="orders", kind="monotonic", source_identity="s", value=1)
    commit(store, r.FilesAdded(table="orders", schema_id=1, run_id=run_id, files=(file,)), cursor)
    return run_id


def test_each_broken_requirement_refuses_with_its_code_and_changes_nothing(store: Store) -> None:
    run_id = furnish(store)
    before = dump(store.catalog)
    for case, (requirement, code) in broken_requirements().items():
        with pytest.raises(HeadwaterError) as refused:
            commit(store, NOTE, requires=(*kept_requirements(), requirement))
        assert (case, code_of(refused)) == (case, code)
    assert dump(store.catalog) == before
    assert commit(store, NOTE, requires=(*kept_requirements(), r.UnitsOpen(run_id=run_id))) == 4


def test_a_lease_with_another_attempt_or_epoch_is_refused(store: Store) -> None:
    create_table(store)
    lease = claim(store.catalog, begin_run(store), holder="w")
    assert lease is not None
    for wrong in (
        replace(lease, attempt=2),
        replace(lease, epoch=lease.epoch + 1),
        replace(lease, epoch=lease.epoch - 1),
    ):
        with pytest.raises(HeadwaterError) as refused:
            store.commit(landed(wrong))
        assert code_of(refused) == "HW-T03"
    store.commit(landed(lease))
    with pytest.raises(HeadwaterError) as twice:
        store.commit(landed(lease))
    assert code_of(twice) == "HW-T03"


def test_more_files_than_a_statement_takes_can_be_required_and_removed(store: Store) -> None:
    create_table(store)
    files = tuple(FileRecord(path=f"f{i:04}", rows=1, bytes=1, ordinal=i) for i in range(1201))
    commit(store, r.FilesAdded(table="orders", schema_id=1, run_id="r", files=files))
    paths = tuple(file.path for file in files)
    live = r.FilesLive(table="orders", paths=paths)
    commit(store, r.FilesRemoved(table="orders", paths=paths), requires=[live])
    with pytest.raises(HeadwaterError):
        commit(store, NOTE, requires=[live])


def test_a_file_leaves_its_table_only_once(store: Store) -> None:
    create_table(store)
    commit(store, r.FilesAdded(table="orders", schema_id=1, run_id="r", files=(written(store, "f"),)))
    gone = r.FilesRemoved(table="orders", paths=("f",))
    assert [commit(store, gone), commit(store, gone)] == [3, 4]
    (row,) = dump(store.catalog)["file_entry"]
    assert row["removed_seq"] == 3


def test_sequences_are_gapless_and_in_commit_order_under_eight_threads(store: Store) -> None:
    def work(name: int) -> list[int]:
        seqs = []
        for i in range(8):
            seqs.append(commit(store, r.ItemsLanded(pipeline="p", table="t", items={f"{name}/{i}": i})))
            with store.catalog.snapshot() as connection:
                seen = current_seq(connection)
                assert seen >= seqs[-1]
                assert connection.execute(select(func.count()).select_from(t.commit)).scalar_one() == seen
        return seqs

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(8)))
    assert all(a < b for seqs in found for a, b in pairwise(seqs))
    assert sorted(seq for seqs in found for seq in seqs) == list(range(1, 65))
    assert len(list(store.layout.log.iterdir())) == 64


def test_four_processes_create_one_store_and_share_its_sequence(place: Place) -> None:
    with pool(4) as processes:
        working = [processes.submit(commit_items, place, f"child-{i}", 6) for i in range(4)]
        found = [work.result() for work in working]
    assert all(a < b for seqs in found for a, b in pairwise(seqs))
    assert sorted(seq for seqs in found for seq in seqs) == list(range(1, 25))
    store = place.open()
    assert len(dump(store.catalog)["landed_item"]) == 24
    assert sorted(path.name for path in place.root.joinpath("log").iterdir()) == [f"{i:012}.json" for i in range(1, 25)]
    store.close()


def test_many_openings_at_once_make_one_store(place: Place) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: place.open(), range(8)))
    ids = set()
    for store in stores:
        with store.catalog.snapshot() as connection:
            ids |= set(connection.execute(select(t.store.c.store_id)).scalars())
        store.close()
    assert len(ids) == 1


# --- opening


def test_what_does_not_exist_is_not_made_by_looking(place: Place) -> None:
    assert place.existing() is None
    assert not place.root.exists()
    if not place.is_sqlite:
        with psycopg.connect(place.url) as connection:
            assert connection.execute("select 1 from pg_namespace where nspname like 'headwater%'").fetchone() is None


def test_opening_to_read_writes_nothing(place: Place) -> None:
    store = place.open()
    furnish(store)
    store.close()
    before = tree(place.root)
    reader = place.existing()
    assert reader is not None
    assert len(dump(reader.catalog)["commit_record"]) == 3
    reader.close()
    assert tree(place.root) == before


def test_a_store_of_a_newer_format_is_refused_and_not_touched(place: Place) -> None:
    store = place.open()
    commit(store, NOTE)
    with store.catalog.transaction() as connection:
        connection.execute(update(t.store).values(format_version=99))
    before = dump(store.catalog), tree(place.root / "log")
    for opening in (place.open, place.existing):
        with pytest.raises(HeadwaterError) as refused:
            opening()
        assert code_of(refused) == "HW-T01"
        assert "format 99" in refused.value.message
    assert (dump(store.catalog), tree(place.root / "log")) == before
    store.close()


def test_a_process_that_was_open_before_an_upgrade_commits_nothing_more(store: Store) -> None:
    commit(store, NOTE)
    with store.catalog.transaction() as connection:
        connection.execute(update(t.store).values(format_version=t.FORMAT_VERSION + 1))
    before = dump(store.catalog)
    with pytest.raises(HeadwaterError) as refused:
        commit(store, NOTE)
    assert (code_of(refused), refused.value.retryable) == ("HW-T02", True)
    assert dump(store.catalog) == before


NOW = t.FORMAT_VERSION
MIGRATIONS = {NOW: ("ALTER TABLE run ADD COLUMN colour TEXT",), NOW + 1: ("UPDATE run SET colour = 'blue'",)}


def colours(store: Store) -> list[str]:
    with store.catalog.snapshot() as connection:
        return [colour for (colour,) in connection.exec_driver_sql("SELECT colour FROM run")]


def test_migrations_run_in_order_and_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    begin_run(store)
    store.close()
    monkeypatch.setattr(t, "FORMAT_VERSION", NOW + 2)
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS)
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: place.open(), range(4)))
    assert colours(stores[0]) == ["blue"]
    assert commit(stores[1], NOTE) == 2
    for opened in stores:
        opened.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    begin_run(store)
    store.close()
    monkeypatch.setattr(t, "FORMAT_VERSION", NOW + 2)
    half = ("UPDATE run SET colour = 'red'", "SELECT no_such_column FROM run")
    monkeypatch.setattr(migrations, "MIGRATIONS", {**MIGRATIONS, NOW + 1: half})
    with pytest.raises(HeadwaterError):
        place.open()
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS)
    store = place.open()  # the column of the first step is not there yet
    assert colours(store) == ["blue"]
    store.close()


def test_a_catalog_that_is_older_than_its_log_refuses_to_write_over_it(place: Place) -> None:
    store = place.open()
    commit(store, NOTE)
    before = tree(store.layout.log)
    lose_catalog(place, store)
    made = open_catalog(place.url, sqlite_path=store.layout.sqlite, project=PROJECT)
    assert made is not None
    made.close()
    empty = place.open()
    with pytest.raises(HeadwaterError) as refused:
        commit(empty, NOTE)
    assert code_of(refused) == "HW-T04"
    assert "rebuild-catalog" in refused.value.hint
    assert (dump(empty.catalog)["commit_record"], tree(empty.layout.log)) == ([], before)
    empty.close()


@pytest.mark.parametrize("left", ["the log", "the last records", "nothing"])
def test_a_store_whose_catalog_is_gone_is_opened_by_nobody(place: Place, left: str) -> None:
    store = place.open()
    for _ in range(2):
        commit(store, NOTE)
    lose_catalog(place, store)
    for seq in {"the log": (), "the last records": (1,), "nothing": (1, 2)}[left]:
        store.layout.log_record(seq).unlink()
    before = tree(store.root)
    for opening in (place.open, place.existing):
        with pytest.raises(HeadwaterError) as refused:
            opening()
        assert code_of(refused) == "HW-T04"
        assert ("rebuild-catalog" in refused.value.hint) == (left != "nothing")
    assert tree(store.root) == before, "no empty catalog was made"


def lose_catalog(place: Place, store: Store) -> None:
    if not place.is_sqlite:
        with store.catalog.transaction() as connection:
            t.metadata.drop_all(connection)
    store.close()
    if place.is_sqlite:
        store.layout.sqlite.unlink()


# --- PostgreSQL alone


def test_a_server_that_was_restarted_between_two_commits_is_found_again(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    store = Place(tmp_path, postgres_url).open()
    commit(store, NOTE)
    postgres_server.restart()
    assert commit(store, NOTE) == 2
    store.close()


def test_a_commit_is_durable_even_where_the_server_is_set_not_to_wait(postgres_url: str, tmp_path: Path) -> None:
    store = Place(tmp_path, postgres_url).open()
    for durable, expected in ((True, "on"), (False, "off"), (True, "on")):
        with store.catalog.transaction(durable=durable) as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == expected
    store.close()


def test_projects_share_a_database_and_nothing_else(postgres_url: str, tmp_path: Path) -> None:
    names = ["a-b", "a_b", "x" * 62 + "y", "x" * 62 + "z"]
    stores = [open_store(tmp_path / name, project=name, catalog_url=postgres_url) for name in names]
    assert [commit(store, NOTE) for store in stores] == [1] * 4
    for store in stores:
        store.close()


def test_a_role_that_may_not_create_schemas_can_use_a_store_that_is_there(postgres_url: str, tmp_path: Path) -> None:
    place = Place(tmp_path, postgres_url)
    place.open().close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("drop role if exists worker")
        connection.execute("create role worker login")
        connection.execute(f"grant usage on schema headwater_{PROJECT} to worker")
        connection.execute(f"grant all on all tables in schema headwater_{PROJECT} to worker")
    store = Place(tmp_path, postgres_url.replace("postgres@", "worker@")).open()
    assert commit(store, NOTE) == 1
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("drop owned by worker")
        connection.execute("drop role worker")


def test_a_catalog_that_cannot_be_reached_is_one_error_without_the_password(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("drop role if exists pw_ada")
        connection.execute("create role pw_ada login password 'right'")
    server = f"127.0.0.1:{postgres_server.port}"
    for url, code in {
        "postgresql://ada:hunter2@127.0.0.1:1/shop": "HW-T06",
        f"postgresql://pw_ada:hunter2@{server}/postgres": "HW-T06",
        f"postgres://pw_ada:hunter2@{server}/no_such_database": "HW-T06",
        "postgresql://ada:hunter2@host:port/shop": "HW-M03",
        "hunter2": "HW-M03",
        "mysql://ada:hunter2@host/shop": "HW-M03",
    }.items():
        with pytest.raises(HeadwaterError) as failed:
            Place(tmp_path, url).open()
        assert (url, code_of(failed)) == (url, code)
        assert failed.value.retryable == (code == "HW-T06")
        assert "hunter2" not in "".join(traceback.format_exception(failed.value)).replace(url, "")
        assert "hunter2" not in failed.value.render() + str(failed.value.as_json())


# --- SQLite alone


@pytest.fixture
def sqlite() -> Iterator[Store]:
    with quick_directory() as directory:
        yield Place(directory / "store", "sqlite").open()


def test_sqlite_commits_in_wal_mode_with_full_sync_and_claims_with_less(sqlite: Store) -> None:
    for durable, expected in ((True, 2), (False, 1)):
        with sqlite.catalog.transaction(durable=durable) as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == expected
    seen: list[int] = []

    @event.listens_for(sqlite.catalog.engine, "before_cursor_execute")
    def watch(connection: sqlite3.Connection, cursor: sqlite3.Cursor, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO commit_record"):
            seen.append(cursor.connection.execute("PRAGMA synchronous").fetchone()[0])

    commit(sqlite, NOTE)
    assert seen == [2]


def test_a_full_disk_is_named_and_leaves_nothing(sqlite: Store) -> None:
    commit(sqlite, NOTE)
    before = dump(sqlite.catalog)
    with sqlite.catalog.snapshot() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    event.listen(sqlite.catalog.engine, "connect", limit)
    sqlite.catalog.engine.dispose()
    big = r.ItemsLanded(pipeline="p", table="t", items={f"{i}": "x" * 1000 for i in range(1000)})
    with pytest.raises(HeadwaterError) as failed:
        commit(sqlite, big)
    assert (code_of(failed), failed.value.retryable) == ("HW-T06", True)
    assert "disk is full" in failed.value.message
    event.remove(sqlite.catalog.engine, "connect", limit)
    sqlite.catalog.engine.dispose()
    assert dump(sqlite.catalog) == before
    assert commit(sqlite, big) == 2


def overwrite(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)


def drop_a_table(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE log_record")
    connection.close()


@pytest.mark.parametrize("damage", [overwrite, drop_a_table])
def test_a_damaged_catalog_is_said_to_be_damaged_and_how_to_mend_it(
    sqlite: Store, damage: Callable[[Path], None]
) -> None:
    commit(sqlite, NOTE)
    sqlite.close()
    damage(sqlite.layout.sqlite)
    with pytest.raises(HeadwaterError) as failed:
        Place(sqlite.root, "sqlite").open()
    assert code_of(failed) == "HW-T04"
    assert "rebuild-catalog" in failed.value.hint


def test_a_catalog_opens_without_a_store_around_it(tmp_path: Path) -> None:
    catalog = open_catalog("sqlite", sqlite_path=tmp_path / "deep" / "meta.sqlite", project=ACTOR)
    assert catalog is not None
    assert set(dump(catalog)) == {table.name for table in t.DATA}

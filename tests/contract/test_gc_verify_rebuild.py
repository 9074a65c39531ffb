"""What keeps a store clean and whole: gc, verify and rebuild-catalog. On SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog_rows import dump
from contract.children import Lander
from contract.stores import (
    ACTOR,
    DAY_US,
    PROJECT,
    Place,
    attempt_path,
    begin_run,
    claim,
    commit,
    create_table,
    done,
    landed,
    tree,
    written,
)
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RunId
from headwater.catalog import gc
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.database import open_catalog
from headwater.catalog.lease import renew
from headwater.catalog.lookup import table_states
from headwater.catalog.rebuild import Rebuilt, rebuild_catalog, replay_log
from headwater.catalog.slice_jobs import SliceLease
from headwater.catalog.verify import StoreProblem, verify
from headwater.storage import store_files
from headwater.storage.file_record import ColumnStats
from headwater.storage.store_files import data_files


def collect(store: Store, **options: float | bool) -> gc.Collected:
    return gc.collect(store, actor=ACTOR, **options)  # type: ignore[arg-type]


def take(store: Store, run_id: RunId) -> SliceLease:
    lease = claim(store.catalog, run_id, holder="worker")
    assert lease is not None
    return lease


def files_on_disk(store: Store) -> list[str]:
    return sorted(data_files(store.layout))


def at_day(monkeypatch: pytest.MonkeyPatch, day: float) -> None:
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(int(day * DAY_US)))


def land_one(store: Store, run_id: RunId) -> str:
    lease = take(store, run_id)
    file = written(store, attempt_path(lease), content=lease.unit_id.encode())
    store.commit(landed(lease, file))
    return file.path


# --- gc


def test_retired_files_go_after_retention_and_only_then(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    run_id = begin_run(store, 2)
    old, kept = land_one(store, run_id), land_one(store, run_id)
    removed = commit(store, r.FilesRemoved(table="orders", paths=(old,)))
    before = dump(store.catalog)
    for day in (0.0, 6.9):
        at_day(monkeypatch, day)
        assert collect(store) == gc.Collected(0, 0, 0, 0)
    assert (dump(store.catalog), files_on_disk(store)) == (before, sorted([old, kept]))
    at_day(monkeypatch, 7.1)
    assert collect(store, dry_run=True) == gc.Collected(1, 0, 36, 0)
    assert (dump(store.catalog), files_on_disk(store)) == (before, sorted([old, kept]))
    assert collect(store) == gc.Collected(1, 0, 36, 0)
    assert files_on_disk(store) == [kept]
    assert not (store.root / old).parent.exists()
    with store.catalog.snapshot() as connection:
        with pytest.raises(HeadwaterError):
            table_states(connection, as_of=removed - 1)
        assert [f.path for f in table_states(connection, as_of=removed)[0].files] == [kept]
    assert collect(store) == gc.Collected(0, 0, 0, 0)


def test_a_retired_file_leaves_the_catalog_before_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    path = land_one(store, begin_run(store, 1))
    commit(store, r.FilesRemoved(table="orders", paths=(path,)))
    at_day(monkeypatch, 8)
    named: list[bool] = []

    def watch(point: str) -> None:
        assert (store.root / path).exists()
        named.append(any(row["path"] == path for row in dump(store.catalog)["file_entry"]))

    monkeypatch.setattr(store_files, "crash_point", lambda point: watch(point) if point == "gc.before_delete" else None)
    collect(store)
    assert named == [False]
    assert files_on_disk(store) == []


def test_the_files_of_losing_attempts_go_and_those_of_the_winner_stay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store)
    run_id = begin_run(store, 1)
    loser = written(store, attempt_path(take(store, run_id))).path
    at_day(monkeypatch, 1)
    winner = take(store, run_id)
    again = written(store, attempt_path(winner, "again-1/part-0.parquet"))
    leftover = written(store, attempt_path(winner, "part-0.parquet")).path
    store.commit(landed(winner, again))
    at_day(monkeypatch, 9)
    assert collect(store) == gc.Collected(0, 2, 8, 0)
    assert files_on_disk(store) == [again.path]
    assert not (store.root / loser).parent.exists()
    assert not (store.root / leftover).exists()
    assert verify(store).problems == ()


def test_a_directory_goes_with_its_manifest_when_its_last_file_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store)
    path = land_one(store, begin_run(store, 1))
    (store.root / path).with_name("_manifest.json").write_text("{}")
    commit(store, r.FilesRemoved(table="orders", paths=(path,)))
    at_day(monkeypatch, 8)
    collect(store)
    assert list((store.root / "tables").rglob("*")) == []


def test_files_that_no_attempt_made_are_none_of_gcs_business(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    mine = "tables/orders/data/notes.txt"
    written(store, mine)
    at_day(monkeypatch, 100)
    assert collect(store, retention_seconds=0) == gc.Collected(0, 0, 0, 0)
    assert files_on_disk(store) == [mine]
    assert verify(store).extra == (mine,)


def test_the_files_of_a_living_writer_stay_without_any_retention(store: Store) -> None:
    create_table(store)
    lease = take(store, begin_run(store, 1))
    file = written(store, attempt_path(lease))
    assert collect(store, retention_seconds=0) == gc.Collected(0, 0, 0, 0)
    store.commit(landed(lease, file))
    assert verify(store).problems == ()


def test_staged_files_of_an_open_run_stay_and_go_when_it_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store, mode="replace")
    run_id = begin_run(store, 2)
    lease = take(store, run_id)
    staged = written(store, attempt_path(lease))
    commit(store, *done(lease, staged=(staged,), staged_schema_id=1), requires=[lease.fence])
    at_day(monkeypatch, 30)
    assert collect(store) == gc.Collected(0, 0, 0, 0)
    assert verify(store).extra == ()
    commit(store, r.UnitsAbandoned(run_id=run_id), r.RunSettled(run_id=run_id))
    assert verify(store).extra == (staged.path,)
    assert collect(store) == gc.Collected(0, 1, 4, 0)


def test_a_paused_writer_is_fenced_before_its_files_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    create_table(store)
    run_id = begin_run(store, 1)
    writer = Lander(place, run_id, "commit.before:pause")
    writer.wait_until_stopped()
    assert len(files_on_disk(store)) == 1
    assert collect(store, retention_seconds=0) == gc.Collected(0, 0, 0, 0)
    at_day(monkeypatch, 8)
    assert collect(store) == gc.Collected(0, 1, 4, 1)
    before = dump(store.catalog)
    assert writer.wake() == "HW-T03"
    assert dump(store.catalog) == before
    at_day(monkeypatch, 0)
    assert take(store, run_id).attempt == 2
    store.close()


def between_listing_and_fencing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    fence = gc._fence

    def act_first(store: Store, orphans: list[str]) -> tuple[list[str], int]:
        assert orphans
        act()
        return fence(store, orphans)

    monkeypatch.setattr(gc, "_fence", act_first)


def test_a_commit_between_listing_and_fencing_keeps_its_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    lease = take(store, begin_run(store, 1))
    file = written(store, attempt_path(lease))
    at_day(monkeypatch, 8)  # the lease has run out, and nobody has taken it over
    between_listing_and_fencing(monkeypatch, lambda: store.commit(landed(lease, file)))
    assert collect(store) == gc.Collected(0, 0, 0, 0)
    assert verify(store).problems == ()
    assert files_on_disk(store) == [file.path]


def test_a_writer_that_renews_between_listing_and_fencing_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store)
    lease = take(store, begin_run(store, 1))
    file = written(store, attempt_path(lease))
    at_day(monkeypatch, 8)
    between_listing_and_fencing(monkeypatch, lambda: renew(store.catalog, lease.fence))
    assert collect(store) == gc.Collected(0, 0, 0, 0)
    store.commit(landed(lease, file))
    assert verify(store).problems == ()


def test_the_retention_is_the_one_of_the_house() -> None:
    assert limits.RETENTION_SECONDS * 1_000_000 == 7 * DAY_US


# --- verify


def test_verify_reads_all_and_changes_nothing(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 2)
    paths = [land_one(store, run_id), land_one(store, run_id)]
    commit(store, r.FilesRemoved(table="orders", paths=(paths[0],)))
    before = dump(store.catalog), tree(store.root / "tables")
    found = verify(store)
    assert (dump(store.catalog), tree(store.root / "tables")) == before
    assert (found.files_checked, found.bytes_checked, found.log_records_checked) == (2, 72, 5)
    assert (found.problems, found.extra) == ((), ())


def test_verify_names_each_problem(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 4)
    missing, short, changed, _ = sorted(land_one(store, run_id) for _ in range(4))
    (store.root / missing).unlink()
    (store.root / short).write_bytes(b"x")
    data = (store.root / changed).read_bytes()
    (store.root / changed).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    store.layout.log_record(1).unlink()
    log = store.layout.log_record(3)
    log.write_bytes(log.read_bytes().replace(b"files_added", b"files_adde4"))
    store.layout.log_record(4).write_bytes(store.layout.log_record(5).read_bytes())
    assert verify(store).problems == (
        StoreProblem("missing", missing, "orders"),
        StoreProblem("wrong_size", short, "orders"),
        StoreProblem("wrong_hash", changed, "orders"),
        StoreProblem("missing_log", "log/000000000001.json"),
        StoreProblem("damaged_log", "log/000000000003.json"),
        StoreProblem("damaged_log", "log/000000000004.json"),
    )


def test_repair_writes_the_log_again_with_the_bytes_that_it_had(store: Store, place: Place) -> None:
    furnish(store)
    place.open().close()  # the log is known to be whole up to here
    before = {path: path.read_bytes() for path in store.layout.log.glob("*.json")}
    store.layout.log_record(2).unlink()
    last = max(before)
    last.unlink()
    torn = store.layout.log_record(5)
    torn.write_bytes(torn.read_bytes()[:20])
    store.layout.log_record(7).write_bytes(before[store.layout.log_record(8)])
    expected = (
        StoreProblem("missing_log", "log/000000000002.json"),
        StoreProblem("damaged_log", "log/000000000005.json"),
        StoreProblem("damaged_log", "log/000000000007.json"),
        StoreProblem("missing_log", f"log/{last.name}"),
    )
    assert [problem for problem in verify(store).problems if problem.table is None] == list(expected)
    found = verify(store, repair=True)
    assert (found.repaired, [problem for problem in found.problems if problem.table is None]) == (expected, [])
    assert {path: path.read_bytes() for path in store.layout.log.glob("*.json")} == before
    assert verify(store, repair=True).repaired == ()


# --- rebuild


def rebuild(place: Place) -> Rebuilt:
    return rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)


def furnish(store: Store) -> RunId:
    """A store with something of everything; the run is left open."""
    create_table(store)
    create_table(store, "rates", mode="replace", pipeline="other")
    run_id = begin_run(store, 3)
    lease = take(store, run_id)
    stats = {"1": ColumnStats(nulls=1, min=float("nan"), max=float("inf")), "2": ColumnStats(min="ä", max=2**70)}
    file = written(store, attempt_path(lease), stats=stats, sources={"a\tb": 3}, sort_order=("id",), index_ids=("i",))
    store.commit(landed(lease, file))
    commit(
        store, r.ItemsLanded(pipeline=PROJECT, table="orders", items={"x": float("nan"), "y": {"b": 1, "a": [None]}})
    )
    commit(store, r.FilesRemoved(table="orders", paths=(file.path,)), r.TableModeSet(table="orders", mode="upsert"))
    commit(store, r.FilesForgotten(table="orders", paths=(file.path,), oldest_seq=6))
    event = r.SchemaEvent(kind="change_type", column="id", before="long", after={"z": 1, "a": 2}, note="why: because")
    commit(store, r.SchemaRefused(table="orders", events=(event,), proposal={"schema": {}, "mode": "append"}))
    key = r.LedgerKeySet(table="orders", key="ä", fingerprint="sha256:1", rows=1, bytes=2, expires_us=3)
    shown = r.ViewDefinition(sql="SELECT 1", shown="SELECT 1", reads=("orders",), columns=(("a", "int"),))
    view = r.ViewSet(view="seen", pipeline="other", definition=shown, reads={"orders": 1})
    commit(store, r.LineageAdded(child_run_id=run_id, parent_run_ids=("p1", "p2")), key, view)
    commit(store, r.RunError(run_id=run_id, error_kind="HW-C02", error_message="it \\ broke\n\u2028"))
    other = begin_run(store, 2, table="rates", pipeline="other")
    lease = take(store, other)
    staged = written(store, attempt_path(lease), key_version=2, partition="day=1", merged=True, content_sum="ff")
    commit(store, *done(lease, staged=(staged,), staged_schema_id=1), requires=[lease.fence])
    return run_id


def test_a_rebuilt_catalog_is_equal(place: Place) -> None:
    store = place.open()
    furnish(store)
    before = dump(store.catalog)
    assert all(rows for name, rows in before.items() if name != "file_entry")
    assert rebuild(place) == Rebuilt(12, "meta.sqlite.before-rebuild" if place.is_sqlite else None)
    assert dump(store.catalog) == before
    assert commit(store, r.RunError(run_id="r", error_kind="k", error_message="m")) == 13
    store.close()
    assert not list(place.root.glob("*.rebuild*"))


def test_a_catalog_that_is_gone_is_rebuilt_equal_on_the_other_database(
    store: Store, place: Place, tmp_path: Path
) -> None:
    furnish(store)
    copy = open_catalog("sqlite", sqlite_path=tmp_path / "copy.sqlite", project=PROJECT)
    assert copy is not None
    replay_log(copy, store.layout)
    assert dump(copy) == dump(store.catalog)


@pytest.mark.parametrize("damage", ["overwritten", "gone", "cut", "a table is gone"])
def test_a_sqlite_catalog_in_any_state_is_rebuilt(tmp_path: Path, damage: str) -> None:
    place = Place(tmp_path, "sqlite")
    store = place.open()
    furnish(store)
    before = dump(store.catalog)
    path = store.layout.sqlite
    match damage:
        case "overwritten":
            path.write_bytes(b"no database" * 1000)
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "a table is gone":
            with store.catalog.transaction() as connection:
                connection.exec_driver_sql("DROP TABLE commit_record")
    rebuild(place)
    again = place.open()
    assert dump(again.catalog) == before
    assert commit(again, r.RunError(run_id="r", error_kind="k", error_message="m")) == 13


def test_a_commit_that_is_not_in_the_log_yet_survives_a_rebuild(store: Store, place: Place) -> None:
    furnish(store)
    before = dump(store.catalog)
    store.layout.log_record(12).unlink()
    assert rebuild(place).commits == 12
    assert dump(store.catalog) == before


@pytest.mark.parametrize("damage", ["a damaged record", "a gap"])
def test_a_damaged_log_stops_a_rebuild_and_changes_nothing(store: Store, place: Place, damage: str) -> None:
    furnish(store)
    place.open().close()  # the log is known to be whole up to here: the catalog does not mend it any more
    path = store.layout.log_record(5)
    if damage == "a gap":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10])
    before, files = dump(store.catalog), sorted(tree(place.root))
    with pytest.raises(HeadwaterError) as found:
        rebuild(place)
    assert found.value.code == "HW-T04"
    assert (dump(store.catalog), sorted(tree(place.root))) == (before, files)


def test_a_store_without_a_log_cannot_be_rebuilt(store: Store, place: Place) -> None:
    with pytest.raises(HeadwaterError) as found:
        rebuild(place)
    assert (found.value.code, found.value.hint) == ("HW-T04", "nothing was landed in this store yet")


def test_after_a_rebuild_old_holders_are_refused_and_attempts_go_on_above_those_on_disk(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(store)
    run_id = begin_run(store, 2)
    for day in range(3):
        at_day(monkeypatch, day)
        writing = take(store, run_id)
    written(store, attempt_path(writing))
    assert writing.attempt == 3
    (store.root / attempt_path(writing)).parent.with_name("attempt-x").mkdir()
    claimed = take(store, run_id)
    rebuild(place)
    for lease in (writing, claimed):
        with pytest.raises(HeadwaterError) as refused:
            store.commit(landed(lease))
        assert refused.value.code == "HW-T03"
    again = [take(store, run_id), take(store, run_id)]
    assert again[0].attempt > 3
    assert again[1].attempt > claimed.attempt
    assert again[1].epoch > claimed.epoch
    for lease in again:
        store.commit(landed(lease))


def test_commits_during_a_rebuild_wait_and_none_is_lost(store: Store, place: Place) -> None:
    def work(name: int) -> None:
        for i in range(10):
            commit(store, r.ItemsLanded(pipeline="p", table="t", items={f"{name}/{i}": i}))

    work(9)
    with ThreadPoolExecutor(3) as threads:
        working = [threads.submit(work, name) for name in range(3)]
        for _ in range(3):
            rebuild(place)
        for thread in working:
            thread.result()
    before = dump(store.catalog)
    assert len(before["landed_item"]) == 40
    assert [row["seq"] for row in before["commit_record"]] == list(range(1, 41))
    rebuild(place)
    assert dump(store.catalog) == before

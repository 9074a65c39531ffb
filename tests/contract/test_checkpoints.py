"""The log holds no cell values and is trimmed: what lies beside it, checkpoints, and what a rebuild makes of both. On
SQLite and on PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from catalog_rows import dump
from contract.children import collect_garbage
from contract.ingesting import push
from contract.stores import PROJECT, Place, attempt_path, begin_run, commit, create_table, done, landed, written
from contract.test_gc_verify_rebuild import at_day, collect, furnish, land_one, rebuild, take
from forked import exit_code
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import log
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.database import open_catalog
from headwater.catalog.rebuild import replay_log
from headwater.catalog.verify import StoreProblem, verify
from headwater.ingest.accept import Acceptor
from headwater.storage.file_record import ColumnStats
from headwater.storage.log_files import checkpoints, records_after

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"b": 1})
KEY = r.LedgerKeysCleared(table="orders")
"""A commit without cell values."""
PLANTED = "geheim"
CRASH_POINTS = ["checkpoint.torn", "checkpoint.after", "checkpoint.mid_delete"]


def plant(store: Store) -> dict[str, int]:
    """Commits of every kind that tells of rows, with a value that is easy to find: their sequences."""
    create_table(store)
    run_id = begin_run(store, 2)
    stats = {"1": ColumnStats(min=PLANTED, max=PLANTED)}
    lease = take(store, run_id)
    file = written(store, attempt_path(lease), stats=stats, sources={PLANTED: 1}, partition=PLANTED)
    seqs = {"landed": store.commit(landed(lease, file))}
    lease = take(store, run_id)
    staged = written(store, attempt_path(lease), stats=stats)
    seqs["staged"] = commit(store, *done(lease, staged=(staged,), staged_schema_id=1, cursor=(PLANTED,)))
    merged = r.FilesMerged(table="orders", schema_id=1, run_id=run_id, files=(staged,), replaces=(file.path,))
    seqs["merged"] = commit(store, merged)
    seqs["items"] = commit(store, r.ItemsLanded(pipeline=PROJECT, table="orders", items={PLANTED: PLANTED}))
    cursor = {"pipeline": PROJECT, "table": "rates", "kind": "opaque-token", "source_identity": "s"}
    seqs["cursor"] = commit(store, r.CursorSet(value={"at": PLANTED}, **cursor))
    payload = {"slice": {"start": PLANTED, "end": PLANTED}}
    unit = r.UnitSpec(unit_id="u", table="orders", ordinal=2, payload=payload)
    seqs["units"] = commit(store, r.UnitsPlanned(run_id=run_id, pipeline=PROJECT, units=(unit,)))
    return seqs


def holds(store: Store, directory: str) -> list[str]:
    paths = sorted((store.root / directory).iterdir())
    return [path.name for path in paths if PLANTED.encode() in path.read_bytes()]


def without(rows: dict[str, list[dict[str, Any]]], *columns: str) -> dict[str, list[dict[str, Any]]]:
    return {name: [{**row, **dict.fromkeys(columns)} for row in found] for name, found in rows.items()}


def test_planted_cell_values_are_in_no_byte_of_the_log(store: Store, place: Place) -> None:
    seqs = plant(store)
    assert holds(store, "log") == []
    assert holds(store, "stats") == [f"{seq:012d}.json" for seq in sorted(seqs.values())]
    with store.catalog.snapshot() as connection:
        bodies = connection.execute(select(t.log_record.c.body)).scalars().all()
    assert not any(PLANTED in body for body in bodies)
    before = dump(store.catalog)
    rebuild(place)
    assert dump(store.catalog) == before


def test_pushed_values_are_in_no_byte_of_the_log(store: Store) -> None:
    Acceptor(store).accept(push(b'{"label": "%s", "n": 1}\n{"label": 7}\n' % PLANTED.encode()))
    assert (holds(store, "log"), holds(store, "stats")) == ([], ["000000000001.json"])


def test_statistics_can_be_deleted_and_a_rebuild_does_without(store: Store, place: Place) -> None:
    create_table(store)
    lease = take(store, begin_run(store, 1))
    seq = store.commit(landed(lease, written(store, attempt_path(lease), stats={"1": ColumnStats(min=1, max=2)})))
    place.open().close()  # the log is known to be whole up to here
    before = dump(store.catalog)
    store.layout.values_of(seq).unlink()
    assert verify(store, repair=True).problems == verify(store).repaired == ()
    assert not store.layout.values_of(seq).exists()
    rebuild(place)
    after = dump(store.catalog)
    assert after["file_entry"][0]["stats"] is None
    assert without(after, "stats") == without(before, "stats")
    assert verify(store).problems == ()


@pytest.mark.parametrize("kind", ["landed", "staged", "items", "cursor", "units"])
def test_a_rebuild_is_refused_if_it_would_not_know_what_has_landed(store: Store, place: Place, kind: str) -> None:
    seq = plant(store)[kind]
    place.open().close()
    before = dump(store.catalog)
    store.layout.values_of(seq).unlink()
    with pytest.raises(HeadwaterError) as refused:
        rebuild(place)
    assert (refused.value.code, f"stats/{seq:012d}.json" in refused.value.message) == ("HW-T04", True)
    assert (dump(store.catalog), verify(store).problems) == (before, ())
    collect(store)  # as the hint says
    before = dump(store.catalog)
    rebuild(place)
    assert dump(store.catalog) == before


def test_edited_cell_values_are_found_and_repaired(store: Store, place: Place) -> None:
    seq = plant(store)["landed"]
    place.open().close()
    path = store.layout.values_of(seq)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(PLANTED.encode(), b"public"))
    problem = StoreProblem("damaged_stats", f"stats/{path.name}")
    assert verify(store).problems == (problem,)
    with pytest.raises(HeadwaterError) as refused:
        rebuild(place)
    assert "damaged" in refused.value.message
    found = verify(store, repair=True)
    assert (found.repaired, found.problems, path.read_bytes()) == ((problem,), (), whole)


def test_records_of_before_that_hold_their_values_are_replayed(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(log, "split", lambda record: (record, None))
        furnish(store)
    assert list(store.layout.stats.iterdir()) == []
    commit(store, NOTE)
    before = dump(store.catalog)
    rebuild(place)
    assert (dump(store.catalog), verify(store).problems) == (before, ())


# --- checkpoints


def test_a_rebuild_is_the_newest_checkpoint_and_the_records_after_it(place: Place) -> None:
    store = place.open()
    furnish(store)
    collect(store, retention_seconds=0)
    first, *_ = records_after(store.layout, 0)
    assert checkpoints(store.layout) == [first]
    assert sorted(int(path.stem) for path in store.layout.stats.iterdir()) <= [first]
    land_one(store, begin_run(store, 2))
    before = dump(store.catalog)
    assert all(before.values())
    found = verify(store)
    assert ([p for p in found.problems if p.table is None], found.log_records_checked) == ([], 3)
    assert rebuild(place).commits == first + 2
    assert dump(store.catalog) == before
    assert commit(store, NOTE) == first + 3
    assert [p for p in verify(store).problems if p.table is None] == []
    store.close()


def test_a_checkpoint_alone_is_enough_also_for_another_database(store: Store, place: Place) -> None:
    furnish(store)
    collect(store, retention_seconds=0)
    for path in [*store.layout.log.glob("*.json"), *store.layout.stats.iterdir()]:
        path.unlink()
    copy = open_catalog("sqlite", sqlite_path=place.root / "copy.sqlite", project=PROJECT)
    assert copy is not None
    assert replay_log(copy, store.layout) == len(dump(store.catalog)["commit_record"])
    assert dump(copy) == dump(store.catalog)
    with copy.snapshot() as connection, store.catalog.snapshot() as other:
        last = checkpoints(store.layout)[0]
        assert log.last_hash(connection, last) == log.last_hash(other, last) is not None


def test_the_log_is_trimmed_by_commits_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_COMMITS", 5)
    for _ in range(9):
        commit(store, NOTE)
    assert (checkpoints(store.layout), records_after(store.layout, 0)) == ([5], list(range(1, 10)))
    at_day(monkeypatch, 8)
    for _ in range(12):
        commit(store, NOTE)
    assert checkpoints(store.layout) == [20, 15]
    assert records_after(store.layout, 0) == list(range(10, 22))
    assert verify(store).problems == ()


def test_gc_keeps_the_records_of_the_retention_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(4):
        at_day(monkeypatch, day)
        commit(store, NOTE)
    at_day(monkeypatch, 8.5)
    collect(store, dry_run=True)
    assert (checkpoints(store.layout), records_after(store.layout, 0)) == ([], [1, 2, 3, 4])
    collect(store)
    assert (checkpoints(store.layout), records_after(store.layout, 0)) == ([4], [3, 4])
    before = (store.layout.checkpoint(4)).stat().st_mtime_ns
    collect(store)
    assert (store.layout.checkpoint(4)).stat().st_mtime_ns == before
    with store.catalog.snapshot() as connection:
        assert connection.execute(select(t.log_record.c.seq)).scalars().all() == [3, 4]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "half written": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a byte": lambda data: data.replace(b'"orders"', b'"order5"', 1),
    "a line less": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_ignored_reported_and_repaired(store: Store, place: Place, kind: str) -> None:
    furnish(store)
    collect(store)
    commit(store, NOTE)
    path = store.layout.checkpoint(checkpoints(store.layout)[0])
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    before = dump(store.catalog)
    rebuild(place)  # the records before it are still there
    assert dump(store.catalog) == before
    problem = StoreProblem("damaged_checkpoint", f"log/{path.name}")
    assert [p for p in verify(store).problems if p.table is None] == [problem]
    assert verify(store, repair=True).repaired == (problem,)
    assert [p for p in verify(store).problems if p.table is None] == []


def test_the_checkpoint_before_a_damaged_one_is_used(store: Store, place: Place) -> None:
    furnish(store)
    collect(store, retention_seconds=0)
    commit(store, NOTE)
    collect(store)
    commit(store, KEY)
    newest, older = checkpoints(store.layout)
    store.layout.checkpoint(newest).write_bytes(b"torn")
    before = dump(store.catalog)
    assert newest == older + 1
    rebuild(place)
    assert dump(store.catalog) == before


def test_a_checkpoint_that_is_gone_is_missed_once_the_log_was_trimmed(store: Store, place: Place) -> None:
    for _ in range(3):
        commit(store, NOTE)
    collect(store, retention_seconds=0)
    store.layout.checkpoint(3).unlink()
    assert [problem.kind for problem in verify(store).problems] == ["missing_checkpoint"]
    with pytest.raises(HeadwaterError) as refused:
        rebuild(place)
    assert "no record 1" in refused.value.message
    verify(store, repair=True)
    assert (checkpoints(store.layout), verify(store).problems) == ([3], ())


def test_a_record_that_does_not_follow_the_checkpoint_is_refused(store: Store, place: Place) -> None:
    commit(store, NOTE)
    collect(store)
    commit(store, KEY)
    place.open().close()
    body = store.layout.log_record(2).read_bytes()[len('{"sha256":"') + 64 + len('","record":') : -2]
    log.write_log(store.layout, log.LogText(2, body.replace(b'"previous":"', b'"previous":"0')))
    assert verify(store).problems == (StoreProblem("damaged_log", "log/000000000002.json"),)
    with pytest.raises(HeadwaterError) as refused:
        rebuild(place)
    assert "does not follow" in refused.value.message


def test_an_old_copy_of_the_catalog_is_refused_after_the_log_was_trimmed(tmp_path: Any) -> None:
    place = Place(tmp_path, "sqlite")
    store = place.open()
    commit(store, NOTE)
    place.open().close()
    copy = tmp_path / "copy.sqlite"
    store.catalog.copy_to(copy)
    for _ in range(3):
        commit(store, NOTE)
    collect(store, retention_seconds=0)
    before = dump(store.catalog)
    store.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"meta.sqlite{suffix}").unlink(missing_ok=True)
    copy.replace(tmp_path / "meta.sqlite")
    with pytest.raises(HeadwaterError) as refused:
        place.open()
    assert (refused.value.code, "older than its log" in refused.value.message) == ("HW-T04", True)
    rebuild(place)
    again = place.open()
    assert dump(again.catalog) == before
    assert commit(again, NOTE) == 5


def test_checkpoints_and_commits_at_once_leave_a_whole_log(store: Store, place: Place) -> None:
    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(lambda: [commit(store, NOTE, KEY) for _ in range(15)]) for _ in range(3)]
        while not all(thread.done() for thread in working):
            collect(store, retention_seconds=0)
        for thread in working:
            thread.result()
    assert verify(store).problems == ()
    before = dump(store.catalog)
    assert rebuild(place).commits == 45
    assert (dump(store.catalog), verify(store).problems) == (before, ())


@pytest.mark.long
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_gc_that_was_killed_at_its_checkpoint_is_finished_by_the_next(place: Place, point: str) -> None:
    store = place.open()
    furnish(store)
    known = len(dump(store.catalog)["commit_record"])
    assert exit_code(collect_garbage, place, crash_at=point) == -signal.SIGKILL
    before = dump(store.catalog)
    assert checkpoints(store.layout) == ([] if point == "checkpoint.torn" else [known])
    assert [p for p in verify(store).problems if p.table is None] == []
    rebuild(place)
    assert dump(store.catalog) == before
    assert commit(store, NOTE) == known + 1
    assert exit_code(collect_garbage, place) == 0
    assert (checkpoints(store.layout)[0], records_after(store.layout, 0)) == (known + 1, [known + 1])
    assert list(store.layout.log.glob(".*")) == []
    before = dump(store.catalog)
    rebuild(place)
    assert dump(store.catalog) == before
    store.close()

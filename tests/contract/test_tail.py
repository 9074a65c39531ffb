"""The tail of a pushed table is merged, and nothing but its files changes by that. On both databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from catalog_rows import dump
from contract.children import pool
from contract.engine_home import Paused, code_of, later
from contract.ingesting import push
from contract.stores import ACTOR, PROJECT, Place, commit, create_table, quick_directory
from contract.tailing import (
    CRASH_POINTS,
    KILLS,
    Rows,
    body,
    merge,
    merge_events,
    push_and_merge,
    push_labels,
    shown,
    state_of,
)
from forked import exit_code
from headwater.app.context import gc
from headwater.app.ingest import Ingestor
from headwater.app.refresh_views import is_current, refresh, refresh_landed
from headwater.app.workspace import workspace
from headwater.base import limits
from headwater.base.types import parse_type
from headwater.catalog.commit import Store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.gc import collect
from headwater.catalog.lease import Lease
from headwater.catalog.lookup import table_entries, table_states, table_versions
from headwater.catalog.push_writers import new_writer
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.records import FilesAdded, FilesRemoved
from headwater.catalog.verify import verify
from headwater.duck.merge_files import Merge, merge_files
from headwater.duck.merge_files import _rows as rows_to_merge
from headwater.duck.view_files import table_infos
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import PushTable
from headwater.ingest.tail import Tails
from headwater.storage.part_writer import PartWriter
from headwater.storage.store_files import data_files
from schemas import schema_of

KEYED = PushTable(
    "keyed",
    "keyed",
    mode="upsert",
    primary_key=("id",),
    declared={"id": DeclaredColumn(parse_type("long")), "v": DeclaredColumn(parse_type("string"))},
    in_manifest=True,
)
ALL = "SELECT * FROM t ORDER BY _commit_seq, label"
FULL = limits.TAIL_CLASS_FILES


@pytest.fixture
def one() -> Iterator[Store]:
    """A store on SQLite, for what no database has a part in."""
    with quick_directory() as directory:
        store = Place(directory / "store", "sqlite").open()
        yield store
        store.close()


def must_be_whole(store: Store, expected: Rows, sql: str = ALL) -> None:
    """The rows are these; once gc has been there, the disk holds their files and nothing else."""
    assert shown(store, sql=sql) == expected
    collect(store, actor=ACTOR, retention_seconds=-1)
    assert sorted(data_files(store.layout)) == sorted(file.path for file in state_of(store).files)
    assert not verify(store).problems
    assert shown(store, sql=sql) == expected


def test_merged_files_hold_the_same_rows_in_the_same_order(one: Store) -> None:
    push_labels(one, range(2 * FULL))
    before, old = shown(one), state_of(one)
    assert merge(one) == 1
    new = state_of(one)
    assert shown(one) == before, "every column of every row, and the commit that brought it"
    assert (len(old.files), [file.merged for file in new.files]) == (2 * FULL, [True])
    assert (new.files[0].rows, new.changed_seq, new.files_seq) == (2 * FULL, old.changed_seq, old.changed_seq + 1)
    assert new.files[0].content_sum is not None
    assert int(new.files[0].content_sum, 16) == sum(int(f.content_sum or "", 16) for f in old.files) % (1 << 128)
    assert merge(one) == 0, "one file is short enough"
    push_labels(one, ["later"])
    assert [row[1] for row in shown(one)] == [*map(str, range(2 * FULL)), "later"]


def test_rows_that_came_while_a_merge_was_made_stand_behind_it(place: Place) -> None:
    store = place.open()
    push_labels(store, range(FULL))
    sleeper = Paused(place, merge_events, "tail.before_commit")
    push_labels(store, ["meanwhile"])
    assert sleeper.wake() == "1"
    state = state_of(store)
    assert [(file.merged, file.added_seq) for file in state.files] == [(False, FULL + 1), (True, FULL + 2)]
    assert [row[1] for row in shown(store)] == [*map(str, range(FULL)), "meanwhile"]
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_last_write_of_a_key_wins_whatever_was_merged_when(one: Store, seed: int) -> None:
    """Also within a batch, whose later rows win, and as of any sequence."""
    chance = random.Random(seed)
    acceptor, model = Acceptor(one), dict[int, tuple[str, int]]()
    seen: dict[int, dict[int, tuple[str, int]]] = {}
    rows_pushed = 0
    for number in range(40):
        ids = [chance.randrange(20) if chance.random() < 0.7 else 100 + number for _ in range(chance.randint(1, 5))]
        rows = [f'{{"id": {key}, "v": "{number}-{place}"}}' for place, key in enumerate(ids)]
        seq = int(acceptor.accept(push("\n".join(rows).encode(), target=KEYED)).snapshot_id)
        model |= {key: (f"{number}-{place}", seq) for place, key in enumerate(ids)}
        seen[seq] = dict(model)
        rows_pushed += len(ids)
        if chance.random() < 0.25:
            merge(one, "keyed")
    state = state_of(one, "keyed")
    assert any(file.merged for file in state.files)
    for seq in [*chance.sample(sorted(seen), 8), max(seen)]:
        found = shown(one, "keyed", "SELECT id, v, _commit_seq FROM t", as_of=seq)
        assert sorted(found) == sorted((key, *value) for key, value in seen[seq].items())
    assert sum(file.rows for file in state.files) == rows_pushed, "no row is lost, none is doubled"


def test_keys_that_stand_once_in_what_was_merged_are_known_to(one: Store) -> None:
    acceptor = Acceptor(one)
    for number in range(FULL):
        acceptor.accept(push(b'{"id": %d}\n{"id": %d}\n' % (number, 100 + number), target=KEYED))
    merge(one, "keyed")
    assert [file.unique_keys for file in state_of(one, "keyed").files] == [True]
    assert table_infos([state_of(one, "keyed")], {})[0].rows == 2 * FULL
    for _ in range(FULL):
        acceptor.accept(push(b'{"id": 1000}\n', target=KEYED))
    merge(one, "keyed")
    assert [file.unique_keys for file in state_of(one, "keyed").files] == [False]
    assert table_infos([state_of(one, "keyed")], {})[0].rows is None
    assert shown(one, "keyed", "SELECT count(*) FROM t") == [(2 * FULL + 1,)]


def test_a_merge_keeps_source_positions(one: Store) -> None:
    schema = schema_of({"a": "long"})
    create_table(one, "t", schema=schema)
    values: dict[str, Any] = {"schema": schema, "partition": 0, "run_id": "r", "ingested_at_us": 1}
    for number, positions in enumerate([[5], None, [None]]):
        columns = {"a": pa.array([number])} | ({"_source_pos": pa.array(positions, pa.int64())} if positions else {})
        with PartWriter(one.root, "tables/t/data", task_attempt=number, **values) as writer:
            writer.write(pa.record_batch(columns))
        commit(one, FilesAdded(table="t", schema_id=1, run_id="r", files=writer.close()))
    state, sql = state_of(one, "t"), "SELECT a, _source_pos, _commit_seq FROM t ORDER BY a"
    before = shown(one, "t", sql)
    options: dict[str, Any] = {"directory": "tables/t/data/merged", "number": 0, "actor": ACTOR}
    assert merge_files(one, state, Merge(state.files, 1), writer=new_writer(one.catalog), **options) is not None
    assert [(file.merged, file.positions) for file in state_of(one, "t").files] == [(True, True)]
    assert shown(one, "t", sql) == before == [(0, 5, 2), (1, None, 3), (2, None, 4)]


def test_reads_as_of_a_sequence_are_what_they_were(store: Store) -> None:
    acceptor, expected = Acceptor(store), {}
    for number in range(3 * FULL):
        seq = int(acceptor.accept(push(body(number))).snapshot_id)
        expected[seq] = shown(store, sql=ALL)
        if number % FULL == FULL - 1:
            merge(store)
    assert {seq: shown(store, sql=ALL, as_of=seq) for seq in expected} == expected
    last = max(expected)
    merged = state_of(store).files_seq
    assert merged > last, "a merge was the last that happened"
    collect(store, actor=ACTOR, retention_seconds=-1)
    assert shown(store, sql=ALL, as_of=last) == shown(store, sql=ALL, as_of=merged) == expected[last]
    assert code_of(lambda: state_of(store, as_of=last - 1)) == "HW-T07"


def test_a_merge_is_nothing_new_to_those_who_read_the_table(store: Store) -> None:
    push_labels(store, range(FULL))
    refresh(store, None)

    def seen() -> tuple[object, ...]:
        with store.catalog.snapshot() as connection:
            entry = table_entries(connection)["events"]
            (info,) = table_infos(table_states(connection), {})
            return table_versions(connection), entry.changed_seq, info.seq, info.rows, info.stored_rows

    def current() -> bool:
        with store.catalog.snapshot() as connection:
            entries = table_entries(connection)
        return is_current(store, None, entries)

    before = seen()
    assert current()
    merge(store)
    assert seen() == before
    assert not current(), "views name the files that were replaced"
    assert refresh(store, None) == ["events"]
    assert current()
    (file,) = state_of(store).files
    text = (store.layout.views / "events.sql").read_text()
    assert file.path in text and text.count(".parquet") == 1
    assert refresh(store, None) == []


def test_a_merge_is_in_the_log(place: Place) -> None:
    store = place.open()
    for first in (0, 100, 200):
        push_labels(store, range(first, first + FULL))
        merge(store)
    before, rows = dump(store.catalog), shown(store, sql=ALL)
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    assert dump(store.catalog) == before
    must_be_whole(store, rows)
    store.close()


def test_every_crash_point_of_a_merge_is_one_to_be_killed_at() -> None:
    assert set(CRASH_POINTS) <= KILLS.keys()


@pytest.mark.parametrize("point", KILLS)
def test_a_merge_that_was_killed_is_done_again_or_was_done(
    place: Place, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    push_labels(store, range(FULL))
    expected = shown(store, sql=ALL)
    store.close()
    assert exit_code(merge_events, place, crash_at=point) == -9
    store = place.open()
    assert len(state_of(store).files) == (1 if KILLS[point] else FULL)
    assert shown(store, sql=ALL) == expected
    assert merge(store) == (0 if KILLS[point] else 1)
    later(monkeypatch, limits.LEASE_SECONDS + 1)  # until the writer that was killed counts as dead
    must_be_whole(store, expected)
    store.close()


def test_of_two_that_merge_the_same_files_one_does(place: Place) -> None:
    store = place.open()
    push_labels(store, range(FULL))
    expected = shown(store, sql=ALL)
    sleeper = Paused(place, merge_events, "tail.before_commit")
    assert merge(store) == 1
    files = sorted(data_files(store.layout))
    assert sleeper.wake() == "0"
    left = sorted(data_files(store.layout))
    assert len(left) == len(files) - 1, "what it had written is gone"
    must_be_whole(store, expected)
    store.close()


def test_files_that_left_the_table_meanwhile_do_not_come_back(place: Place) -> None:
    store = place.open()
    push_labels(store, range(FULL))
    sleeper = Paused(place, merge_events, "tail.before_commit")
    gone = FilesRemoved(table="events", paths=(state_of(store).files[0].path,))
    commit(store, gone)
    assert sleeper.wake() == "0"
    assert [row[1] for row in shown(store)] == [str(number) for number in range(1, FULL)]
    store.close()


def test_a_merge_whose_files_gc_took_names_none_of_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    push_labels(store, range(FULL))
    expected = shown(store, sql=ALL)
    sleeper = Paused(place, merge_events, "tail.before_commit")
    assert collect(store, actor=ACTOR, retention_seconds=-1).orphan_files == 0, "a living writer's files stay"
    later(monkeypatch, limits.LEASE_SECONDS + 1)
    assert collect(store, actor=ACTOR, retention_seconds=-1).orphan_files == 1
    monkeypatch.undo()
    assert sleeper.wake() == "HW-T03"
    must_be_whole(store, expected)
    store.close()


def test_many_that_push_and_merge_at_once_lose_nothing(place: Place) -> None:
    place.open().close()
    with pool(3) as processes:
        written = list(processes.map(push_and_merge, [place] * 3, "abc", [40] * 3))
    assert any(written)
    store = place.open()
    labels = [label for (label,) in shown(store, sql="SELECT label FROM t")]
    assert sorted(labels) == sorted(f"{name}{number}" for name in "abc" for number in range(40))
    assert len(state_of(store).files) <= limits.LIVE_TAIL_FILES
    must_be_whole(store, shown(store, sql=ALL))
    store.close()


def test_columns_that_came_later_are_null_in_rows_that_were_before(one: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the same columns are merged; those of others only if the tail is too long, and then they show the
    same."""
    monkeypatch.setattr(limits, "LIVE_TAIL_FILES", 10)
    acceptor = Acceptor(one)
    for number in range(12):
        acceptor.accept(push(b'{"label": "a", "c%d": %d}\n' % (number, number)))
        if number < 10:
            assert merge(one) == 0
    before = shown(one, sql=ALL)
    assert merge(one) == 1
    (file,) = state_of(one).files
    assert file.schema_id == state_of(one).schema_id
    assert shown(one, sql=ALL) == before


def test_rows_are_not_written_with_a_column_that_shows_something_for_them(one: Store) -> None:
    declared = {"id": DeclaredColumn(parse_type("int"))}
    target = PushTable("events", "events", declared=declared, in_manifest=True)
    acceptor = Acceptor(one)
    for number in range(FULL):
        acceptor.accept(push(b'{"id": %d}\n' % number, target=target))
    wider = {"id": DeclaredColumn(parse_type("long")), "kind": DeclaredColumn(parse_type("string"), default='"old"')}
    for number in range(FULL):
        acceptor.accept(push(b'{"id": %d}\n' % number, target=replace(target, declared=wider)))
    sql = "SELECT id, kind, count(*) FROM t GROUP BY ALL ORDER BY ALL"
    before = shown(one, sql=sql)
    assert merge(one) == 2
    assert [(file.merged, file.schema_id) for file in state_of(one).files] == [(True, 1), (True, 2)]
    assert shown(one, sql=sql) == before
    assert {kind for _, kind, _ in before} == {"old", None}


def test_a_merge_holds_few_rows_at_once_if_they_are_large(one: Store) -> None:
    """A file of a few kilobytes may hold many megabytes of rows."""
    acceptor = Acceptor(one)
    for number in range(FULL):
        acceptor.accept(push(b'{"label": "%d", "body": "%s"}\n' % (number, b"long" * 1024 * 1024)))
    state = state_of(one)
    sizes = [batch.nbytes for batch in rows_to_merge(one.root, state, state.files, state.schema)]
    assert max(sizes) < limits.MERGE_WAITING_BYTES + 5 * 1024 * 1024
    assert sum(sizes) > FULL * 4 * 1024 * 1024
    before = shown(one)
    assert merge(one) == 1
    assert shown(one) == before


def test_a_damaged_file_stops_the_merge_and_nothing_is_left_of_it(one: Store) -> None:
    push_labels(one, range(FULL))
    state, files = state_of(one), list(data_files(one.layout))
    broken = one.root / state.files[3].path
    broken.chmod(0o600)
    broken.write_bytes(broken.read_bytes()[:-8] + b"00000000")
    assert code_of(lambda: merge(one)) == "HW-T04"
    assert (state_of(one).files, list(data_files(one.layout))) == (state.files, files)
    tails = Tails(one, actor=ACTOR)
    for _ in range(2 * FULL):
        tails.landed("events")
    tails.close()
    assert state_of(one).files == state.files


def test_files_that_are_not_what_was_committed_are_not_merged(one: Store) -> None:
    """A file of other rows is found by the sum of the rows' hashes."""
    push_labels(one, range(FULL))
    state, files = state_of(one), list(data_files(one.layout))
    wrong = (*state.files[:-1], replace(state.files[-1], path=state.files[0].path))
    state = replace(state, files=wrong)

    def try_it() -> None:
        directory = str(Path(files[0]).parent / "elsewhere")
        writer = Lease(kind="writer", id="w", attempt=1, epoch=1)
        merge_files(one, state, Merge(wrong, 1), directory=directory, number=0, writer=writer, actor=ACTOR)

    assert code_of(try_it) == "HW-T04"
    assert list(data_files(one.layout)) == files


def test_commands_that_push_a_file_each_keep_the_tail_short(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text('[project]\nname = "shop"\n')
    for number in range(2 * FULL):
        with workspace(tmp_path) as opened:
            ingestor = Ingestor()
            ingestor.ingest(opened, "events", body(number))
            ingestor.close()
            refresh_landed(opened.store(), opened.project)
            assert len(state_of(opened.store()).files) < FULL
    with workspace(tmp_path) as opened:
        store = opened.store()
        assert [row[1] for row in shown(store, sql=ALL)] == [str(number) for number in range(2 * FULL)]
        assert (store.layout.views / "events.sql").read_text().count(".parquet") == len(state_of(store).files)


def test_a_server_merges_in_the_background_and_shows_it(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text('[project]\nname = "shop"\n')
    with workspace(tmp_path) as opened:
        ingestor = Ingestor()
        for number in range(5 * FULL):
            ingestor.ingest(opened, "events", body(number))
        ingestor.close()
        store = opened.store()
        assert len(state_of(store).files) < FULL
        assert (store.layout.views / "events.sql").read_text().count(".parquet") == len(state_of(store).files)
        must_be_whole(store, shown(store, sql=ALL))


def test_views_name_no_file_that_gc_takes(tmp_path: Path) -> None:
    """Also if whoever merged died before the views were made again."""
    (tmp_path / "headwater.toml").write_text('[project]\nname = "shop"\n')
    with workspace(tmp_path) as opened:
        store = opened.store()
        push_labels(store, range(FULL))
        refresh(store, None)
        merge(store)
        assert gc(opened, retention="0s", dry_run=False).retired_files == FULL
        with duckdb.connect(str(store.layout.duck), read_only=True) as connection:
            assert connection.sql("SELECT count(*) FROM events").fetchall() == [(FULL,)]

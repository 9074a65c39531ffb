"""The lives and levels of files, and what else their records say: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from catalog_rows import dump
from contract.stores import ACTOR, DAY_US, PROJECT, Place, begin_run, commit, create_table, written
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store, insert_commit
from headwater.catalog.gc import collect
from headwater.catalog.inferred_levels import settle_levels
from headwater.catalog.log import LogText, write_log
from headwater.catalog.lookup import table_entry, table_states
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.replay import apply_changes
from headwater.catalog.table_state import TableState
from headwater.catalog.verify import verify
from headwater.storage.file_record import ColumnStats, FileRecord
from schemas import schema_of

KEYED = schema_of({"id": "string", "v": "long"}, ("id",))


def file(path: str, first: str | None = None, last: str | None = None, **more: Any) -> FileRecord:
    keys = {
        "first_key": None if first is None else f"1{first}\x01",
        "last_key": None if first is None else f"1{last}\x01",
    }
    return FileRecord(**{"path": path, "rows": 2, "bytes": 1, "ordinal": 0, **keys, **more})


def added(*files: FileRecord, unique: bool = True, schema_id: int = 1) -> r.FilesAdded:
    return r.FilesAdded(table="orders", schema_id=schema_id, run_id="r", files=files, unique_keys=unique)


def state_at(store: Store, as_of: int | None = None) -> TableState:
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection, ["orders"], as_of=as_of)
    return state


def levels(store: Store) -> dict[str, int]:
    return {file.path: file.level for file in state_at(store).files}


def upsert_table(store: Store, schema: TableSchema = KEYED) -> None:
    create_table(store, mode="upsert", schema=schema)


def same_after_rebuild(store: Store, place: Place) -> None:
    before = dump(store.catalog)
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    assert dump(store.catalog) == before


# --- lives


def test_a_file_that_comes_back_has_two_lives(store: Store, place: Place) -> None:
    create_table(store)  # 1
    commit(store, added(file("a"), unique=False))  # 2
    commit(store, r.FilesRemoved(table="orders", paths=("a",)))  # 3
    commit(store, added(file("a"), unique=False))  # 4
    commit(store, r.FilesRemoved(table="orders", paths=("a",)))  # 5
    found = [[live.added_seq for live in state_at(store, seq).files] for seq in range(1, 6)]
    assert found == [[], [2], [], [4], []]
    lives = [(row["added_seq"], row["removed_seq"]) for row in dump(store.catalog)["file_entry"]]
    assert lives == [(2, 3), (4, 5)]
    same_after_rebuild(store, place)


def test_a_file_is_not_in_a_table_twice_at_once(store: Store) -> None:
    create_table(store)
    commit(store, added(file("a"), unique=False))
    with pytest.raises(IntegrityError):
        commit(store, added(file("a"), unique=False))
    assert len(state_at(store).files) == 1


def test_gc_deletes_a_file_after_its_last_life(store: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_day(day: int) -> None:
        monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(day * DAY_US))

    create_table(store)
    record = written(store, "tables/orders/data/a.parquet")
    commit(store, added(record, unique=False))  # 2
    commit(store, r.FilesRemoved(table="orders", paths=(record.path,)))  # 3
    at_day(30)
    commit(store, added(record, unique=False))  # 4
    assert collect(store, actor=ACTOR).retired_files == 0, "it is live again"
    at_day(40)
    commit(store, r.FilesRemoved(table="orders", paths=(record.path,)))
    at_day(44)
    assert collect(store, actor=ACTOR).retired_files == 0, "its second life ended four days ago"
    assert (store.root / record.path).exists()
    found = verify(store)
    assert (found.files_checked, found.problems) == (1, ())
    assert len(state_at(store, 2).files) == 1
    at_day(60)
    assert collect(store, actor=ACTOR, dry_run=True).retired_files == 1
    assert collect(store, actor=ACTOR).retired_files == 1
    assert not (store.root / record.path).exists()
    assert dump(store.catalog)["file_entry"] == []
    with pytest.raises(HeadwaterError):
        state_at(store, 2)
    same_after_rebuild(store, place)


def test_a_life_that_began_while_gc_was_at_work_keeps_its_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    record = written(store, "tables/orders/data/a.parquet")
    commit(store, added(record, unique=False))
    commit(store, r.FilesRemoved(table="orders", paths=(record.path,)))
    send = Store.commit

    def restored_before(self: Store, change: r.Commit) -> int:
        monkeypatch.setattr(Store, "commit", send)
        commit(store, added(record, unique=False))
        return send(self, change)

    monkeypatch.setattr(Store, "commit", restored_before)
    assert collect(store, actor=ACTOR, retention_seconds=-1).retired_files == 0
    assert (store.root / record.path).exists()
    assert [live.path for live in state_at(store).files] == [record.path]


# --- levels


def test_a_commit_whose_keys_touch_no_live_file_is_of_the_base(store: Store, place: Place) -> None:
    upsert_table(store)
    commit(store, added(file("a", "a", "f")))
    commit(store, added(file("b", "x", "z")))
    commit(store, added(file("c", "f", "g")))
    commit(store, added(file("d", "s", "t"), unique=False))
    commit(store, added(file("e", "t", "u")))
    commit(store, added(file("f", "B", "Z")))  # by bytes, which a locale would put between
    commit(store, added(file("g")))
    commit(store, added(file("h", "ä", "ö")))
    assert levels(store) == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 0, "f": 1, "g": 0, "h": 0}
    commit(store, r.FilesRemoved(table="orders", paths=("g",)))
    commit(store, added(file("i", "é", "ö"), file("j", "é", "î", ordinal=1)))
    commit(store, r.FilesRemoved(table="orders", paths=("h",)))
    commit(store, added(file("k", "é", "î")))
    assert {path: levels(store)[path] for path in "ijk"} == {"i": 0, "j": 0, "k": 0}
    assert state_at(store).files[0].key_range == ("1a\x01", "1f\x01")
    same_after_rebuild(store, place)


def test_the_first_commit_of_a_table_is_of_the_base_whatever_its_keys_are(store: Store) -> None:
    upsert_table(store)
    commit(store, added(file("a")))
    commit(store, added(file("b", "x", "z")))
    assert levels(store) == {"a": 1, "b": 0}


def test_a_merge_of_the_base_is_of_the_base_and_so_is_one_that_touches_nothing_else(store: Store) -> None:
    def merged(path: str, first: str, last: str, *replaced: str, unique: bool = True) -> None:
        values = {"schema_id": 1, "run_id": "r", "replaces": replaced, "unique_keys": unique}
        commit(store, r.FilesMerged(table="orders", files=(file(path, first, last, merged=True),), **values))

    upsert_table(store)
    for path, first, last in (("a", "a", "c"), ("b", "m", "o"), ("c", "b", "n"), ("d", "t", "v"), ("e", "u", "v")):
        commit(store, added(file(path, first, last)))
    assert levels(store) == {"a": 1, "b": 1, "c": 0, "d": 1, "e": 0}
    merged("ab", "a", "o", "a", "b")
    assert levels(store)["ab"] == 1, "the base as it was, below `c`"
    merged("de", "t", "v", "d", "e", unique=False)
    assert levels(store)["de"] == 0
    merged("abc", "a", "o", "ab", "c")
    assert levels(store) == {"abc": 1, "de": 0}
    commit(store, added(file("f", "b", "w")))
    merged("def", "b", "w", "de", "f")
    assert levels(store) == {"abc": 1, "def": 0}


def test_what_replaces_a_table_is_its_base_and_appended_files_are_not(store: Store) -> None:
    create_table(store, mode="replace")
    commit(store, added(file("a"), unique=False))
    assert levels(store) == {"a": 1}
    create_table(store, "log", mode="append")
    commit(store, r.FilesAdded(table="log", schema_id=1, run_id="r", files=(file("b"),)))
    assert [row["level"] for row in dump(store.catalog)["file_entry"]] == [1, 0]


def test_another_mode_or_another_key_leaves_no_base(store: Store, place: Place) -> None:
    create_table(store, mode="replace", schema=KEYED)
    commit(store, added(file("a", "a", "f"), unique=False))
    commit(store, r.TableModeSet(table="orders", mode="upsert"))
    assert levels(store) == {"a": 0}, "nothing says that a table that was replaced holds a key once"
    commit(store, added(file("b", "x", "z")))
    wider = KEYED.added("n", KEYED.columns[1].type)
    commit(store, r.SchemaSet(table="orders", schema_id=2, schema=wider.as_json()))
    assert levels(store) == {"a": 0, "b": 1}, "a column more is not another key"
    other = schema_of({"id": "string", "v": "long", "n": "long"}, ("id", "v"))
    commit(store, r.SchemaSet(table="orders", schema_id=3, schema=other.as_json()))
    commit(store, added(file("c", "g", "h"), schema_id=2))  # written before the key changed
    commit(store, added(file("d", "i", "j"), schema_id=3))
    found = state_at(store).files
    assert [(live.level, live.key_range is None) for live in found] == [(0, True), (0, True), (0, True), (0, False)]
    assert [live.unique_keys for live in found] == [False, False, False, True]
    same_after_rebuild(store, place)


# --- records of older formats


def old_commit(store: Store, *changes: r.Change) -> None:
    """As a version before format 6 did it: no level, no keys, no format in the record, and cell values inside."""
    with store.catalog.transaction() as connection:
        seq = connection.execute(update(t.store).values(seq=t.store.c.seq + 1).returning(t.store.c.seq)).scalar_one()
        record = r.LogRecord(seq=seq, commit_id=f"c{seq}", at_us=seq, actor=ACTOR, node="n", changes=changes)
        text = LogText(seq, msgspec.json.encode(record))
        insert_commit(connection, record, text)
        apply_changes(connection, record)
    write_log(store.layout, text)


def old_file(path: str, first: str, last: str) -> FileRecord:
    return file(path, stats={"1": ColumnStats(min=first, max=last)})


def test_old_records_replay_to_what_the_migration_made_of_them(store: Store, place: Place) -> None:
    body = KEYED.as_json()
    created = r.SchemaSet(table="orders", schema_id=1, schema=body)
    old_commit(store, r.TableCreated(table="orders", pipeline=PROJECT, mode="upsert"), created)
    for path, first, last in (("a", "a", "c"), ("b", "m", "o"), ("c", "b", "n"), ("d", "t", "v")):
        old_commit(store, added(old_file(path, first, last)))
    old_commit(store, r.FilesMerged(table="orders", schema_id=1, run_id="r", files=(old_file("dd", "t", "v"),),
                                    replaces=("d",), unique_keys=True))  # fmt: skip
    old_commit(store, r.TableCreated(table="whole", pipeline=PROJECT, mode="replace"))
    old_commit(store, r.SchemaSet(table="whole", schema_id=1, schema=body))
    old_commit(store, r.FilesAdded(table="whole", schema_id=1, run_id="r", files=(file("w"),)))
    with store.catalog.transaction() as connection:
        settle_levels(connection)
    rows = {row["path"]: row for row in dump(store.catalog)["file_entry"]}
    assert {path: row["level"] for path, row in rows.items()} == {"a": 1, "b": 1, "c": 0, "d": 0, "dd": 0, "w": 1}
    assert (rows["a"]["first_key"], rows["a"]["last_key"]) == ("1a\x01", "1c\x01")
    commit(store, r.FilesRemoved(table="orders", paths=("a", "c")))
    commit(store, added(file("e", "a", "l")))
    commit(store, added(file("f", "n", "p")))
    assert levels(store) == {"b": 1, "dd": 0, "e": 1, "f": 0}
    same_after_rebuild(store, place)


def test_nothing_is_inferred_of_an_old_table_whose_key_or_mode_has_changed(store: Store, place: Place) -> None:
    event = (r.SchemaEvent(kind="change_key", before=["v"], after=["id"]),)
    created = r.SchemaSet(table="orders", schema_id=1, schema=KEYED.as_json(), events=event)
    old_commit(store, r.TableCreated(table="orders", pipeline=PROJECT, mode="upsert"), created)
    old_commit(store, added(old_file("a", "a", "c")))
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    assert [(live.level, live.unique_keys) for live in state_at(store).files] == [(0, False)]


# --- what else records say


def test_a_commits_time_is_never_before_that_of_the_last_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(store)
    monkeypatch.setenv("HEADWATER_CLOCK_OFFSET_US", str(-DAY_US))
    commit(store, added(file("a"), unique=False))
    monkeypatch.delenv("HEADWATER_CLOCK_OFFSET_US")
    commit(store, r.FilesRemoved(table="orders", paths=("a",)))
    first, second, third = [row["at_us"] for row in dump(store.catalog)["commit_record"]]
    assert first == second <= third


def test_a_slice_knows_the_sequence_of_its_plan_and_a_table_when_it_was_rewritten(store: Store, place: Place) -> None:
    create_table(store)
    run_id = begin_run(store, 2)
    later = r.UnitSpec(unit_id="later", table="orders", ordinal=2, payload={"slice": {"end": 30}})
    commit(store, r.UnitsPlanned(run_id=run_id, pipeline=PROJECT, units=(later,)))
    with store.catalog.snapshot() as connection:
        assert [seq for (seq,) in connection.execute(select(t.unit.c.planned_seq))] == [2, 2, 2]
        assert table_entry(connection, "orders").rewritten_seq == 0
    commit(store, added(file("a"), file("b", ordinal=1), unique=False))
    commit(store, r.FilesRemoved(table="orders", paths=("a",)))
    assert state_at(store).rewritten_seq == 0
    seq = commit(store, r.FilesRemoved(table="orders", paths=("b",), rewrites=True))
    assert state_at(store).rewritten_seq == seq
    same_after_rebuild(store, place)

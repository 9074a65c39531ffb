from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from contract.children import commit_items
from contract.stores import ACTOR, PROJECT, Place, commit, quick_directory, tree
from forked import exit_code
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.log import (
    LogText,
    decode_record,
    encode_record,
    heal_log,
    log_records,
    read_log_record,
    write_log,
)
from headwater.storage.file_record import ColumnStats, FileRecord
from headwater.storage.layout import Layout

NOTE = r.ItemsLanded(pipeline=PROJECT, table="orders", items={"ä": [1, None, {"b": 0.5}]})


@pytest.fixture
def place() -> Iterator[Place]:
    with quick_directory() as directory:
        yield Place(directory / "store", "sqlite")


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def logged_seq(store: Store) -> int:
    with store.catalog.snapshot() as connection:
        return int(connection.execute(select(t.store.c.logged_seq)).scalar_one())


def numbers(layout: Layout) -> list[int]:
    return [record.seq for record, _ in log_records(layout)]


def test_a_record_is_one_line_of_json_with_its_hash(store: Store) -> None:
    commit(store, NOTE)
    text = store.layout.log_record(1).read_text()
    assert text.endswith("}\n")
    body = json.loads(text)
    assert list(body) == ["sha256", "record"]
    assert {key: body["record"][key] for key in ("seq", "actor", "changes", "moved")} == {
        "seq": 1,
        "actor": ACTOR,
        "changes": [{"do": "items_landed", "pipeline": PROJECT, "table": "orders"}],
        "moved": ["items"],
    }
    values = store.layout.values_of(1).read_bytes()
    assert json.loads(values) == {"0": {"items": {"ä": [1, None, {"b": 0.5}]}}}
    assert hashlib.sha256(values).hexdigest() == body["record"]["values_sha256"]


def test_each_record_names_the_hash_of_the_one_before_it(store: Store) -> None:
    for _ in range(3):
        commit(store, NOTE)
    files = [json.loads(store.layout.log_record(seq).read_text()) for seq in (1, 2, 3)]
    assert [file["record"].get("previous") for file in files] == [None, files[0]["sha256"], files[1]["sha256"]]


def test_a_record_that_was_replaced_with_its_hash_is_found_by_the_next(store: Store) -> None:
    for _ in range(3):
        commit(store, NOTE)
    body = read_log_record(store.layout, 2)[1].body
    write_log(store.layout, LogText(2, body.replace(b'"orders"', b'"order5"')))
    assert read_log_record(store.layout, 2)[0].seq == 2
    with pytest.raises(HeadwaterError) as found:
        numbers(store.layout)
    assert (found.value.code, "does not follow record 2" in found.value.message) == ("HW-T04", True)


def test_a_record_read_back_is_the_record_that_was_written(tmp_path: Path) -> None:
    file = FileRecord(path="p", rows=1, bytes=2, ordinal=0, stats={"1": ColumnStats(min=2**63, max=2**70)})
    changes = (NOTE, r.FilesAdded(table="t", schema_id=1, run_id="r", files=(file,)), r.UnitsAbandoned(run_id="r"))
    record = r.LogRecord(seq=7, commit_id="c", at_us=1, actor=ACTOR, node="n", changes=changes)
    layout, text = Layout(tmp_path), encode_record(record)
    layout.log.mkdir()
    layout.stats.mkdir()
    write_log(layout, text)
    found = read_log_record(layout, 7)[0]
    assert found.changes == changes == decode_record(text.body, text.values).changes
    assert found.moved == ("items", "stats")
    layout.values_of(7).write_bytes(b"{}")
    with pytest.raises(HeadwaterError) as damaged:
        read_log_record(layout, 7)
    assert (damaged.value.code, "stats/000000000007.json" in damaged.value.message) == ("HW-T04", True)


def test_a_record_of_the_first_version_can_still_be_read(tmp_path: Path) -> None:
    """Word for word as it was written once: fields may be added with a default, never renamed or removed."""
    body = (
        b'{"seq":1,"commit_id":"c","at_us":5,"actor":"a","node":"n","changes":['
        b'{"do":"table_created","table":"t","pipeline":"p","mode":"append"},'
        b'{"do":"schema_set","table":"t","schema_id":1,"schema":{"columns":[],"primary_key":[],"next_id":1},'
        b'"events":[{"kind":"created"}]},'
        b'{"do":"files_added","table":"t","schema_id":1,"run_id":"r","files":[{"path":"f","rows":1,"bytes":2,'
        b'"ordinal":0,"sha256":"00","stats":{"1":{"nulls":1,"max":"z"}},"sources":{"s":1},"content_sum":"ff"}]},'
        b'{"do":"unit_done","unit_id":"u","rows":1,"bytes":2},{"do":"run_settled","run_id":"r"}]}'
    )
    record = decode_record(body)
    assert [type(change).__name__ for change in record.changes] == [
        "TableCreated",
        "SchemaSet",
        "FilesAdded",
        "UnitDone",
        "RunSettled",
    ]
    assert msgspec.json.encode(record) == body


def test_opening_writes_a_record_that_a_crash_kept_from_the_log(place: Place, store: Store) -> None:
    for _ in range(3):
        commit(store, NOTE)
    whole = tree(store.layout.log)
    store.layout.log_record(2).unlink()
    store.layout.log_record(3).write_bytes(whole["000000000003.json"][1][:40])
    again = place.open()
    assert {name: data for name, (_, data) in tree(again.layout.log).items()} == {
        name: data for name, (_, data) in whole.items()
    }
    assert logged_seq(again) == 3
    assert heal_log(again.catalog, again.layout) == 0


def test_records_below_the_mark_are_not_looked_at_again(place: Place, store: Store) -> None:
    commit(store, NOTE)
    place.open()
    store.layout.log_record(1).unlink()
    commit(store, NOTE)
    place.open()
    assert not store.layout.log_record(1).exists()


def test_the_mark_moves_up_by_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_CHECK_COMMITS", 3)
    marks = []
    for _ in range(6):
        commit(store, NOTE)
        marks.append(logged_seq(store))
    assert marks == [0, 0, 3, 3, 3, 6]


@pytest.mark.parametrize("point", ["commit.after", "stats.torn", "stats.after", "log.torn", "log.after"])
def test_a_crash_around_the_log_is_healed_when_the_store_is_opened(place: Place, store: Store, point: str) -> None:
    commit(store, NOTE)
    assert exit_code(commit_items, place, "child", 1, crash_at=point) == -signal.SIGKILL
    left = sorted(path.name for path in store.layout.log.iterdir())
    assert len(left) == (2 if point.startswith("log.") else 1)
    again = place.open()
    assert sorted(path.name for path in again.layout.stats.iterdir()) == ["000000000001.json", "000000000002.json"]
    assert sorted(path.name for path in again.layout.log.iterdir()) == ["000000000001.json", "000000000002.json"]
    assert numbers(again.layout) == [1, 2]
    assert commit(again, NOTE) == 3


def test_the_half_written_record_of_a_living_process_is_left_alone(place: Place, store: Store) -> None:
    commit(store, NOTE)
    living = store.layout.log / f".000000000009.json.{os.getpid()}.0a1b2c3d.tmp"
    dead = store.layout.log / ".000000000009.json.999999999.0a1b2c3d.tmp"
    for path in (living, dead):
        path.write_bytes(b"half")
    place.open()
    assert (living.exists(), dead.exists()) == (True, False)


def test_healing_and_committing_at_once_leaves_a_whole_log(place: Place, store: Store) -> None:
    ended = threading.Event()

    def heal() -> None:
        while not ended.is_set():
            heal_log(store.catalog, store.layout)

    with ThreadPoolExecutor(5) as threads:
        healers = [threads.submit(heal) for _ in range(2)]
        committers = [threads.submit(lambda: [commit(store, NOTE) for _ in range(8)]) for _ in range(3)]
        try:
            for committer in committers:
                committer.result()
        finally:
            ended.set()
        for healer in healers:
            healer.result()
    assert numbers(store.layout) == list(range(1, 25))


def test_a_record_that_cannot_be_written_is_an_error_and_is_there_after_the_next_opening(
    place: Place, store: Store
) -> None:
    commit(store, NOTE)
    away = store.layout.log.rename(place.root / "away")
    with pytest.raises(HeadwaterError) as failed:
        commit(store, NOTE)
    assert (failed.value.code, failed.value.retryable) == ("HW-T05", True)
    away.rename(store.layout.log)
    assert numbers(place.open().layout) == [1, 2]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a byte of the record": lambda data: data.replace(b'"orders"', b'"order5"'),
    "a byte of the hash": lambda data: data.replace(data[11:12], b"x", 1) if data[11:12] != b"x" else data,
    "a byte of the frame": lambda data: data.replace(b'"record":', b'"rec0rd":'),
    "bytes at the end": lambda data: data + b"\n",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_is_found(store: Store, kind: str) -> None:
    commit(store, NOTE)
    path = store.layout.log_record(1)
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    with pytest.raises(HeadwaterError) as found:
        read_log_record(store.layout, 1)
    assert found.value.code == "HW-T04"
    assert path.name in found.value.message
    with pytest.raises(HeadwaterError):
        numbers(store.layout)


@pytest.mark.parametrize("missing", [1, 2])
def test_a_gap_is_found(store: Store, missing: int) -> None:
    for _ in range(3):
        commit(store, NOTE)
    store.layout.log_record(missing).unlink()
    with pytest.raises(HeadwaterError) as found:
        numbers(store.layout)
    assert found.value.code == "HW-T04"
    assert f"no record {missing}" in found.value.message


def test_other_files_in_the_log_directory_are_no_records(store: Store) -> None:
    commit(store, NOTE)
    for name in ("000000000001 (copy).json", "notes.json", ".hidden.json"):
        (store.layout.log / name).write_text("{}")
    assert numbers(store.layout) == [1]


def test_a_record_of_a_newer_version_says_so(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.log.mkdir()
    body = b'{"seq":1,"commit_id":"c","at_us":5,"actor":"a","node":"n","changes":[{"do":"from_the_future"}]}'
    write_log(layout, LogText(1, body))
    with pytest.raises(HeadwaterError) as found:
        read_log_record(layout, 1)
    assert found.value.code == "HW-T01"

"""Pushed rows in a table: what it becomes, and that what was taken reads back as it was sent."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from contract.ingesting import push, rows_of
from contract.stores import Place, quick_directory
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.lookup import schema_events, table_states
from headwater.duck.query_session import connect
from headwater.ingest.accept import Acceptor
from headwater.ingest.decode import TooLarge, decoded
from headwater.ingest.push_records import PushTable
from unit.coerce.test_cases import bytes_in, cases, with_forms

SAMPLE_STEP = 40
"""Every so many cases go all the way; all of them are prepared in `test_prepare`."""
CASES = [*cases("schema", "input")][::SAMPLE_STEP]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with quick_directory() as directory:
        opened = Place(directory / "store", "sqlite").open()
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def acceptor(store: Store) -> Acceptor:
    return Acceptor(store)


def declared(table: str, columns: dict[str, Any], *key: str, mode: str = "append") -> PushTable:
    kinds = {column.name: DeclaredColumn(column.type, form=column.form) for column in with_forms(columns).columns}
    return PushTable(table, table, mode=mode, primary_key=key, declared=kinds, in_manifest=True)


def query(store: Store, sql: str) -> list[Any]:
    with store.catalog.snapshot() as connection:
        states = table_states(connection)
    with connect(store.root, states, tables_info=[]) as session:
        return session.execute(sql).fetchall()


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_case_of_coercion_lands_as_it_says(store: Store, acceptor: Acceptor, number: int) -> None:
    case: dict[str, Any] = CASES[number].values[0]
    target = declared(f"case_{number}", case["schema"]["columns"], *case["schema"]["primary_key"])
    try:
        found = acceptor.accept(push(bytes_in(case), target=target))
    except HeadwaterError as error:
        assert (error.code, bool(case["errors"])) == ("HW-I02", True)
        return
    assert ("errors" in case, found.rows_ingested) == (False, len(case["rows"]))
    if case["rows"]:
        assert query(store, f"SELECT count(*) FROM case_{number}") == [(len(case["rows"]),)]


def test_the_last_row_of_a_key_counts_within_a_batch_and_between_batches(store: Store, acceptor: Acceptor) -> None:
    target = declared("keyed", {"id": "long", "v": "string"}, "id", mode="upsert")
    acceptor.accept(push(b'{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n{"id": 1, "v": "c"}\n', target=target))
    acceptor.accept(push(b'{"id": 2, "v": "d"}\n', target=target))
    assert query(store, "SELECT id, v FROM keyed ORDER BY id") == [(1, "c"), (2, "d")]
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection, ["keyed"])
    assert [file.unique_keys for file in state.files] == [False, True]
    with pytest.raises(HeadwaterError) as refused:
        acceptor.accept(push(b'{"v": "no key"}\n', target=target))
    assert "null_in_non_null" in refused.value.message


def test_a_batch_that_is_durable_is_answered_for_whatever_happens_next(store: Store) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no thread can be started")

    one = push(b"{}", target=PushTable("told", "told"))
    found = Acceptor(store, on_landed=fails).accept_together([one, one])
    assert [each.rows_ingested for each in found if not isinstance(each, Exception)] == [1, 1]
    assert len(rows_of(store, "told")) == 2


def test_senders_from_several_machines_share_a_commit_that_names_them(store: Store, acceptor: Acceptor) -> None:
    batches = [push(b"{}", target=PushTable("shared", "shared")) for _ in range(3)]
    senders = ["http:10.0.0.1", "http:10.0.0.2", "http:10.0.0.1"]
    found = acceptor.accept_together([replace(batch, actor=actor) for batch, actor in zip(batches, senders)])
    (seq,) = {each.snapshot_id for each in found if not isinstance(each, Exception)}
    with store.catalog.snapshot() as connection:
        actor = connection.execute(select(t.commit.c.actor).where(t.commit.c.seq == int(seq))).scalar_one()
    assert actor == "http:10.0.0.1, http:10.0.0.2"


def test_tables_that_are_asked_for_and_are_not_there_are_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUSH_QUEUES", 4)
    acceptor = Acceptor(store)
    for number in range(10):
        with pytest.raises(HeadwaterError, match="HW-T07"):
            acceptor.accept(push(b"{}", target=PushTable(f"no_{number}", f"no_{number}", may_create=False)))
    assert len(acceptor._queues) <= 4


def test_key_columns_that_nobody_declares_are_text(store: Store, acceptor: Acceptor) -> None:
    target = PushTable("by_id", "by_id", mode="upsert", primary_key=("id",), in_manifest=True)
    acceptor.accept(push(b'{"id": 7, "label": "x"}\n{"id": "7", "label": "y"}\n', target=target))
    assert query(store, "SELECT id, label FROM by_id") == [("7", "y")]


def test_columns_declared_later_join_the_table_and_other_types_need_a_decision(
    store: Store, acceptor: Acceptor
) -> None:
    acceptor.accept(push(b'{"id": 1}\n', target=declared("grows", {"id": "int"})))
    acceptor.accept(push(b'{"id": 2, "more": 1.5}\n', target=declared("grows", {"id": "long", "more": "real"})))
    assert query(store, "SELECT id, more FROM grows ORDER BY id") == [(1, None), (2, 1.5)]
    with pytest.raises(HeadwaterError) as refused:
        acceptor.accept(push(b'{"id": "x"}\n', target=declared("grows", {"id": "string", "more": "real"})))
    assert refused.value.code == "HW-S01"
    with store.catalog.snapshot() as connection:
        kinds = [event["kind"] for event in schema_events(connection, ["grows"])]
    assert kinds == ["created", "widen_type", "add_column", "refused"]


def test_new_columns_and_rescued_keys_are_in_the_schema_log_and_read_back(store: Store, acceptor: Acceptor) -> None:
    target = PushTable("wide", "wide")
    acceptor.accept(push(b'{"label": "a"}\n', target=target))
    acceptor.accept(push(b'{"label": "b", "user": "ada", "X-Id": {"n": 1}}\n', target=target))
    with store.catalog.snapshot() as connection:
        events = [(event["kind"], event["column_name"]) for event in schema_events(connection, ["wide"])]
    assert events == [("created", None), ("add_column", "user"), ("add_column", "_rescued")]
    assert rows_of(store, "wide") == [{"label": "a"}, {"label": "b", "user": "ada", "_rescued": '{"X-Id":{"n": 1}}'}]
    sql = """SELECT label, "user", _rescued->'X-Id'->>'n' FROM wide ORDER BY label"""
    assert query(store, sql) == [("a", None, None), ("b", "ada", "1")]


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "line\nbreak"])
def test_a_key_that_is_none_is_refused(acceptor: Acceptor, key: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        acceptor.accept(push(key=key))
    assert refused.value.code == "HW-I04"


@pytest.mark.parametrize("name", ["../x", "Upper", "a b", "", "x" * 64])
def test_a_name_that_no_table_can_have_is_refused(acceptor: Acceptor, store: Store, name: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        acceptor.accept(push(target=PushTable(name, name)))
    assert refused.value.code == "HW-I03"
    assert not Path(store.root, "tables", name or "none", "data").exists()


def test_compressed_bytes_are_bounded_and_must_be_whole() -> None:
    import gzip

    packed = gzip.compress(b"12345") + gzip.compress(b"678")
    heard: list[int] = []
    assert decoded(packed, "gzip", most=8, grow=heard.append) == b"12345678"
    assert sum(heard) == 8
    with pytest.raises(TooLarge):
        decoded(packed, "gzip", most=7)
    with pytest.raises(TooLarge):
        decoded(b"12345678", "none", most=7)
    for broken in (packed[:-3], b"not gzip", packed[:5]):
        with pytest.raises(HeadwaterError) as refused:
            decoded(broken, "gzip")
        assert refused.value.code == "HW-I04"
    assert json.loads(json.dumps(refused.value.as_json()))["code"] == "HW-I04"


def test_what_was_sent_is_held_until_its_answer_and_no_longer(acceptor: Acceptor) -> None:
    gc.disable()
    try:
        sent = push(target=PushTable("held", "held"))
        acceptor.accept(sent)
        held = weakref.ref(sent)
        del sent
        assert held() is None
    finally:
        gc.enable()


def test_queues_that_begin_at_once_share_a_writer(store: Store) -> None:
    own, together = Acceptor(store), threading.Barrier(8)

    def send(number: int) -> None:
        together.wait()
        own.accept(push(target=PushTable(f"lane_{number}", f"lane_{number}")))

    before = writers(store)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(8)))
    assert writers(store) == before + 1
    own.close()
    assert writers(store) == before


def writers(store: Store) -> int:
    with store.catalog.snapshot() as connection:
        found: int = connection.execute(select(func.count()).select_from(t.lease)).scalar_one()
        return found


def test_rows_that_can_never_land_say_why(tmp_path: Path) -> None:
    other = Place(tmp_path / "store", "sqlite").open()
    own = Acceptor(other)
    own.accept(push())
    landed = rows_of(other)
    with other.catalog.transaction() as connection:
        connection.execute(update(t.store).values(format_version=t.FORMAT_VERSION + 1))
    with pytest.raises(HeadwaterError, match=r"rows for `events` could not be landed: .* upgraded while it was open"):
        own.accept(push())
    assert rows_of(other) == landed
    other.close()

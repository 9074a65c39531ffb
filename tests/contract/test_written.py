"""A batch whose files somebody else writes lands once, in one commit, as any other: on both databases."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import select

from catalog_rows import dump
from contract.children import pool
from contract.engine_home import code_of
from contract.ingesting import EVENTS, push, rows_of
from contract.stores import ACTOR, Place
from forked import exit_code
from headwater.base.clock import now_us
from headwater.base.types import STRING
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import ensure_table
from headwater.catalog.gc import collect
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_states
from headwater.catalog.verify import verify
from headwater.ingest.accept import Acceptor
from headwater.ingest.group_commit import Base, Files, WrittenRows
from headwater.ingest.prepare import prepare
from headwater.ingest.push_records import Accepted, Push
from headwater.storage.part_writer import PartWriter
from headwater.storage.store_files import data_files

BODY = b'{"label": "a", "label_2": "b"}\nno json\n'
BIG = Push(EVENTS, b"", ACTOR, key="filedrop:1", key_expires=False, fingerprint="sha256:1", on_bad_row="dead_letter")


def land(store: Store, big: Push = BIG, *, before_commit: Push | None = None) -> Accepted:
    """Writes the rows twice over, each time into a file of its own."""

    def write(base: Base, files: Files, landing: Landing) -> WrittenRows:
        prepared = prepare(BODY, base.schema, table="events", evolve=True, most_bad=1)
        schema = base.schema
        for name in prepared.added:
            schema = schema.added(name, STRING)
        run_id, directory, number = files.next("events")
        written = []
        for partition in range(2):
            writer = PartWriter(
                store.root,
                f"{directory}/big-{number}",
                schema=schema,
                partition=partition,
                task_attempt=0,
                run_id=run_id,
                ingested_at_us=now_us(),
            )
            with writer:
                writer.write(prepared.batch)
            written += writer.close()
        landing.files += written
        if before_commit is not None:
            Acceptor(store).accept(before_commit)
        return WrittenRows(run_id, schema, tuple(written), prepared.bad, unique_keys=False)

    with closing(Acceptor(store)) as acceptor:
        return acceptor.accept(replace(big, write=write))


def land_once(place: Place) -> Accepted:
    store = place.open()
    try:
        return land(store)
    finally:
        store.close()


def must_be_clean(store: Store) -> None:
    collect(store, actor=ACTOR, retention_seconds=-1)
    with store.catalog.snapshot() as connection:
        named = {file.path for state in table_states(connection) for file in state.files}
    assert set(data_files(store.layout)) == named
    assert not verify(store).problems


ROW = {"label": "a", "label_2": "b"}


def test_it_lands_with_its_key_its_columns_and_its_bad_rows_in_one_commit(store: Store) -> None:
    Acceptor(store).accept(push(b'{"label": "first"}\n'))
    first = land(store)
    assert (first.rows_ingested, first.rows_refused, first.replayed) == (2, 1, False)
    assert rows_of(store) == [{"label": "first"}, ROW, ROW]
    assert [row["source"] for row in rows_of(store, "_dead_letters")] == [b"no json"]
    with store.catalog.snapshot() as connection:
        states = {state.name: state for state in table_states(connection)}
    files = [*states["events"].files[1:], *states["_dead_letters"].files]
    assert [str(file.added_seq) for file in files] == [first.snapshot_id] * 3
    (key,) = dump(store.catalog)["ledger_key"]
    assert (str(key["seq"]), key["fingerprint"], key["expires_us"]) == (first.snapshot_id, "sha256:1", None)
    again = land(store)
    assert (again.snapshot_id, again.replayed, again.rows_refused) == (first.snapshot_id, True, 1)
    assert not dump(store.catalog).get("lease")
    must_be_clean(store)


@pytest.mark.parametrize(
    ("point", "happened"), [("part.after_fsync", False), ("commit.before", False), ("commit.after", True)]
)
def test_one_that_was_killed_lands_once_when_it_is_done_again(place: Place, point: str, happened: bool) -> None:
    store = place.open()
    ensure_table(store, actor=ACTOR)  # else its making would be the first commit
    store.close()
    assert exit_code(land_once, place, crash_at=point) == -9
    store = place.open()
    assert land(store).replayed == happened
    assert rows_of(store) == [ROW, ROW]
    must_be_clean(store)
    store.close()


def test_several_processes_that_land_the_same_land_it_once(place: Place) -> None:
    place.open().close()
    with pool(3) as processes:
        answers = list(processes.map(land_once, [place] * 3))
    assert sorted(answer.replayed for answer in answers) == [False, True, True]
    store = place.open()
    assert rows_of(store) == [ROW, ROW]
    must_be_clean(store)
    store.close()


def test_a_table_that_moved_meanwhile_has_it_written_again(store: Store) -> None:
    Acceptor(store).accept(push(b'{"label": "first"}\n'))
    land(store, before_commit=push(b'{"new": "1"}\n', key="k"))
    assert rows_of(store) == [{"label": "first"}, {"new": "1"}, ROW, ROW]
    must_be_clean(store)


def test_a_key_that_somebody_else_took_meanwhile_leaves_no_rows(store: Store) -> None:
    Acceptor(store).accept(push(b'{"label": "first"}\n'))
    stolen = push(b'{"label": "other"}\n', key="filedrop:1")
    assert code_of(lambda: land(store, before_commit=stolen)) == "HW-I01"
    assert rows_of(store) == [{"label": "first"}, {"label": "other"}]
    must_be_clean(store)


def test_a_writer_that_takes_long_is_kept_alive_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LEASE_SECONDS", "0.3")
    store = place.open()

    def leased_until(files: Files) -> int:
        with store.catalog.snapshot() as connection:
            mine = t.lease.c.id == files.writer.id
            found: int = connection.execute(select(t.lease.c.leased_until_us).where(mine)).scalar_one()
            return found

    def write(base: Base, files: Files, landing: Landing) -> WrittenRows:
        began = leased_until(files)
        deadline = time.monotonic() + 60
        while leased_until(files) == began:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise InterruptedError("it was renewed")

    with pytest.raises(InterruptedError), closing(Acceptor(store)) as acceptor:
        acceptor.accept(replace(BIG, write=write))
    with store.catalog.snapshot() as connection:
        assert connection.execute(select(t.lease)).all() == []
    store.close()

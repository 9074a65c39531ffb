"""DeadLetterFiles that are there: counted by table and by run, and taken out once. On every catalog."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from contract.engine_home import code_of
from contract.stores import ACTOR
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.catalog import dead_letters as d
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import (
    count_dead_letters,
    dead_letter_files,
    dead_letters_by_engine_run,
    dead_letters_by_run,
    read_dead_letters,
    take_out,
)
from headwater.catalog.landing import Landing
from headwater.storage.layout import attempt_directory


def directory() -> str:
    return attempt_directory(d.TABLE, run_id=uuid7(), node="node", unit_id=uuid7(), attempt=1)


def keep(store: Store, table: str, *sources: bytes) -> str:
    run_id = uuid7()
    letters = [
        d.DeadLetter(table, "p", "in/a", 1, None, "invalid_json", "text", "", "ndjson", each) for each in sources
    ]
    files = d.write_dead_letters(store.root, directory(), letters, run_id=run_id, number=0)
    landing = Landing(store, ACTOR)
    d.add_dead_letters(landing, files, run_id=run_id)
    landing.commit()
    return run_id


def test_letters_are_counted_by_table_and_by_run_and_leave_one_by_one(store: Store) -> None:
    first, second = keep(store, "t", b"1", b"2"), keep(store, "t", b"3")
    other = keep(store, "u", b"4")
    with store.catalog.snapshot() as connection:
        assert dead_letter_files(connection, "nobody") is None
        letters = dead_letter_files(connection, "t")
        assert count_dead_letters(connection) == {"t": 3, "u": 1}
        assert dead_letters_by_run(connection, [first, other, "none"]) == {first: {"t": 2}, other: {"u": 1}}
        assert dead_letters_by_engine_run(connection, [first]) == {}
    assert letters is not None
    found = list(read_dead_letters(store.root, letters))
    assert [(each.letter.source, each.run_id) for each in found] == [(b"1", first), (b"2", first), (b"3", second)]

    gone = {(found[0].path, found[0].row), (found[2].path, found[2].row)}
    out, twin = Landing(store, ACTOR), Landing(store, ACTOR)
    take_out(out, letters, gone, directory=directory())
    take_out(twin, letters, gone, directory=directory())
    out.commit()
    with pytest.raises(HeadwaterError) as moved, twin:
        twin.commit()
    assert moved.value.code == "HW-T02"
    with store.catalog.snapshot() as connection:
        left = dead_letter_files(connection, "t")
        assert count_dead_letters(connection) == {"t": 1, "u": 1}
        assert dead_letters_by_run(connection, [first, second]) == {first: {"t": 2}, second: {"t": 1}}
    assert left is not None
    (kept,) = read_dead_letters(store.root, left)
    assert (kept.letter, kept.run_id, kept.at_us) == (found[1].letter, first, found[1].at_us)


def test_a_catalog_that_was_upgraded_meanwhile_is_told_of(store: Store) -> None:
    with store.catalog.transaction() as connection:
        connection.execute(update(t.store).values(format_version=99))
    assert code_of(lambda: d.ensure_table(store, actor=ACTOR)) == "HW-T02"

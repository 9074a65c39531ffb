"""Bad rows of a pushed batch that lands without them: kept as dead letters, or left to the sender."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.ingesting import rows_of
from contract.stores import ACTOR, Place
from contract.tailing import merge, shown, state_of
from forked import exit_code
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.types import LONG
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import count_dead_letters, ensure_table
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.gc import collect
from headwater.catalog.lookup import table_states
from headwater.catalog.verify import verify
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import OnBadRow, Push, PushTable
from headwater.storage.store_files import data_files

NUMBERS = PushTable("numbers", "numbers", declared={"n": DeclaredColumn(LONG)}, in_manifest=True)
BODY = b'{"n": 1, "new": "x"}\n{"n": "one", "worse": 1}\n\n{"n": 2}\n[3]\r\n{"n": 4, "n": tru}'
GOOD = [{"n": 1, "new": "x"}, {"n": 2}]
BAD = [
    (2, "n", "not_a_number", "string", b'{"n": "one", "worse": 1}'),
    (5, None, "expected_object", "array", b"[3]"),
    (6, None, "invalid_json", "text", b'{"n": 4, "n": tru}'),
]
KILLS = {"part.mid": False, "part.after_fsync": False, "commit.inside": False, "commit.after": True}


def batch(body: bytes = BODY, *, on_bad_row: OnBadRow = "dead_letter", key: str | None = "k") -> Push:
    return Push(target=NUMBERS, body=body, actor=ACTOR, key=key, on_bad_row=on_bad_row, source="drop/numbers/a.ndjson")


def dead_letter_files(store: Store) -> list[tuple[Any, ...]]:
    shown = ("line", "column_name", "reason", "value_type", "source")
    found = rows_of(store, LETTERS)
    assert {(row["table_name"], row["pipeline"], row["place"], row["format"]) for row in found} <= {
        ("numbers", "numbers", "drop/numbers/a.ndjson", "ndjson")
    }
    return [tuple(row.get(name) for name in shown) for row in found]


def push_and_die(place: Place) -> None:
    store = place.open()
    Acceptor(store).accept(batch())


def test_bad_rows_become_dead_letters_in_the_commit_of_the_good_ones(store: Store) -> None:
    found = Acceptor(store).accept(batch())
    assert (found.rows_ingested, found.rows_refused, found.replayed) == (2, 3, False)
    assert [(e.line, e.column, e.reason, e.value_type) for e in found.errors] == [row[:4] for row in BAD]
    assert rows_of(store, LETTERS)[2]["detail"] == "column 18: unexpected character"
    assert (rows_of(store, "numbers"), dead_letter_files(store)) == (GOOD, BAD)
    with store.catalog.snapshot() as connection:
        states = {state.name: state for state in table_states(connection)}
    assert "worse" not in states["numbers"].schema.names()  # a bad row brings no column
    assert {file.added_seq for state in states.values() for file in state.files} == {int(found.snapshot_id)}
    again = Acceptor(store).accept(batch())
    assert (again.snapshot_id, again.rows_ingested, again.rows_refused) == (found.snapshot_id, 2, 3)
    assert again.replayed and dead_letter_files(store) == BAD


def test_bad_rows_that_the_sender_hears_of_leave_nothing(store: Store) -> None:
    found = Acceptor(store).accept(batch(on_bad_row="leave_out"))
    assert (found.rows_ingested, found.rows_refused, len(found.errors)) == (2, 3, 3)
    assert rows_of(store, "numbers") == GOOD
    assert rows_of(store, LETTERS) == []


def test_a_batch_of_bad_rows_alone_makes_letters_and_no_table(store: Store) -> None:
    found = Acceptor(store).accept(batch(b'{"n": "one"}\n'))
    assert (found.rows_ingested, found.rows_refused) == (0, 1)
    with store.catalog.snapshot() as connection:
        assert [state.name for state in table_states(connection)] == [LETTERS]
    assert Acceptor(store).accept(batch(b'{"n": "one"}\n')).replayed


def test_too_many_bad_rows_refuse_the_batch(store: Store) -> None:
    body = b'{"n": 1}\n' + b'{"n": "one"}\n' * (limits.MAX_BAD_ROWS + 1)
    with pytest.raises(HeadwaterError, match="took nothing") as refused:
        Acceptor(store).accept(batch(body))
    assert refused.value.code == "HW-I02"
    assert rows_of(store, "numbers") == rows_of(store, LETTERS) == []
    assert Acceptor(store).accept(batch(body[:-13])).rows_refused == limits.MAX_BAD_ROWS


def test_nobody_pushes_to_the_dead_letters(store: Store) -> None:
    with pytest.raises(HeadwaterError) as refused:
        Acceptor(store).accept(Push(target=PushTable(LETTERS, LETTERS), body=b"{}", actor=ACTOR))
    assert refused.value.code == "HW-I03"


def test_the_letters_of_a_table_that_is_pushed_to_lie_in_few_files(store: Store) -> None:
    """Those of another table stay where they are."""
    acceptor = Acceptor(store)
    other = replace(batch(b"bad"), target=PushTable("others", "others"), key=None)
    acceptor.accept(other)
    for number in range(3 * limits.TAIL_CLASS_FILES):
        acceptor.accept(batch(b'{"n": %d}\n{"n": "%d x"}\n' % (number, number), key=None))
    before = shown(store, LETTERS)
    merge(store, "numbers")
    assert shown(store, LETTERS) == before, "every column of every letter, and the commit that brought it"
    assert len(state_of(store, LETTERS).files) == 2
    with store.catalog.snapshot() as connection:
        assert count_dead_letters(connection) == {"numbers": 3 * limits.TAIL_CLASS_FILES, "others": 1}
    assert not verify(store).problems


@pytest.mark.parametrize("point", KILLS)
def test_a_push_with_bad_rows_that_was_killed_and_is_sent_again_leaves_them_once(place: Place, point: str) -> None:
    store = place.open()
    ensure_table(store, actor=ACTOR)
    store.close()
    assert exit_code(push_and_die, place, crash_at=point) == -9
    store = place.open()
    found = Acceptor(store).accept(batch())
    assert (found.rows_refused, found.replayed) == (3, KILLS[point])
    assert (rows_of(store, "numbers"), dead_letter_files(store)) == (GOOD, BAD)
    collect(store, actor=ACTOR, retention_seconds=-1)
    with store.catalog.snapshot() as connection:
        named = {file.path for state in table_states(connection) for file in state.files}
    assert set(data_files(store.layout)) == named
    assert not verify(store).problems
    store.close()

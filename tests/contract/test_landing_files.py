"""What a landing leaves on disk, however it ends: on both databases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contract.engine_home import code_of
from contract.stores import ACTOR, begin_run, claim, create_table, written
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import JobEnd
from headwater.catalog.landing import Landing, until_landed
from headwater.catalog.lookup import table_states
from headwater.storage.store_files import data_files

NAMED, UNNAMED = "tables/orders/data/named.parquet", "tables/orders/data/unnamed.parquet"


def land(store: Store, *requires: r.Requirement, send: Callable[[Store, r.Commit], int] = Store.commit) -> int:
    """Writes two files, of which the commit names one."""
    with Landing(store, ACTOR) as landing:
        landing.files += [written(store, NAMED), written(store, UNNAMED)]
        landing.add_files("orders", 1, "run", landing.files[:1])
        return landing.commit(requires=requires, send=send)


def left(store: Store) -> list[str]:
    return sorted(data_files(store.layout))


def test_a_commit_keeps_the_files_that_it_names(store: Store) -> None:
    create_table(store)
    land(store)
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection)
    assert left(store) == [file.path for file in state.files] == [NAMED]


def test_nothing_is_left_after_a_conflict(store: Store) -> None:
    create_table(store)
    assert code_of(lambda: land(store, r.SchemaIs(table="orders", schema_id=7))) == "HW-T02"
    assert left(store) == []


def test_nothing_is_left_of_what_failed_before_its_commit(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), Landing(store, ACTOR) as landing:
        landing.files.append(written(store, NAMED))
        raise ZeroDivisionError
    assert left(store) == []


def test_the_files_of_a_lost_lease_are_left_to_gc(store: Store) -> None:
    """The lease may be lost because the work was committed: the first answer got lost, and the same files were written
    once more."""
    create_table(store)
    lease = claim(store.catalog, begin_run(store, 1), holder="w")
    assert lease is not None
    done = r.UnitDone(unit_id=lease.unit_id)
    end = JobEnd(held=lease.fence, state="done", landed_run_id=lease.run_id)
    store.commit(r.Commit(changes=(done,), requires=(lease.fence,), actor=ACTOR, ends=end))
    assert code_of(lambda: land(store, lease.fence)) == "HW-T03"
    assert left(store) == [NAMED, UNNAMED]


def test_the_files_of_a_commit_that_got_no_answer_stay(store: Store) -> None:
    create_table(store)

    def cut_off(store: Store, commit: r.Commit) -> int:
        store.commit(commit)
        raise HeadwaterError("HW-T06", "the connection to the catalog was lost")

    assert code_of(lambda: land(store, send=cut_off)) == "HW-T06"
    assert NAMED in left(store)


def test_tries_end_and_name_the_last_reason() -> None:
    tries: list[int] = []

    def attempt(number: int) -> None:
        tries.append(number)
        if number:
            raise HeadwaterError("HW-T02", "the schema has moved")

    with pytest.raises(HeadwaterError, match=r"rows for `orders` could not be landed: the schema has moved") as caught:
        until_landed("orders", attempt)
    assert (caught.value.code, caught.value.retryable) == ("HW-T02", True)
    assert tries == list(range(limits.LANDING_TRIES))


def test_a_conflict_about_something_else_than_the_table_is_not_tried_again() -> None:
    tries: list[int] = []

    def attempt(number: int) -> None:
        tries.append(number)
        raise HeadwaterError("HW-T02", "the cursor has moved")

    with pytest.raises(HeadwaterError, match="the cursor has moved"):
        until_landed("orders", attempt, moved=lambda: False)
    assert tries == [0]

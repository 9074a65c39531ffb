"""Questions to the catalog: the same answers from SQLite and from PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_rows import runs
from contract.stores import ACTOR, PROJECT, begin_run, claim, commit, create_table, done, landed
from headwater.base.errors import HeadwaterError
from headwater.base.ids import uuid7
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG, STRING
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.evolution import DeclaredColumn, Shown, evolve
from headwater.catalog.lookup import (
    OpenRun,
    StoredCursor,
    catalog_view,
    current_seq,
    freshness_by_pipeline,
    run_record,
    schema_events,
    staged_files,
    table_entry,
    table_states,
)
from headwater.catalog.schema_decisions import accept_change, open_proposal, refuse_change
from headwater.catalog.table_state import TableState
from headwater.duck.view_files import table_infos
from headwater.storage.file_record import ColumnStats, FileRecord
from schemas import schema_of


def file(path: str, ordinal: int = 0, **more: Any) -> FileRecord:
    return FileRecord(path=path, rows=10, bytes=100, ordinal=ordinal, **more)


def add(store: Store, *files: FileRecord, schema_id: int = 1, unique_keys: bool = False) -> int:
    added = r.FilesAdded(table="orders", schema_id=schema_id, run_id="r", files=files, unique_keys=unique_keys)
    return commit(store, added)


def remove(store: Store, *paths: str) -> int:
    return commit(store, r.FilesRemoved(table="orders", paths=paths))


def state_at(store: Store, as_of: int | None = None) -> TableState:
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection, ["orders"], as_of=as_of)
    return state


def paths(state: TableState) -> list[str]:
    return [live.path for live in state.files]


def test_a_file_comes_back_with_all_that_was_said_of_it(store: Store) -> None:
    create_table(store)
    stats = {"1": ColumnStats(nulls=1, min=-5, max=2**62), "2": ColumnStats(min="a", max="ß"), "3": ColumnStats()}
    said = file("f", 3, sha256="ab", stats=stats, sources={"x.csv": 10}, merged=True, content_sum="ff")
    seq = add(store, said, unique_keys=True)
    (live,) = state_at(store).files
    assert (live.path, live.rows, live.bytes, live.ordinal, live.run_id) == ("f", 10, 100, 3, "r")
    assert (live.added_seq, live.schema_id, live.unique_keys, live.merged) == (seq, 1, True, True)
    assert (live.sha256, live.stats, live.sources, live.content_sum) == ("ab", stats, {"x.csv": 10}, "ff")


def test_files_are_ordered_by_commit_and_then_by_their_place_in_it(store: Store) -> None:
    create_table(store)
    add(store, file("z"), file("b", 2), file("c", 1))
    add(store, file("a"))
    assert paths(state_at(store)) == ["z", "c", "b", "a"]


def test_a_table_can_be_read_as_of_every_sequence(store: Store) -> None:
    create_table(store)  # 1
    add(store, file("a"))  # 2
    add(store, file("b"))  # 3
    remove(store, "a")  # 4
    add(store, file("c"))  # 5
    found = [paths(state_at(store, seq)) for seq in range(1, 6)]
    assert found == [[], ["a"], ["a", "b"], ["b"], ["b", "c"]]
    with store.catalog.snapshot() as connection:
        assert table_states(connection, as_of=0) == []
        for nowhere in (-1, 6):
            with pytest.raises(HeadwaterError) as refused:
                table_states(connection, as_of=nowhere)
            assert refused.value.code == "HW-T07"


def test_the_last_change_of_a_table_is_known_at_every_cut(store: Store) -> None:
    create_table(store)  # 1
    commit(store, r.RunError(run_id="r", error_kind="k", error_message="m"))  # 2: not of this table
    add(store, file("a"))  # 3
    begin_run(store)  # 4: nor is this
    remove(store, "a")  # 5
    begin_run(store, pipeline="other")  # 6
    assert [state_at(store, seq).changed_seq for seq in range(1, 7)] == [1, 1, 3, 3, 5, 5]
    commit(store, r.FilesForgotten(table="orders", paths=("a",), oldest_seq=5))  # 7
    add(store, file("b"))  # 8
    assert [state_at(store, seq).changed_seq for seq in range(5, 9)] == [5, 5, 5, 8]


def test_a_cut_whose_files_are_gone_is_refused_and_later_ones_are_not(store: Store) -> None:
    create_table(store)
    add(store, file("a"))
    remove(store, "a")  # 3
    add(store, file("b"))  # 4
    commit(store, r.FilesForgotten(table="orders", paths=("a",), oldest_seq=3))
    assert paths(state_at(store, 3)) == []
    assert paths(state_at(store, 4)) == ["b"]
    with pytest.raises(HeadwaterError) as refused:
        state_at(store, 2)
    assert refused.value.code == "HW-T07"
    assert "3" in refused.value.hint


def test_of_two_collections_the_one_that_forgot_more_counts(store: Store) -> None:
    create_table(store)
    add(store, file("a"), file("b", 1))
    remove(store, "a")  # 3
    remove(store, "b")  # 4
    commit(store, r.FilesForgotten(table="orders", paths=("a", "b"), oldest_seq=4))
    commit(store, r.FilesForgotten(table="orders", paths=("a",), oldest_seq=3))
    with pytest.raises(HeadwaterError):
        state_at(store, 3)


def test_a_file_that_is_live_cannot_be_forgotten(store: Store) -> None:
    create_table(store)
    add(store, file("a"))
    commit(store, r.FilesForgotten(table="orders", paths=("a",), oldest_seq=0))
    assert paths(state_at(store)) == ["a"]


def set_schema(store: Store, schema_id: int, schema: TableSchema) -> int:
    return commit(store, r.SchemaSet(table="orders", schema_id=schema_id, schema=schema.as_json()))


def test_a_table_knows_the_schemas_of_its_files_and_the_one_at_the_cut(store: Store) -> None:
    first = schema_of({"id": "int"})
    create_table(store, schema=first)  # 1
    add(store, file("a"))  # 2
    second = first.added("name", STRING)
    set_schema(store, 2, second)  # 3
    third = second.added("more", LONG)
    set_schema(store, 3, third)  # 4
    add(store, file("b"), schema_id=3)  # 5
    now = state_at(store)
    assert (now.schema_id, now.schema, dict(now.schemas)) == (3, third, {1: first, 3: third})
    assert [state_at(store, seq).schema for seq in range(1, 6)] == [first, first, second, third, third]
    assert dict(state_at(store, 3).schemas) == {1: first, 2: second}


def test_the_mode_of_a_table_is_the_one_it_had_at_the_cut(store: Store) -> None:
    schema = schema_of({"id": "long"}, ("id",))
    create_table(store, mode="append", schema=schema)
    evolution = evolve(schema, Shown({}), declared={}, primary_key=("id",), modes=("append", "upsert"))
    refuse_change(store, "orders", evolution, mode="upsert", actor=ACTOR)
    accepted = accept_change(store, "orders", actor=ACTOR)
    assert [state_at(store, seq).mode for seq in range(1, accepted.seq + 1)] == ["append", "append", "upsert"]


def test_an_unknown_table_is_refused_with_the_nearest_name(store: Store) -> None:
    create_table(store)
    with store.catalog.snapshot() as connection, pytest.raises(HeadwaterError) as refused:
        table_entry(connection, "order")
    assert (refused.value.code, refused.value.hint) == ("HW-T07", "did you mean `orders`?")


def test_the_cursor_goes_to_the_end_of_the_longest_done_prefix(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 4)
    leases = [claim(store.catalog, run_id, holder="w") for _ in range(4)]

    def cursor_after(place: int) -> StoredCursor | None:
        lease = leases[place]
        assert lease is not None
        store.commit(landed(lease))
        with store.catalog.snapshot() as connection:
            return catalog_view(connection).cursors.get((PROJECT, "orders"))

    assert cursor_after(1) is None
    assert cursor_after(0) == StoredCursor("monotonic", 1, "s", 20)
    assert cursor_after(3) == StoredCursor("monotonic", 2, "s", 20)
    assert cursor_after(2) == StoredCursor("monotonic", 3, "s", 40)


def test_a_view_of_the_catalog_has_cursors_items_and_open_runs(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 3)
    lease = claim(store.catalog, run_id, holder="w")
    assert lease is not None
    store.commit(landed(lease))
    items = {"b.csv": {"size": 1}, "a.csv": [1.5, None]}
    commit(store, r.ItemsLanded(pipeline=PROJECT, table="orders", items=items))
    commit(store, r.ItemsLanded(pipeline=PROJECT, table="orders", items={"b.csv": {"size": 2}}))
    ended = begin_run(store, 1, pipeline="other")
    commit(store, r.UnitsAbandoned(run_id=ended), r.RunSettled(run_id=ended))
    with store.catalog.snapshot() as connection:
        view = catalog_view(connection)
        assert current_seq(connection) == 7
    assert view.items == {(PROJECT, "orders"): {"a.csv": [1.5, None], "b.csv": {"size": 2}}}
    assert view.open_runs == {PROJECT: OpenRun(run_id, PROJECT, "sha256:1", pending=2, done=1)}
    assert view.have_run == {PROJECT, "other"}


def test_the_state_of_a_run_follows_its_slices(store: Store) -> None:
    """No commit is made for a state alone: each is that of a commit that plans, lands or ends."""
    create_table(store)
    run_id = begin_run(store, 3)

    def state() -> str:
        with store.catalog.snapshot() as connection:
            return str(run_record(connection, run_id)["state"])

    states = [state()]
    for _ in range(3):
        lease = claim(store.catalog, run_id, holder="w")
        assert lease is not None
        store.commit(landed(lease))
        states.append(state())
    assert states == ["reading", "writing", "committing", "success"]


def test_a_run_is_planning_until_its_last_slices_are_stored(store: Store) -> None:
    create_table(store)
    run_id = begin_run(store, 1)
    for ordinal, state in ((1, "planning"), (2, "reading")):
        unit = r.UnitSpec(unit_id=uuid7(), table="orders", ordinal=ordinal, payload={})
        more = state == "planning"
        commit(store, r.UnitsPlanned(run_id=run_id, pipeline=PROJECT, units=(unit,), more=more))
        with store.catalog.snapshot() as connection:
            assert run_record(connection, run_id)["state"] == state


@pytest.mark.parametrize(("landing", "state"), [(0, "failed"), (1, "partial"), (2, "success")])
def test_a_run_ends_as_its_units_did(store: Store, landing: int, state: str) -> None:
    create_table(store)
    run_id = begin_run(store, 2)
    for _ in range(landing):
        lease = claim(store.catalog, run_id, holder="w")
        assert lease is not None
        store.commit(landed(lease))
    if landing < 2:
        for message in ("first", "second"):
            commit(store, r.RunError(run_id=run_id, error_kind="HW-C02", error_message=message))
        commit(store, r.UnitsAbandoned(run_id=run_id, table="orders"), r.RunSettled(run_id=run_id))
    with store.catalog.snapshot() as connection:
        record = run_record(connection, run_id)
        assert freshness_by_pipeline(connection) == ({PROJECT: 1} if state == "success" else {})
        assert [run["run_id"] for run in runs(connection, pipeline=PROJECT)] == [run_id]
        assert runs(connection, pipeline="other") == []
    assert (record["state"], record["rows"], record["bytes"]) == (state, landing * 10, landing * 4)
    assert record["error_message"] == (None if landing == 2 else "first")
    assert record["ended_us"] is not None


def test_staged_files_wait_in_the_order_of_their_slices(store: Store) -> None:
    create_table(store, mode="replace")
    run_id = begin_run(store, 3)
    leases = [claim(store.catalog, run_id, holder="w") for _ in range(2)]
    for lease in reversed(leases):
        assert lease is not None
        staged = (file(f"s{lease.ordinal}", stats={"1": ColumnStats(min=1)}),)
        commit(store, *done(lease, staged=staged, staged_schema_id=1), requires=[lease.fence])
    with store.catalog.snapshot() as connection:
        found = staged_files(connection, run_id, "orders")
    assert [(s.schema_id, [f.path for f in s.files]) for s in found] == [(1, ["s0"]), (1, ["s1"])]
    assert found[0].files[0].stats == {"1": ColumnStats(min=1)}
    assert paths(state_at(store)) == []


def test_a_table_is_counted_without_reading_a_row(store: Store) -> None:
    create_table(store)
    add(store, file("a"), file("b", 1))
    (info,) = table_infos([state_at(store)], {PROJECT: 7})
    assert (info.rows, info.stored_rows, info.bytes, info.files, info.freshness_us) == (20, 20, 200, 2, 7)


# --- decisions


def refused_change(store: Store) -> TableSchema:
    """`amount` becomes text and `note` is new; the first needs a decision, so both wait."""
    schema = schema_of({"id": "long", "amount": "real"})
    create_table(store, schema=schema)
    evolution = evolve(
        schema,
        Shown({"amount": STRING, "note": STRING}),
        declared={"id": DeclaredColumn(LONG, default="0")},
        primary_key=(),
        modes=("append", "append"),
    )
    for _ in range(2):
        refuse_change(store, "orders", evolution, mode="append", actor=ACTOR)
    assert evolution.proposal is not None
    return evolution.proposal


def kinds(store: Store) -> list[tuple[str, str | None, str]]:
    with store.catalog.snapshot() as connection:
        return [(e["kind"], e["column_name"], e["decided_by"]) for e in schema_events(connection, ["orders"])]


def test_the_same_refusal_is_noted_once(store: Store) -> None:
    refused_change(store)
    assert kinds(store) == [("created", None, "auto"), ("refused", "amount", "auto")]


def test_accepting_makes_the_change_and_says_who_decided(store: Store) -> None:
    proposal = refused_change(store)
    accepted = accept_change(store, "orders", actor="operator:bob")
    state = state_at(store)
    assert (state.schema, state.schema_id, accepted.schema_id) == (proposal, 2, 2)
    assert accepted.changes == ("column `amount` changed its type, from real to string",)
    assert kinds(store)[2:] == [
        ("change_type", "amount", "operator:bob"),
        ("set_default", "id", "operator:bob"),
        ("add_column", "note", "operator:bob"),
    ]
    with pytest.raises(HeadwaterError) as nothing_left:
        accept_change(store, "orders", actor="operator:bob")
    assert nothing_left.value.code == "HW-S03"


def test_a_later_schema_overtakes_a_refused_change(store: Store) -> None:
    proposal = refused_change(store)
    event = r.SchemaEvent(kind="add_column", column="x", after="long")
    body = schema_of({"id": "long", "amount": "real", "x": "long"}).as_json()
    commit(store, r.SchemaSet(table="orders", schema_id=2, schema=body, events=(event,)))
    with store.catalog.snapshot() as connection:
        assert open_proposal(connection, "orders") is None
    assert state_at(store).schema != proposal


def test_a_key_that_is_no_column_cannot_be_accepted(store: Store) -> None:
    schema = schema_of({"id": "long"}, ("id",))
    create_table(store, mode="upsert", schema=schema)
    evolution = evolve(schema, Shown({}), declared={}, primary_key=("code",))
    refuse_change(store, "orders", evolution, mode="upsert", actor=ACTOR)
    with pytest.raises(HeadwaterError) as refused:
        accept_change(store, "orders", actor=ACTOR)
    assert refused.value.code == "HW-S03"
    assert state_at(store).schema == schema

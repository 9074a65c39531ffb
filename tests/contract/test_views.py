"""Views in the catalog: what they are at each sequence, and that the log rebuilds them. On SQLite and on PostgreSQL."""

from __future__ import annotations

from catalog_rows import dump
from contract.stores import PROJECT, Place, commit, create_table
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.lookup import catalog_view, last_view_change, table_versions
from headwater.catalog.rebuild import rebuild_catalog
from headwater.duck.ripple_views import view_cut, view_events, view_states


def defined(sql: str, *reads: str) -> r.ViewDefinition:
    return r.ViewDefinition(sql=sql, shown=sql, reads=reads, columns=(("z", "long"), ("a", "real")))


def set_view(store: Store, name: str, definition: r.ViewDefinition, **reads: int | None) -> int:
    return commit(store, r.ViewSet(view=name, pipeline="models", definition=definition, reads=reads))


def test_a_view_is_at_each_sequence_what_it_was_then(store: Store) -> None:
    create_table(store)
    first = set_view(store, "big", defined("one", "orders"), orders=1)
    moved = set_view(store, "big", defined("one", "orders"), orders=2)
    edited = set_view(store, "big", defined("two", "orders"), orders=2)
    with store.catalog.snapshot() as connection:
        found = {
            seq: (cut.view.definition.sql, cut.view.changed_seq, cut.reads)
            for seq in range(6)
            if (cut := view_cut(connection, "big", as_of=seq)) is not None
        }
        states = {seq: [v.definition.sql for v in view_states(connection, as_of=seq)] for seq in range(6)}
        now = view_cut(connection, "big")
        events = view_events(connection, ["big"])
    assert found == {
        2: ("one", first, {"orders": 1}),
        3: ("one", moved, {"orders": 2}),
        4: ("two", edited, {"orders": 2}),
        5: ("two", edited, {"orders": 2}),
    }
    assert states == {0: [], 1: [], 2: ["one"], 3: ["one"], 4: ["two"], 5: ["two"]}
    assert now is not None and now.view.definition.columns == (("z", "long"), ("a", "real"))
    assert [(event["seq"], event["kind"]) for event in events] == [(first, "created"), (edited, "change_view")]


def test_the_version_of_a_view_is_the_commit_that_last_moved_it(store: Store) -> None:
    create_table(store)
    seq = set_view(store, "big", defined("one", "orders"), orders=1)
    with store.catalog.snapshot() as connection:
        assert table_versions(connection) == {"orders": 1, "big": seq}
        assert last_view_change(connection) == seq
        assert catalog_view(connection).views == {"big"}


def test_views_come_after_the_views_that_they_read(store: Store) -> None:
    set_view(store, "c", defined("select 1 as x"))
    set_view(store, "b", defined("from c", "c"), c=1)
    set_view(store, "a", defined("from b", "b"), b=2)
    with store.catalog.snapshot() as connection:
        assert [view.name for view in view_states(connection)] == ["c", "b", "a"]


def test_a_table_takes_the_place_of_a_view(store: Store) -> None:
    set_view(store, "orders", defined("one"))
    create_table(store)
    with store.catalog.snapshot() as connection:
        assert (view_cut(connection, "orders"), view_states(connection)) == (None, [])
        assert table_versions(connection) == {"orders": 2}


def test_views_are_rebuilt_from_the_log(place: Place, store: Store) -> None:
    create_table(store)
    set_view(store, "gone", defined("one", "orders"), orders=1)
    set_view(store, "big", defined("one", "orders", "rates"), orders=1, rates=None)
    set_view(store, "big", defined("two", "orders"), orders=2)
    create_table(store, "gone")
    before = dump(store.catalog)
    assert [len(before[name]) for name in ("view_entry", "view_definition", "view_cut")] == [1, 2, 2]
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    assert dump(store.catalog) == before

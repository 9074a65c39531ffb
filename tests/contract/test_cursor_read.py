"""The end that a read reported is the cursor: stored by the commit of its slice, and by nothing else. On both databases."""

from __future__ import annotations

from typing import Any

import pytest

from contract.stores import ACTOR, PROJECT, Place, begin_run, claim, create_table, done
from forked import exit_code
from headwater.base.ids import RunId
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.lookup import catalog_view
from headwater.catalog.rebuild import rebuild_catalog
from headwater.catalog.slice_jobs import SliceLease


def claimed(store: Store, run_id: RunId) -> SliceLease:
    lease = claim(store.catalog, run_id, holder="w")
    assert lease is not None
    return lease


def land(store: Store, lease: SliceLease, *reported: Any) -> None:
    store.commit(r.Commit(changes=done(lease, cursor=reported), requires=(lease.fence,), actor=ACTOR))


def cursor(store: Store) -> Any:
    """Its value; `"none"` if there is no cursor."""
    with store.catalog.snapshot() as connection:
        found = catalog_view(connection).cursors.get((PROJECT, "orders"))
    return "none" if found is None else found.value


def test_it_replaces_the_planned_end_as_soon_as_all_slices_before_it_have_landed(place: Place) -> None:
    store = place.open()
    create_table(store)
    run_id = begin_run(store, 3)
    first, second, third = (claimed(store, run_id) for _ in range(3))
    land(store, third, {"page": "c3"})
    assert cursor(store) == "none"
    land(store, first)
    assert cursor(store) == 10
    land(store, second, None)
    assert cursor(store) == {"page": "c3"}
    store.close()
    rebuild_catalog(place.root, project=PROJECT, catalog_url=place.url)
    store = place.open()
    assert cursor(store) == {"page": "c3"}
    store.close()


def test_a_cursor_may_be_null(store: Store) -> None:
    create_table(store)
    land(store, claimed(store, begin_run(store, 1)), None)
    assert cursor(store) is None


def land_in(place: Place, lease: SliceLease) -> None:
    land(place.open(), lease, "token")


@pytest.mark.parametrize(
    ("point", "value"), [("commit.before", "none"), ("commit.inside", "none"), ("commit.after", "token")]
)
def test_a_crash_before_the_commit_does_not_advance_it(place: Place, point: str, value: str) -> None:
    store = place.open()
    create_table(store)
    lease = claimed(store, begin_run(store, 1))
    store.close()
    assert exit_code(land_in, place, lease, crash_at=point) == -9
    store = place.open()
    assert cursor(store) == value
    store.close()

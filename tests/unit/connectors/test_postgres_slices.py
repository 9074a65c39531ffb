"""What is read when: first loads, later reads, late commits, resumed loads, and nothing at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.connectors.postgres.slices import Incremental, Range, between, inner_cuts
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.protocol import Slice, SliceGone, TableAsk
from postgres_landing import Landing, rows_of, source_of

UPSERT = TableAsk("t", "t", "upsert", primary_key=("id",), incremental="updated_at")
APPEND = TableAsk("t", "t", "append", primary_key=(), incremental="id")
REPLACE = TableAsk("t", "t", "replace")
WHOLE_UPSERT = TableAsk("t", "t", "upsert", primary_key=("id",))


@pytest.fixture
def db(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of the source's own application, in a database with a table `t` of 1000 rows, one a minute."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create table t (id bigint primary key, name text, updated_at timestamptz)")
        connection.execute(
            "insert into t select g, 'name ' || g, timestamptz '2024-01-01 00:00+00' + g * interval '1 minute' "
            "from generate_series(1, 1000) g"
        )
        connection.execute("create index on t (updated_at); analyze t")
        yield connection


def table_of(db: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return db.execute("select id, name, updated_at from t order by id").fetchall()


def landed(landing: Landing) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"], row["updated_at"]) for row in landing.rows)


def minute(number: int) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=number)


@pytest.mark.parametrize("ask", [UPSERT, APPEND, REPLACE, WHOLE_UPSERT], ids=["times", "ids", "replace", "whole"])
def test_a_first_load_reads_every_row_once_and_a_second_run_plans_nothing(
    postgres_url: str, db: psycopg.Connection[Any], ask: TableAsk
) -> None:
    landing = Landing(postgres_url, ask, {"range_rows": 240})
    assert len(landing.run().slices) >= 4
    assert landed(landing) == table_of(db)
    assert sum(len(rows) for rows in landing.log) == 1000
    assert landing.run().slices == ()


def test_a_first_load_takes_one_slice_of_several_ranges_for_a_middling_table(
    postgres_url: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.base.limits.PG_PARTITION_ROWS", 100)
    landing = Landing(postgres_url, UPSERT, {"range_rows": 400})
    assert [len(slice_.spec["ranges"]) for slice_ in landing.run().slices] == [4, 4, 2]
    assert landed(landing) == table_of(db)


def test_slices_estimate_their_rows_and_bytes(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    with closing(source_of(postgres_url)) as source:
        (slice_,) = source.slices(UPSERT, None, source.bound(UPSERT), {}).slices
    assert slice_.estimated_rows == 1000
    assert slice_.estimated_bytes is not None
    assert slice_.estimated_bytes > 10_000


@pytest.mark.parametrize("ask", [UPSERT, REPLACE], ids=["times", "replace"])
def test_every_range_of_a_load_shows_the_moment_the_run_began(
    postgres_url: str, db: psycopg.Connection[Any], ask: TableAsk
) -> None:
    before = table_of(db)
    landing = Landing(postgres_url, ask, {"range_rows": 240})

    def write(done: int) -> None:
        db.execute("insert into t values (%s, 'new', now()), (%s, 'new', now())", (-done, 2000 + done))
        db.execute("update t set name = 'changed', updated_at = now() where id = %s", (done * 100,))
        db.execute("delete from t where id = %s", (1001 - done,))

    landing.run(between=write)
    assert landed(landing) == before
    landing.rows = [] if ask is REPLACE else landing.rows
    landing.run()
    held = {row[0]: row for row in landed(landing)}
    assert {row[0]: row for row in table_of(db)}.items() <= held.items()


def test_nothing_is_lost_or_doubled_while_writers_insert_and_update_all_the_time(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    stop = threading.Event()

    def write(first: int) -> None:
        with psycopg.connect(postgres_url) as connection:
            number = first
            while not stop.is_set():
                number += 2
                connection.execute("insert into t values (%s, 'w', now())", (number,))
                connection.execute("update t set name = name || '!', updated_at = now() where id = %s", (number % 999,))
                connection.commit()

    writers = [threading.Thread(target=write, args=(first,)) for first in (10_000, 10_001)]
    for writer in writers:
        writer.start()
    landing = Landing(postgres_url, UPSERT, {"range_rows": 400})
    try:
        for _ in range(3):
            landing.run()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    landing.run()
    assert landed(landing) == table_of(db)
    assert landing.run().slices == ()


@pytest.mark.parametrize("ask", [UPSERT, APPEND], ids=["times", "ids"])
def test_a_transaction_that_commits_after_the_bound_is_found_by_the_overlap(
    postgres_url: str, db: psycopg.Connection[Any], ask: TableAsk
) -> None:
    landing = Landing(postgres_url, ask)
    with psycopg.connect(postgres_url) as slow:
        slow.execute("insert into t values (1001, 'late', now())")
        db.execute("insert into t values (1002, 'early', clock_timestamp())")
        landing.run()
        assert landing.column("id")[-1] == 1002
        assert len(landing.rows) == 1001
    landing.run()
    assert landed(landing) == table_of(db)
    assert [row["id"] for row in landing.log[-1]] == [1001]
    assert landing.run().slices == ()


def test_a_later_read_lands_only_what_is_new_or_changed(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    landing = Landing(postgres_url, UPSERT, {"overlap": "30m"})
    landing.run()
    db.execute("insert into t values (1001, 'new', %s)", (minute(1001),))
    db.execute("update t set name = 'changed' where id = 995")
    (slice_,) = landing.run().slices
    assert slice_.spec["filter_column"] == "updated_at"
    assert slice_.spec["filter_from"] == int(minute(970).timestamp()) * 10**9
    assert sorted(row["id"] for row in landing.log[-1]) == [995, 1001]
    assert landed(landing) == table_of(db)


def test_a_deleted_row_in_the_overlap_is_read_for_and_lands_nothing(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    landing = Landing(postgres_url, UPSERT)
    landing.run()
    db.execute("delete from t where id = 998")
    assert len(landing.run().slices) == 1
    assert landing.log[-1] == []
    assert landing.run().slices == ()


def test_a_change_outside_the_overlap_that_keeps_its_time_is_not_looked_for(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    landing = Landing(postgres_url, UPSERT, {"overlap": "10m"})
    landing.run()
    db.execute("update t set name = 'unseen' where id = 5")
    assert landing.run().slices == ()


def test_a_row_of_the_future_hides_nothing_that_is_written_before_it(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("insert into t values (5000, 'far', '2200-01-01'), (5001, 'farther', '2200-01-02')")
    landing = Landing(postgres_url, UPSERT)
    landing.run()
    assert landing.run().slices == ()
    db.execute("insert into t values (1001, 'now', now())")
    landing.run()
    assert [row["id"] for row in landing.log[-1]] == [1001]
    assert landed(landing) == table_of(db)


def test_a_long_absence_is_read_in_several_slices_that_can_be_left_half_way(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    landing = Landing(postgres_url, APPEND, {"range_rows": 300, "overlap": 50})
    landing.run()
    db.execute("insert into t select g, 'later', now() from generate_series(5001, 15000, 5) g; analyze t")
    with closing(landing.source()) as source:
        slices = landing.plan(source).slices
        assert len(slices) > 5
        landing.land_slice(source, slices[0])
        landing.land_slice(source, slices[1])
        reached = landing.cursor
        landing.land_slice(source, slices[3])  # another worker was faster: the cursor cannot know of it
        landing.cursor = reached
    landing.run()
    assert landed(landing) == table_of(db)
    assert landing.run().slices == ()


def keys_told(landing: Landing, source: PostgresSource, slices: Sequence[Slice]) -> set[int | None]:
    return {source.read(landing.ask, slice_).source_keys for slice_ in slices}


def test_a_whole_read_tells_how_many_keys_the_source_has_at_its_moment(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    landing = Landing(postgres_url, WHOLE_UPSERT, {"range_rows": 300})
    by_name = Landing(postgres_url, replace(WHOLE_UPSERT, primary_key=("name",)))
    db.execute("update t set name = 'same' where id <= 10")
    with closing(landing.source()) as first, closing(by_name.source()) as other:
        slices = landing.plan(first).slices
        db.execute("delete from t where id <= 5")
        assert len(slices) > 1
        assert keys_told(landing, first, slices) == {1000}
        assert keys_told(by_name, other, by_name.plan(other).slices) == {991}, "rows with the same key count once"
    with closing(landing.source()) as second:
        assert keys_told(landing, second, slices) == {None}, "another moment of the source"
        assert keys_told(landing, second, landing.plan(second).slices) == {995}
    for ask in (UPSERT, APPEND, REPLACE):
        one = Landing(postgres_url, ask)
        with closing(one.source()) as source:
            assert keys_told(one, source, one.plan(source).slices) == {None}


@pytest.mark.parametrize("ask", [UPSERT, APPEND], ids=["times", "ids"])
def test_another_process_goes_on_with_a_load_without_the_snapshot(
    postgres_url: str, db: psycopg.Connection[Any], ask: TableAsk
) -> None:
    landing = Landing(postgres_url, ask, {"range_rows": 300})
    with closing(landing.source()) as first:
        slices = landing.plan(first).slices
        for slice_ in slices[:2]:
            landing.land_slice(first, slice_)
    if ask is UPSERT:
        db.execute("update t set name = 'changed', updated_at = now() where id in (10, 990)")
    db.execute("insert into t values (1001, 'new', now())")
    with closing(landing.source()) as second:
        for slice_ in slices[2:]:
            landing.land_slice(second, slice_)
    assert len(landing.rows) >= 1000
    landing.run()
    assert landed(landing) == table_of(db)
    assert landing.run().slices == ()


def test_an_abandoned_load_is_planned_from_where_it_stood_and_up_to_date(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    landing = Landing(postgres_url, UPSERT, {"range_rows": 300})
    with closing(landing.source()) as first:
        for slice_ in landing.plan(first).slices[:3]:
            landing.land_slice(first, slice_)
    read_before = len(landing.rows)
    db.execute("update t set name = 'changed', updated_at = now() where id in (10, 990)")
    db.execute("insert into t values (0, 'small', now()), (1001, 'large', now())")
    landing.run()
    assert landed(landing) == table_of(db)
    assert sum(len(rows) for rows in landing.log[3:]) < 1002 - read_before + 20
    assert landing.run().slices == ()


@pytest.mark.parametrize(("key", "mode"), [("int primary key", "replace"), ("text", "replace"), ("text", "upsert")])
def test_a_load_that_needs_one_moment_is_planned_again_when_the_moment_has_passed(
    postgres_url: str, db: psycopg.Connection[Any], key: str, mode: str
) -> None:
    db.execute(f"create table u (id {key}, name text)".encode())
    db.execute("insert into u select g, repeat('x', 100) from generate_series(1, 1000) g")
    ask = TableAsk("u", "u", mode, primary_key=("id",) if mode == "upsert" else ())
    landing = Landing(postgres_url, ask, {"range_rows": 300})
    with closing(landing.source()) as first:
        slices = landing.plan(first).slices
        assert len(slices) > 3
        landing.land_slice(first, slices[0])
    with closing(landing.source()) as second:
        with pytest.raises(SliceGone):
            second.read(ask, slices[1])
        landing.rows.clear()
        for slice_ in landing.plan(second).slices:
            landing.land_slice(second, slice_)
    assert len(landing.rows) == 1000
    assert len({row["id"] for row in landing.rows}) == 1000


def test_a_table_without_a_key_is_cut_by_blocks(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create table u as select * from t; analyze u")
    ask = TableAsk("u", "u", "replace")
    landing = Landing(postgres_url, ask, {"range_rows": 240})
    plan = landing.run()
    assert {range_["by"] for slice_ in plan.slices for range_ in slice_.spec["ranges"]} == {"ctid"}
    assert landed(landing) == table_of(db)
    assert landing.run().slices == ()


def test_a_uuid_key_is_cut_by_the_servers_statistics(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create table u (id uuid primary key, updated_at timestamptz not null)")
    db.execute("insert into u select gen_random_uuid(), now() from generate_series(1, 1000) g; analyze u")
    landing = Landing(
        postgres_url, TableAsk("u", "u", "upsert", ("id",), incremental="updated_at"), {"range_rows": 240}
    )
    sizes = [len(rows) for slice_ in [landing.run()] for rows in landing.log]
    assert len(sizes) >= 4
    assert max(sizes) < 500
    assert sum(sizes) == 1000


def test_partitioned_tables_views_and_materialized_views_are_tables(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("create table p (id int, updated_at timestamptz, primary key (id)) partition by range (id)")
    db.execute("create table p1 partition of p for values from (0) to (500)")
    db.execute("create table p2 partition of p for values from (500) to (2000)")
    db.execute("insert into p select id, updated_at from t; analyze p")
    db.execute("create view v as select * from p")
    db.execute("create materialized view m as select * from p")
    for name in ("p", "v", "m"):
        landing = Landing(
            postgres_url, TableAsk(name, name, "upsert", ("id",), incremental="updated_at"), {"range_rows": 300}
        )
        landing.run()
        assert landing.column("id") == list(range(1, 1001)), name
        assert landing.run().slices == (), name
    whole = Landing(postgres_url, TableAsk("v", "v", "replace"))
    whole.run()
    assert whole.run().slices == ()
    db.execute("update p set id = 1500 where id = 7")
    assert len(whole.run().slices) == 1


def test_an_empty_table_lands_once_and_then_its_rows(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("truncate t")
    landing = Landing(postgres_url, UPSERT)
    assert len(landing.run().slices) == 1
    assert landing.rows == []
    assert landing.run().slices == ()
    db.execute("insert into t values (1, 'first', now())")
    landing.run()
    assert landed(landing) == table_of(db)
    assert landing.run().slices == ()


def test_rows_without_a_time_are_in_the_first_load_and_in_a_warning(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    assert Landing(postgres_url, UPSERT).run().warnings == ()
    db.execute("insert into t values (1001, 'no time', null)")
    landing = Landing(postgres_url, UPSERT)
    (warning,) = landing.run().warnings
    assert "rows without `updated_at`" in warning
    assert len(landing.rows) == 1001
    assert landing.run().slices == ()


def test_dates_and_times_without_a_zone_are_cursors_too(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create table u (id int primary key, day date not null, at timestamp not null)")
    db.execute(
        "insert into u select g, date '2024-01-01' + g, timestamp '2024-01-01' + g * interval '1 day' from generate_series(1, 20) g"
    )
    for column in ("day", "at"):
        landing = Landing(postgres_url, TableAsk("u", "u", "upsert", ("id",), incremental=column))
        landing.run()
        assert landing.run().slices == ()
        assert landing.cursor is not None
        db.execute("insert into u values (100, '2024-01-20', '2024-01-20 23:55')")
        landing.run()
        assert [row["id"] for row in landing.log[-1]] == [100]
        db.execute("delete from u where id = 100")
    assert date(2024, 1, 20) in [row["day"] for row in landing.rows]


def test_a_table_that_was_emptied_and_filled_again_is_read_from_the_start(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("update t set id = id + 1000000")
    landing = Landing(postgres_url, APPEND)
    landing.run()
    db.execute("truncate t")
    db.execute("insert into t select g, 'again', now() from generate_series(1, 5000) g")
    plan = landing.run()
    assert "restored or emptied" in plan.warnings[0]
    assert len(landing.rows) == 6000


def test_another_incremental_column_reads_an_upsert_again_and_stops_an_append(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("alter table t add other bigint generated always as identity unique")
    landing = Landing(postgres_url, UPSERT)
    landing.run()
    landing.ask = TableAsk("t", "t", "upsert", ("id",), incremental="other")
    plan = landing.run()
    assert "was `updated_at`" in plan.warnings[0]
    assert landing.log[-1] == []
    landing.ask = APPEND
    with pytest.raises(HeadwaterError) as caught:
        landing.run()
    assert caught.value.code == "HW-C05"


def test_a_transaction_open_for_longer_than_the_overlap_is_warned_of(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(postgres_url) as slow:
        slow.execute("update t set name = 'x' where id = 1")
        db.execute("select pg_sleep(1.1)")
        landing = Landing(postgres_url, UPSERT, {"overlap": "1s"})
        (warning,) = landing.run().warnings
    assert "open for longer than the overlap" in warning


@pytest.mark.parametrize(
    "change",
    [
        "alter table t drop column name",
        "alter table t alter column name type varchar(40) using left(name, 40)",
        "truncate t",
        "alter table t rename to t_old",
        "drop table t",
        "drop table t; create table t (id bigint primary key, name text, updated_at timestamptz)",
    ],
)
def test_a_table_that_changes_between_plan_and_read_is_never_read_as_empty_or_otherwise(
    postgres_url: str, db: psycopg.Connection[Any], change: str
) -> None:
    """The read is made before the change and done after it, as in an executor; the owner need not wait for it."""
    with closing(source_of(postgres_url, range_rows=200)) as source:
        slices = source.slices(UPSERT, None, source.bound(UPSERT), {}).slices
        read = source.read(UPSERT, slices[0])
        assert rows_of(read, UPSERT)
        db.execute(change.encode())
        with pytest.raises(SliceGone):
            rows_of(read, UPSERT)


def test_a_new_column_is_read_with_the_next_run(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    landing = Landing(postgres_url, UPSERT)
    landing.run()
    db.execute("alter table t add extra int default 7")
    (slice_,) = landing.run().slices
    assert slice_.spec["columns"]
    assert landing.log[-1][0]["extra"] == 7
    assert landing.run().slices == ()


def test_a_slice_planned_before_a_new_column_is_gone_for_another_process(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    with closing(source_of(postgres_url)) as first:
        (slice_,) = first.slices(UPSERT, None, first.bound(UPSERT), {}).slices
    db.execute("alter table t add extra int")
    with closing(source_of(postgres_url)) as second, pytest.raises(SliceGone):
        second.read(UPSERT, slice_)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=30, unique=True).map(sorted),
    st.integers(1, 100),
)
def test_cuts_of_integers_are_in_order_and_inside(bounds: list[int], parts: int) -> None:
    cuts = [int(cut) for cut in inner_cuts([str(bound) for bound in bounds], parts, integers=True)]
    assert cuts == sorted(cuts)
    assert all(bounds[0] <= cut <= bounds[-1] for cut in cuts)
    assert len(cuts) == parts - 1


@given(st.lists(st.integers(), unique=True).map(sorted))
def test_ranges_cover_every_value_once(cuts: list[int]) -> None:
    ranges = between(Range("key", "id", "int8"), [str(cut) for cut in cuts])
    assert ranges[0].low is None
    assert ranges[-1].high is None
    assert [range_.high for range_ in ranges[:-1]] == [range_.low for range_ in ranges[1:]]
    assert len(ranges) == len(cuts) + 1


@pytest.mark.parametrize(
    ("base", "low", "expected"),
    [
        ("int4", "-5", -5),
        ("timestamptz", "2024-01-01 00:00:00.5+00", 1_704_067_200_500_000_000),
        ("timestamp", "2024-01-01 00:00:00", 1_704_067_200_000_000_000),
        ("date", "2024-01-01", "2024-01-01"),
        ("timestamptz", "0044-03-15 00:00:00+00 BC", None),
        ("timestamptz", None, None),
    ],
)
def test_a_filter_bound_is_told_as_the_files_of_the_store_have_it(base: str, low: str | None, expected: object) -> None:
    assert Incremental("c", base, 600, 1000).as_filter(low) == expected

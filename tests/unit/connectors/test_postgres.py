"""The source as a whole: what it accepts, what it offers, who it says it is, and how it fails."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG, STRING, Type, parse_type
from headwater.connectors.postgres.config import check_config, parse_config
from headwater.connectors.postgres.read import ReadPostgres
from headwater.connectors.postgres.server_session import translated
from headwater.connectors.postgres.source import open_source
from headwater.connectors.protocol import ArrowRead, SliceGone, TableAsk, TransientError, UnknownColumns
from headwater.connectors.registry import CONNECTORS
from postgres_landing import Landing, rows_of, schema_of, source_of
from postgres_server import PostgresServer

ASK = TableAsk("orders", "orders", "upsert", incremental="updated_at")
ROWS = 200


@pytest.fixture
def db(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, note text, updated_at timestamptz not null)")
        connection.execute("create table customers (a int, b text, c float8[], primary key (b, a))")
        connection.execute("create table stations (code text, name text)")
        add_orders(connection, 1, ROWS)
        yield connection


def add_orders(db: psycopg.Connection[Any], first: int, last: int, *, size: int = 200) -> None:
    """Orders of yesterday, each with a note of a size."""
    db.execute(
        "insert into orders select g, repeat('x', %s::int), now() - interval '1 day' from generate_series(%s::int, %s::int) g",
        (size, first, last),
    )


@contextmanager
def reading(url: str, **config: object) -> Iterator[ArrowRead]:
    """The read of the first slice of ASK, while its source is open."""
    with closing(source_of(url, **config)) as source:
        yield source.read(ASK, source.slices(ASK, None, source.bound(ASK), {}).slices[0])


@pytest.mark.parametrize(
    ("config", "key", "says"),
    [
        ({}, "url", "needs a `url`"),
        ({"url": 5}, "url", "is a text"),
        ({"url": "mysql://h/d"}, "url", "does not begin with `postgresql://`"),
        ({"url": "postgresql://h:x/d"}, "url", "is not a URL"),
        ({"url": "postgresql://u:hunter2@h/d"}, "url", "holds a password"),
        ({"url": "postgresql://u@h/d?password=hunter2"}, "url", "holds a password"),
        ({"url": "env:U", "shema": "x"}, "shema", "has no key `shema`"),
        ({"url": "env:U", "schema": ""}, "schema", "name of a schema"),
        ({"url": "env:U", "overlap": "soon"}, "overlap", "a duration or a number of ids"),
        ({"url": "env:U", "overlap": -1}, "overlap", "a duration or a number of ids"),
        ({"url": "env:U", "overlap": True}, "overlap", "a duration or a number of ids"),
        ({"url": "env:U", "range_rows": 0}, "range_rows", "at least 1"),
        ({"url": "env:U", "fetch_rows": "many"}, "fetch_rows", "at least 1"),
    ],
)
def test_a_wrong_config_is_told_with_its_key_and_without_its_secret(
    config: dict[str, object], key: str, says: str
) -> None:
    ((found_key, message, hint),) = check_config(config)
    assert found_key == key
    assert says in message
    assert "hunter2" not in message + hint
    with pytest.raises(HeadwaterError, match="HW-C01"):
        open_source(config, root=Path(), resolve=str, pipeline="p")


def test_a_misspelt_key_gets_the_nearest_one() -> None:
    ((_, _, hint),) = check_config({"url": "env:U", "shema": "x"})
    assert hint == "did you mean `schema`?"


def test_an_overlap_is_a_duration_for_times_or_a_number_for_ids() -> None:
    assert parse_config({"url": "env:U"}).overlap_seconds == 600
    assert parse_config({"url": "env:U"}).overlap_ids == 1000
    assert parse_config({"url": "env:U", "overlap": "1h30m"}).overlap_seconds == 5400
    assert parse_config({"url": "env:U", "overlap": "0s"}).overlap_seconds == 0
    assert parse_config({"url": "env:U", "overlap": 5}).overlap_ids == 5


def test_the_registry_opens_it(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    info = CONNECTORS["postgres"]
    assert info.check_config({"url": "env:PG"}) == []
    with closing(info.open({"url": postgres_url}, root=Path(), resolve=str, pipeline="p")) as source:
        assert (source.connector, source.version) == (info.name, info.version)
        assert source.identity(ASK)


def test_a_url_that_is_no_url_is_refused_without_being_shown() -> None:
    with pytest.raises(HeadwaterError) as caught:
        open_source({"url": "env:PG"}, root=Path(), resolve=lambda _: "hunter2", pipeline="p")
    assert "hunter2" not in caught.value.render()


def test_discover_tells_tables_columns_and_keys(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    with closing(source_of(postgres_url)) as source:
        found = {table.name: table.observed for table in source.discover()}
    assert list(found) == ["customers", "orders", "stations"]
    customers = found["customers"]
    assert customers is not None
    assert customers.complete
    assert customers.primary_key == ("b", "a")
    assert {name: str(type_) for name, type_ in customers.columns.items()} == {
        "a": "int",
        "b": "string",
        "c": "list<real>",
    }


def test_preview_tells_the_columns_without_reading(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    with closing(source_of(postgres_url)) as source:
        (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
        observed = source.preview(ASK, slice_)
    assert list(observed.columns) == ["id", "note", "updated_at"]
    assert observed.primary_key == ("id",)


def test_tables_are_looked_for_in_the_configured_schema(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute('create schema "Sales"; create table "Sales".orders (id int primary key, updated_at date)')
    with closing(source_of(postgres_url, schema="Sales")) as source:
        assert [table.name for table in source.discover()] == ["orders"]
        assert source.bound(ASK)["at"] is None
    with closing(source_of(postgres_url, schema="sale")) as source, pytest.raises(HeadwaterError) as caught:
        source.identity(ASK)
    assert caught.value.message == "the database has no schema `sale`"


@pytest.mark.parametrize(
    ("ask", "says", "hint"),
    [
        (TableAsk("t", "order", "replace"), "no table `order`", "did you mean `orders`?"),
        (TableAsk("t", "orders", "upsert", ("idd",)), "primary key `idd`", "did you mean `id`?"),
        (TableAsk("t", "orders", "upsert", incremental="update_at"), "`update_at`", "did you mean `updated_at`?"),
        (TableAsk("t", "orders", "upsert", incremental="note"), "cannot tell what is new", "updated_at"),
        (TableAsk("t", "orders", "append", incremental="updated_at"), "would be there twice", "upsert"),
        (TableAsk("t", "customers", "append", incremental="a"), "not unique", "upsert"),
        (TableAsk("t", "orders", "append"), "appended as a whole by every run", "incremental"),
        (TableAsk("t", "orders", "replace", incremental="id"), "read whole", "upsert"),
        (TableAsk("t", "stations", "upsert"), "no primary key", "primary_key"),
        (TableAsk("t", "orders", "replace", declared={"note": LONG}), "cannot be read as `long`", "string"),
        (
            TableAsk("t", "orders", "upsert", incremental="id", declared={"id": STRING}),
            "cannot be declared `string`",
            "columns",
        ),
    ],
)
def test_what_cannot_be_done_rightly_is_refused_with_what_can(
    postgres_url: str, db: psycopg.Connection[Any], ask: TableAsk, says: str, hint: str
) -> None:
    with closing(source_of(postgres_url)) as source, pytest.raises(HeadwaterError) as caught:
        source.bound(ask)
    assert caught.value.code == "HW-C01"
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_a_reserved_column_name_is_refused(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create table r (_run_id int)")
    with closing(source_of(postgres_url)) as source, pytest.raises(HeadwaterError, match="keeps for itself"):
        source.bound(TableAsk("r", "r", "replace"))


def test_a_declared_column_that_is_not_there_is_a_warning(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    ask = TableAsk("t", "orders", "replace", declared={"gone": LONG})
    with closing(source_of(postgres_url)) as source:
        plan = source.slices(ask, None, source.bound(ask), {})
    assert plan.warnings == ("table `orders` has no column `gone`: it stays null",)


def test_identity_survives_a_rename_and_a_restart_but_not_a_recreated_table(
    postgres_server: PostgresServer, postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    def identity(table: str = "orders") -> str:
        with closing(source_of(postgres_url)) as source:
            return source.identity(TableAsk("orders", table, "replace"))

    first = identity()
    db.execute("alter table orders rename to moved")
    assert identity("moved") == first
    db.execute("create table orders as select * from moved")
    assert identity() != first
    postgres_server.restart()
    assert identity("moved") == first


def test_a_copy_of_a_database_is_another_source(
    postgres_server: PostgresServer, postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.close()
    copy = postgres_server.url("copy_of_orders")
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(f"create database copy_of_orders template {postgres_url.rsplit('/', 1)[1]}".encode())
    try:
        with closing(source_of(postgres_url)) as one, closing(source_of(copy)) as other:
            assert one.identity(ASK) != other.identity(ASK)
    finally:
        postgres_server.drop_database(copy)


def test_a_wrong_password_is_a_config_error_that_shows_no_secret(
    postgres_server: PostgresServer, postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("drop role if exists pw_reader; create role pw_reader login password 'right'")
    for password, fails in (("hunter2", True), ("right", False)):
        url = postgres_url.replace("postgres@", f"pw_reader:{password}@")
        db.execute("grant select on orders to pw_reader")
        with closing(source_of(url)) as source:
            if not fails:
                assert source.identity(ASK)
                continue
            with pytest.raises(HeadwaterError) as caught:
                source.identity(ASK)
            assert caught.value.code == "HW-C01"
            assert "pw_reader@127.0.0.1" in caught.value.message
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    db.execute("drop owned by pw_reader; drop role pw_reader")


def test_a_read_shows_no_secret_and_travels(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    with reading(postgres_url.replace("postgres@", "postgres:hunter2@")) as read:
        assert "hunter2" not in repr(read)
        again = pickle.loads(pickle.dumps(read.read))
        assert isinstance(again, ReadPostgres)
        assert sum(batch.num_rows for batch in again(read.partitions[0], schema_of(read, ASK))) == ROWS


def test_permission_denied_is_final(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("drop role if exists stranger; create role stranger login")
    url = postgres_url.replace("postgres@", "stranger@")
    with closing(source_of(url)) as source:
        assert source.discover() == ()
        with pytest.raises(HeadwaterError) as caught:
            source.bound(ASK)
    assert caught.value.code == "HW-C02"
    assert "grant" in caught.value.hint
    db.execute("drop role stranger")


@pytest.mark.parametrize("url", ["postgresql://postgres@127.0.0.1:1/x", "postgresql://postgres@host.invalid/x"])
def test_a_server_that_does_not_answer_is_a_passing_trouble(url: str) -> None:
    with closing(source_of(url)) as source, pytest.raises(TransientError):
        source.identity(ASK)


def test_a_database_that_does_not_exist_is_a_config_error(postgres_url: str) -> None:
    with closing(source_of(postgres_url + "x")) as source, pytest.raises(HeadwaterError, match="HW-C01"):
        source.identity(ASK)


def test_a_connection_that_breaks_in_the_middle_is_a_passing_trouble(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    add_orders(db, ROWS + 1, 6_000, size=9_000)
    db.execute("analyze orders")
    copying = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'COPY%' and datname = current_database()"
    with reading(postgres_url) as read:
        batches = read.read(read.partitions[0], schema_of(read, ASK))
        next(batches)
        assert db.execute(copying.encode()).fetchall() == [(True,)]
        with pytest.raises(TransientError):
            list(batches)


def test_a_source_goes_on_after_its_server_was_restarted(
    postgres_server: PostgresServer, postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    add_orders(db, ROWS + 1, 2_000)
    ask = TableAsk("orders", "orders", "upsert", ("id",), incremental="updated_at")
    landing = Landing(postgres_url, ask, {"range_rows": 500})
    with closing(landing.source()) as source:
        slices = landing.plan(source).slices
        landing.land_slice(source, slices[0])
        lost = source.read(landing.ask, slices[1])
        postgres_server.restart()
        with pytest.raises(SliceGone):
            rows_of(lost, landing.ask)
        with pytest.raises(TransientError):
            source.read(landing.ask, slices[1])
        for slice_ in slices[1:]:
            landing.land_slice(source, slice_)
    assert landing.column("id") == list(range(1, 2_001))


def test_a_statement_timeout_is_named(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create view slow as select 1 as id, pg_sleep(5)::text as nap")
    url = postgres_url + "?options=-c%20statement_timeout%3D300"
    with closing(source_of(url)) as source, pytest.raises(HeadwaterError) as caught:
        source.bound(TableAsk("slow", "slow", "replace"))
    assert caught.value.code == "HW-C02"
    assert "statement_timeout" in caught.value.hint


def test_a_server_message_is_told_without_the_values_it_quotes() -> None:
    told = translated(
        OSError('[libpq] ERROR:  invalid input syntax for type integer: "4111 1111"\nCONTEXT: x'), info="host=h"
    )
    assert isinstance(told, HeadwaterError)
    assert "invalid input syntax for type integer" in told.message
    assert "4111" not in told.render()


def test_columns_that_the_schema_does_not_have_are_told_before_a_row_is_read(
    postgres_url: str, db: psycopg.Connection[Any]
) -> None:
    for columns in ({"id": "long", "note": "string"}, {"id": "long", "note": "long", "updated_at": "timestamp"}):
        schema = TableSchema()
        for name, text in columns.items():
            schema = schema.added(name, parse_type(text))
        with reading(postgres_url) as read, pytest.raises(UnknownColumns) as caught:
            next(read.read(read.partitions[0], schema))
        assert list(caught.value.observed.columns) == ["id", "note", "updated_at"]


def test_a_column_that_only_the_schema_has_is_left_out(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    with reading(postgres_url) as read:
        batch = next(read.read(read.partitions[0], schema_of(read, ASK).added("old", Type("int"))))
        assert batch.schema.names == ["id", "note", "updated_at"]


def test_batches_have_a_bounded_number_of_rows_and_bytes(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    add_orders(db, ROWS + 1, 4_000, size=15_000)
    with reading(postgres_url, fetch_rows=700) as read:
        counts = [batch.num_rows for batch in read.read(read.partitions[0], schema_of(read, ASK))]
    assert sum(counts) == 4_000
    assert max(counts) == 700
    with reading(postgres_url) as read:
        sizes = [batch.nbytes for batch in read.read(read.partitions[0], schema_of(read, ASK))]
    assert len(sizes) >= 5
    assert max(sizes) < 16 * 1024 * 1024


def test_an_abandoned_read_leaves_no_session_behind(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    add_orders(db, ROWS + 1, 20_000)
    with closing(source_of(postgres_url, fetch_rows=100)) as source:
        (slice_,) = source.slices(ASK, None, source.bound(ASK), {}).slices
        read = source.read(ASK, slice_)
        batches = read.read(read.partitions[0], schema_of(read, ASK))
        next(batches)
        batches.close()  # type: ignore[attr-defined]  # a generator
    left = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    for _ in range(200):
        if db.execute(left).fetchone() == (0,):
            return
        db.execute("select pg_sleep(0.05)")
    pytest.fail("a session is still there")


def test_tables_of_one_run_are_seen_at_one_moment(postgres_url: str, db: psycopg.Connection[Any]) -> None:
    first, second = TableAsk("orders", "orders", "replace"), TableAsk("stations", "stations", "replace")
    with closing(source_of(postgres_url)) as source:
        source.bound(first)
        db.execute("insert into stations values ('a', 'b')")
        (slice_,) = source.slices(second, None, source.bound(second), {}).slices
        assert rows_of(source.read(second, slice_), second) == []
        (slice_,) = source.slices(second, None, source.bound(second), {}).slices
        assert rows_of(source.read(second, slice_), second) == [{"code": "a", "name": "b"}]

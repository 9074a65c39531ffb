"""From a real PostgreSQL to answers, on real Spark: ranges, increments, late commits, and no word of the password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from postgres_server import PostgresServer
from spark.scenario import Answer, Project, check_store, tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "c0rrect-h0rse-battery"
MANIFEST = """
[[pipeline]]
id = "shop"
source = {{ connector = "postgres", config = {{ url = "env:SHOP_URL", range_rows = 100, overlap = "1h" }} }}
secrets = ["SHOP_URL"]
[[pipeline.tables]]
name = "orders"
{settings}
"""
INCREMENTAL = MANIFEST.format(settings='incremental = "updated_at"')
REPLACE = MANIFEST.format(settings='mode = "replace"')
ORDERS = """
create table orders (
  id bigint primary key, amount numeric(12,2), token uuid, body jsonb, tags text[], updated_at timestamptz not null
);
insert into orders
  select n, n * 1.10, gen_random_uuid(), jsonb_build_object('n', n), array['a', null], '2026-01-01T00:00:00Z'::timestamptz
    + n * interval '1 minute' from generate_series(1, 350) n;
"""


class Shop(Project):
    """A project that reads one database as a role with a password; remembers all that was ever said."""

    def __init__(self, root: Path, url: str):
        super().__init__(root)
        self.url, self.said = url, ""

    def sql(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text)

    def command(self, *arguments: str) -> Answer:
        answer = super().command(*arguments)
        self.said += answer.out + answer.err
        return answer

    def apply(self) -> dict[str, Any]:
        answer = self.command("apply", "--json")
        assert answer.exit == 0, answer.out + answer.err
        (result,) = answer.json()["pipelines"]
        return dict(result)


@pytest.fixture
def shop(
    tmp_path: Path, postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    project = Shop(tmp_path, postgres_url)
    project.sql(ORDERS)
    project.sql(
        f"create role pw_reader login password '{PASSWORD}'; grant select on all tables in schema public to pw_reader"
    )
    database = postgres_url.rsplit("/", 1)[1]
    monkeypatch.setenv("SHOP_URL", f"postgresql://pw_reader:{PASSWORD}@127.0.0.1:{postgres_server.port}/{database}")
    yield project
    project.sql("drop owned by pw_reader; drop role pw_reader")


def test_rows_land_once_and_later_only_what_is_new(shop: Shop, spark: SparkSession) -> None:
    shop.write_manifest(INCREMENTAL)
    first = shop.apply()
    assert (first["state"], first["rows"]) == ("success", 350)
    assert first["slices"] > 1, "the first load runs in ranges"
    totals = "SELECT count(*), count(DISTINCT id), sum(amount), count(token), sum((body->>'$.n')::INT) FROM orders"
    assert shop.query(totals) == [[350, 350, "67567.50", 350, 61425]]
    assert shop.query("SELECT tags FROM orders WHERE id = 7") == [[["a", None]]]

    before = tree(shop.root)
    assert shop.apply()["state"] == "unchanged"
    assert tree(shop.root) == before

    shop.sql("update orders set amount = 0, updated_at = '2026-02-01T00:00:00.123456Z' where id = 5")
    shop.sql("insert into orders values (351, 1, null, null, null, '2026-02-01T00:00:01Z')")
    assert shop.apply()["rows"] == 2
    assert shop.query("SELECT count(*), sum(amount) FILTER (id = 5) FROM orders") == [[351, "0.00"]]
    assert shop.query("SELECT updated_at_ns FROM meta.orders WHERE id = 5") == [[1769904000123456000]]
    check_store(shop.root, spark)


def test_rows_that_the_source_no_longer_has_are_counted(shop: Shop, spark: SparkSession) -> None:
    """Of tables that are read whole each time, with a key of the server's or one that is only declared."""
    shop.sql("create table pairs as select n % 5 as a, n / 5 as b from generate_series(1, 20) n")
    shop.sql("insert into pairs values (1, 0); grant select on pairs to pw_reader")  # one key twice
    pairs = '[[pipeline.tables]]\nname = "pairs"\nprimary_key = ["a", "b"]\n'
    shop.write_manifest(MANIFEST.format(settings=pairs))
    first = shop.apply()
    assert (first["rows"], first["not_in_source"]) == (371, {})
    shop.sql("delete from orders where id in (1, 2, 340)")
    shop.sql("update orders set amount = 0 where id = 5")
    shop.sql(
        "insert into orders values (900, 9, null, null, null, '2026-03-01T00:00:00Z'); delete from pairs where a = 1"
    )
    second = shop.apply()
    assert (second["rows"], second["not_in_source"]) == (2, {"orders": 3, "pairs": 4})
    assert shop.query("SELECT count(*) FROM orders") == [[351]]
    shop.sql("delete from pairs where a = 2; insert into orders values (1, 1, null, null, null, now())")
    said = shop.command("apply").out
    assert "shop: 2 rows of `orders` are no longer in the source; they stay until deletes are supported\n" in said
    assert "shop: 8 rows of `pairs` are no longer in the source; they stay until deletes are supported\n" in said
    assert "8 rows of `pairs` are no longer in the source" in shop.command("logs", "shop").out
    check_store(shop.root, spark)


def test_a_row_that_is_committed_late_is_not_lost(shop: Shop, spark: SparkSession) -> None:
    shop.write_manifest(INCREMENTAL)
    with psycopg.connect(shop.url) as slow:
        slow.execute("insert into orders values (900, 9, null, null, null, '2026-03-01T00:00:00Z')")
        shop.sql("insert into orders values (901, 9, null, null, null, '2026-03-01T00:30:00Z')")
        assert shop.apply()["rows"] == 351
        assert shop.query("SELECT count(*) FROM orders WHERE id = 900") == [[0]]
    assert shop.apply()["rows"] == 1, "the row behind the cursor, and not again those that are there"
    assert shop.query("SELECT count(*), count(DISTINCT id) FROM orders") == [[352, 352]]
    check_store(shop.root, spark)


def test_a_replace_table_is_what_the_source_holds_now(shop: Shop, spark: SparkSession) -> None:
    shop.write_manifest(REPLACE)
    assert shop.apply()["rows"] == 350
    shop.sql("delete from orders where id > 10; update orders set amount = 1")
    assert shop.apply()["state"] == "success"
    assert shop.query("SELECT count(*), sum(amount) FROM orders") == [[10, "10.00"]]
    check_store(shop.root, spark)


def test_the_password_is_in_no_answer_and_in_no_file(shop: Shop, spark: SparkSession) -> None:
    shop.write_manifest(INCREMENTAL)
    for command in (["validate", "--json"], ["plan", "--json"], ["apply", "--json"], ["status", "shop", "--json"]):
        assert shop.command(*command).exit == 0
    shop.sql("alter role pw_reader password 'another'")
    shop.sql("insert into orders values (999, 1, null, null, null, '2026-04-01T00:00:00Z')")
    refused = shop.command("apply", "--json")
    assert refused.exit != 0
    assert shop.command("plan").exit == 0
    assert shop.command("context", "verify", "--json").exit == 0
    assert PASSWORD not in shop.said
    holders = [path for path in shop.root.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert holders == []

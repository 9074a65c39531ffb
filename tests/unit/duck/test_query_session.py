from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from headwater.base.blobs import sha256_of
from headwater.base.errors import HeadwaterError
from headwater.duck.query_session import connect
from headwater.duck.sandbox import run_query, run_to_arrow
from headwater.duck.statement import parse
from schemas import schema_of
from unit.duck.tables import HandMade


def orders(root: Path) -> HandMade:
    """In a directory whose name is full of what DuckDB takes for patterns."""
    found = HandMade(root / "s[t]o*r?e 'x", schema_of({"id": "long", "seen": "timestamp", "name": "string"}))
    found.commit([{"id": 1, "seen": 1500, "name": "ann"}, {"id": 2, "seen": None, "name": "bob"}])
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HandMade:
    """For all tests of the module: whatever they ask, nothing of it changes."""
    return orders(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def connection(table: HandMade) -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(table.root, [table.state()], tables_info=[table.info()]) as found:
        yield found


def refused(connection: duckdb.DuckDBPyConnection, sql: str) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as raised:
        list(run_query(connection, sql).rows())
    assert raised.value.code == "HW-Q01"
    return raised.value


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM orders",
        "select 2;",
        "WITH a AS (SELECT * FROM orders) SELECT count(*) FROM a",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 2) SELECT max(n) FROM r",
        "FROM orders SELECT count(*)",
        "VALUES (2)",
        "SELECT * FROM range(2, 3)",
        "SELECT count(*) FROM (SELECT 1 UNION ALL SELECT 2)",
        "SELECT rows FROM headwater.tables WHERE name = 'orders'",
        "SELECT count(*) FROM (DESCRIBE orders) WHERE column_name IN ('id', 'seen')",
        "SELECT len(list_transform([1, 2], lambda x: x + 1))",
        "-- a comment\nSELECT 2",
    ],
)
def test_what_reads_is_answered(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert list(run_query(connection, sql).rows()) == [(2,)]


@pytest.mark.parametrize("sql", ["DESCRIBE orders", "SHOW TABLES", "SUMMARIZE orders", "EXPLAIN SELECT * FROM orders"])
def test_what_explains_is_answered(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert list(run_query(connection, sql).rows())


def test_explain_analyze_runs_the_query_only(connection: duckdb.DuckDBPyConnection) -> None:
    ((_, text),) = run_query(connection, "explain analyze select count(*) from orders").rows()
    assert "Total Time" in text
    assert refused(connection, "EXPLAIN ANALYZE INSERT INTO t VALUES (1)").message == "a query can only read"


def test_time_is_utc(connection: duckdb.DuckDBPyConnection) -> None:
    result = run_query(connection, "SELECT CAST(seen AS VARCHAR) FROM orders WHERE id = 1")
    assert list(result.rows()) == [("1970-01-01 00:00:00.000001+00",)]
    assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_an_answer_has_names_and_types_also_without_rows(connection: duckdb.DuckDBPyConnection) -> None:
    result = run_query(connection, "SELECT id, seen, name FROM orders WHERE false")
    assert result.columns == ("id", "seen", "name")
    assert result.types == ("BIGINT", "TIMESTAMP WITH TIME ZONE", "VARCHAR")
    schema = run_to_arrow(connection, "SELECT id FROM orders WHERE false").schema
    assert schema.names == ["id"]


def test_an_answer_can_be_taken_as_arrow(connection: duckdb.DuckDBPyConnection) -> None:
    table = run_to_arrow(connection, "SELECT id, name FROM orders ORDER BY id").read_all()
    assert table.to_pydict() == {"id": [1, 2], "name": ["ann", "bob"]}


def test_an_answer_that_was_left_half_read_is_in_nobodys_way(connection: duckdb.DuckDBPyConnection) -> None:
    first = run_query(connection, "SELECT * FROM range(100000)").rows()
    reader = run_to_arrow(connection, "SELECT * FROM range(100000)")
    assert next(first) == (0,)
    assert reader.read_next_batch().num_rows > 0
    assert list(run_query(connection, "SELECT count(*) FROM orders").rows()) == [(2,)]
    assert next(first) == (1,)


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ('SELECT 1 FROM "Orders", headwater.tables', ["orders"]),
        ("WITH a AS (SELECT * FROM orders) SELECT * FROM a", ["orders"]),
        ("SELECT (SELECT max(id) FROM orders) FROM people", ["orders", "people"]),
        ("EXPLAIN SELECT * FROM people", ["people"]),
        ("SELECT * FROM headwater.tables", []),
        ("SHOW TABLES", ["orders", "people"]),
        ("SELECT * FROM query_table('people')", ["people"]),
        ("SELECT 1", []),
        ("SELECT table_name FROM information_schema.tables", ["orders", "people"]),
        ("SELECT * FROM duckdb_columns()", ["orders", "people"]),
        ("FROM sqlite_master", ["orders", "people"]),
    ],
)
def test_one_question_makes_only_the_views_it_needs(table: HandMade, sql: str, views: list[str]) -> None:
    people = HandMade(table.root, schema_of({"id": "long"}), name="people")
    states, infos = [table.state(), people.state()], [table.info(), people.info()]
    with connect(table.root, states, tables_info=infos, statement=parse(sql)) as connection:
        found = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'")
        assert sorted(name for (name,) in found.fetchall()) == views


WRITES = [
    "COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)",
    "WITH x AS (COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "SELECT * FROM (WITH x AS (COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)) SELECT 1)",
    "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "EXPLAIN (ANALYZE) WITH x AS (COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "EXPLAIN /* */ ANALYZE WITH x AS (COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)) SELECT 1",
    "SELECT * FROM query('WITH x AS (COPY (SELECT 1 AS a) TO ''{live}'' (USE_TMP_FILE false)) SELECT 1')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql("
    "'WITH x AS (COPY (SELECT 1 AS a) TO ''{live}'' (USE_TMP_FILE false)) SELECT 1'))",
    "SELECT 1; COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)",
    "PREPARE p AS COPY (SELECT 1 AS a) TO '{live}' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '{root}/out.csv'",
    "COPY (SELECT 1) TO 'headwater-out.csv'",
    "EXPORT DATABASE '{root}/out'",
    "ATTACH '{root}/new.db'",
    "ATTACH '{root}/meta.sqlite' (TYPE sqlite)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 1",
    "SET enable_external_access = true",
    "SET TimeZone = 'Asia/Tokyo'",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "CALL enable_profiling(format = 'json', save_location = '{root}/p.json')",
    "SELECT * FROM enable_profiling(format = 'json', save_location = '{root}/p.json')",
    "SELECT * FROM enable_logging(storage = 'file', storage_config = {{'path': '{root}/l'}})",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW orders AS SELECT 1",
    "DROP VIEW orders",
    "WITH x AS (INSERT INTO headwater.tables VALUES (1)) SELECT 1",
    "BEGIN",
    "",
]
READS_ELSEWHERE = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('{root}/meta.sqlite')",
    "SELECT * FROM read_blob('{root}/meta.sqlite')",
    "SELECT * FROM '{root}/other.parquet'",
    "SELECT * FROM read_parquet('{root}/other.parquet')",
    "SELECT * FROM parquet_metadata('{root}/other.parquet')",
    "SELECT * FROM glob('{root}/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM 'http://127.0.0.1:9/x.parquet'",
    "SELECT * FROM secret_of_this_test",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM read_duckdb('{root}/duck.db')",
    "SELECT * FROM query_table('{root}/other.parquet')",
]


@pytest.mark.parametrize("sql", [*WRITES, *READS_ELSEWHERE])
def test_nothing_but_the_tables_is_within_reach(
    table: HandMade, connection: duckdb.DuckDBPyConnection, sql: str
) -> None:
    secret_of_this_test = duckdb.sql("SELECT 1 AS a").to_arrow_table()
    assert secret_of_this_test.num_rows == 1
    live = table.root / table.files[0].path
    before = sha256_of(live)
    (table.root / "meta.sqlite").write_text("secret")
    (table.root / "other.parquet").write_bytes(live.read_bytes())
    listing = sorted(table.root.rglob("*"))
    quoted = {"live": str(live).replace("'", "''"), "root": str(table.root).replace("'", "''")}
    refused(connection, sql.format(**quoted))
    assert sha256_of(live) == before
    assert sorted(table.root.rglob("*")) == listing


@pytest.mark.parametrize(
    "sql", [s for s in [*WRITES, *READS_ELSEWHERE] if "{root}" in s or "/etc/" in s or "httpfs" in s]
)
def test_duckdb_itself_refuses_what_is_not_a_live_file(
    table: HandMade, connection: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """The second rail alone, without `run_query`."""
    (table.root / "other.parquet").write_bytes((table.root / table.files[0].path).read_bytes())
    with pytest.raises(duckdb.Error):
        connection.execute(sql.format(root=str(table.root).replace("'", "''"), live="")).fetchall()


def test_a_misspelt_table_gets_the_nearest_name(connection: duckdb.DuckDBPyConnection) -> None:
    assert refused(connection, "SELECT * FROM ordrs").hint == "did you mean `orders`?"
    assert refused(connection, "SELECT * FROM zzzzzzz").hint == "tables: orders"


def test_an_error_says_what_is_wrong_in_few_words(connection: duckdb.DuckDBPyConnection) -> None:
    assert "nmae" in refused(connection, "SELECT nmae FROM orders").message
    assert "syntax error" in refused(connection, "SELEC 1").message
    long = refused(connection, f"SELECT {'x' * 3_000}(1)")
    assert len(long.message) < 500


def test_an_error_does_not_quote_values_of_rows(connection: duckdb.DuckDBPyConnection) -> None:
    error = refused(connection, "SELECT CAST(name AS INTEGER) FROM orders")
    assert "ann" not in error.message
    assert "INT32" in error.message


def test_a_store_without_tables_can_be_asked(tmp_path: Path) -> None:
    with connect(tmp_path, [], tables_info=[]) as connection:
        assert list(run_query(connection, "SELECT * FROM headwater.tables").rows()) == []
        assert "headwater apply" in refused(connection, "SELECT * FROM orders").hint


def test_a_missing_file_is_a_damaged_store(tmp_path: Path) -> None:
    table = orders(tmp_path)
    (table.root / table.files[0].path).unlink()
    with pytest.raises(HeadwaterError) as raised:
        connect(table.root, [table.state()], tables_info=[table.info()])
    assert raised.value.code == "HW-T04"

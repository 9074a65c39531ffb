"""The files of views and `duck.db`: written when something changed, whole whatever happens."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import duckdb
import pytest

from forked import exit_code
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.duck.view_files import refresh_views, view_file_text
from headwater.duck.view_mark import views_seq
from schemas import schema_of
from unit.duck.tables import INGESTED_AT_US, HandMade


def test_the_file_says_what_it_was_made_from(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    text = view_file_text(table.state(changed_seq=12))
    head = text.split("CREATE SCHEMA")[0]
    assert table.schema.fingerprint in head
    assert "(rev 1)" in head
    assert "Commit sequence: 12" in head
    assert str(tmp_path) not in text


def columns_shown(root: Path, table: HandMade, name: str) -> list[str]:
    refresh_views(root, [table.state()], tables_info=[table.info()])
    with duckdb.connect(str(root / "duck.db"), read_only=True) as connection:
        return [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]


def test_the_plain_view_has_the_users_columns_in_the_order_of_the_schema(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"z": "timestamp", "Z": "long", "z_ns": "long"}))
    table.commit([{"z": 1, "Z": 2, "z_ns": 3}])
    assert columns_shown(tmp_path, table, "orders") == ["z", "Z_2", "z_ns"]
    assert columns_shown(tmp_path, table, "meta.orders")[:4] == ["z", "Z_2", "z_ns", "z_ns_2"]
    table.evolve(table.schema.added("a", parse_type("string")).added("_rescued", parse_type("dynamic")))
    table.commit([{"a": "x", "_rescued": "{}"}])
    assert columns_shown(tmp_path, table, "orders") == ["z", "Z_2", "z_ns", "a", "_rescued"]


def test_a_table_without_columns_shows_the_runs_of_its_rows(tmp_path: Path) -> None:
    table = HandMade(tmp_path, TableSchema())
    assert columns_shown(tmp_path, table, "orders") == ["_run_id"]


def test_views_of_an_older_format_are_made_again(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    assert columns_shown(tmp_path, table, "orders") == ["a"]
    mark = tmp_path / "views" / ".duck.json"
    mark.write_text(mark.read_text().replace('"format": 2', '"format": 1'))
    assert views_seq(tmp_path) == 0
    assert columns_shown(tmp_path, table, "orders") == ["a"]
    assert views_seq(tmp_path) == 1


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in [*root.glob("views/*"), *root.glob("views/.*"), root / "duck.db"] if path.exists()]
    return {str(path.relative_to(root)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def test_a_second_refresh_writes_nothing(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    before = snapshot(tmp_path)
    assert refresh_views(tmp_path, [table.state(seq=99)], tables_info=[table.info(freshness_us=0)]) == []
    assert snapshot(tmp_path) == before
    table.commit([{"a": 2}])
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT sum(a) FROM orders").fetchall() == [(3,)]
        found = connection.execute(
            "SELECT name, pipeline, mode, rows, files, seq, epoch_us(freshness) FROM headwater.tables"
        )
        assert found.fetchall() == [("orders", "shop", "append", 2, 2, 2, INGESTED_AT_US)]


def test_a_refresh_with_nothing_to_do_does_not_import_duckdb(tmp_path: Path) -> None:
    child = """
import pickle, sys
from pathlib import Path
from headwater.duck.view_files import refresh_views
root, states, infos = pickle.loads(Path(sys.argv[1]).read_bytes())
assert refresh_views(root, states, tables_info=infos) == []
assert not {"duckdb", "pyarrow", "numpy"} & set(sys.modules)
"""
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    values = tmp_path / "values"
    values.write_bytes(pickle.dumps((tmp_path, [table.state()], [table.info()])))
    subprocess.run([sys.executable, "-c", child, str(values)], check=True)


def test_views_of_tables_that_are_gone_are_removed_and_others_left(tmp_path: Path) -> None:
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()])
    mine = tmp_path / "views" / "mine.sql"
    mine.write_text("select 1")
    assert refresh_views(tmp_path, [a.state()], tables_info=[a.info()]) == ["b"]
    assert sorted(path.name for path in (tmp_path / "views").glob("*.sql")) == [
        "a.sql",
        "headwater.tables.sql",
        "mine.sql",
    ]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT name FROM headwater.tables").fetchall() == [("a",)]
        views = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
        assert connection.execute(views).fetchall() == [("headwater", "tables"), ("main", "a"), ("meta", "a")]


def test_one_changed_view_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """Only the changed one is made again: a file of the other is not there any more, and nobody notices."""
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    for table in (a, b):
        table.commit([{"a": 1}])
    refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()])
    (tmp_path / b.files[0].path).unlink()
    a.commit([{"a": 2}])
    assert refresh_views(tmp_path, [a.state(), b.state()], tables_info=[a.info(), b.info()]) == ["a"]
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT sum(a) FROM a").fetchall() == [(3,)]
        assert connection.execute("SELECT name, rows FROM headwater.tables ORDER BY 1").fetchall() == [
            ("a", 2),
            ("b", 1),
        ]


def test_a_duck_db_that_somebody_changed_is_made_anew(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    with duckdb.connect(str(tmp_path / "duck.db")) as connection:
        connection.execute("CREATE OR REPLACE VIEW orders AS SELECT 7 AS a")
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == []
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT a FROM orders").fetchall() == [(1,)]


def test_an_older_cut_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    old, old_info = table.state(), table.info()
    table.commit([{"a": 2}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    before = snapshot(tmp_path)
    assert refresh_views(tmp_path, [old], tables_info=[old_info]) == []
    assert snapshot(tmp_path) == before
    assert refresh_views(tmp_path, [old], tables_info=[old_info], force=True) == ["orders"]


def test_a_moved_store_gets_a_new_duck_db(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "here", schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(table.root, [table.state()], tables_info=[table.info()])
    (tmp_path / "here").rename(tmp_path / "there")
    assert refresh_views(tmp_path / "there", [table.state()], tables_info=[table.info()]) == []
    with duckdb.connect(str(tmp_path / "there" / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT a FROM orders").fetchall() == [(1,)]


def test_a_missing_file_is_a_damaged_store(tmp_path: Path) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    (file,) = table.commit([{"a": 1}])
    (tmp_path / file.path).unlink()
    with pytest.raises(HeadwaterError) as raised:
        refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    assert raised.value.code == "HW-T04"
    assert not list(tmp_path.glob(".duck*"))


def test_a_damaged_table_keeps_no_other_from_being_shown(tmp_path: Path) -> None:
    a, b = (HandMade(tmp_path, schema_of({"a": "long"}), name=name) for name in ("a", "b"))
    for table in (a, b):
        table.commit([{"a": 1}])
    path = tmp_path / b.files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    states, infos = [a.state(), b.state()], [a.info(), b.info()]
    for _ in range(2):
        with pytest.raises(HeadwaterError, match="table `b` cannot be read"):
            refresh_views(tmp_path, states, tables_info=infos)
        with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
            assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
            for name in ("b", "meta.b"):
                with pytest.raises(duckdb.InvalidInputException, match="`b` cannot be"):
                    connection.execute(f"SELECT * FROM {name}").fetchall()
    path.write_bytes(whole)
    refresh_views(tmp_path, states, tables_info=infos)
    with duckdb.connect(str(tmp_path / "duck.db"), read_only=True) as connection:
        assert connection.execute("SELECT * FROM b").fetchall() == [(1,)]


@pytest.mark.parametrize("point", ["view.before", "view.torn"])
def test_a_crash_leaves_the_old_view_whole(tmp_path: Path, point: str) -> None:
    table = HandMade(tmp_path, schema_of({"a": "long"}))
    table.commit([{"a": 1}])
    refresh_views(tmp_path, [table.state()], tables_info=[table.info()])
    before = (tmp_path / "views" / "orders.sql").read_text()
    table.commit([{"a": 2}])
    refresh = partial(refresh_views, tables_info=[table.info()])
    assert exit_code(refresh, tmp_path, [table.state()], crash_at=point) == -signal.SIGKILL
    assert (tmp_path / "views" / "orders.sql").read_text() == before
    assert refresh_views(tmp_path, [table.state()], tables_info=[table.info()]) == ["orders"]
    assert (tmp_path / "views" / "orders.sql").read_text() == view_file_text(table.state())

"""The store without Headwater: a process that has the `duckdb` package and nothing else of ours."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from headwater.duck.view_files import refresh_views
from schemas import schema_of
from unit.duck.tables import HandMade

TIMES = """
SELECT
  date_trunc('hour', ordered),
  extract(year FROM ordered),
  ordered + INTERVAL 3 DAY,
  ordered > now(),
  strftime(ordered, '%Y-%m-%d %H:%M:%S'),
  age(ordered, TIMESTAMPTZ '2020-01-01 00:00:00+00'),
  datediff('day', TIMESTAMPTZ '2024-01-01 00:00:00+00', ordered),
  time_bucket(INTERVAL '15 minutes', ordered),
  date_part('dow', ordered),
  last_day(ordered),
  dayname(ordered),
  monthname(ordered),
  epoch(ordered),
  CAST(ordered AS DATE),
  ordered BETWEEN TIMESTAMPTZ '2024-01-01 00:00:00+00' AND TIMESTAMPTZ '2025-01-01 00:00:00+00',
  ordered AT TIME ZONE 'Europe/Berlin',
  make_timestamptz(epoch_us(ordered)) = ordered,
  to_days(CAST(extract(day FROM ordered) AS INTEGER)),
  ordered - INTERVAL 1 MONTH,
  date_add(ordered, INTERVAL 1 HOUR)
FROM orders WHERE id = 1
"""
CHILD = f'''
import sys
import duckdb
connection = duckdb.connect()
connection.execute("SET autoinstall_known_extensions = false")
connection.execute("SET autoload_known_extensions = false")
connection.execute("SET TimeZone = 'UTC'")
if sys.argv[1] == "attach":
    connection.execute(f"ATTACH '{{sys.argv[2]}}/duck.db' AS store (READ_ONLY)")
    connection.execute("USE store")
else:
    for name in ("orders", "headwater.tables"):
        connection.execute(open(f"views/{{name}}.sql").read())

def text(sql):
    return [tuple(map(str, row)) for row in connection.execute(sql).fetchall()]

(times,) = text("""{TIMES}""")
assert times[0] == "2024-02-29 12:00:00+00:00", times
assert times[1] == "2024", times
assert times[2] == "2024-03-03 12:34:56.123456+00:00", times
assert times[3] == "False", times
assert times[4] == "2024-02-29 12:34:56", times
assert times[6:9] == ("59", "2024-02-29 12:30:00+00:00", "4"), times
assert times[9:13] == ("2024-02-29", "Thursday", "February", "1709210096.123456"), times
assert times[13:15] == ("2024-02-29", "True"), times
assert times[15:17] == ("2024-02-29 13:34:56.123456", "True"), times
assert times[17:] == (
    "29 days, 0:00:00", "2024-01-29 12:34:56.123456+00:00", "2024-02-29 13:34:56.123456+00:00"), times
assert text("SELECT ordered_ns FROM meta.orders WHERE id = 1") == [("1709210096123456789",)]
assert text("SELECT props->>'$.who.name', props->'$.tags[1]', json_extract_string(props, '$.n') FROM orders WHERE id = 1"
    ) == [("ann", '"b"', "12345678901234567890")]
assert text("SELECT id FROM orders WHERE v IS NOT NULL ORDER BY array_distance(v, [1, 0, 0]::FLOAT[3]) LIMIT 1"
    ) == [("2",)]
assert text("SELECT round(array_cosine_similarity(v, [1, 1, 0]::FLOAT[3]), 6) FROM orders WHERE id = 1") == [("1.0",)]
assert text("SELECT count(*), sum(amount) FROM orders") == [("3", "7.50")]
assert text("SELECT name, rows, stored_rows, mode, seq FROM headwater.tables") == [("orders", "3", "4", "upsert", "2")]
assert not [name for name in sys.modules if name.split(".")[0] in ("headwater", "pyarrow", "pyspark")]
print("done")
'''

NO_PYTZ = """
import sys
sys.modules["pytz"] = None
import duckdb
connection = duckdb.connect()
if sys.argv[1] == "attach":
    connection.execute(f"ATTACH '{sys.argv[2]}/duck.db' AS store (READ_ONLY)")
    connection.execute("USE store")
else:
    connection.execute(open("views/plain.sql").read())
assert connection.execute("SELECT * FROM plain ORDER BY id").fetchall() == [(1, "a", 1.5), (2, "b", None)]
assert [row[0] for row in connection.execute("DESCRIBE meta.plain").fetchall()] == [
    "id", "name", "share", "_run_id", "_ingested_at", "_content_hash", "_source_id", "_commit_seq"]
print("done")
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    schema = schema_of(
        {"id": "long", "ordered": "timestamp", "props": "dynamic", "v": "vector(3)", "amount": "decimal(9,2)"}, ("id",)
    )
    table = HandMade(tmp_path / "store", schema, mode="upsert")
    table.commit(
        [
            {"id": 1, "ordered": 0, "props": "{}", "v": [0, 0, 9], "amount": 1},
            {"id": 2, "ordered": 1, "props": None, "v": [1, 0.5, 0], "amount": 2},
        ],
        unique_keys=True,
    )
    props = '{"who": {"name": "ann"}, "tags": ["a", "b"], "n": 12345678901234567890}'
    table.commit(
        [
            {"id": 1, "ordered": 1_709_210_096_123_456_789, "props": props, "v": [2, 2, 0], "amount": 3},
            {"id": 3, "ordered": None, "props": "5", "v": None, "amount": Decimal("2.5")},
        ]
    )
    refresh_views(table.root, [table.state()], tables_info=[table.info(rows=3)])
    return table.root


@pytest.mark.parametrize("way", ["attach", "files"])
def test_a_table_without_times_needs_no_pytz(tmp_path: Path, way: str) -> None:
    table = HandMade(tmp_path, schema_of({"id": "long", "name": "string", "share": "real"}), name="plain")
    table.commit([{"id": 1, "name": "a", "share": 1.5}, {"id": 2, "name": "b"}])
    refresh_views(table.root, [table.state()], tables_info=[table.info(rows=2)])
    command = [sys.executable, "-I", "-c", NO_PYTZ, way, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("way", ["attach", "files"])
def test_the_duckdb_package_alone_reads_the_store(store: Path, tmp_path: Path, way: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-I", "-c", CHILD, way, str(store)]
    done = subprocess.run(command, cwd=elsewhere if way == "attach" else store, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")

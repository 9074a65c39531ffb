"""Queries through a table's view against `read_parquet` on one plain file with the same rows, 2,000,000 of them.

    python benchmarks/query.py [--rows N] [--rounds N]

Two tables land by `headwater apply` from 8 Parquet files: `added` (append), and `merged` (upsert), into which a
second apply brings newer versions of 1% of the rows, spread over all keys. The views are those of `duck.db`, attached
by the `duckdb` package alone; the plain file is what DuckDB's own COPY makes of the same rows and columns, once
with zstd, and once as COPY does it unasked, with snappy, which is larger and quicker to read. (Headwater's files
have LZ4, or zstd for the columns that it makes much smaller.) All are asked in one connection, in turns, after a warm-up; the figures are medians, and the answers must be
equal. `sum` adds up a column of 8-byte reals; `sum of few` one of a hundred different numbers, which takes DuckDB so
little that what a view adds (several files, and the keys of an upsert) shows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from measure import COLUMNS, ROW_SQL, Claim, arguments, headwater, machine, report, run_process, write_rows

FILES = 8
CODECS = ("zstd", "snappy")
QUERIES = {
    "group-by": "SELECT city, ok, count(*), sum(amount), max(score) FROM {t} GROUP BY ALL ORDER BY ALL",
    "point": "SELECT id, amount, name FROM {t} WHERE id = {key}",
    "sum": "SELECT sum(amount) FROM {t}",
    "sum of few": "SELECT sum(quantity) FROM {t}",
    "by month": "SELECT date_trunc('month', ts) AS m, count(*), avg(amount) FROM {t} GROUP BY m ORDER BY m",
}
TARGETS: dict[str, dict[str, float]] = {
    "added": {"group-by": 1.3, "point": 1.3, "sum": 1.3, "sum of few": 1.3, "by month": 1.3},
    "merged": {"group-by": 2.5, "point": 2.5, "sum": 5.0, "sum of few": 5.0},
}
MANIFEST = """
[project]
name = "bench"

[[pipeline]]
id = "added"
source = {{ connector = "files", config = {{ path = "old/*" }} }}
[[pipeline.tables]]
name = "added"
columns = {columns}

[[pipeline]]
id = "merged"
source = {{ connector = "files", config = {{ path = ["old/*", "new/*"] }} }}
[[pipeline.tables]]
name = "merged"
primary_key = ["id"]
columns = {columns}
"""


def land(project: Path, rows: int) -> Path:
    """Both tables, landed by two applies; returns the store."""
    columns = "{ " + ", ".join(f'{name} = "{type_}"' for name, type_ in COLUMNS.items()) + " }"
    (project / "headwater.toml").write_text(MANIFEST.format(columns=columns))
    write_rows(project / "old", "parquet", rows=rows, files=FILES)
    (project / "new").mkdir()
    apply = [headwater(), "--project", str(project), "apply"]
    run_process(apply, cwd=project)
    newer = f"SELECT * REPLACE (quantity + 1 AS quantity) FROM ({ROW_SQL.format(first=0, last=rows, step=100)})"
    duckdb.sql(f"COPY ({newer}) TO '{project}/new/part-000.parquet' (FORMAT parquet)")
    run_process(apply, cwd=project)
    return project / ".headwater" / "context" / "bench"


def seconds(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = connection.execute(sql).fetchall()
    return time.perf_counter() - began, answer


def compare(
    connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], rounds: int
) -> dict[str, dict[str, float]]:
    """Median milliseconds through the view and on the plain files, for each query."""
    found = {}
    for name, sql in QUERIES.items():
        times: dict[str, list[float]] = {source: [] for source in sources}
        for place in range(-2, rounds):
            key = 1234 + 100 * 17 * abs(place)
            asked = {who: seconds(connection, sql.format(t=source, key=key)) for who, source in sources.items()}
            answers = [rounded(answer) for _, answer in asked.values()]
            assert answers[0] and all(answer == answers[0] for answer in answers), (name, answers)
            if place >= 0:
                for who, (taken, _) in asked.items():
                    times[who].append(taken * 1000)
        found[name] = {who: round(statistics.median(values), 3) for who, values in times.items()}
    return found


def rounded(answer: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sums of reals depend on the order of the rows in their last digits."""
    return [tuple(float(f"{cell:.9g}") if isinstance(cell, float) else cell for cell in row) for row in answer]


def measure(store: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with duckdb.connect() as connection:
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{store}/duck.db' AS store (READ_ONLY)")
        for table in TARGETS:
            sources = {"view": f"store.{table}"}
            for codec in CODECS:
                plain = scratch / f"{table}-{codec}.parquet"
                rows = f"SELECT {', '.join(COLUMNS)} FROM store.{table} ORDER BY id"
                connection.execute(f"COPY ({rows}) TO '{plain}' (FORMAT parquet, COMPRESSION {codec})")
                sources[codec] = f"read_parquet('{plain}')"
            results[table] = compare(connection, sources, rounds)
            counts = f"SELECT rows FROM store.headwater.tables WHERE name = '{table}'"
            times = [seconds(connection, counts) for _ in range(rounds)]
            counted = [seconds(connection, f"SELECT count(*) FROM store.{table}") for _ in range(rounds)]
            results[table]["count"] = {
                "view": round(statistics.median(s for s, _ in counted) * 1000, 3),
                "headwater.tables": round(statistics.median(s for s, _ in times) * 1000, 3),
                "known": times[0][1] == counted[0][1],
            }
    return results


def table_of(results: Mapping[str, Any]) -> list[list[str]]:
    lines = [["query (median ms)", "view", *CODECS, *(f"ratio to {codec}" for codec in CODECS)]]
    for table, found in results.items():
        for name, times in found.items():
            if name == "count":
                label, others = f"{table}, count(*) / headwater.tables", [times["headwater.tables"], None]
            else:
                label, others = f"{table}, {name}", [times[codec] for codec in CODECS]
            shown = [f"{other:.2f}" if other else "" for other in others]
            ratios = [f"{times['view'] / other:.2f}" if other else "" for other in others]
            lines.append([label, f"{times['view']:.2f}", *shown, *ratios])
    return lines


def main() -> int:
    asked = arguments(__doc__, rows=2_000_000, rounds=25)
    here = machine()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        project = Path(scratch) / "project"
        project.mkdir()
        results = measure(land(project, asked.rows), Path(scratch), asked.rounds)
    words = {"added": "append", "merged": "upsert with 1% newer rows"}
    claims = [
        Claim(f"{words[table]}, {name}: time of one plain {codec} file", times["view"] / times[codec], target)
        for table, targets in TARGETS.items()
        for codec in CODECS
        for name, target in targets.items()
        for times in [results[table][name]]
    ]
    count = results["added"]["count"]
    assert count["known"], "headwater.tables must know the rows of an append table"
    claims.append(
        Claim("append, rows in `headwater.tables`: time of `count(*)`", count["headwater.tables"] / count["view"], 1.0)
    )
    details = {"rows": asked.rows, "rounds": asked.rounds, "machine": here, "milliseconds": results}
    return report("query", claims, details, table_of(results))


if __name__ == "__main__":
    raise SystemExit(main())

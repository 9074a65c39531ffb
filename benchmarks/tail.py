"""Queries of a table after 2,000 pushes of 1,000 rows, against the same rows in one plain Parquet file.

    python benchmarks/tail.py [--rows N] [--rounds N]

The rows come in batches of 1,000, at most 20 a second, by the way that every door takes, with the merging of small
files in the background as a server has it. Then the table is asked through the view of `duck.db`, and beside it a
plain file that DuckDB's own COPY made of the same rows, once with zstd and once with snappy; in one connection, in
turns, after a warm-up. The figures are medians, and the answers must be equal. The same pushes without merging tell
what a push costs with it and without, and how the queries would be.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from headwater.app.refresh_views import refresh
from headwater.base import limits
from headwater.base.types import parse_type
from headwater.catalog.commit import Store, open_store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.lookup import table_states
from headwater.ingest.accept import Acceptor
from headwater.ingest.push_records import Push, PushTable
from headwater.ingest.tail import Tails
from measure import COLUMNS, ROW_SQL, Claim, arguments, machine, report
from query import QUERIES, rounded, seconds

BATCH = 1_000
PUSHES_PER_SECOND = 20
LOOK_EVERY = 20
"""After so many pushes the live files are counted."""
DECLARED = {name: DeclaredColumn(parse_type(type_)) for name, type_ in COLUMNS.items()}
TARGET = PushTable("events", "events", declared=DECLARED, in_manifest=True)


def batches(rows: int) -> Iterator[bytes]:
    """NDJSON; the same bytes every time."""
    with duckdb.connect() as connection:
        for first in range(0, rows, 100 * BATCH):
            select = ROW_SQL.format(first=first, last=min(rows, first + 100 * BATCH), step=1)
            found = connection.execute(
                f"SELECT * REPLACE (strftime(ts, '%Y-%m-%dT%H:%M:%S.%fZ') AS ts) FROM ({select})"
            )
            names = [column[0] for column in found.description]
            while part := found.fetchmany(BATCH):
                yield "".join(json.dumps(dict(zip(names, row))) + "\n" for row in part).encode()


def live(store: Store) -> list[int]:
    """The sizes of the table's files."""
    with store.catalog.snapshot() as connection:
        (state,) = table_states(connection, ["events"])
    return [file.bytes for file in state.files]


def push_all(store: Store, rows: int, *, merges: bool) -> dict[str, Any]:
    """All rows, and what it took."""
    tails = Tails(store, actor="bench")
    acceptor = Acceptor(store, on_landed=lambda push, _prepared: tails.landed(push.target.table) if merges else None)
    acceptor.accept(Push(target=PushTable("first", "first"), body=b'{"label": "imports"}', actor="bench"))
    times, most, pushed = [], 0, 0
    for number, body in enumerate(batches(rows)):
        began = time.perf_counter()
        pushed += acceptor.accept(Push(target=TARGET, body=body, actor="bench")).bytes_written
        times.append((time.perf_counter() - began) * 1000)
        if merges:
            time.sleep(max(0.0, 1 / PUSHES_PER_SECOND - times[-1] / 1000))
        if number % LOOK_EVERY == 0:
            small = [size for size in live(store) if size < limits.TAIL_CLASS_BYTES[-1]]
            most = max(most, len(small))
    tails.close()
    acceptor.close()
    tenth = max(1, len(times) // 10)
    return {
        "pushes": len(times),
        "push_ms": round(statistics.median(times), 2),
        "push_p99_ms": round(statistics.quantiles(times, n=100)[98], 2),
        "first_tenth_ms": round(statistics.median(times[:tenth]), 2),
        "last_tenth_ms": round(statistics.median(times[-tenth:]), 2),
        "live_files": len(live(store)),
        "most_tail_files": most,
        "bytes_pushed": pushed,
        "bytes_merged": tails.bytes_written,
        "bytes_live": sum(live(store)),
    }


def compare(root: Path, plain: dict[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds through the view and on the plain files, for each query."""
    found = {}
    with duckdb.connect() as connection:
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{root}/duck.db' AS store (READ_ONLY)")
        sources = {"view": "store.events"}
        for codec, path in plain.items():
            if not path.exists():
                rows = f"SELECT {', '.join(COLUMNS)} FROM store.events ORDER BY id"
                connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION {codec})")
            sources[codec] = f"read_parquet('{path}')"
        for name, sql in QUERIES.items():
            times: dict[str, list[float]] = {source: [] for source in sources}
            for place in range(-2, rounds):
                key = 1234 + 1700 * abs(place)
                asked = {who: seconds(connection, sql.format(t=source, key=key)) for who, source in sources.items()}
                answers = [rounded(answer) for _, answer in asked.values()]
                assert answers[0] and all(answer == answers[0] for answer in answers), name
                if place >= 0:
                    for who, (taken, _) in asked.items():
                        times[who].append(taken * 1000)
            found[name] = {who: round(statistics.median(values), 3) for who, values in times.items()}
    return found


def main() -> int:
    asked = arguments(__doc__, rows=2_000_000, rounds=25)
    here = machine()
    pushes: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        plain = {codec: Path(scratch) / f"{codec}.parquet" for codec in ("zstd", "snappy")}
        for how, merges in (("merged", True), ("as pushed", False)):
            store = open_store(Path(scratch) / how.replace(" ", "-"), project="bench")
            pushes[how] = push_all(store, asked.rows, merges=merges)
            refresh(store, None)
            queries[how] = compare(store.root, plain, asked.rounds if merges else max(1, asked.rounds // 8))
            store.close()
    merged, bare = pushes["merged"], pushes["as pushed"]
    rewritten = merged["bytes_merged"] / merged["bytes_pushed"]
    words = f"{merged['pushes']:,} pushes of {BATCH:,} rows"
    claims = [
        *(
            Claim(f"{words}, {name}: time of one plain {codec} file", times["view"] / times[codec], 3.0)
            for codec in plain
            for name, times in queries["merged"].items()
        ),
        Claim(f"{words}: live files", merged["live_files"], limits.LIVE_TAIL_FILES, unit=""),
        Claim(f"{words}: most live tail files on the way", merged["most_tail_files"], limits.LIVE_TAIL_FILES, unit=""),
        Claim(f"{words}: bytes written again by merges, per byte pushed", rewritten, 4.0),
    ]
    table = [["query (median ms)", "merged", "as pushed", *plain, "ratio to zstd", "to snappy"]]
    for name, times in queries["merged"].items():
        ratios = [f"{times['view'] / times[codec]:.2f}" for codec in plain]
        shown = [
            f"{value:.2f}" for value in (times["view"], queries["as pushed"][name]["view"], *map(times.get, plain))
        ]
        table.append([name, *shown, *ratios])
    table.append(["push, median", f"{merged['push_ms']:.2f}", f"{bare['push_ms']:.2f}", "", "", "", ""])
    table.append(["push, p99", f"{merged['push_p99_ms']:.2f}", f"{bare['push_p99_ms']:.2f}", "", "", "", ""])
    details = {"rows": asked.rows, "rounds": asked.rounds, "machine": here, "pushes": pushes, "milliseconds": queries}
    return report("tail", claims, details, table)


if __name__ == "__main__":
    raise SystemExit(main())

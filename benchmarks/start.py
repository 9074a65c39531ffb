"""Time to the first landed row: Headwater's session against plain PySpark's, in fresh processes, in turns.

    python benchmarks/start.py [--runs 5] [--json FILE]

Plain: `getOrCreate()` and `range(1000).write.parquet`. Headwater: `spark_session()` and 1,000 rows written as a
Parquet file by pyarrow inside `mapInArrow`, reported by `collect()`. Both clocks start before the first import.
The class-data archive is made first if it is missing; `headwater without archive` is a machine's very first start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CLAIM = 0.5
"""Headwater's time to the first row is at most this part of plain PySpark's."""

PLAIN = """
import os, sys, time
started = time.perf_counter()
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
session = time.perf_counter()
spark.range(1000).write.parquet(sys.argv[1] + "/table")
landed = time.perf_counter()
spark.stop()
print("RESULT", session - started, landed - started, time.perf_counter() - landed)
"""

HEADWATER = """
import sys, time
started = time.perf_counter()
from headwater.spark.session import spark_session, stop_session
spark = spark_session()
session = time.perf_counter()
target = sys.argv[1] + "/part.parquet"

def land(batches):
    import pyarrow as pa
    import pyarrow.parquet as pq
    table = pa.Table.from_batches(batches)
    pq.write_table(table, target, compression="zstd")
    yield pa.RecordBatch.from_pydict({"path": [target], "rows": [table.num_rows]})

(record,) = spark.range(0, 1000, 1, 1).mapInArrow(land, "path string, rows long").collect()
landed = time.perf_counter()
assert record.rows == 1000
stop_session()
print("RESULT", session - started, landed - started, time.perf_counter() - landed)
"""

CASES = {
    "plain pyspark": (PLAIN, {}),
    "headwater": (HEADWATER, {}),
    "headwater without archive": (HEADWATER, {"HEADWATER_SPARK_ARCHIVE": "off"}),
}


def measure(code: str, environment: dict[str, str]) -> dict[str, float]:
    """One fresh process: seconds to a session, to the first landed row, and from there to a clean end."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        done = subprocess.run(
            [sys.executable, "-c", code, scratch],
            env={**os.environ, **environment},
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
    results = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not results:
        sys.exit(f"a measured process failed:\n{done.stderr}")
    session, landed, stop = map(float, results[0])
    return {"session": session, "first_row": landed, "stop": stop}


def report(runs: int) -> dict[str, object]:
    from headwater.spark.archive import wait_for_archive

    warm = wait_for_archive()
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(runs):
        for name, (code, environment) in CASES.items():
            measured[name].append(measure(code, environment))
    medians = {
        name: {part: round(statistics.median(run[part] for run in found), 3) for part in found[0]}
        for name, found in measured.items()
    }
    ratio = medians["headwater"]["first_row"] / medians["plain pyspark"]["first_row"]
    return {
        "benchmark": "start",
        "runs": runs,
        "cores": len(os.sched_getaffinity(0)),
        "archive_warm": warm,
        "seconds": medians,
        "first_row_each": {name: [round(run["first_row"], 3) for run in found] for name, found in measured.items()},
        "ratio": round(ratio, 3),
        "claim": CLAIM,
        "holds": ratio <= CLAIM,
    }


def table(result: dict[str, object]) -> str:
    medians = result["seconds"]
    assert isinstance(medians, dict)
    plain = medians["plain pyspark"]["first_row"]
    lines = [f"{'start (median seconds)':<28}{'session':>10}{'first row':>12}{'stop':>8}{'ratio':>8}"]
    for name, parts in medians.items():
        numbers = f"{parts['session']:>10.2f}{parts['first_row']:>12.2f}{parts['stop']:>8.2f}"
        lines.append(f"{name:<28}{numbers}{parts['first_row'] / plain:>8.2f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None, help="also write the result to this file")
    asked = parser.parse_args()
    result = report(asked.runs)
    print(json.dumps(result))
    print(table(result))
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())

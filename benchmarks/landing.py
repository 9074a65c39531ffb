"""Landing 2,000,000 rows of 8 columns, from NDJSON and from Parquet: Headwater against plain Spark and against dlt.

    python benchmarks/landing.py [--rows N] [--rounds N]

Every figure comes from a fresh process, in turns, with the columns' types declared on every side (no one has to
look for them). Two ways to measure:
  whole  from the start of the process to its end: `headwater apply` into a new store, against a script with
         `getOrCreate()`, `spark.read.schema(...).json|parquet(...)`, `write.parquet(...)`
  job    the landing alone, in a session that has already run a small job
Against plain Spark both are claims. Against dlt the claim is the job: dlt starts no JVM, so that as a whole command it
lands two million rows of Parquet sooner; that figure is printed and stands in the docs beside the claims. Memory is the
peak of the whole command with its JVM and Python workers. Headwater also hashes every row and every file, syncs,
commits and makes the views. dlt gets as many workers as there are cores and reads Parquet as Arrow; its job is
`pipeline.run` after the imports.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from headwater.spark.archive import wait_for_archive
from measure import COLUMNS, Claim, Ran, arguments, headwater, machine, report, run_process, write_project, write_rows

FILES = 8
FORMATS = ("ndjson", "parquet")
WAYS = {"job": "job alone", "whole": "whole command"}
QUICK = 100_000
"""Rows a second below which dlt is measured once: minutes a round would tell nothing new."""

PLAIN = """
import json, os, sys, time
way, format_, source, target = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
if way == "job":
    spark.range(1000).write.parquet(target + "/warm")
began = time.perf_counter()
read = spark.read.schema(
    "id long, amount double, name string, ts timestamp, ok boolean, quantity long, city string, score double"
)
frame = read.json(source) if format_ == "ndjson" else read.parquet(source)
frame.write.parquet(target + "/table")
seconds = time.perf_counter() - began
rows = spark.read.parquet(target + "/table").count() if way == "job" else 0
spark.stop()
print(json.dumps({"seconds": seconds, "rows": rows}))
"""

HEADWATER_JOB = """
import json, sys, time
from pathlib import Path
from headwater.app import apply as app_apply
from headwater.app.workspace import workspace
with workspace(Path(sys.argv[1])) as opened:
    opened.spark().range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    began = time.perf_counter()
    (result,) = app_apply.apply(opened).pipelines
    seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "rows": result.rows}))
"""

DLT = """
import json, os, sys, time
format_, source, target = sys.argv[1:]
os.environ.update({
    "NORMALIZE__WORKERS": str(os.cpu_count()), "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR",
    "NORMALIZE__DATA_WRITER__FILE_MAX_ITEMS": "250000",
})
import dlt
from dlt.sources.filesystem import filesystem, read_jsonl, read_parquet
began = time.perf_counter()
found = filesystem("file://" + source, file_glob="part-*")
types = {"amount": "double", "ts": "timestamp", "score": "double"}
reader = read_jsonl(chunksize=10_000) if format_ == "ndjson" else read_parquet(chunksize=50_000, use_pyarrow=True)
rows = (found | reader).with_name("bench")
rows.apply_hints(columns={name: {"data_type": type_} for name, type_ in types.items()})
pipeline = dlt.pipeline(
    "bench", pipelines_dir=target + "/work", dataset_name="bench",
    destination=dlt.destinations.filesystem("file://" + target + "/lake"),
)
pipeline.run(rows, loader_file_format="parquet").raise_on_failed_jobs()
seconds = time.perf_counter() - began
counts = pipeline.last_trace.last_normalize_info.row_counts
print(json.dumps({"seconds": seconds, "rows": counts["bench"]}))
"""


class Landings:
    """Data of one format, and the ways to land it, each into a directory of its own."""

    def __init__(self, root: Path, format_: str, *, rows: int):
        self.root, self.format, self.rows = root, format_, rows
        self.source = root / f"source-{format_}"
        self.done = 0
        write_rows(self.source, format_, rows=rows, files=FILES)

    def plain(self, way: str) -> Ran:
        command = [sys.executable, "-c", PLAIN, way, self.format, str(self.source), str(self._target())]
        return run_process(command, cwd=self.root, memory=way == "whole")

    def headwater(self, way: str) -> Ran:
        project = self._target()
        write_project(project, path=f"{self.source}/*", table={"name": "bench", "columns": COLUMNS})
        if way == "job":
            return run_process([sys.executable, "-c", HEADWATER_JOB, str(project)], cwd=project)
        return run_process([headwater(), "--project", str(project), "apply", "--json"], cwd=project, memory=True)

    def dlt(self) -> Ran:
        command = [sys.executable, "-c", DLT, self.format, str(self.source), str(self._target())]
        return run_process(command, cwd=self.root, memory=True)

    def _target(self) -> Path:
        self.done += 1
        target = self.root / f"{self.format}-{self.done}"
        target.mkdir()
        return target


def measure(landings: Landings, rounds: int) -> dict[str, float]:
    """Medians: rows a second and bytes."""
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(rounds):
        for name, land in (("plain", landings.plain), ("headwater", landings.headwater)):
            job = land("job").answer()
            assert job["rows"] == landings.rows, job
            note(f"{name} job", landings.rows / job["seconds"])
            whole = land("whole")
            note(f"{name} whole", landings.rows / whole.seconds)
            note(f"{name} memory", whole.peak_bytes)
        if found.get("dlt job", [QUICK])[0] >= QUICK:
            ran = landings.dlt()
            answer = ran.answer()
            assert answer["rows"] == landings.rows, answer
            note("dlt job", landings.rows / answer["seconds"])
            note("dlt whole", landings.rows / ran.seconds)
            note("dlt memory", ran.peak_bytes)
    return {name: round(statistics.median(values)) for name, values in found.items()}


def main() -> int:
    asked = arguments(__doc__, rows=2_000_000, rounds=2)
    wait_for_archive()
    results: dict[str, dict[str, float]] = {}
    here = machine()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        for format_ in FORMATS:
            landings = Landings(Path(scratch), format_, rows=asked.rows)
            results[format_] = measure(landings, asked.rounds)
    claims: list[Claim] = []
    table = [["landing", "rows/s (job)", "rows/s (whole)", "peak memory"]]
    for format_, found in results.items():
        name = {"ndjson": "NDJSON", "parquet": "Parquet"}[format_]
        ratio = {part: found[f"headwater {part}"] / found[f"plain {part}"] for part in (*WAYS, "memory")}
        claims += [
            *(Claim(f"{name}: rows/s of plain Spark ({words})", ratio[way], 0.8, False) for way, words in WAYS.items()),
            Claim(f"{name}: peak memory of plain Spark (whole command)", ratio["memory"], 1.5),
            Claim(f"{name}: rows/s of dlt (job alone)", found["headwater job"] / found["dlt job"], 1.0, False),
        ]
        print(
            f"{name}: whole command, rows/s of dlt: {found['headwater whole'] / found['dlt whole']:.2f}x",
            file=sys.stderr,
        )
        for who in ("plain", "headwater", "dlt"):
            numbers = [f"{found[f'{who} {part}']:,.0f}" for part in ("job", "whole")]
            table.append([f"{name}, {who}", *numbers, f"{found[f'{who} memory'] / 2**20:,.0f} MiB"])
    details = {"rows": asked.rows, "rounds": asked.rounds, "machine": here}
    return report("landing", claims, {**details, "rows_per_second_and_bytes": results}, table)


if __name__ == "__main__":
    raise SystemExit(main())

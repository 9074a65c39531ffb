"""What the benchmarks share: fresh processes with their time and memory, data that is the same every time, and one
form for results. Each script prints a table to stderr and one line of JSON to stdout, whose `claims` `run.py` gathers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.2
"""How often the memory of a process tree is looked at."""
CHILD_SECONDS = 600
"""No measured process takes this long; one that hangs must not hang the others."""
ROW_SQL = """
SELECT i AS id,
  CASE WHEN i % 20 = 0 THEN NULL ELSE round((hash(i, 1) % 100000) / 100.0, 2) END AS amount,
  'customer ' || (hash(i, 2) % 1000000) AS name,
  make_timestamp((1704067200000 + hash(i, 3) % 31536000000)::BIGINT * 1000) AS ts,
  hash(i, 4) % 2 = 0 AS ok,
  (hash(i, 5) % 100)::BIGINT AS quantity,
  ['Berlin', 'Paris', 'München', 'Oslo'][1 + (hash(i, 6) % 4)::INTEGER] AS city,
  (hash(i, 7) % 1000000007) / 1000000007.0 AS score
FROM range({first}, {last}, {step}) AS rows(i) ORDER BY i
"""
"""Eight columns of mixed types: a key, a number with nulls, a long-tailed text, a time, a flag, a small number, a
text of few values, a number that compresses badly."""
COLUMNS = {
    "id": "long", "amount": "real", "name": "string", "ts": "timestamp",
    "ok": "bool", "quantity": "long", "city": "string", "score": "real",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """`measured` is a ratio of two things measured in this run (or, with a `unit`, one of them)."""

    claim: str
    measured: float
    target: float
    at_most: bool = True
    unit: str = "x"

    @property
    def holds(self) -> bool:
        return self.measured <= self.target if self.at_most else self.measured >= self.target

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "measured": round(self.measured, 3), "holds": self.holds}


@dataclass(frozen=True)
class Ran:
    """A process that ended well. `processor_seconds` and `peak_bytes` (proportional set size, so that shared pages
    count once) are those of the whole tree; 0 where they were not asked for."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    stdout: str

    def answer(self) -> Any:
        """The last line of its output, as JSON."""
        return json.loads(self.stdout.strip().splitlines()[-1])


def run_process(command: Sequence[str], *, cwd: Path, memory: bool = False, **environment: str) -> Ran:
    """Run a command to its end. Compiled Python files are kept, as on any machine: some shells forbid it."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | environment
    began, before = time.perf_counter(), os.times()
    with subprocess.Popen(
        list(command), cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        watch = _Watch(child.pid) if memory else None
        try:
            out, err = child.communicate(timeout=CHILD_SECONDS)
        except BaseException:
            child.kill()
            raise
        finally:
            peak = watch.stop() if watch is not None else 0
    seconds, after = time.perf_counter() - began, os.times()
    if child.returncode != 0:
        sys.exit(f"a measured process failed: {' '.join(command)[:300]}\n{out[-2000:]}\n{err[-4000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(seconds, used, peak, out)


class _Watch:
    """Samples the memory of a process and all below it until it is stopped."""

    def __init__(self, pid: int):
        self.pid, self.peak, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.peak

    def _look(self) -> None:
        import psutil

        while not self.ended.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                root = psutil.Process(self.pid)
                self.peak = max(self.peak, sum(_memory(p) for p in (root, *root.children(recursive=True))))


def _memory(process: Any) -> int:
    import psutil

    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.Error:
        return 0


def write_rows(directory: Path, format_: str, *, rows: int, files: int) -> None:
    """`rows` rows in `files` files of `ndjson` or `parquet`; the same bytes every time."""
    import duckdb

    directory.mkdir(parents=True)
    options = "FORMAT json, TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%gZ'" if format_ == "ndjson" else "FORMAT parquet"
    with duckdb.connect() as connection:
        for place in range(files):
            select = ROW_SQL.format(first=rows * place // files, last=rows * (place + 1) // files, step=1)
            connection.execute(f"COPY ({select}) TO '{directory}/part-{place:03d}.{format_}' ({options})")
    settled = time.time() - 60  # as files are that nobody writes any more: the connector may cut them
    for path in directory.iterdir():
        os.utime(path, (settled, settled))


def write_project(root: Path, *, path: str, table: Mapping[str, Any]) -> None:
    """A project of one pipeline that fills one table from files."""
    root.mkdir(parents=True, exist_ok=True)
    keys = "\n".join(f"{key} = {_toml(value)}" for key, value in table.items())
    (root / "headwater.toml").write_text(
        '[project]\nname = "bench"\n\n[[pipeline]]\nid = "bench"\n'
        f'source = {{ connector = "files", config = {{ path = "{path}" }} }}\n[[pipeline.tables]]\n{keys}\n'
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'{key} = "{text}"' for key, text in value.items()) + " }"
    return json.dumps(value)


def headwater() -> str:
    """The command, as installed beside the Python that runs this."""
    return str(Path(sys.executable).parent / "headwater")


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """Options `--name N`, one for each number, which is its default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N")
    return parser.parse_args()


def report(benchmark: str, claims: Sequence[Claim], details: Mapping[str, Any], rows: Sequence[Sequence[str]]) -> int:
    """The table to stderr, the JSON to stdout; 0 if every claim holds."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(w) if place == 0 else cell.rjust(w) for place, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells), file=sys.stderr)
    for claim in claims:
        sign, word = ("<=" if claim.at_most else ">="), "holds" if claim.holds else "MISSED"
        print(f"{word}: {claim.claim}: {claim.measured:.2f}{claim.unit} ({sign} {claim.target})", file=sys.stderr)
    print(json.dumps({"benchmark": benchmark, "claims": [c.as_json() for c in claims], **details}))
    return 0 if all(claim.holds for claim in claims) else 1

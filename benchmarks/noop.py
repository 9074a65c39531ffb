"""An apply of 200 pipelines whose sources are as landed, against `python -c 'import typer, pydantic, sqlalchemy'`; the
time from the end of an apply to its rows in `query`; and `headwater --help`.

    python benchmarks/noop.py [--pipelines N] [--rounds N]

Whole processes, in turns, medians. Processor time stands beside the time on the clock: on a busy machine it is the
one to look at. One apply lands all pipelines first; a no-op writes nothing, which is checked.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from measure import Claim, Ran, arguments, headwater, machine, report, run_process

IMPORTS = "import typer, pydantic, sqlalchemy"
PLAIN_COUNT = "import duckdb, sys; print(duckdb.sql(f\"SELECT count(*) FROM '{sys.argv[1]}'\").fetchall()[0][0])"
DUCK_COUNT = """
import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    print(connection.execute("SELECT count(*) FROM t0").fetchall()[0][0])
"""
ROWS = 20


def write_project(root: Path, pipelines: int) -> None:
    (root / "data").mkdir(parents=True)
    parts = ['[project]\nname = "bench"\n']
    for place in range(pipelines):
        write_lines(root / "data" / f"t{place}.ndjson", ROWS)
        parts.append(
            f'[[pipeline]]\nid = "p{place}"\n'
            f'source = {{ connector = "files", config = {{ path = "data/t{place}.ndjson" }} }}\n'
            f'[[pipeline.tables]]\nname = "t{place}"\ncolumns = {{ id = "long", name = "string", amount = "real" }}\n'
        )
    (root / "headwater.toml").write_text("\n".join(parts))


def write_lines(path: Path, count: int) -> None:
    lines = (json.dumps({"id": i, "name": f"name {i}", "amount": i * 1.5}) for i in range(count))
    path.write_text("\n".join(lines) + "\n")


def written(store: Path) -> dict[str, int]:
    """Every file of the store with its time, but for the catalog's own journal."""
    return {str(p): p.stat().st_mtime_ns for p in store.rglob("*") if p.is_file() and "catalog" not in p.name}


def measure(root: Path, rounds: int) -> dict[str, list[Ran]]:
    python, command = sys.executable, [headwater(), "--project", str(root)]
    store = root / ".headwater" / "context" / "bench"
    processes = {
        "imports alone": [python, "-c", IMPORTS],
        "no-op apply": [*command, "apply"],
        "--help": [headwater(), "--help"],
    }
    found: dict[str, list[Ran]] = {name: [] for name in processes}
    before = written(store)
    for place in range(-1, rounds):
        for name, process in processes.items():
            ran = run_process(process, cwd=root)
            if place >= 0:
                found[name].append(ran)
    assert written(store) == before, "a no-op apply writes nothing"
    plain = next((store / "tables" / "t0").rglob("*.parquet"))
    for name in ("apply of one changed file", "query after it", "duck.db after it", "plain read_parquet"):
        found[name] = []
    for place in range(1, max(2, rounds // 4) + 1):
        write_lines(root / "data" / "t0.ndjson", ROWS + place)
        found["apply of one changed file"].append(run_process([*command, "apply"], cwd=root))
        answer = run_process([*command, "query", "--format", "csv", "SELECT count(*) AS n FROM t0"], cwd=root)
        direct = run_process([python, "-c", DUCK_COUNT, str(store / "duck.db")], cwd=root)
        assert answer.stdout.split()[-1] == direct.stdout.strip() == str(ROWS + place), (answer, direct)
        found["query after it"].append(answer)
        found["duck.db after it"].append(direct)
        found["plain read_parquet"].append(run_process([python, "-c", PLAIN_COUNT, str(plain)], cwd=root))
    return found


def main() -> int:
    asked = arguments(__doc__, pipelines=200, rounds=12)
    here = machine()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch) / "project"
        write_project(root, asked.pipelines)
        first = run_process([headwater(), "--project", str(root), "apply"], cwd=root)
        found = {f"first apply of {asked.pipelines} pipelines": [first], **measure(root, asked.rounds)}
    wall = {name: statistics.median(ran.seconds for ran in runs) for name, runs in found.items()}
    processor = {name: statistics.median(ran.processor_seconds for ran in runs) for name, runs in found.items()}
    ratio = processor["no-op apply"] / processor["imports alone"]
    claims = [
        Claim(f"no-op apply of {asked.pipelines} pipelines: processor time of the imports alone", ratio, 2.0),
        Claim("no-op apply: time on the clock of the imports alone", wall["no-op apply"] / wall["imports alone"], 2.0),
        Claim("`headwater --help`", wall["--help"] * 1000, 300.0, unit=" ms"),
    ]
    table = [["no-op (median seconds)", "clock", "processor"]]
    table += [[name, f"{wall[name]:.3f}", f"{processor[name]:.3f}"] for name in found]
    details = {
        "pipelines": asked.pipelines,
        "rounds": asked.rounds,
        "machine": here,
        "seconds": {name: round(value, 4) for name, value in wall.items()},
        "processor_seconds": {name: round(value, 4) for name, value in processor.items()},
    }
    return report("noop", claims, details, table)


if __name__ == "__main__":
    raise SystemExit(main())

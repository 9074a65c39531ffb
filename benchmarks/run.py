"""All benchmarks, one after the other (`make bench`).

    python benchmarks/run.py [--only NAME...] [--write-docs]

Runs each script in a process of its own, shows its table, and writes `benchmarks/results.json`; with `--only`, the
figures of the other scripts stay there as they were. `--write-docs` puts the figures of that file between the markers
of `docs/benchmarks.md`, and measures nothing. The exit code tells whether every claim holds; a script that fails is
reported and does not keep the others from running.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import machine

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
DOCS = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = {
    "start": ["--runs", "3"],
    "landing": [],
    "query": [],
    "noop": [],
    "coerce": [],
    "push": [],
    "tail": [],
    "engine": [],
    "serving": [],
    "work_queue": [],
    "slices": [],
    "chain": [],
}
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def run_all(names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": machine(), "benchmarks": {}}
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py"), *SCRIPTS[name]], stdout=subprocess.PIPE, text=True, check=False
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        print("\n".join(line for line in done.stdout.splitlines() if line not in lines), file=sys.stderr, flush=True)
        result: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": f"ended with {done.returncode}"}
        result["seconds_taken"] = round(time.perf_counter() - began, 1)
        result["claims"] = result.get("claims") or claims_of(result)
        found["benchmarks"][name] = result
    return found


def claims_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The one claim of a script that tells it as `ratio`, `claim` and `holds`."""
    if "ratio" not in result:
        return []
    claim = {"claim": "first landed row: time of plain PySpark", "measured": result["ratio"], "target": result["claim"]}
    return [{**claim, "at_most": True, "unit": "x", "holds": result["holds"]}]


def all_claims(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, claim) for name, result in found["benchmarks"].items() for claim in result["claims"]]


def summary(found: dict[str, Any]) -> str:
    size = found["machine"]
    lines = [
        f"Measured on {size['cores']} cores, {size['memory_gib']} GiB of memory, {size['system']}, "
        f"Python {size['python']}; load before the first run {size['load_before']}.",
        "",
        "| claim | measured | target | holds | command |",
        "|---|---|---|---|---|",
    ]
    for name, claim in all_claims(found):
        sign = "at most" if claim["at_most"] else "at least"
        unit, holds = claim["unit"], "yes" if claim["holds"] else "**no**"
        measured, target = f"{figure(claim['measured'])}{unit}", f"{sign} {figure(claim['target'])}{unit}"
        lines.append(f"| {claim['claim']} | {measured} | {target} | {holds} | `python benchmarks/{name}.py` |")
    for name, result in found["benchmarks"].items():
        if "error" in result:
            lines.append(f"| {name} | not measured: {result['error']} | | **no** | `python benchmarks/{name}.py` |")
    return "\n".join(lines)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def write_docs(found: dict[str, Any]) -> None:
    text = DOCS.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    DOCS.write_text(f"{head}{BEGIN}\n{summary(found)}\n{END}{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(SCRIPTS), default=[], metavar="NAME")
    parser.add_argument("--write-docs", action="store_true", help="put the last figures into docs/benchmarks.md")
    asked = parser.parse_args()
    if asked.write_docs:
        write_docs(json.loads(RESULTS.read_text()))
        return 0
    found = run_all(asked.only or list(SCRIPTS))
    if asked.only and RESULTS.exists():
        known = json.loads(RESULTS.read_text())["benchmarks"] | found["benchmarks"]
        found["benchmarks"] = {name: known[name] for name in SCRIPTS if name in known}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    print(f"\n{summary(found)}")
    results = found["benchmarks"].values()
    return 1 if any("error" in result or not all(c["holds"] for c in result["claims"]) for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`simulate` and the runtime agree: the same graph and the same demand give the same numbers of runs.

One ripple of each graph is slow, far slower than all others: in the simulation it takes 1,000 seconds, here it sleeps
until nothing else is left to do. So the numbers depend on no machine. Further demand comes while it sleeps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.engine_state import load_engine
from headwater.catalog.inbox import take
from headwater.catalog.queue import OPEN, jobs
from serve.serving import Project

SLOW_SECONDS = 1_000.0
QUICK_SECONDS = 1.0
MOST_SLEEPS = 20
SLEEP = """\
import time
from pathlib import Path

HERE = Path("{here}")

def {name}({parent}):
    number = len(list(HERE.glob("began*")))
    (HERE / f"began{{number}}").touch()
    while not (HERE / f"go{{number}}").exists():
        time.sleep(0.02)
    return {parent}.selectExpr("count(*) as v")
"""
Graph = dict[str, dict[str, list[str]]]
"""The ripples of each pipeline, and what each of them reads. The first pipeline is the Inlet `source`, of one table
`rows`; a ripple whose name begins with `slow` is the slow one."""

TWO_PONDS: Graph = {"p1": {"r1": ["rows"], "r2": ["rows"], "r3": ["r1", "r2"]}, "p2": {"slow_s": ["r3"]}}
LATE_BOTTLENECK: Graph = {"p1": {"a": ["rows"]}, "p2": {"b": ["a"]}, "p3": {"slow_c": ["b"]}}
EARLY_BOTTLENECK: Graph = {"p1": {"slow_a": ["rows"], "a2": ["slow_a"]}, "p2": {"b": ["a2"]}}
DIAMOND: Graph = {"left": {"quick": ["rows"]}, "right": {"slow_r": ["rows"]}, "join": {"joined": ["quick", "slow_r"]}}

CASES: dict[str, tuple[Graph, list[list[tuple[str, str]]]]] = {
    "a tap over two ponds": (TWO_PONDS, [[("tap", "p2")]]),
    "a pulse over two ponds, and one more meanwhile": (TWO_PONDS, [[("pulse", "p2")], [("pulse", "p2")]]),
    "a tap with a late bottleneck, and one more meanwhile": (LATE_BOTTLENECK, [[("tap", "p3")], [("tap", "p3")]]),
    "a tap with an early bottleneck": (EARLY_BOTTLENECK, [[("tap", "p2")]]),
    "a diamond, pushed and pulled": (DIAMOND, [[("pulse", "join")], [("tap", "join"), ("pulse", "left")]]),
}


@pytest.mark.parametrize("name", CASES)
def test_run_counts_are_those_of_the_simulation(name: str, project: Project) -> None:
    graph, demand = CASES[name]
    simulated = simulate(project, graph, demand)
    write(project, graph)
    project.serve()
    for wave in demand:
        for kind, pipeline in wave:
            project.command(kind, pipeline).ended()
        project.until(lambda: at_rest(project), "all but the slow one rests")
    for _ in range(MOST_SLEEPS):
        if project.is_settled():
            break
        wake_up(project)
        project.until(lambda: at_rest(project), "all but the slow one rests")
    assert project.is_settled()
    found = json.loads(project.command("runs", "--limit", "1000", "--json").ended().out)["runs"]
    runs = {pond: sum(run["pipeline"] == pond and run["state"] == "success" for run in found) for pond in graph}
    assert runs == {pond: simulated[pond]["runs"] for pond in graph}
    executions = {job.ripple: 0 for job in project.jobs()}
    for job in project.jobs():
        executions[job.ripple] += job.state == "done"
    looks = executions.pop("")
    starts = {ripple: counts["starts"] for pond in graph for ripple, counts in simulated[pond]["ripples"].items()}
    assert executions == starts
    assert looks == simulated["source"]["ripples"]["rows"]["starts"]
    project.stop()


def simulate(project: Project, graph: Graph, demand: list[list[tuple[str, str]]]) -> dict[str, Any]:
    pipelines: dict[str, Any] = {"source": {"ripples": {"rows": {"seconds": 0.001}}, "min_interval": 0.001}}
    for pond, ripples in graph.items():
        pipelines[pond] = {
            "sources": sources(graph, pond),
            "ripples": {
                name: {
                    "seconds": SLOW_SECONDS if name.startswith("slow") else QUICK_SECONDS,
                    "after": [read for read in reads if read in ripples],
                }
                for name, reads in ripples.items()
            },
        }
    # Further demand comes while the slow one sleeps for the first time, when all others have long come to rest.
    events = [
        {"at": number * SLOW_SECONDS / 10, "do": kind, "pipeline": pipeline}
        for number, wave in enumerate(demand)
        for kind, pipeline in wave
    ]
    path = project.root / "scenario.json"
    path.write_text(json.dumps({"pipelines": pipelines, "events": events}))
    found: dict[str, Any] = project.command("simulate", str(path), "--json").ended().json()["pipelines"]
    return found


def sources(graph: Graph, pond: str) -> list[str]:
    owner = {"rows": "source"} | {name: other for other, ripples in graph.items() for name in ripples}
    return list(dict.fromkeys(owner[read] for reads in graph[pond].values() for read in reads if owner[read] != pond))


def write(project: Project, graph: Graph) -> None:
    lines = [
        "[[pipeline]]",
        'id = "source"',
        'poll = "1ms"',
        'source = { connector = "files", config = { path = "data/*.ndjson" } }',
        "[[pipeline.tables]]",
        'name = "rows"',
        'columns = { v = "long" }',
    ]
    for pond, ripples in graph.items():
        lines += [
            "[[pipeline]]",
            f'id = "{pond}"',
            f"sources = {json.dumps(sources(graph, pond))}",
            "always_run = true",
        ]
        for name, reads in ripples.items():
            lines += ["[[pipeline.ripples]]", f'name = "{name}"']
            if name.startswith("slow"):
                code = SLEEP.format(here=project.root / "models", name=name, parent=reads[0])
                project.write({"models/slow.py": code})
                lines.append(f'python = "models/slow.py:{name}"')
            else:
                lines.append(f'sql = "select count(*) as v from {", ".join(reads)}"')
    project.write({"data/rows.ndjson": [{"v": 1}]})
    project.manifest(lines)


def gates(project: Project, kind: str) -> list[Path]:
    return list((project.root / "models").glob(f"{kind}*"))


def at_rest(project: Project) -> bool:
    """Nothing is left to do, or only the slow one sleeps."""
    if project.is_settled():
        return True
    with project.store() as store, store.catalog.snapshot() as connection:
        open_ = jobs(connection, states=OPEN, limit=None)
        ponds = load_engine(connection).ponds
        if take(connection, 1):
            return False
    asleep = len(gates(project, "began")) - len(gates(project, "go"))
    asked = ponds["source"]["pull"] or ponds["source"]["targets"]
    return asleep == 1 and len(open_) == 1 and open_[0].ripple.startswith("slow") and not asked


def wake_up(project: Project) -> None:
    (project.root / "models" / f"go{len(gates(project, 'go'))}").touch()

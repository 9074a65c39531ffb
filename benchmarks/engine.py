"""The freshness engine alone: events a second for a chain, a fan-out and independent pairs of ponds, and bytes a pond;
the naive interpreter of the tests beside it at the sizes it can do.

    python benchmarks/engine.py [--events N] [--rounds N]

An event is one demand or one completion, each told in a step of its own, with all that follows from it. Every round
pushes each pond that nobody reads (a Pulse) and completes what is started until nothing is. Processor time of one
core, the best of the rounds.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.app.read_scenario import scenario_of
from headwater.freshness.events import Completed, Demand, Event, StartRipple
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import new_state, step
from headwater.freshness.state import State
from headwater.freshness.virtual_time import simulate
from measure import Claim, arguments, machine, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SIZES = (100, 1_000, 10_000, 100_000)
NAIVE_SIZES = (100, 300)
STEP = (RippleNode("r"),)


def chain(ponds: int) -> list[PondSpec]:
    return [PondSpec(f"p{i}", STEP, (f"p{i - 1}",) if i else ()) for i in range(ponds)]


def fan_out(ponds: int) -> list[PondSpec]:
    return [PondSpec("p0", STEP), *(PondSpec(f"p{i}", STEP, ("p0",)) for i in range(1, ponds))]


def pairs(ponds: int) -> list[PondSpec]:
    return [PondSpec(f"p{i}", STEP, (f"p{i - 1}",) if i % 2 else ()) for i in range(ponds)]


SHAPES: dict[str, Callable[[int], list[PondSpec]]] = {"chain": chain, "fan-out": fan_out, "pairs": pairs}


def live_a_round(state: State, outlets: list[str]) -> int:
    """Pushes every outlet and completes what starts, one event a step. Returns the number of events."""
    running: deque[StartRipple] = deque()
    events = 0

    def tell(event: Event) -> None:
        effects, _ = step(state, (event,), state.now + 1)
        running.extend(effect for effect in effects if type(effect) is StartRipple)

    for outlet in outlets:
        tell(Demand(outlet, "pulse"))
        events += 1
    while running:
        start = running.popleft()
        tell(Completed(start.pond, start.ripple, start.freshness, version=state.now))
        events += 1
    return events


def events_a_second(specs: list[PondSpec], least_events: int, rounds: int) -> float:
    state = new_state(specs)
    outlets = [name for name, pond in state.ponds.items() if not pond.sinks]
    best = 0.0
    for _ in range(rounds):
        gc.collect()
        events, began = 0, time.process_time()
        while events < least_events:
            events += live_a_round(state, outlets)
        best = max(best, events / (time.process_time() - began))
    return best


def bytes_a_pond(ponds: int) -> float:
    """What graph and state take together, after a round has been lived."""
    gc.collect()
    tracemalloc.start()
    state = new_state(pairs(ponds))
    live_a_round(state, [name for name, pond in state.ponds.items() if not pond.sinks])
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(state.ponds)


def beside_the_naive(ponds: int) -> tuple[float, float]:
    """Events a second of the naive interpreter and of the engine, both simulating the same chain to its end."""
    from freshness.reference import reference_answer

    pipelines = {spec.name: {"ripples": {"r": {"seconds": 1}}, "sources": list(spec.required)} for spec in chain(ponds)}
    scenario = {"pipelines": pipelines, "events": [{"at": 0, "do": "pulse", "pipeline": f"p{ponds - 1}"}]}
    began = time.process_time()
    naive = reference_answer(scenario)
    between = time.process_time()
    engine = simulate(scenario_of(scenario)).as_json()
    ended = time.process_time()
    assert naive["timeline"] == engine["timeline"]
    events = sum(entry["event"] in ("demand", "ripple_completed") for entry in engine["timeline"])
    return events / (between - began), events / (ended - between)


def main() -> int:
    asked = arguments(__doc__, events=20_000, rounds=3)
    rates = {
        shape: {size: events_a_second(make(size), asked.events, asked.rounds) for size in SIZES}
        for shape, make in SHAPES.items()
    }
    naive = {size: beside_the_naive(size) for size in NAIVE_SIZES}
    memory = bytes_a_pond(10_000)
    claims = [
        *(Claim(f"{shape} of 10,000 ponds", rates[shape][10_000], 50_000, False, " events/s") for shape in SHAPES),
        *(
            Claim(
                f"{shape} of 10,000 ponds: events/s at 100 ponds", rates[shape][10_000] / rates[shape][100], 0.5, False
            )
            for shape in SHAPES
        ),
        Claim("memory of a pond with one ripple", memory, 4096, True, " bytes"),
        Claim("simulating a chain of 300: speed of the naive interpreter", naive[300][1] / naive[300][0], 1, False),
    ]
    rows = [["events/s", *(f"{size:,} ponds" for size in SIZES)]]
    rows += [[shape, *(f"{rate:,.0f}" for rate in rates[shape].values())] for shape in SHAPES]
    details: dict[str, Any] = {
        "machine": machine(),
        "events_per_second": rates,
        "bytes_per_pond": round(memory),
        "simulated_chain": {size: {"naive": round(n), "engine": round(e)} for size, (n, e) in naive.items()},
    }
    for size, (slow, fast) in naive.items():
        print(f"a chain of {size} simulated: naive {slow:,.0f} events/s, engine {fast:,.0f}", file=sys.stderr)
    return report("engine", claims, details, rows)


if __name__ == "__main__":
    raise SystemExit(main())

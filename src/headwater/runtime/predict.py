"""What demand would make run, found by asking the engine itself, in memory: nothing is stored and nothing runs.

Inlets are taken to complete at once, with what their tables hold now, or with something new where their source has
more; ripples that would execute are taken to change their tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from headwater.catalog.engine_state import SavedEngine
from headwater.freshness.events import Cleared, Completed, Demand, Event, StartRipple
from headwater.freshness.machine import step
from headwater.freshness.saving import graph_change
from headwater.runtime.compile import Compiled
from headwater.runtime.engine import restored


def foresee(
    compiled: Compiled,
    saved: SavedEngine,
    asked: Sequence[str],
    *,
    moving: Collection[str],
    versions: Mapping[str, int],
    now_us: int,
) -> dict[str, list[str]]:
    """The ripples of models that a pulse of the asked pipelines would execute, by pipeline. `moving` are the Inlets
    whose source has something new."""
    state = restored(compiled, saved)
    # A live source that was looked at just now could not be looked at again yet: time passes until it can.
    now = now_us + max((pipeline.pond.min_interval for pipeline in compiled.pipelines.values()), default=0)
    change = graph_change(state, compiled.ponds)
    if change is not None:
        step(state, [change], now)
    under_way = [ripple for pond in state.ponds.values() for ripple in pond.ripples if ripple.running]
    found: dict[str, list[str]] = {}
    for ripple in under_way:
        if not ripple.pond.is_inlet:
            found.setdefault(ripple.pond.name, []).append(ripple.spec.name)
    waiting: deque[Event] = deque(Cleared(name) for name in state.ponds)
    waiting.extend(Completed(ripple.pond.name, ripple.spec.name, ripple.start_freshness, "new") for ripple in under_way)
    waiting.extend(Demand(name, "pulse") for name in asked)
    while waiting:
        effects, _ = step(state, [waiting.popleft()], now)
        for effect in effects:
            if not isinstance(effect, StartRipple):
                continue
            is_inlet = state.ponds[effect.pond].is_inlet
            version: int | str = "new"
            if is_inlet and effect.pond not in moving:
                version = versions.get(effect.ripple, 0)
            elif not is_inlet and effect.ripple not in found.setdefault(effect.pond, []):
                found[effect.pond].append(effect.ripple)
            waiting.append(Completed(effect.pond, effect.ripple, effect.freshness, version))
    return {pond: ripples for pond, ripples in found.items() if ripples}

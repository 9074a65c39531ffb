"""Triggers at run time: Waves and Tides of the manifest and of users, and cron."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from headwater.catalog.standing_triggers import Standing
from headwater.freshness.events import Demand, Event, Trigger, TriggerCleared, TriggerSet
from headwater.freshness.state import State
from headwater.runtime.calendars import cron_times
from headwater.runtime.compile import OWNER, Compiled, CronTrigger
from headwater.runtime.run_history import Cause


def trigger_changes(state: State, compiled: Compiled, asked: Sequence[Standing]) -> list[Event]:
    """The events that set and clear triggers until the engine has those that are declared and set by users."""
    wanted: dict[str, dict[str, Trigger]] = {name: {} for name in state.ponds}
    for name, pipeline in compiled.pipelines.items():
        wanted.get(name, {}).update({trigger.id: trigger for trigger in pipeline.triggers})
    for each in asked:
        trigger = Trigger(each.trigger_id, each.kind, each.limit_us, each.actor, each.expires_us)
        wanted.get(each.pond, {})[trigger.id] = trigger
    found: list[Event] = []
    for name, triggers in wanted.items():
        has = state.ponds[name].triggers
        found += [TriggerCleared(name, gone) for gone in has if gone not in triggers]
        found += [TriggerSet(name, trigger) for key, trigger in triggers.items() if has.get(key) != trigger]
    return found


def sleeping(state: State) -> list[Event]:
    """The events that put all triggers to sleep; the next `serve` sets them again."""
    return [TriggerCleared(name) for name, pond in state.ponds.items() if pond.triggers]


@dataclass
class CronClock:
    """The ticks of all cron triggers in order. Several triggers that are due together make one pulse each; if one
    trigger was due several times (no server was running), only the last tick counts."""

    _next: list[tuple[int, str]] = field(default_factory=list)
    _ticks: dict[str, Iterator[int]] = field(default_factory=dict)
    _crons: dict[str, CronTrigger] = field(default_factory=dict)

    def set(self, compiled: Compiled, *, after_us: int) -> None:
        """Start new triggers with their first tick later than `after_us`; earlier ones continue."""
        crons = {f"{name} {cron.id}": cron for name, each in compiled.pipelines.items() for cron in each.crons}
        new = crons.keys() - self._crons.keys()
        self._next = [(at, key) for at, key in self._next if key in crons]
        self._next.sort()
        self._ticks = {key: ticks for key, ticks in self._ticks.items() if key in crons}
        self._crons = crons
        for key in sorted(new):
            self._ticks[key] = cron_times(crons[key].at, crons[key].timezone, after_us=after_us)
            self._push(key)

    @property
    def wake_us(self) -> int | None:
        return self._next[0][0] if self._next else None

    def due(self, now_us: int) -> tuple[list[Event], dict[str, Cause]]:
        """The pulses whose time has come, and their causes."""
        causes: dict[str, Cause] = {}
        while self._next and self._next[0][0] <= now_us:
            _, key = heappop(self._next)
            causes.setdefault(self._crons[key].pipeline, Cause(self._crons[key].id, OWNER))
            self._push(key)
        return [Demand(pipeline, "pulse") for pipeline in causes], causes

    def _push(self, key: str) -> None:
        tick = next(self._ticks[key], None)
        if tick is not None:
            heappush(self._next, (tick, key))

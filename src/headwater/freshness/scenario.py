"""A scenario: a graph with durations, a list of events, an end. What `simulate` runs.

Times are whole microseconds from 0. `app/read_scenario.py` makes these records from the JSON of a scenario file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SECOND = 1_000_000
"""Microseconds of a second."""

Deed = Literal["tap", "pulse", "wave", "tide", "untrigger", "clear", "deliver", "fail", "unchanged", "changed"]


@dataclass(frozen=True)
class ScenarioRipple:
    """One step of a pipeline and how long each of its executions takes. `reads` is as in `RippleSpec`; a scenario file
    never sets it."""

    name: str
    duration: int
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ScenarioPipeline:
    """One pipeline of the scenario; `sources` are the required ones."""

    name: str
    ripples: tuple[ScenarioRipple, ...]
    sources: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    windows: tuple[tuple[int, int], ...] = ()
    min_interval: int = 1
    retry_immediately: int = 0
    retry_on_change: int = 0
    always_run: bool = True


@dataclass(frozen=True)
class ScenarioEvent:
    """Something that happens at a time. Only the fields that belong to `do` are set."""

    at: int
    do: Deed
    pipeline: str
    ripple: str = ""
    times: int = 1
    max_staleness: int = 0
    trigger_id: str = ""


@dataclass(frozen=True)
class Scenario:
    """Without `until` it ends when nothing is left to do. Events are in the order of the file."""

    pipelines: tuple[ScenarioPipeline, ...]
    events: tuple[ScenarioEvent, ...] = field(default=())
    until: int | None = None

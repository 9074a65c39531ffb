"""A scenario: a graph with durations, a list of events, an end. What `simulate` runs.

Times are whole microseconds from 0. `app/read_scenario.py` makes these records from the JSON of a scenario file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.freshness.graph import PondSpec

"""Microseconds of a second."""

Deed = Literal["tap", "pulse", "wave", "tide", "untrigger", "clear", "deliver", "fail", "unchanged", "changed"]


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
    """Without `until` it ends when nothing is left to do. Events are in the order of the file. `pipelines` have no
    windows of their own: `windows` has those of each pipeline, so that a scenario can run more than once."""

    pipelines: tuple[PondSpec, ...]
    durations: Mapping[tuple[str, str], int]
    """How long each execution takes, by pipeline and ripple."""
    windows: Mapping[str, tuple[tuple[int, int], ...]]
    events: tuple[ScenarioEvent, ...] = ()
    until: int | None = None

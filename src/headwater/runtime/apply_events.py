"""What happens during an apply, as it happens, for the interface that shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunBegan:
    pipeline: str
    run_id: str
    units: int


@dataclass(frozen=True)
class SliceBegan:
    pipeline: str
    table: str
    ordinal: int
    describe: str
    estimated_bytes: int | None


@dataclass(frozen=True)
class SliceRetried:
    pipeline: str
    table: str
    ordinal: int
    reason: str


@dataclass(frozen=True)
class SliceEnded:
    pipeline: str
    table: str
    ordinal: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class RunFinished:
    pipeline: str
    run_id: str
    state: str


@dataclass(frozen=True)
class Waiting:
    """Other processes hold all the work that is left."""


Event = RunBegan | SliceBegan | SliceRetried | SliceEnded | RunFinished | Waiting

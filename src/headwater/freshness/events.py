"""What happens to the engine (events) and what it wants done (effects). Plain values; times are microseconds.

They are named tuples, not dataclasses: each event makes several effects, and a named tuple is made in a third of the
time.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headwater.freshness.graph import PondSpec

Version = int | str
"""The version of a ripple's table. Equal versions mean equal contents."""


class Trigger(NamedTuple):
    """Standing demand on a pond: a Wave, or a Tide that keeps its staleness below `limit`."""

    id: str
    kind: Literal["wave", "tide"]
    limit: int = 0
    owner: str = ""
    expires_at: int | None = None


class SourceCut(NamedTuple):
    """What a run reads of one source: the version of each of its ripples, None if the source never completed a run."""

    source: str
    freshness: int | None
    versions: tuple[tuple[str, Version], ...] | None


class Demand(NamedTuple):
    """A Tap (pull, once) or a Pulse (push: at least as fresh as now, or as an earlier `target`)."""

    pond: str
    kind: Literal["tap", "pulse"]
    target: int | None = None


class TriggerSet(NamedTuple):
    """A Wave or a Tide begins. One with the same id on the same pond is replaced."""

    pond: str
    trigger: Trigger


class TriggerCleared(NamedTuple):
    """A standing trigger ends, or without an id all triggers of the pond. Demand that they have made stays."""

    pond: str
    id: str | None = None


class Completed(NamedTuple):
    """An execution succeeded. `version` names its result; an earlier result that is reached again has its old version.
    The owner of the engine finds it in the catalog, so workers leave it out."""

    pond: str
    ripple: str
    freshness: int
    version: Version = 0


class Failed(NamedTuple):
    """An execution failed."""

    pond: str
    ripple: str
    freshness: int


class Cleared(NamedTuple):
    """A user says that the cause of the pond's failure is fixed: go on."""

    pond: str


class Delivered(NamedTuple):
    """The source of an Inlet says that it has something new: the next poll need not wait for `min_interval`."""

    pond: str


class GraphChanged(NamedTuple):
    """Ponds are added or replaced (by name), and removed."""

    ponds: tuple[PondSpec, ...] = ()
    removed: tuple[str, ...] = ()


class Tick(NamedTuple):
    """Time has passed: a WakeAt has come."""


Event = Demand | TriggerSet | TriggerCleared | Completed | Failed | Cleared | Delivered | GraphChanged | Tick


class StartRipple(NamedTuple):
    """Execute this ripple, reading the cut of its run and these versions of its parents."""

    pond: str
    ripple: str
    freshness: int
    attempt: int
    cut: tuple[SourceCut, ...]
    parents: tuple[tuple[str, Version], ...]


class CancelRipple(NamedTuple):
    """This execution is not wanted any more: the ripple, or what it reads, has changed or is gone."""

    pond: str
    ripple: str
    freshness: int


class RippleCompleted(NamedTuple):
    """An execution succeeded, and counts."""

    pond: str
    ripple: str
    freshness: int


class RippleFailed(NamedTuple):
    """An execution failed, and counts."""

    pond: str
    ripple: str
    freshness: int


class RipplePassed(NamedTuple):
    """The ripple's inputs have not changed: it reached the freshness without executing."""

    pond: str
    ripple: str
    freshness: int


class PondRunStarted(NamedTuple):
    """A pond run began; its freshness identifies it."""

    pond: str
    freshness: int
    delay: int


class RunCompleted(NamedTuple):
    """Every ripple reached the freshness, and at least one executed."""

    pond: str
    freshness: int
    delay: int


class RunPassed(NamedTuple):
    """Every ripple reached the freshness, and none had to execute."""

    pond: str
    freshness: int
    delay: int


class RunFailed(NamedTuple):
    """A ripple of the run failed and has no retry left."""

    pond: str
    freshness: int


class RunSuperseded(NamedTuple):
    """A fresher run completed first; this one will not complete."""

    pond: str
    freshness: int


class Blocked(NamedTuple):
    """The pond failed, or a source that it requires is failed or blocked: it takes no demand."""

    pond: str


class Unblocked(NamedTuple):
    """The pond takes demand again."""

    pond: str


class Demanded(NamedTuple):
    """Demand from outside or from a trigger was taken; `target` is None for a pull."""

    pond: str
    kind: Literal["tap", "pulse", "wave", "tide"]
    target: int | None


class DemandRefused(NamedTuple):
    """The pond is blocked, because of the failed pond `because`."""

    pond: str
    kind: Literal["tap", "pulse"]
    because: str


class WakeAt(NamedTuple):
    """Without an event nothing can happen before this time (None: ever). Replaces the previous WakeAt."""

    time: int | None


Effect = (
    StartRipple
    | CancelRipple
    | RippleCompleted
    | RippleFailed
    | RipplePassed
    | PondRunStarted
    | RunCompleted
    | RunPassed
    | RunFailed
    | RunSuperseded
    | Blocked
    | Unblocked
    | Demanded
    | DemandRefused
    | WakeAt
)

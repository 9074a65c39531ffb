"""The state of the engine: one record per pond with its ripples and its runs in flight, and what is ready now.

Freshness is a time in microseconds. Derived values (readers, order, gates) are kept beside the facts and are made anew
when a state is loaded; `saving.py` stores the facts under shorter keys. Only the rules change these records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from heapq import heappush

from headwater.freshness.events import Effect, SourceCut, Trigger, Version
from headwater.freshness.graph import PondSpec, RippleNode

SECOND = 1_000_000
NEVER = -(2**63)
"""The freshness of what has never run: below every other."""

Inputs = str
"""What a ripple executed on: its fingerprint, and the versions of its inputs."""


@dataclass(eq=False, repr=False, slots=True)
class Ripple:
    """One step of a pond. At most one execution of it is under way, and `start_freshness` is then its freshness."""

    pond: Pond
    spec: RippleNode
    start_freshness: int = NEVER
    end_freshness: int = NEVER
    has_pull: bool = False
    pulled_freshness: int = NEVER
    """The freshness of the last start that took a pull. If that run is abandoned, the pull is demand again."""
    targets: list[int] = field(default_factory=list)
    running: bool = False
    outdated: bool = False
    """The execution under way reads another cut than the run that began after it: it will not count."""
    failed_freshness: int = NEVER
    attempts: int = 0
    """How often it has failed at failed_freshness."""
    version: Version | None = None
    past_versions: list[tuple[int, Version]] = field(default_factory=list)
    """(freshness, version) of completions that a slower ripple of the pond may still read, oldest first."""
    inputs: Inputs | None = None
    """Of the last successful execution."""
    running_inputs: Inputs | None = None
    """Of the execution under way."""
    # Derived.
    parents: tuple[Ripple, ...] = ()
    children: tuple[Ripple, ...] = ()
    order: int = 0
    needed_freshness: int | None = None
    behind: int = 0
    queued: bool = False

    def version_at(self, freshness: int) -> Version:
        """Its version at a freshness it has reached, or at the next one if a fresher run superseded that one."""
        for past_freshness, version in self.past_versions:
            if past_freshness >= freshness:
                return version
        assert self.version is not None
        return self.version


@dataclass(eq=False, repr=False, slots=True)
class Run:
    """A pond run in flight: begun, and neither completed nor superseded yet."""

    freshness: int
    delay: int
    cut: tuple[SourceCut, ...]
    taken: list[int] = field(default_factory=list)
    """The targets it was started for. If its failure is cleared, they are demand again."""
    took_pull: bool = False
    gave_up: bool = False
    """A ripple of it failed, and the pond had no retry left."""
    abandoned: bool = False
    """The failure was cleared: its demand is the pond's again, and it will not complete. The newest one is kept until
    the next run begins, which may have the same freshness and use what its ripples have completed."""
    executed: bool = False


@dataclass(eq=False, repr=False, slots=True)
class Pond:
    """One pond. `start_freshness` is the freshness of its newest run, `end_freshness` of its newest completed run."""

    spec: PondSpec
    name: str = field(init=False)
    start_freshness: int = NEVER
    end_freshness: int = NEVER
    delay_start: int = 0
    delay_end: int = 0
    has_pull: bool = False
    targets: list[int] = field(default_factory=list)
    failed: bool = False
    failed_freshness: int = NEVER
    failures: int = 0
    retried: int = 0
    """Immediate retries since its last completed run, its last failed run or a clear."""
    runs: list[Run] = field(default_factory=list)
    """In flight, oldest first."""
    delivered: bool = False
    """An Inlet's source has something new since its newest run began."""
    is_due: bool = False
    """What it does has changed: it may run again at the freshness it has."""
    published: tuple[tuple[str, Version], ...] | None = None
    """Its ripples and their versions in its newest completed run: what a sink reads."""
    triggers: dict[str, Trigger] = field(default_factory=dict)
    ripples: tuple[Ripple, ...] = ()
    # Derived.
    blocked: bool = False
    blocked_sources: int = 0
    sources: tuple[Pond, ...] = ()
    push_sources: tuple[Pond, ...] = ()
    """The sources that gate it: the required ones; the optional ones if there are no others."""
    gated_by_all: bool = True
    sinks: list[Pond] = field(default_factory=list)
    required_by: list[Pond] = field(default_factory=list)
    roots: tuple[Ripple, ...] = ()
    leaves: tuple[Ripple, ...] = ()
    depth: int = 0
    order: int = 0
    needed_freshness: int | None = None
    behind: int = 0
    waiters: dict[Pond, None] = field(default_factory=dict)
    lowest_freshness: int = NEVER
    ripples_at_lowest: int = 0
    running: int = 0
    wake: int | None = None
    queued: bool = False
    looked_for: bool = False
    touched: bool = False

    def __post_init__(self) -> None:
        self.name = self.spec.name

    @property
    def is_inlet(self) -> bool:
        return not self.sources

    @property
    def is_running(self) -> bool:
        return self.start_freshness != self.end_freshness or self.running > 0

    @property
    def is_idle(self) -> bool:
        return not (self.start_freshness != self.end_freshness or self.running or self.has_pull or self.targets)

    @property
    def is_given_up(self) -> bool:
        """Its retries on change are used up, and so is the one fresher run that may end a failure without a retry."""
        return self.failed and self.failures > max(1, self.spec.retry_on_change)

    def run_at(self, freshness: int) -> Run | None:
        """The run in flight of that freshness."""
        for run in self.runs:
            if run.freshness == freshness and not run.abandoned:
                return run
        return None

    def find_lowest(self) -> None:
        """Finds the least end_freshness of its ripples, and how many ripples have it."""
        self.lowest_freshness = min(ripple.end_freshness for ripple in self.ripples)
        self.ripples_at_lowest = sum(ripple.end_freshness == self.lowest_freshness for ripple in self.ripples)


@dataclass(eq=False, repr=False, slots=True)
class State:
    """All ponds, and what must be checked. Between two steps nothing is ready: only time or an event moves it."""

    ponds: dict[str, Pond] = field(default_factory=dict)
    now: int = 0
    announced: int | None = None
    effects: list[Effect] = field(default_factory=list)
    touched: list[Pond] = field(default_factory=list)
    pond_at: list[Pond] = field(default_factory=list)
    ripple_at: list[Ripple] = field(default_factory=list)
    ready_ponds: list[int] = field(default_factory=list)
    ready_ripples: list[int] = field(default_factory=list)
    to_look: list[int] = field(default_factory=list)
    timers: list[tuple[int, str]] = field(default_factory=list)

    def touch(self, pond: Pond) -> None:
        """Notes that the pond's record has changed: it must be saved, and its triggers must be checked."""
        if not pond.touched:
            pond.touched = True
            self.touched.append(pond)
        if pond.triggers and not pond.looked_for:
            pond.looked_for = True
            heappush(self.to_look, pond.order)

    def queue_pond(self, pond: Pond) -> None:
        """Queues the pond for a check whether it starts a run."""
        if not pond.queued:
            pond.queued = True
            heappush(self.ready_ponds, pond.order)

    def queue_ripple(self, ripple: Ripple) -> None:
        """Queues the ripple for a check whether it starts."""
        if not ripple.queued:
            ripple.queued = True
            heappush(self.ready_ripples, ripple.order)


def add_target(targets: list[int], target: int) -> bool:
    """Adds to an ascending list; False if it was there."""
    if not targets or targets[-1] < target:
        targets.append(target)
        return True
    if targets[bisect_left(targets, target)] == target:
        return False
    insort(targets, target)
    return True


def take_targets(targets: list[int], freshness: int) -> list[int]:
    """Removes and returns the targets that the freshness satisfies."""
    count = bisect_right(targets, freshness)
    taken = targets[:count]
    del targets[:count]
    return taken

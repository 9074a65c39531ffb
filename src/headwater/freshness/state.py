"""The state of the engine: one record per pond with its ripples and its runs in flight, and what is ready now.

Freshness is a time in microseconds. Derived values (readers, order, gates) are kept beside the facts and are made anew
when a state is loaded; `saving.py` stores the facts under shorter keys. Only the rules change these records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heappush

from headwater.freshness.events import Effect, SourceCut, Trigger, Version
from headwater.freshness.graph import PondSpec, RippleNode

NEVER = -(2**63)
"""The freshness of what has never run: below every other."""

Inputs = str
"""What a ripple executed on: its fingerprint, and the versions of its inputs."""


class Ripple:
    """One step of a pond. At most one execution of it is under way, and `start_freshness` is then its freshness."""

    __slots__ = (
        "attempts",
        "behind",
        "children",
        "end_freshness",
        "failed_freshness",
        "has_pull",
        "inputs",
        "needed_freshness",
        "order",
        "outdated",
        "parents",
        "past_versions",
        "pond",
        "pulled_freshness",
        "queued",
        "running",
        "running_inputs",
        "spec",
        "start_freshness",
        "targets",
        "version",
    )

    def __init__(self, pond: Pond, spec: RippleNode) -> None:
        self.pond = pond
        self.spec = spec
        self.start_freshness = NEVER
        self.end_freshness = NEVER
        self.has_pull = False
        self.pulled_freshness = NEVER
        """The freshness of the last start that took a pull. If that run is abandoned, the pull is demand again."""
        self.targets: list[int] = []
        self.running = False
        self.outdated = False
        """The execution under way reads another cut than the run that began after it: it will not count."""
        self.failed_freshness = NEVER
        self.attempts = 0
        """How often it has failed at failed_freshness."""
        self.version: Version | None = None
        self.past_versions: list[tuple[int, Version]] = []
        """(freshness, version) of completions that a slower ripple of the pond may still read, oldest first."""
        self.inputs: Inputs | None = None
        """Of the last successful execution."""
        self.running_inputs: Inputs | None = None
        """Of the execution under way."""
        # Derived.
        self.parents: tuple[Ripple, ...] = ()
        self.children: tuple[Ripple, ...] = ()
        self.order = 0
        self.needed_freshness: int | None = None
        self.behind = 0
        self.queued = False

    def version_at(self, freshness: int) -> Version:
        """Its version at a freshness it has reached, or at the next one if a fresher run superseded that one."""
        for past_freshness, version in self.past_versions:
            if past_freshness >= freshness:
                return version
        assert self.version is not None
        return self.version


class Run:
    """A pond run in flight: begun, and neither completed nor superseded yet."""

    __slots__ = ("abandoned", "cut", "delay", "executed", "freshness", "gave_up", "taken", "took_pull")

    def __init__(self, freshness: int, delay: int, *, cut: tuple[SourceCut, ...]) -> None:
        self.freshness = freshness
        self.delay = delay
        self.cut = cut
        self.taken: list[int] = []
        """The targets it was started for. If its failure is cleared, they are demand again."""
        self.took_pull = False
        self.gave_up = False
        """A ripple of it failed, and the pond had no retry left."""
        self.abandoned = False
        """The failure was cleared: its demand is the pond's again, and it will not complete. The newest one is kept until
        the next run begins, which may have the same freshness and use what its ripples have completed."""
        self.executed = False


class Pond:
    """One pond. `start_freshness` is the freshness of its newest run, `end_freshness` of its newest completed run."""

    __slots__ = (
        "behind",
        "blocked",
        "blocked_sources",
        "delay_end",
        "delay_start",
        "delivered",
        "depth",
        "end_freshness",
        "failed",
        "failed_freshness",
        "failures",
        "gated_by_all",
        "has_pull",
        "is_due",
        "leaves",
        "looked_for",
        "lowest_freshness",
        "name",
        "needed_freshness",
        "order",
        "published",
        "push_sources",
        "queued",
        "required_by",
        "retried",
        "ripples",
        "ripples_at_lowest",
        "roots",
        "running",
        "runs",
        "sinks",
        "sources",
        "spec",
        "start_freshness",
        "targets",
        "touched",
        "triggers",
        "waiters",
        "wake",
    )

    def __init__(self, spec: PondSpec) -> None:
        self.name = spec.name
        self.spec = spec
        self.start_freshness = NEVER
        self.end_freshness = NEVER
        self.delay_start = 0
        self.delay_end = 0
        self.has_pull = False
        self.targets: list[int] = []
        self.failed = False
        self.failed_freshness = NEVER
        self.failures = 0
        self.retried = 0
        """Immediate retries since its last completed run, its last failed run or a clear."""
        self.runs: list[Run] = []
        """In flight, oldest first."""
        self.delivered = False
        """An Inlet's source has something new since its newest run began."""
        self.is_due = False
        """What it does has changed: it may run again at the freshness it has."""
        self.published: tuple[tuple[str, Version], ...] | None = None
        """Its ripples and their versions in its newest completed run: what a sink reads."""
        self.triggers: dict[str, Trigger] = {}
        self.ripples: tuple[Ripple, ...] = ()
        # Derived.
        self.blocked = False
        self.blocked_sources = 0
        self.sources: tuple[Pond, ...] = ()
        self.push_sources: tuple[Pond, ...] = ()
        """The sources that gate it: the required ones; the optional ones if there are no others."""
        self.gated_by_all = True
        self.sinks: list[Pond] = []
        self.required_by: list[Pond] = []
        self.roots: tuple[Ripple, ...] = ()
        self.leaves: tuple[Ripple, ...] = ()
        self.depth = 0
        self.order = 0
        self.needed_freshness: int | None = None
        self.behind = 0
        self.waiters: dict[Pond, None] = {}
        self.lowest_freshness = NEVER
        self.ripples_at_lowest = 0
        self.running = 0
        self.wake: int | None = None
        self.queued = False
        self.looked_for = False
        self.touched = False

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


class State:
    """All ponds, and what must be checked. Between two steps nothing is ready: only time or an event moves it."""

    __slots__ = (
        "announced",
        "effects",
        "now",
        "pond_at",
        "ponds",
        "ready_ponds",
        "ready_ripples",
        "ripple_at",
        "timers",
        "to_look",
        "touched",
    )

    def __init__(self) -> None:
        self.ponds: dict[str, Pond] = {}
        self.now = 0
        self.announced: int | None = None
        self.effects: list[Effect] = []
        self.touched: list[Pond] = []
        self.pond_at: list[Pond] = []
        self.ripple_at: list[Ripple] = []
        self.ready_ponds: list[int] = []
        self.ready_ripples: list[int] = []
        self.to_look: list[int] = []
        self.timers: list[tuple[int, str]] = []

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

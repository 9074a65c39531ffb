"""The state that the naive interpreter of the freshness theory keeps: ponds, ripples, runs, and what follows from them.

Together with `reference_rules.py` and `reference.py` this is a second, independent reading of the theory. It is slow and
plain on purpose: nothing is remembered that can be looked up again, so that it can be checked against the text by eye.
"""

from __future__ import annotations

from typing import Any

NEVER = -(10**30)
"""Sorts below every freshness, and is so far below that `now - NEVER` reaches every limit."""

Versions = tuple[Any, ...]
"""What an execution reads, as one comparable value."""


class Run:
    """One run of a pond, known by its freshness."""

    def __init__(self, f: int, d: int) -> None:
        self.f = f
        self.d = d
        self.cut: Versions = ()
        self.taken: set[int] = set()
        self.took_pull = False
        self.gave_up = False
        self.executed = False


class Ripple:
    """One unit operation of a pond."""

    def __init__(self, pond: Pond, name: str, seconds: float) -> None:
        self.pond = pond
        self.name = name
        self.duration = microseconds(seconds)
        self.parents: list[Ripple] = []
        self.start_f = NEVER
        self.end_f = NEVER
        self.has_pull = False
        self.pull_used_at = NEVER  # the freshness of the last run in which it handed on a pull
        self.has_delivery = False
        self.targets: set[int] = set()
        self.is_running = False
        self.version = 0
        self.version_at: dict[int, int] = {}
        self.read_at: dict[int, Versions] = {}
        self.inputs_of_last_success: Versions | None = None
        self.failed_at: list[int] = []
        self.starts = 0
        self.completions = 0

    @property
    def is_root(self) -> bool:
        return not self.parents

    @property
    def is_leaf(self) -> bool:
        return all(self not in other.parents for other in self.pond.ripples)

    @property
    def depth(self) -> int:
        return max((1 + parent.depth for parent in self.parents), default=0)


class Trigger:
    """A Wave, or a Tide with its limit."""

    def __init__(self, trigger_id: str, kind: str, limit: int) -> None:
        self.trigger_id = trigger_id
        self.kind = kind
        self.limit = limit


class Pond:
    """A group of ripples that runs as one."""

    def __init__(self, world: World, name: str, described: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.required: list[Pond] = []
        self.optional: list[Pond] = []
        self.windows = [
            (microseconds(window["start"]), microseconds(window["end"])) for window in described.get("windows", [])
        ]
        self.min_interval = microseconds(described.get("min_interval", 0.000001))
        self.retry_immediately = int(described.get("retry", {}).get("immediately", 0))
        self.retry_on_change = int(described.get("retry", {}).get("on_change", 0))
        self.always_run = bool(described.get("always_run", True))
        self.ripples = [Ripple(self, ripple, told["seconds"]) for ripple, told in described["ripples"].items()]
        for ripple in self.ripples:
            after = described["ripples"][ripple.name].get("after", [])
            ripple.parents = [other for other in self.ripples if other.name in after]
        self.start_f = NEVER
        self.end_f = NEVER
        self.start_d = 0
        self.end_d = 0
        self.has_pull = False
        self.targets: set[int] = set()
        self.is_failed = False
        self.is_blocked = False
        self.failed_f = NEVER
        self.failures = 0
        self.immediate_retries = 0
        self.runs: list[Run] = []
        self.abandoned_f = NEVER
        self.executed_for_no_run = False
        self.triggers: list[Trigger] = []
        self.reports_no_change = False
        self.finished: list[tuple[int, int, int]] = []  # when, endF, endD of every completion
        self.completed_runs = 0
        self.passes = 0
        self.waste = 0
        self.newest_is_unread_run = False

    @property
    def sources(self) -> list[Pond]:
        return self.required + self.optional

    @property
    def sinks(self) -> list[Pond]:
        return [other for other in self.world.ponds if self in other.sources]

    @property
    def required_sinks(self) -> list[Pond]:
        return [other for other in self.world.ponds if self in other.required]

    @property
    def push_sources(self) -> list[Pond]:
        """The Sources that get this pond's push targets: the required ones, or all if it has only optional ones."""
        return self.required or self.optional

    @property
    def is_inlet(self) -> bool:
        return not self.sources

    @property
    def depth(self) -> int:
        return max((1 + source.depth for source in self.sources), default=0)

    @property
    def is_running(self) -> bool:
        return self.start_f != self.end_f or any(ripple.is_running for ripple in self.ripples)


class Execution:
    """A ripple at work."""

    def __init__(self, ripple: Ripple, ends_at: int, inputs: Versions) -> None:
        self.ripple = ripple
        self.f = ripple.start_f
        self.ends_at = ends_at
        self.inputs = inputs
        self.is_outdated = False


class World:
    """Everything: the ponds, the executions under way (in the order they were started), the time, the timeline."""

    def __init__(self, pipelines: dict[str, dict[str, Any]]) -> None:
        self.now = 0
        self.timeline: list[dict[str, Any]] = []
        self.executions: list[Execution] = []
        self.ponds = [Pond(self, name, described) for name, described in pipelines.items()]
        for pond in self.ponds:
            pond.required = [self.pond(name) for name in pipelines[pond.name].get("sources", [])]
            pond.optional = [self.pond(name) for name in pipelines[pond.name].get("optional", [])]
        self.pond_order = sorted(self.ponds, key=lambda pond: -pond.depth)
        self.ripple_order = [
            ripple for pond in self.pond_order for ripple in sorted(pond.ripples, key=lambda ripple: -ripple.depth)
        ]

    def pond(self, name: str) -> Pond:
        return next(pond for pond in self.ponds if pond.name == name)

    def say(self, event: str, pond: Pond, **more: Any) -> None:
        self.timeline.append({"at": seconds(self.now), "event": event, "pipeline": pond.name, **more})


def microseconds(given: float) -> int:
    return round(given * 1_000_000)


def seconds(time: int) -> float | None:
    """A time or freshness as an answer has it."""
    return None if time == NEVER else time / 1_000_000


def pond_source_f(pond: Pond) -> int | None:
    """The freshness available to a pond; None: an Inlet that may not look at its source now."""
    now = pond.world.now
    if pond.is_inlet:
        if pond.windows:
            return next((end for start, end in pond.windows if start <= now < end), None)
        if pond.start_f != NEVER and now < pond.start_f + (1 if pond.has_delivery else pond.min_interval):
            return None
        return now
    if pond.required:
        return min(source.end_f for source in pond.required)
    return max(source.end_f for source in pond.optional)


def pond_source_d(pond: Pond, f: int) -> int:
    """The delay that a run of freshness f starts with."""
    if pond.is_inlet:
        return next((end - start for start, end in pond.windows if end == f), 0)
    return max(source.end_d for source in pond.push_sources if source.end_f == f)


def ripple_source_f(ripple: Ripple) -> int:
    if ripple.is_root:
        return ripple.pond.start_f
    return min(parent.end_f for parent in ripple.parents)


def version_for(ripple: Ripple, f: int) -> int:
    """What a reader of freshness f reads of this ripple: its oldest version that is at least that fresh."""
    return ripple.version_at[min(at for at in ripple.version_at if at >= f)]


def versions_of_newest_run(source: Pond) -> Versions:
    """What a Sink's run that starts now would read of this pond."""
    if source.end_f == NEVER:
        return ("empty",)
    return tuple(version_for(ripple, source.end_f) for ripple in source.ripples)


def run_of(pond: Pond, f: int) -> Run | None:
    """The run in flight of that freshness."""
    return next((run for run in pond.runs if run.f == f), None)


def cut_as_told(pond: Pond, f: int) -> dict[str, int | None]:
    """What a run reads of each Source, as one number: the sum of the versions of its ripples."""
    run = run_of(pond, f)
    assert run is not None
    return {
        source.name: None if versions == ("empty",) else sum(versions)
        for source, versions in zip(pond.sources, run.cut, strict=True)
    }


def inputs_of(ripple: Ripple, f: int) -> Versions:
    if ripple.is_root:
        run = run_of(ripple.pond, f)
        assert run is not None
        return run.cut
    return tuple(version_for(parent, f) for parent in ripple.parents)

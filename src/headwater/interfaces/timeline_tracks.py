"""What a timeline picture shows, as times and values: who executed when, who asked, how stale each result was.

Made from a scenario and its answer; knows nothing of pixels. Times are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headwater.app.simulate import SECOND, Scenario, ScenarioPipeline

Outcome = Literal["completed", "failed", "running"]


@dataclass(frozen=True)
class Bar:
    """One execution, or `count` of them that are too short to be drawn apart."""

    start: int
    end: int
    freshness: int
    outcome: Outcome
    attempt: int = 1
    count: int = 1


@dataclass(frozen=True)
class Mark:
    """Something at one moment: demand of a kind, or a failure cleared by hand."""

    at: int
    kind: str
    refused: bool = False


@dataclass(frozen=True)
class TimeSpan:
    start: int
    end: int


@dataclass
class RippleTrack:
    """The executions of one ripple, and the moments when it passed."""

    name: str
    bars: list[Bar] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)


@dataclass
class PipelineTrack:
    """One pipeline over time. `drops` are (time, staleness) at each completion; in between staleness grows with time.
    `limits` are what its tides allow. `standing` are the times in which a wave or tide was set."""

    pipeline: ScenarioPipeline
    ripples: dict[str, RippleTrack]
    marks: list[Mark] = field(default_factory=list)
    standing: list[TimeSpan] = field(default_factory=list)
    unchanged: list[TimeSpan] = field(default_factory=list)
    windows: list[TimeSpan] = field(default_factory=list)
    blocked: list[TimeSpan] = field(default_factory=list)
    drops: list[tuple[int, int]] = field(default_factory=list)
    limits: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.pipeline.name

    def most_stale(self, end: int) -> int:
        """The largest staleness approached from the first completion to the end."""
        if not self.drops:
            return 0
        following = [*(at for at, _ in self.drops[1:]), end]
        return max(value + after - at for (at, value), after in zip(self.drops, following))


@dataclass(frozen=True)
class Tracks:
    """All pipelines, sources above their readers; time goes from 0 to `end`."""

    pipelines: tuple[PipelineTrack, ...]
    end: int


def tracks_of(scenario: Scenario, answer: Mapping[str, Any]) -> Tracks:
    """The tracks of an answer (CONTRACTS section 6) to this scenario."""
    timeline: Sequence[Mapping[str, Any]] = answer["timeline"]
    last = max((_us(entry["at"]) for entry in timeline), default=0)
    last = max([last, *(event.at for event in scenario.events)])
    end = (scenario.until if scenario.until is not None else last) or SECOND
    tracks = {
        pipeline.name: PipelineTrack(pipeline, {ripple.name: RippleTrack(ripple.name) for ripple in pipeline.ripples})
        for pipeline in in_order(scenario.pipelines)
    }
    for track in tracks.values():
        track.windows = [
            TimeSpan(max(0, start), min(end, stop)) for start, stop in track.pipeline.windows if start < end
        ]
    _replay(tracks, timeline, end)
    _events(tracks, scenario, end)
    return Tracks(tuple(tracks.values()), end)


def in_order(pipelines: Iterable[ScenarioPipeline]) -> list[ScenarioPipeline]:
    """Sources before their readers: by the longest way from an Inlet, then as declared."""
    declared = {pipeline.name: pipeline for pipeline in pipelines}
    depth: dict[str, int] = {}
    for name in declared:
        way = [name]
        while way:
            sources = [source for source in _sources(declared[way[-1]]) if source not in depth]
            if sources:
                way += sources
            else:
                done = way.pop()
                depth[done] = max((depth[source] + 1 for source in _sources(declared[done])), default=0)
    return sorted(declared.values(), key=lambda pipeline: depth[pipeline.name])


def merged_bars(bars: Sequence[Bar], cell: float) -> list[Bar]:
    """The bars, with those shorter than `cell` and nearer to each other than that made into one. Failed ones are merged
    among themselves and come last, to be drawn above the others."""
    failed = [bar for bar in bars if bar.outcome == "failed"]
    others = [bar for bar in bars if bar.outcome != "failed"]
    return [*_merged(others, cell), *_merged(failed, cell)]


def _merged(bars: Sequence[Bar], cell: float) -> list[Bar]:
    kept: list[Bar] = []
    for bar in bars:
        last = kept[-1] if kept else None
        if (
            last is not None
            and (last.count > 1 or last.end - last.start < cell)
            and bar.end - bar.start < cell
            and bar.start - last.end < cell
        ):
            kept[-1] = replace(last, end=bar.end, count=last.count + 1)
        else:
            kept.append(bar)
    return kept


def merged_spans(spans: Sequence[TimeSpan], cell: float) -> list[TimeSpan]:
    """The spans, with those shorter than `cell` and nearer to each other than that made into one."""
    kept: list[TimeSpan] = []
    for span in spans:
        if kept and span.end - span.start < cell and span.start - kept[-1].end < cell:
            kept[-1] = TimeSpan(kept[-1].start, span.end)
        else:
            kept.append(span)
    return kept


# ---- the replay of a timeline


@dataclass
class _Running:
    """What is known about a pipeline at one moment of the timeline."""

    started: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    delays: dict[int, int] = field(default_factory=dict)
    end_freshness: int | None = None
    end_delay: int = 0
    blocked_since: int | None = None


def _replay(tracks: Mapping[str, PipelineTrack], timeline: Sequence[Mapping[str, Any]], end: int) -> None:
    running = {name: _Running() for name in tracks}
    for entry in timeline:
        track, now = tracks[entry["pipeline"]], running[entry["pipeline"]]
        at = _us(entry["at"])
        match entry["event"]:
            case "demand" | "demand_refused" as event:
                track.marks.append(Mark(at, entry["kind"], refused=event == "demand_refused"))
            case "run_started":
                freshness = _us(entry["freshness"])
                now.delays[freshness] = _delay(track.pipeline, freshness, running)
            case "ripple_started":
                now.started[entry["ripple"]] = (at, _us(entry["freshness"]), entry["attempt"])
            case "ripple_completed" | "ripple_failed" as event:
                outcome: Outcome = "completed" if event == "ripple_completed" else "failed"
                _end_bar(track, now, entry["ripple"], at, outcome)
            case "ripple_passed":
                track.ripples[entry["ripple"]].passes.append(at)
            case "run_completed" | "run_passed":
                _complete(track, now, at, _us(entry["freshness"]))
            case "blocked":
                now.blocked_since = at
            case "unblocked" if now.blocked_since is not None:
                track.blocked.append(TimeSpan(now.blocked_since, at))
                now.blocked_since = None
    for name, now in running.items():
        for ripple in list(now.started):
            _end_bar(tracks[name], now, ripple, end, "running")
        if now.blocked_since is not None:
            tracks[name].blocked.append(TimeSpan(now.blocked_since, end))


def _end_bar(track: PipelineTrack, now: _Running, ripple: str, at: int, outcome: Outcome) -> None:
    start, freshness, attempt = now.started.pop(ripple)
    track.ripples[ripple].bars.append(Bar(start, at, freshness, outcome, attempt))


def _complete(track: PipelineTrack, now: _Running, at: int, freshness: int) -> None:
    now.end_freshness, now.end_delay = freshness, now.delays.get(freshness, 0)
    now.delays = {other: delay for other, delay in now.delays.items() if other > freshness}
    track.drops.append((at, at + now.end_delay - freshness))


def _delay(pipeline: ScenarioPipeline, freshness: int, running: Mapping[str, _Running]) -> int:
    """D of a run: the length of its window, or the largest of the sources that bound its freshness."""
    if not _sources(pipeline):
        return next((stop - start for start, stop in pipeline.windows if stop == freshness), 0)
    bounding = (running[source] for source in pipeline.sources or pipeline.optional)
    return max((source.end_delay for source in bounding if source.end_freshness == freshness), default=0)


# ---- what the scenario's events say


def _events(tracks: Mapping[str, PipelineTrack], scenario: Scenario, end: int) -> None:
    standing: dict[tuple[str, str], int] = {}
    unchanged: dict[str, int] = {}
    for event in sorted(scenario.events, key=lambda event: event.at):
        if event.at > end:
            continue
        track = tracks[event.pipeline]
        match event.do:
            case "wave" | "tide":
                standing.setdefault((event.pipeline, event.trigger_id or event.do), event.at)
                if event.do == "tide":
                    track.limits = (*track.limits, event.max_staleness)
            case "untrigger":
                for key in [key for key in standing if key[0] == event.pipeline]:
                    if event.trigger_id in ("", key[1]):
                        track.standing.append(TimeSpan(standing.pop(key), event.at))
            case "clear":
                track.marks.append(Mark(event.at, "clear"))
            case "unchanged":
                unchanged.setdefault(event.pipeline, event.at)
            case "changed" if event.pipeline in unchanged:
                track.unchanged.append(TimeSpan(unchanged.pop(event.pipeline), event.at))
    for (name, _), start in standing.items():
        tracks[name].standing.append(TimeSpan(start, end))
    for name, start in unchanged.items():
        tracks[name].unchanged.append(TimeSpan(start, end))
    for track in tracks.values():
        track.marks.sort(key=lambda mark: mark.at)
        track.limits = tuple(sorted(set(track.limits)))


def _sources(pipeline: ScenarioPipeline) -> tuple[str, ...]:
    return pipeline.sources + pipeline.optional


def _us(seconds: float) -> int:
    return round(seconds * SECOND)

"""The content of a timeline picture, without pixels: executions, demand, windows and failures of each pipeline.

Times are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.app.simulate import SECOND, PondSpec, Scenario, depths


@dataclass(frozen=True)
class TimeSpan:
    """`kind` is how an execution ended (`completed`, `failed`, `running`), or `window`, `blocked`, `standing`,
    `unchanged`. `count` is more than 1 for executions that are too short to be drawn apart."""

    kind: str
    start: int
    end: int
    freshness: int = 0
    attempt: int = 1
    count: int = 1


@dataclass
class Track:
    """One pipeline over time. `spans` and `passes` are by ripple; the spans of the pipeline itself are under "".
    `marks` are (time, kind of demand or `clear`, refused). `limits` are the limits of its tides."""

    pipeline: PondSpec
    spans: dict[str, list[TimeSpan]] = field(default_factory=lambda: {"": []})
    passes: dict[str, list[int]] = field(default_factory=dict)
    marks: list[tuple[int, str, bool]] = field(default_factory=list)
    limits: set[int] = field(default_factory=set)
    begun: dict[tuple[str, str], TimeSpan] = field(default_factory=dict)
    """Spans that have not ended, by ripple and name."""

    def begin(self, ripple: str, name: str, span: TimeSpan) -> None:
        self.begun.setdefault((ripple, name), span)

    def finish(self, ripple: str, name: str, at: int, kind: str = "") -> None:
        span = self.begun.pop((ripple, name), None)
        if span is not None:
            self.spans.setdefault(ripple, []).append(replace(span, end=at, kind=kind or span.kind))


def tracks_of(scenario: Scenario, timeline: Sequence[Mapping[str, Any]]) -> tuple[list[Track], int]:
    """The tracks, sources above their readers, and the end of time."""
    last = max([_us(entry["at"]) for entry in timeline] + [event.at for event in scenario.events], default=0)
    end = (scenario.until if scenario.until is not None else last) or SECOND
    tracks = {pipeline.name: Track(pipeline) for pipeline in in_order(scenario.pipelines)}
    for entry in timeline:
        _add_entry(tracks[entry["pipeline"]], entry)
    _add_events(tracks, scenario, end)
    for pipeline, track in tracks.items():
        opened = scenario.windows.get(pipeline, ())
        windows = [TimeSpan("window", max(0, start), min(end, stop)) for start, stop in opened]
        track.spans[""] += [window for window in windows if window.start < end]
        for ripple, name in list(track.begun):
            track.finish(ripple, name, end)
        track.marks.sort(key=lambda mark: mark[0])
    return list(tracks.values()), end


def in_order(pipelines: Iterable[PondSpec]) -> list[PondSpec]:
    """Sources before their readers: by the longest path from an Inlet, then as declared."""
    depth = depths({pipeline.name: pipeline.sources for pipeline in pipelines})
    return sorted(pipelines, key=lambda pipeline: depth[pipeline.name])


def merged(spans: Iterable[TimeSpan], cell: float) -> list[TimeSpan]:
    """Joins spans of one kind that are shorter than `cell` and closer to each other than that. Failures come last, so
    that they are drawn on top."""
    kept: dict[str, list[TimeSpan]] = {}
    for span in spans:
        same = kept.setdefault(span.kind, [])
        last = same[-1] if same else TimeSpan("", -1, -1, count=0)
        is_short = span.end - span.start < cell and (last.count > 1 or last.end - last.start < cell)
        if last.count and is_short and span.start - last.end < cell:
            same[-1] = replace(last, end=span.end, count=last.count + 1)
        else:
            same.append(span)
    return [span for kind in sorted(kept, key="failed".__eq__) for span in kept[kind]]


def _add_entry(track: Track, entry: Mapping[str, Any]) -> None:
    at, ripple = _us(entry["at"]), entry.get("ripple", "")
    match entry["event"]:
        case "demand" | "demand_refused" as event:
            track.marks.append((at, entry["kind"], event == "demand_refused"))
        case "ripple_started":
            track.begin(ripple, "", TimeSpan("running", at, at, _us(entry["freshness"]), entry["attempt"]))
        case "ripple_completed" | "ripple_failed" as event:
            track.finish(ripple, "", at, event.removeprefix("ripple_"))
        case "ripple_passed":
            track.passes.setdefault(ripple, []).append(at)
        case "blocked":
            track.begin("", "blocked", TimeSpan("blocked", at, at))
        case "unblocked":
            track.finish("", "blocked", at)


def _add_events(tracks: Mapping[str, Track], scenario: Scenario, end: int) -> None:
    for event in sorted(scenario.events, key=lambda event: event.at):
        track, at = tracks[event.pipeline], event.at
        if at > end:
            continue
        match event.do:
            case "wave" | "tide":
                track.begin("", f"by {event.trigger_id or event.do}", TimeSpan("standing", at, at))
                track.limits |= {event.max_staleness} - {0}
            case "untrigger":
                for _, name in [begun for begun in track.begun if begun[1].startswith("by ")]:
                    if event.trigger_id in ("", name.removeprefix("by ")):
                        track.finish("", name, at)
            case "clear":
                track.marks.append((at, "clear", False))
            case "unchanged":
                track.begin("", "unchanged", TimeSpan("unchanged", at, at))
            case "changed":
                track.finish("", "unchanged", at)


def _us(seconds: float) -> int:
    return round(seconds * SECOND)

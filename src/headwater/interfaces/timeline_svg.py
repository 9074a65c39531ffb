"""A simulation as a picture: one lane per ripple with its executions, who asked when, and how stale each result was.

Pure text, no library. The same answer always gives the same bytes; the size is bounded whatever the simulation: what
is narrower than a pixel is merged, and of very many pipelines the first are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.app.simulate import Scenario
from headwater.base import limits
from headwater.interfaces import timeline_marks as mark
from headwater.interfaces.timeline_legend import legend
from headwater.interfaces.timeline_scale import fitted, round_up, text_width, ticks, time_text
from headwater.interfaces.timeline_tracks import Bar, PipelineTrack, Tracks, merged_bars, merged_spans, tracks_of

WIDTH = 1200
LEFT, RIGHT = 220, 130
"""The columns beside the plot: names on the left, counts on the right."""
PLOT = WIDTH - LEFT - RIGHT
MARGIN = 18
HEAD = 22
"""The height of a pipeline's own row, where demand is marked."""
GAP = 8
TICK_WIDTH = 75
"""An axis has at most one tick in so many pixels."""

_COUNTS = {"passes": "passed", "waste": "read by nobody"}


def timeline_svg(scenario: Scenario, answer: Mapping[str, Any], *, title: str = "") -> str:
    """The picture of an answer (CONTRACTS section 6) to this scenario, as the text of an SVG file."""
    whole = tracks_of(scenario, answer)
    shown = _within_bounds(whole.pipelines)
    tracks = Tracks(shown, whole.end)
    picture = _Picture(tracks, answer, left_out=len(whole.pipelines) - len(shown))
    return picture.text(title or _title(tracks), _subtitle(scenario, tracks.end))


def _within_bounds(pipelines: Sequence[PipelineTrack]) -> tuple[PipelineTrack, ...]:
    """The first pipelines, as many as have room; always at least one."""
    lanes = 0
    kept: list[PipelineTrack] = []
    for track in pipelines:
        lanes += len(track.ripples)
        if kept and lanes > limits.TIMELINE_TRACKS:
            break
        kept.append(track)
    return tuple(kept)


def _title(tracks: Tracks) -> str:
    names = [track.name for track in tracks.pipelines]
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{listed}: {time_text(tracks.end)}"


def _subtitle(scenario: Scenario, end: int) -> str:
    """Who asked for what, in the words of the scenario."""
    asked = []
    for event in sorted((event for event in scenario.events if event.at <= end), key=lambda event: event.at):
        kind = f"tide of {time_text(event.max_staleness)}" if event.do == "tide" else event.do
        asked.append(f"{kind} on {event.pipeline} at {time_text(event.at)}")
    return " · ".join(asked) or "nobody asks for anything"


@dataclass
class _Picture:
    """One picture while it is drawn, from top to bottom."""

    tracks: Tracks
    answer: Mapping[str, Any]
    left_out: int

    def __post_init__(self) -> None:
        lanes = sum(len(track.ripples) for track in self.tracks.pipelines)
        self.lane = 22 if lanes <= 24 else 16
        self.row = 46 if len(self.tracks.pipelines) <= 8 else 32
        self.cell, self.bars = self._bars()
        drawn = [bar for bars in self.bars.values() for bar in bars]
        self.titled = len(drawn) <= limits.TIMELINE_TITLES
        distinct = sorted({bar.freshness for bar in drawn})
        self.colours = {value: mark.GENERATIONS[index % len(mark.GENERATIONS)] for index, value in enumerate(distinct)}

    def _bars(self) -> tuple[float, dict[tuple[str, str], list[Bar]]]:
        """The bars of every lane, and how much time is too little to be drawn: a pixel, or more if there are too many."""
        cell = self.tracks.end / PLOT
        while True:
            bars = {
                (track.name, ripple.name): merged_bars(ripple.bars, cell)
                for track in self.tracks.pipelines
                for ripple in track.ripples.values()
            }
            if sum(map(len, bars.values())) <= limits.TIMELINE_BARS:
                return cell, bars
            cell *= 2

    def x(self, time: float) -> float:
        return LEFT + time / self.tracks.end * PLOT

    def text(self, title: str, subtitle: str) -> str:
        parts: list[str] = []
        y = 30.0
        parts.append(mark.words(MARGIN, y, fitted(title, 16, WIDTH - 2 * MARGIN, bold=True), size=16, bold=True))
        y += 20
        parts.append(mark.words(MARGIN, y, fitted(subtitle, 11, WIDTH - 2 * MARGIN), fill=mark.MUTED))
        y += 26
        for heading, draw in (("What ran", self._lanes), ("How stale it is", self._staleness)):
            drawn, height = draw(y + 14)
            parts += self._axis(y, y + 14 + height, heading)
            parts += drawn
            y += height + 38
        if self.left_out:
            more = f"{self.left_out:,} more pipelines are not drawn"
            parts.append(mark.words(MARGIN, y, more, fill=mark.MUTED))
            y += 20
        explained, y = legend(self.tracks, y, width=WIDTH - 2 * MARGIN, left=MARGIN, several=self._has_several())
        parts += explained
        height = round(y + 8)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="{mark.FONT}">'
        )
        described = f"<title>{mark.plain(title)}</title><desc>{mark.plain(subtitle)}</desc>"
        ground = mark.box(0, 0, WIDTH, height, 'fill="#ffffff"')
        return "\n".join([head, described, mark.DEFINITIONS, ground, *parts, "</svg>", ""])

    def _has_several(self) -> bool:
        return any(bar.count > 1 for bars in self.bars.values() for bar in bars)

    def _axis(self, y: float, bottom: float, heading: str) -> Iterator[str]:
        """The heading of a part, its time axis, and grid lines down to its bottom."""
        yield mark.words(MARGIN, y, heading, size=12, bold=True)
        for time in ticks(self.tracks.end, PLOT / TICK_WIDTH):
            x = self.x(time)
            yield mark.words(x, y, time_text(time), size=10, fill=mark.MUTED, anchor="middle")
            yield mark.line(x, y + 5, x, bottom, mark.GRID)

    # ---- lanes

    def _lanes(self, y: float) -> tuple[list[str], float]:
        parts: list[str] = []
        top = y
        for track in self.tracks.pipelines:
            height = HEAD + self.lane * len(track.ripples) + 3
            parts += self._ground(track, y, height)
            parts += self._head(track, y)
            lane = y + HEAD
            for name in track.ripples:
                parts += self._lane(track, name, lane)
                lane += self.lane
            y += height + GAP
        return parts, y - top - GAP

    def _ground(self, track: PipelineTrack, y: float, height: float) -> Iterator[str]:
        """What lies behind a pipeline's lanes: a band, its windows, the times when it was blocked."""
        yield mark.box(MARGIN - 6, y, LEFT - MARGIN - 4, height, f'fill="{mark.BAND}" rx="4"')
        yield mark.box(LEFT, y, PLOT, height, f'fill="none" stroke="{mark.FRAME}"')
        for span in merged_spans(track.windows, self.cell):
            left, right = self.x(span.start), self.x(span.end)
            yield mark.box(left, y, right - left, height, f'fill="{mark.WINDOW}" fill-opacity="0.7"')
            yield mark.line(left, y, left, y + height, mark.WINDOW_EDGE, width=1.5)
        for span in merged_spans(track.blocked, self.cell):
            left, right = self.x(span.start), self.x(span.end)
            yield mark.box(left, y, max(right - left, 1.5), height, 'fill="url(#blocked)"')

    def _head(self, track: PipelineTrack, y: float) -> Iterator[str]:
        """A pipeline's name, what it reads, the demand on it, and what came of it."""
        room = LEFT - MARGIN - 14
        name = fitted(track.name, 12, room, bold=True)
        yield mark.words(MARGIN, y + 15, name, size=12, bold=True, whole=track.name)
        used = text_width(name, 12, bold=True) + 8
        reads = fitted(_reads(track), 10, room - used)
        if len(reads) >= len("reads a"):
            yield mark.words(MARGIN + used, y + 15, reads, size=10, fill=mark.MUTED, whole=_reads(track))
        yield from self._counts(track, y + 15)
        middle = y + HEAD / 2
        for span in merged_spans(track.standing, self.cell):
            yield mark.line(self.x(span.start), middle, self.x(span.end), middle, mark.MUTED, width=1.2)
        for span in merged_spans(track.unchanged, self.cell):
            below = y + HEAD - 2
            yield mark.line(self.x(span.start), below, self.x(span.end), below, mark.MUTED, width=1.4, dash="2 3")
        yield from self._demand(track, middle)

    def _counts(self, track: PipelineTrack, y: float) -> Iterator[str]:
        """What came of it all, beside the plot."""
        found = self.answer["pipelines"][track.name]
        runs = found["runs"]
        said = [(f"{runs:,} run{'' if runs == 1 else 's'}", mark.MUTED)]
        if found["state"] in ("failed", "blocked"):
            said.append((f"{found['state']} at the end", mark.FAILED))
        said += [(f"{found[key]:,} {word}", mark.MUTED) for key, word in _COUNTS.items() if found[key]]
        for index, (text, fill) in enumerate(said[:3]):
            yield mark.words(WIDTH - RIGHT + 10, y + 12 * index, text, size=10, fill=fill)

    def _demand(self, track: PipelineTrack, y: float) -> Iterator[str]:
        """The marks of who asked, from left to right; two of a kind in one place are one, others move aside a little."""
        free, last = 0.0, ""
        for found in track.marks:
            x = self.x(found.at)
            kind = f"{found.kind} {found.refused}"
            if x < free and (kind == last or free - x > 2 * mark.GLYPH):
                continue
            x = min(max(x, free), WIDTH - RIGHT)
            said = f"{found.kind} at {time_text(found.at)}{', refused' if found.refused else ''}"
            yield mark.glyph(x, y, found.kind, refused=found.refused, title=said if self.titled else "")
            free, last = x + mark.GLYPH, kind

    def _lane(self, track: PipelineTrack, name: str, y: float) -> Iterator[str]:
        size = 11 if self.lane > 20 else 10
        base = y + self.lane / 2 + 3.5
        label = fitted(name, size, LEFT - MARGIN - 24)
        yield mark.words(MARGIN + 10, base, label, size=size, fill=mark.MUTED, whole=name)
        for bar in self.bars[track.name, name]:
            yield from self._bar(bar, y, name)
        drawn = -1.0
        for at in track.ripples[name].passes:
            x = self.x(at)
            if x - drawn >= 2:
                yield mark.line(x, y + 2, x, y + self.lane - 2, mark.TEXT, width=1.6)
                drawn = x

    def _bar(self, bar: Bar, y: float, name: str) -> Iterator[str]:
        width = max(self.x(bar.end) - self.x(bar.start), 1.5)
        left = min(self.x(bar.start), LEFT + PLOT - width)
        fill, edge = self.colours[bar.freshness]
        style = f'fill="{fill}" stroke="{edge}"'
        if bar.outcome == "failed":
            style = f'fill="url(#failed)" stroke="{mark.FAILED}"'
        elif bar.count > 1:
            style = f'fill="{mark.SEVERAL}" stroke="{mark.MUTED}"'
        elif bar.outcome == "running" and width > 6:
            style += ' stroke-dasharray="4 3"'
        top, height = y + 2.5, self.lane - 5
        yield mark.box(left, top, width, height, f'{style} rx="2" class="bar"', title=self._said(bar, name))
        room = width - 4
        if bar.outcome == "failed":
            yield mark.cross(left + width - 7 if width > 14 else left + width / 2, top + height / 2)
            room -= 10
        label = self._label(bar, room)
        if label:
            yield mark.words(left + 2 + room / 2, top + height / 2 + 3.5, label, size=10, anchor="middle")

    def _label(self, bar: Bar, room: float) -> str:
        """What is written in a bar: as much as has room."""
        if bar.count > 1:
            labels = [f"{bar.count:,} executions", f"{bar.count:,}"]
        else:
            labels = [time_text(bar.freshness)]
            if bar.attempt > 1:
                labels.insert(0, f"{labels[0]}, try {bar.attempt}")
        return next((label for label in labels if text_width(label, 10) <= room), "")

    def _said(self, bar: Bar, name: str) -> str:
        if not self.titled:
            return ""
        when = f"{time_text(bar.start)} to {time_text(bar.end)}, {bar.outcome}"
        if bar.count > 1:
            return f"{name}: {bar.count:,} executions, {when}"
        attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
        return f"{name}: freshness {time_text(bar.freshness)}{attempt}, {when}"

    # ---- staleness

    def _staleness(self, y: float) -> tuple[list[str], float]:
        parts: list[str] = []
        start = y
        end = self.tracks.end
        most = max(max([track.most_stale(end), *track.limits]) for track in self.tracks.pipelines)
        top = round_up(most)
        for track in self.tracks.pipelines:
            parts += self._sawtooth(track, y, top)
            y += self.row + GAP
        return parts, y - start - GAP

    def _sawtooth(self, track: PipelineTrack, y: float, top: int) -> Iterator[str]:
        bottom, height = y + self.row, self.row - 4
        yield mark.box(MARGIN - 6, y, LEFT - MARGIN - 4, self.row, f'fill="{mark.BAND}" rx="4"')
        yield mark.box(LEFT, y, PLOT, self.row, f'fill="none" stroke="{mark.FRAME}"')
        room = LEFT - MARGIN - 64
        base = y + self.row / 2 + 4
        name = fitted(track.name, 12, room, bold=True)
        yield mark.words(MARGIN, base, name, size=12, bold=True, whole=track.name)
        yield mark.words(LEFT - 16, y + 11, time_text(top), size=9, fill=mark.MUTED, anchor="end")
        yield mark.words(LEFT - 16, bottom - 3, "0", size=9, fill=mark.MUTED, anchor="end")
        for limit in track.limits:
            at = bottom - limit / top * height
            yield mark.line(LEFT, at, LEFT + PLOT, at, mark.LIMIT, dash="5 3")
        if not track.drops or self.x(track.drops[0][0]) > LEFT + 100:
            yield mark.box(LEFT + 5, base - 10, 80, 14, 'fill="#ffffff"')  # no line runs through the words
            yield mark.words(LEFT + 8, base, "no result yet", size=10, fill=mark.MUTED)
        if not track.drops:
            return
        yield from self._teeth(track, bottom, height / top)
        found = self.answer["pipelines"][track.name]["staleness"]
        said = [f"mean {_seconds(found['mean'])}", f"max {_seconds(found['max'])}"]
        if track.limits and self.row > 40:
            said.append(f"limit {time_text(track.limits[0])}")
        first = base - 6 * (len(said) - 1)
        for index, text in enumerate(said):
            fill = mark.LIMIT if text.startswith("limit") else mark.MUTED
            yield mark.words(WIDTH - RIGHT + 10, first + 12 * index, text, size=10, fill=fill)

    def _teeth(self, track: PipelineTrack, bottom: float, scale: float) -> Iterator[str]:
        """Staleness over time: a drop at each completion, then one second a second. Many drops in one place become one,
        from the highest to the lowest value there."""
        before = track.drops[0]
        points: list[tuple[float, float]] = [(self.x(before[0]), before[1])]
        apart = max(1.0, 2 * PLOT * len(self.tracks.pipelines) / limits.TIMELINE_POINTS)
        for at, value in track.drops[1:]:
            high = before[1] + at - before[0]
            x = self.x(at)
            if len(points) > 2 and x - points[-2][0] < apart:
                points[-2] = (points[-2][0], max(points[-2][1], high))
                points[-1] = (points[-2][0], min(points[-1][1], value))
            else:
                points += [(x, high), (x, value)]
            before = at, value
        end = self.tracks.end
        points.append((self.x(end), before[1] + end - before[0]))
        places = [f"{mark.number(x)} {mark.number(bottom - value * scale)}" for x, value in points]
        outline = "L".join(places)
        left, right = (mark.number(points[index][0]) for index in (0, -1))
        ground = mark.number(bottom)
        yield f'<path d="M{left} {ground}L{outline}L{right} {ground}Z" fill="{mark.LINE}" fill-opacity="0.12"/>'
        yield f'<path d="M{outline}" fill="none" stroke="{mark.LINE}" stroke-width="1.4" stroke-linejoin="round"/>'


def _reads(track: PipelineTrack) -> str:
    pipeline = track.pipeline
    names = [*pipeline.sources, *(f"({name})" for name in pipeline.optional)]
    return f"reads {', '.join(names)}" if names else ""


def _seconds(value: float | None) -> str:
    return "-" if value is None else time_text(value * 1_000_000)

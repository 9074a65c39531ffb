"""Draws a simulation as SVG: a row for each ripple with its executions, the demand, and the staleness of each result.

The same simulation always gives the same bytes. The size is bounded: anything narrower than a pixel is merged, and only
the first of very many pipelines are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil

from headwater.app.simulate import SECOND, Scenario, Simulated
from headwater.base import limits
from headwater.interfaces.timeline_tracks import TimeSpan, Track, merged, tracks_of

WIDTH, LEFT, PLOT, MARGIN = 1200, 220, 850, 18
"""Names are left of the plot, counts are right of it."""
HEAD, GAP, TICK_WIDTH, GLYPH, CURVE = 22, 8, 75, 8, 46
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
_STEPS: tuple[int, ...] = (
    *(mantissa * int(10**power) for power in range(6) for mantissa in (1, 2, 5)),
    *(count * unit for unit in (SECOND, MINUTE) for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(mantissa * int(10**power) * DAY for power in range(6) for mantissa in (1, 2, 5)),
)
_SIGNS = {
    "band": ("box", "fill:#f6f8fa"),
    "frame": ("box", "stroke:#d0d7de"),
    "window": ("box", "fill:#fdf3d7;stroke:#d6b656"),
    "blocked": ("box", "fill:#8c959f;fill-opacity:.3"),
    "grid": ("upright", "stroke:#e4e7eb"),
    "bar": ("box", "fill:#a9d0f0;stroke:#2b6ca3"),
    "g1": ("box", "fill:#fbd09a;stroke:#b5690f"),
    "g2": ("box", "fill:#a8dcc0;stroke:#2a7f55"),
    "g3": ("box", "fill:#d4c1ec;stroke:#6f4aa8"),
    "g4": ("box", "fill:#e3da8a;stroke:#7c6f10"),
    "several": ("box", "fill:#c6ccd3;stroke:#59636e"),
    "running": ("box", "stroke:#59636e;stroke-dasharray:4 3"),
    "failed": ("crossed", "fill:#fbe4e2;stroke:#b3261e"),
    "pass": ("upright", "stroke:#1f2328;stroke-width:1.6"),
    "tap": ("round", "fill:#fff;stroke:#1f2328"),
    "wave": ("round", "fill:#1f2328;stroke:#1f2328"),
    "pulse": ("triangle", "fill:#fff;stroke:#1f2328"),
    "tide": ("triangle", "fill:#1f2328;stroke:#1f2328"),
    "clear": ("box", "fill:#fff;stroke:#1f2328"),
    "refused": ("cross", "stroke:#b3261e;stroke-width:1.6"),
    "standing": ("line", "stroke:#59636e"),
    "unchanged": ("line", "stroke:#59636e;stroke-dasharray:2 3"),
    "limit": ("line", "stroke:#9a5b00;stroke-dasharray:5 3"),
    "staleness": ("triangle", "fill:#3d5a80;fill-opacity:.15;stroke:#3d5a80"),
}
"""The shape and the style of each sign. If a sign has two styles, the later one wins."""
_COLOURS = ("", "g1", "g2", "g3", "g4")
_LEGEND = {
    "bar": "an execution; the time in it is its freshness: data as of then",
    "g1": "the same colour: the same freshness",
    "failed": "an execution that failed",
    "running": "still running at the end",
    "several": "several executions, too short to be drawn apart",
    "pass": "a pass: its input is unchanged, so nothing is executed",
    "tap": "tap: take what there is, and ask for more (pull, once)",
    "wave": "wave: a tap after each run (pull, standing)",
    "pulse": "pulse: everything at least as fresh as now (push, once)",
    "tide": "tide: a pulse when the result gets too stale (push, standing)",
    "clear": "the failure is cleared by hand",
    "refused": "demand that was refused: the pipeline is blocked",
    "window": "a window in which the source can be read, once; its data is good until the end of it",
    "blocked": "blocked: it failed, or something it needs did; takes no new demand",
    "unchanged": "its runs find nothing new",
    "limit": "the most a tide allows",
    "staleness": "staleness: the age of the data; falls when a run completes",
}
"""What the signs mean; a picture explains those that it uses."""
_STYLE = "path{fill:none}.muted{fill:#59636e}.bold{font-weight:600}"
_STYLE += "".join(f".{name}{{{style}}}" for name, (_, style) in _SIGNS.items())
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def timeline_svg(simulated: Simulated, *, title: str = "") -> str:
    """The picture as the text of an SVG file."""
    tracks, end = tracks_of(simulated.scenario, simulated.answer["timeline"])
    rows, shown = 0, 0
    for track in tracks:
        rows += len(track.pipeline.ripples)
        if shown and rows > limits.TIMELINE_TRACKS:
            break
        shown += 1
    names = ", ".join(track.pipeline.name for track in tracks[:6])
    title = title or f"{names}{' and more' if len(tracks) > 6 else ''}: {time_text(end)}"
    picture = _Picture(simulated, tracks[:shown], end)
    return picture.text(title, _subtitle(simulated.scenario, end), left_out=len(tracks) - shown)


def time_text(time: float) -> str:
    """A time in at most two units: `4.5s`, `1m 30s`, `2h`, `1d 6h`."""
    if time < 0:
        return f"-{time_text(-time)}"
    for unit, letter, part, small in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "m"), (MINUTE, "m", SECOND, "s")):
        whole, rest = divmod(round(time / part), unit // part)
        if whole and round(time / SECOND, 1) >= 60:
            return f"{whole}{letter} {rest}{small}" if rest else f"{whole}{letter}"
    if round(time) >= 100_000 or round(time) == 0:
        return f"{round(time / SECOND, 2 if time < 10 * SECOND else 1):g}s"
    return f"{round(time / 1000, 1):g}ms" if time >= 1000 else f"{round(time)}µs"


def ticks(end: int, most: float) -> range:
    """The ticks of an axis from 0 to `end` or just above it: round numbers, about `most` steps."""
    step = next((step for step in _STEPS if end <= step * most), _STEPS[-1])
    return range(0, ceil(end / step) * step + 1, step)


def text_width(text: str, size: float) -> float:
    """An upper estimate of a text's width: as in a wide sans-serif font."""
    return size * sum(
        0.42 if character in " ,.:;ijlt|'()-" else 0.66 if character.isascii() and character not in "mwMW@%" else 1.05
        for character in text
    )


def fitted(text: str, size: float, width: float) -> str:
    """The text, cut with an ellipsis if it is wider than `width`."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…" if text else ""


def _subtitle(scenario: Scenario, end: int) -> str:
    """The demand of the scenario."""
    asked = []
    for event in sorted((event for event in scenario.events if event.at <= end), key=lambda event: event.at):
        kind = f"tide of {time_text(event.max_staleness)}" if event.do == "tide" else event.do
        asked.append(f"{kind} on {event.pipeline} at {time_text(event.at)}")
    return " · ".join(asked) or "no demand"


def _plain(text: str) -> str:
    """The text escaped for XML; unprintable characters are `?`."""
    return escape("".join(character if character.isprintable() else "?" for character in text))


def _text(
    x: float, y: float, text: str, style: str = "muted", *, size: int = 10, anchor: str = "", of: str = ""
) -> str:
    """A line of text; `y` is its base line. `of` is the uncut text, shown under the mouse."""
    side = f' text-anchor="{anchor}"' if anchor else ""
    title = f"<title>{_plain(of)}</title>" if of and of != text else ""
    return f'<text x="{x:.5g}" y="{y:.5g}" font-size="{size}" class="{style}"{side}>{title}{_plain(text)}</text>'


def _path(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    """A sign in a box. Every shape is a path, so that its class is all the style that it needs."""
    x, y, w, h = round(x, 1), round(y, 1), round(width, 1), round(height, 1)
    box = f"M{x} {y}h{w}v{h}h{-w}z"
    cross = f"l{w} {h}m0 {-h}l{-w} {h}"
    paths = {
        "box": box,
        "crossed": f"{box}M{round(x + max(w / 2, w - 7) - 3, 1)} {round(y + h / 2 - 3, 1)}l6 6m0 -6l-6 6",
        "cross": f"M{x} {y}{cross}",
        "upright": f"M{round(x + w / 2, 1)} {y}v{h}",
        "line": f"M{x} {round(y + h / 2, 1)}h{w}",
        "round": f"M{x} {y + h / 2}a{w / 2} {h / 2} 0 1 0 {w} 0a{w / 2} {h / 2} 0 1 0 {-w} 0z",
        "triangle": f"M{x} {y + h}h{w}l{-w / 2} {-h}z",
    }
    inner = f"><title>{_plain(title)}</title></path>" if title else "/>"
    return f'<path class="{kind}" d="{paths[_SIGNS[kind.split()[-1]][0]]}"{inner}'


class _Picture:
    """One picture, drawn from top to bottom. `used` are the signs in it."""

    def __init__(self, simulated: Simulated, tracks: Sequence[Track], end: int) -> None:
        self.simulated, self.tracks, self.end = simulated, tracks, end
        self.used = {"staleness"}
        self.row = 22 if sum(len(track.pipeline.ripples) for track in tracks) <= 24 else 16
        rows = [spans for track in tracks for ripple, spans in track.spans.items() if ripple]
        self.cell = end / PLOT
        while sum(len(merged(spans, self.cell)) for spans in rows) > limits.TIMELINE_BARS:
            self.cell *= 2
        values = sorted({span.freshness for spans in rows for span in merged(spans, self.cell)})
        self.colours = {value: _COLOURS[index % len(_COLOURS)] for index, value in enumerate(values)}

    def x(self, time: float) -> float:
        return LEFT + time / self.end * PLOT

    def sign(self, kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
        self.used.update(kind.split())
        return _path(kind, x, y, width, height, title)

    def text(self, title: str, subtitle: str, *, left_out: int) -> str:
        parts = [
            _text(MARGIN, 30, fitted(title, 17, WIDTH - 2 * MARGIN), "bold", size=16),
            _text(MARGIN, 50, fitted(subtitle, 11, WIDTH - 2 * MARGIN), size=11),
        ]
        rows = [HEAD + self.row * len(track.pipeline.ripples) + 3 for track in self.tracks]
        y = 76.0
        for heading, drawn, heights in (
            ("What ran", self._executions, rows),
            ("How stale it is", self._staleness, [CURVE] * len(rows)),
        ):
            parts += self._axis(y, sum(heights) + GAP * len(heights), heading)
            y += 14
            for track, height in zip(self.tracks, heights):
                name = track.pipeline.name
                shown = fitted(name, 13, LEFT - MARGIN - 64)
                parts += [self.sign("band", MARGIN - 6, y, LEFT - MARGIN - 4, height)]
                parts += [_text(MARGIN, y + 15, shown, "bold", size=12, of=name), *drawn(track, y, height)]
                parts += [self.sign("frame", LEFT, y, PLOT, height)]
                y += height + GAP
            y += 16
        if left_out:
            parts.append(_text(MARGIN, y, f"{left_out:,} more pipelines are not drawn"))
            y += 20
        for index, kind in enumerate(kind for kind in _LEGEND if kind in self.used):
            x, at = MARGIN + index % 2 * (WIDTH / 2), y + index // 2 * 20
            parts += [_path(kind, x, at, 22, 12), _text(x + 30, at + 9.5, _LEGEND[kind], "", size=11)]
        height = round(at + 30)
        head = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" font-family="{_FONT}"'
        described = f"<title>{_plain(title)}</title><desc>{_plain(subtitle)}</desc><style>{_STYLE}</style>"
        ground = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {head}>', described, ground, *parts, "</svg>", ""])

    def _axis(self, y: float, height: float, heading: str) -> Iterator[str]:
        """The heading of a part, its time axis, and grid lines down to its bottom."""
        yield _text(MARGIN, y, heading, "bold", size=12)
        for time in ticks(self.end, PLOT / TICK_WIDTH):
            if time <= self.end:
                yield _text(self.x(time), y, time_text(time), anchor="middle")
                yield self.sign("grid", self.x(time), y + 5, 0, height)

    def _executions(self, track: Track, y: float, height: float) -> Iterator[str]:
        """What a pipeline reads, its demand, its executions, and their results."""
        pipeline = track.pipeline
        names = [*pipeline.required, *(f"{name} (optional)" for name in pipeline.optional)]
        reads = f"reads {', '.join(names)}" if names else ""
        used = text_width(fitted(pipeline.name, 13, LEFT - MARGIN - 64), 13) + 8
        yield _text(MARGIN + used, y + 15, fitted(reads, 10, LEFT - MARGIN - 14 - used), of=reads)
        for span in sorted(merged(track.spans[""], self.cell), key=lambda span: list(_SIGNS).index(span.kind)):
            is_line = span.kind in ("standing", "unchanged")
            top, tall = (y + (HEAD - 4 if span.kind == "unchanged" else HEAD / 2), 0) if is_line else (y, height)
            yield self.sign(span.kind, self.x(span.start), top, max(self.x(span.end) - self.x(span.start), 1.5), tall)
        yield from self._counts(pipeline.name, y + 15)
        yield from self._demand(track, y + HEAD / 2)
        for index, ripple in enumerate(pipeline.ripples):
            top = y + HEAD + index * self.row
            label = fitted(ripple.name, 11, LEFT - MARGIN - 24)
            yield _text(MARGIN + 10, top + self.row / 2 + 3.5, label, of=ripple.name)
            for span in merged(track.spans.get(ripple.name, ()), self.cell):
                yield from self._bar(span, top, ripple.name)
            drawn = 0.0
            for at in track.passes.get(ripple.name, ()):
                if self.x(at) - drawn >= 2:
                    drawn = self.x(at)
                    yield self.sign("pass", drawn, top + 2, 0, self.row - 4)

    def _counts(self, name: str, y: float) -> Iterator[str]:
        found = self.simulated.answer["pipelines"][name]
        said = [f"{found['runs']:,} run{'' if found['runs'] == 1 else 's'}"]
        said += [f"{found['state']} at the end"] if found["state"] in ("failed", "blocked") else []
        said += [
            f"{found[key]:,} {word}" for key, word in (("passes", "passed"), ("waste", "never read")) if found[key]
        ]
        for index, text in enumerate(said[:3]):
            yield _text(LEFT + PLOT + 10, y + 12 * index, text)

    def _demand(self, track: Track, y: float) -> Iterator[str]:
        """The demand, from left to right. Two of a kind at one place are drawn once; others move aside a little."""
        free, last = 0.0, ("", False)
        for at, kind, refused in track.marks:
            x = self.x(at) - GLYPH / 2
            if x < free and (last == (kind, refused) or free - x > 2 * GLYPH):
                continue
            x = min(max(x, free), LEFT + PLOT)
            yield self.sign(kind, x, y - 4, GLYPH, GLYPH, f"{kind} at {time_text(at)}{', refused' if refused else ''}")
            if refused:
                yield self.sign("refused", x - 2, y - 6, GLYPH + 4, GLYPH + 4)
            free, last = x + GLYPH + 1, (kind, refused)

    def _bar(self, span: TimeSpan, y: float, ripple: str) -> Iterator[str]:
        width = max(self.x(span.end) - self.x(span.start), 1.5)
        left = min(self.x(span.start), LEFT + PLOT - width)
        kinds = [self.colours[span.freshness], "several" if span.count > 1 else "", span.kind.replace("completed", "")]
        when = f"{time_text(span.start)} to {time_text(span.end)}, {span.kind}"
        freshness = time_text(span.freshness)
        if span.count > 1:
            labels = [f"{span.count:,} executions", f"{span.count:,}"]
        else:
            labels = [f"{freshness}, try {span.attempt}"] * (span.attempt > 1) + [freshness]
        label = next((label for label in labels if text_width(label, 10) <= width - 4), "")
        said = labels[0] if span.count > 1 else f"freshness {freshness}"
        said += f", attempt {span.attempt}" if span.attempt > 1 else ""
        kind = " ".join(["bar", *filter(None, kinds)])
        yield self.sign(kind, left, y + 2.5, width, self.row - 5, f"{ripple}: {said}, {when}")
        if label:
            yield _text(left + width / 2, y + self.row / 2 + 3.5, label, "", anchor="middle")

    def _staleness(self, track: Track, y: float, height: float) -> Iterator[str]:
        """Staleness over time: a drop at each completion, then one second a second. Many drops at one place are drawn
        as one, from the highest to the lowest value there."""
        accounts = self.simulated.account.pipelines
        most = max(max(accounts[each.pipeline.name].stale_most, *each.limits, 1) for each in self.tracks)
        top = ticks(most, 5)[-1]
        bottom, scale = y + height, (height - 4) / top
        yield _text(LEFT - 16, y + 11, time_text(top), anchor="end")
        yield _text(LEFT - 16, bottom - 3, "0", anchor="end")
        for limit in sorted(track.limits):
            yield self.sign("limit", LEFT, bottom - limit * scale, PLOT, 0)
        drops = accounts[track.pipeline.name].drops
        if not drops:
            yield _text(LEFT + 8, y + height / 2 + 4, "no result yet")
            return
        points: list[tuple[int, int]] = []
        for (at, fresh_at), (_, before) in zip(drops, [drops[0], *drops]):
            high, low = at - before, at - fresh_at
            if points and at - points[-1][0] < self.cell:
                last = points[-1][0]
                points[-2:] = [(last, max(points[-2][1], high)), (last, min(points[-1][1], low))]
            else:
                points += [(at, high), (at, low)]
        points.append((self.end, self.end - drops[-1][1]))
        corners = "L".join(f"{self.x(at):.5g} {bottom - value * scale:.5g}" for at, value in points)
        yield f'<path class="staleness" d="M{self.x(points[0][0]):.5g} {bottom}L{corners}V{bottom}z"/>'
        found = self.simulated.answer["pipelines"][track.pipeline.name]["staleness"]
        said = [f"{key} {time_text(found[key] * SECOND)}" for key in ("mean", "max")]
        for index, text in enumerate([*said, *(f"limit {time_text(limit)}" for limit in sorted(track.limits)[:1])]):
            yield _text(LEFT + PLOT + 10, y + 15 + 12 * index, text)

"""What the signs of a timeline picture mean: only those that are in it."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.interfaces import timeline_marks as mark
from headwater.interfaces.timeline_tracks import Tracks

_SIZE = 10.5
_SIGN, _LINE, _COLUMNS = 30, 20, 2
"""The width of a sign, the height of a line, how many entries stand side by side."""

_DEMAND = {
    "tap": "tap: take what there is, and ask for more (pull, once)",
    "wave": "wave: a tap after each run (pull, standing)",
    "pulse": "pulse: everything at least as fresh as now (push, once)",
    "tide": "tide: a pulse when the result gets too stale (push, standing)",
    "clear": "the failure is cleared by hand",
}


def legend(tracks: Tracks, y: float, *, width: float, left: float, several: bool) -> tuple[list[str], float]:
    """The entries, line by line, and where they end."""
    parts: list[str] = [mark.line(left, y - 12, left + width, y - 12, mark.FRAME)]
    y += 8
    for index, (sign, text) in enumerate(_entries(tracks, several=several)):
        row, column = divmod(index, _COLUMNS)
        x, at = left + column * width / _COLUMNS, y + row * _LINE
        parts.append(_sign(sign, x, at))
        parts.append(mark.words(x + _SIGN, at + 3.5, text, size=_SIZE, fill=mark.TEXT))
    return parts, y + (row + 1) * _LINE


def _entries(tracks: Tracks, *, several: bool) -> Iterator[tuple[str, str]]:
    pipelines = tracks.pipelines
    bars = [bar for track in pipelines for ripple in track.ripples.values() for bar in ripple.bars]
    marks = [found for track in pipelines for found in track.marks]
    if bars:
        windows = any(track.windows for track in pipelines)
        as_of = "as of then; with a window, good until then" if windows else "as of that moment"
        yield "bar", f"an execution; the time in it is its freshness: data {as_of}"
        yield "colours", "the same colour: the same freshness"
    if any(bar.outcome == "failed" for bar in bars):
        yield "failed", "an execution that failed"
    if any(bar.outcome == "running" for bar in bars):
        yield "running", "still running at the end"
    if several:
        yield "several", "several executions, too short to be drawn apart"
    if any(ripple.passes for track in pipelines for ripple in track.ripples.values()):
        yield "pass", "a pass: its input is unchanged, so nothing is executed"
    for kind, text in _DEMAND.items():
        if any(found.kind == kind for found in marks):
            yield kind, text
    if any(found.refused for found in marks):
        yield "refused", "demand that was refused: the pipeline is blocked"
    if any(track.windows for track in pipelines):
        yield "window", "a window in which the source can be read, once"
    if any(track.blocked for track in pipelines):
        yield "blocked", "blocked: it failed, or something it needs did; takes no new demand"
    if any(track.unchanged for track in pipelines):
        yield "unchanged", "its runs find nothing new"
    if any(track.limits for track in pipelines):
        yield "limit", "the most a tide allows"
    if any(track.pipeline.optional for track in pipelines):
        yield "optional", "an optional source: read as it is, not waited for"
    yield "staleness", "staleness: the age of the data; falls when a run completes"


def _sign(sign: str, x: float, y: float) -> str:
    fill, edge = mark.GENERATIONS[0]
    middle = x + 11
    match sign:
        case "bar":
            return mark.box(x, y - 6, 22, 12, f'fill="{fill}" stroke="{edge}" rx="2"')
        case "colours":
            second, other = mark.GENERATIONS[1]
            first = mark.box(x, y - 6, 10, 12, f'fill="{fill}" stroke="{edge}" rx="2"')
            return first + mark.box(x + 12, y - 6, 10, 12, f'fill="{second}" stroke="{other}" rx="2"')
        case "failed":
            failed = mark.box(x, y - 6, 22, 12, f'fill="url(#failed)" stroke="{mark.FAILED}" rx="2"')
            return failed + mark.cross(x + 15, y)
        case "running":
            return mark.box(x, y - 6, 22, 12, f'fill="{fill}" stroke="{edge}" stroke-dasharray="4 3" rx="2"')
        case "several":
            return mark.box(x, y - 6, 22, 12, f'fill="{mark.SEVERAL}" stroke="{mark.MUTED}" rx="2"')
        case "pass":
            return mark.line(middle, y - 7, middle, y + 7, mark.TEXT, width=1.6)
        case "refused":
            return mark.glyph(middle, y, "tap", refused=True)
        case "window":
            shade = mark.box(x, y - 7, 22, 14, f'fill="{mark.WINDOW}"')
            return shade + mark.line(x, y - 7, x, y + 7, mark.WINDOW_EDGE, width=1.5)
        case "blocked":
            return mark.box(x, y - 7, 22, 14, 'fill="url(#blocked)"')
        case "unchanged":
            return mark.line(x, y, x + 22, y, mark.MUTED, width=1.4, dash="2 3")
        case "optional":
            return mark.words(x, y + 3.5, "(a)", size=10, fill=mark.MUTED)
        case "limit":
            return mark.line(x, y, x + 22, y, mark.LIMIT, dash="5 3")
        case "staleness":
            path = f"M{mark.number(x)} {mark.number(y + 6)}L{mark.number(x + 11)} {mark.number(y - 5)}V{mark.number(y + 6)}"
            path += f"L{mark.number(x + 22)} {mark.number(y - 5)}"
            return f'<path d="{path}" fill="none" stroke="{mark.LINE}" stroke-width="1.4"/>'
        case _:
            return mark.glyph(middle, y, sign)

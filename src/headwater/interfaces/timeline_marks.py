"""The parts a timeline picture is put together from: texts, boxes, glyphs. Each function gives SVG text."""

from __future__ import annotations

from html import escape

TEXT, MUTED, GRID, BAND, FRAME = "#1f2328", "#59636e", "#e4e7eb", "#f6f8fa", "#d0d7de"
FAILED, LIMIT, WINDOW, WINDOW_EDGE, LINE = "#b3261e", "#9a5b00", "#fdf3d7", "#d6b656", "#3d5a80"
SEVERAL = "#c6ccd3"
GENERATIONS = (
    ("#a9d0f0", "#2b6ca3"),
    ("#fbd09a", "#b5690f"),
    ("#a8dcc0", "#2a7f55"),
    ("#d4c1ec", "#6f4aa8"),
    ("#e3da8a", "#7c6f10"),
)
"""Fill and edge of bars; freshness values take them in turn, so that equal data has an equal colour."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
DEFINITIONS = (
    "<defs>"
    '<pattern id="failed" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#ffffff"/><rect width="2" height="6" fill="#f0b8b3"/></pattern>'
    '<pattern id="blocked" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect width="1.4" height="7" fill="#8c959f" fill-opacity="0.55"/></pattern>'
    "</defs>"
)
GLYPH = 9
"""The width of a glyph."""


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def plain(text: str) -> str:
    """The text as XML may hold it."""
    return escape("".join(character if character.isprintable() else "?" for character in text))


def words(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 11,
    fill: str = TEXT,
    anchor: str = "start",
    bold: bool = False,
    whole: str = "",
) -> str:
    """A line of text; `y` is its base line. `whole` is what it was before it was cut, shown under the mouse."""
    weight = ' font-weight="600"' if bold else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    title = f"<title>{plain(whole)}</title>" if whole and whole != text else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}"{weight}{side}>'
        f"{title}{plain(text)}</text>"
    )


def box(x: float, y: float, width: float, height: float, style: str, *, title: str = "") -> str:
    at = f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" {style}'
    return f"{at}><title>{plain(title)}</title></rect>" if title else f"{at}/>"


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, width: float = 1, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
        f'stroke="{stroke}" stroke-width="{number(width)}"{dashed}/>'
    )


def cross(x: float, y: float, *, stroke: str = FAILED, reach: float = 3) -> str:
    left, right, top, bottom = (number(at) for at in (x - reach, x + reach, y - reach, y + reach))
    return f'<path d="M{left} {top}L{right} {bottom}M{right} {top}L{left} {bottom}" stroke="{stroke}" stroke-width="1.6" fill="none"/>'


def glyph(x: float, y: float, kind: str, *, refused: bool = False, title: str = "") -> str:
    """Pull is round, push is a triangle; once is hollow, standing is filled. A refused one is crossed out."""
    color = MUTED if refused else TEXT
    fill = color if kind in ("wave", "tide") else "#ffffff"
    style = f'fill="{fill}" stroke="{color}" stroke-width="1.5"'
    match kind:
        case "tap" | "wave":
            shape = f'<circle cx="{number(x)}" cy="{number(y)}" r="3.7" {style}'
        case "pulse" | "tide":
            left, right, top, bottom = (number(at) for at in (x - 4.2, x + 4.2, y - 4, y + 3.4))
            shape = f'<path d="M{left} {bottom}L{right} {bottom}L{number(x)} {top}Z" {style} stroke-linejoin="round"'
        case _:
            shape = f'<rect x="{number(x - 3.5)}" y="{number(y - 3.5)}" width="7" height="7" {style}'
    shape += f"><title>{plain(title)}</title></{shape[1:].split()[0]}>" if title else "/>"
    return shape + (cross(x, y, reach=5.5) if refused else "")

"""Times and texts on a picture: which ticks an axis has, how a time is written, how wide a text is."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from headwater.app.simulate import SECOND

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
_STEPS: tuple[int, ...] = (
    *(mantissa * int(10**power) for power in range(6) for mantissa in (1, 2, 5)),
    *(count * SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(mantissa * int(10**power) * DAY for power in range(6) for mantissa in (1, 2, 5)),
)
_NARROW = frozenset("iljtfrI.,:;|!'()[]/\\ -")
_WIDE = frozenset("mwMWOQGDNHU@%&#+<=>^~…→")


def step_for(length: int, most: float) -> int:
    """The smallest round step that divides `length` into no more than `most` parts."""
    return next((step for step in _STEPS if length <= step * most), _STEPS[-1])


def ticks(end: int, most: float) -> Iterator[int]:
    """The ticks of an axis from 0 to `end`, about `most` of them."""
    yield from range(0, end + 1, step_for(end, most))


def round_up(value: int) -> int:
    """A round number at or above: the top of a scale."""
    step = step_for(max(value, 1), 5)
    return ceil(value / step) * step or step


def time_text(time: float) -> str:
    """A time in at most two units: `4.5s`, `1m 30s`, `2h`, `1d 6h`."""
    if time < 0:
        return f"-{time_text(-time)}"
    if time < SECOND and round(time) < SECOND:
        return _small(time)
    if time < 10 * SECOND:
        return f"{_short(time / SECOND, 2)}s"
    if round(time / SECOND, 1) < 60:
        return f"{_short(time / SECOND, 1)}s"
    for unit, letter, part, part_letter in (
        (MINUTE, "m", SECOND, "s"),
        (HOUR, "h", MINUTE, "m"),
        (DAY, "d", HOUR, "h"),
    ):
        parts = round(time / part)
        whole, rest = divmod(parts, unit // part)
        if letter == "d" or parts * part < {"m": HOUR, "h": DAY}[letter]:
            return f"{whole}{letter} {rest}{part_letter}" if rest else f"{whole}{letter}"
    raise AssertionError(time)


def _small(time: float) -> str:
    if round(time) == 0:
        return "0s"
    if time < 1000:
        return f"{round(time)}µs"
    return f"{_short(time / 1000, 1)}ms" if time < 100_000 else f"{_short(time / SECOND, 2)}s"


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper estimate of a text's width: as in a wide sans-serif font."""
    return size * sum(map(_width, text)) * (1.15 if bold else 1)


def fitted(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis where it would be wider than that; nothing if not even that has room."""
    if text_width(text, size, bold=bold) <= width:
        return text
    while text and text_width(f"{text}…", size, bold=bold) > width:
        text = text[:-1]
    return f"{text.rstrip()}…" if text else ""


def _width(character: str) -> float:
    if character in _NARROW:
        return 0.42
    if character in _WIDE or ord(character) >= 0x1100:
        return 1.05
    return 0.72 if character.isupper() else 0.64

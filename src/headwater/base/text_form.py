"""How the texts of one column are written: the format of a time, its zone, the decimal mark.

A format is a text with directives, as in `strptime`: `%Y/%m/%d %H:%M`. Other characters must be in the value exactly as
they are. The grammar is here because the manifest checks it; `coerce/forms.py` reads values by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

DIRECTIVES: Mapping[str, str] = {
    "Y": "year, four digits",
    "y": "year, two digits",
    "m": "month",
    "b": "month, Jan",
    "B": "month, January",
    "d": "day",
    "e": "day, padded with a space",
    "j": "day of the year, three digits",
    "a": "weekday, Mon",
    "A": "weekday, Monday",
    "H": "hour, 0 to 23",
    "I": "hour, 1 to 12",
    "p": "AM or PM",
    "M": "minute",
    "S": "second",
    "f": "fraction of a second, one to nine digits",
    "z": "zone: Z, +02:00, +0200 or +02",
    "s": "seconds since 1970",
    "Q": "milliseconds since 1970",
}
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M", "h": "%b"}
_PIECE = re.compile(r"%?.", re.DOTALL)
"""A directive or a character."""
_YEARS, _MONTHS, _DAYS, _HOURS, _EPOCHS = "Yy", "mbB", "de", "HI", "sQ"
_TIMES = "HIpMSfz"
_NUMBERS = "YymdjHIMSfsQ"
_MEANINGS = (_YEARS, _MONTHS, _DAYS, _HOURS, "j", "aA", "p", "M", "S", "f", "z", _EPOCHS)


@dataclass(frozen=True)
class TextForm:
    """How the texts of a column are read. `format` is None for RFC 3339; `timezone` is None if a time without a zone is
    in UTC; `decimal` is the mark before the fraction of a number."""

    format: str | None = None
    timezone: str | None = None
    decimal: str = "."


@dataclass(frozen=True)
class FormatPart:
    """A piece of a format: a directive, or the literal bytes of a value. An `is_tight` number directive is next to
    another one, so that its values must have all of their digits."""

    directive: str = ""
    literal: bytes = b""
    is_tight: bool = False


class BadFormat(ValueError):
    """A problem in a format: the reason, the character (from 1), and what to write."""

    def __init__(self, reason: str, *, at: int, hint: str):
        super().__init__(f"{reason}, at character {at}")
        self.hint = hint


@lru_cache(maxsize=1024)
def parse_format(text: str) -> tuple[FormatPart, ...]:
    """The parts of a format. Raises `BadFormat` if no value could be read by it: an unknown or repeated directive, one
    without its partner, or no complete date."""
    found: list[tuple[str, int]] = []
    for piece in _PIECE.finditer(text):
        part, at = piece[0], piece.start()
        if part == "%%":
            found.append(("%", at))
        elif part[0] != "%":
            if not part.isprintable():
                raise BadFormat("a character that cannot be printed", at=at + 1, hint="write spaces as spaces")
            found.append((part, at))
        elif part[1:] in _SHORT:
            found += [(each, at) for each in _PIECE.findall(_SHORT[part[1:]])]
        elif part[1:] in DIRECTIVES:
            found.append((part, at))
        else:
            raise BadFormat(f"`{part}` is not a directive", at=at + 1, hint=_known())
    _check_whole(found)
    return _tightened([part for part, _ in found])


def has_time(parts: tuple[FormatPart, ...]) -> bool:
    """Whether a format has more than a date."""
    return any(part.directive and part.directive in _TIMES + _EPOCHS for part in parts)


def has_zone(parts: tuple[FormatPart, ...]) -> bool:
    """Whether each value contains its zone or is an instant."""
    return any(part.directive and part.directive in "z" + _EPOCHS for part in parts)


def _check_whole(found: list[tuple[str, int]]) -> None:
    places: dict[str, int] = {}
    for part, at in found:
        if len(part) != 2:
            continue
        meaning = next(group for group in _MEANINGS if part[1] in group)
        if meaning in places:
            raise BadFormat(f"`{part}` repeats an earlier directive", at=at + 1, hint="keep one of them")
        places[meaning] = at
    if _EPOCHS in places:
        if len(places) > 1:
            raise BadFormat("`%s` and `%Q` are a whole time", at=places[_EPOCHS] + 1, hint="remove the others")
        return
    end = found[-1][1] + 1 if found else 1
    if _YEARS not in places:
        raise BadFormat("there is no year", at=end, hint="a time needs `%Y`, or `%y` for two digits")
    has_day = "j" in places or (_MONTHS in places and _DAYS in places)
    if not has_day or ("j" in places and (_MONTHS in places or _DAYS in places)):
        raise BadFormat("there is no one day", at=end, hint="a time needs a month and a day, or `%j` alone")
    needs = {"M": _HOURS, "S": "M", "f": "S", "p": _HOURS}
    for later, earlier in needs.items():
        if later in places and earlier not in places:
            hint = "add " + " or ".join(f"`%{letter}`" for letter in earlier)
            raise BadFormat(f"`%{later}` needs the larger part of the time", at=places[later] + 1, hint=hint)
    hours = next((part for part, _ in found if part in ("%H", "%I")), None)
    if hours is not None and (hours == "%I") != ("p" in places):
        hint = "`%I` goes with `%p`, `%H` without it"
        raise BadFormat("hours of 12 need to say AM or PM", at=places[_HOURS] + 1, hint=hint)


def _tightened(found: list[str]) -> tuple[FormatPart, ...]:
    parts: list[FormatPart] = []
    for index, part in enumerate(found):
        if len(part) == 2:
            beside = [found[place] for place in (index - 1, index + 1) if 0 <= place < len(found)]
            is_number = part[1] in _NUMBERS
            parts.append(FormatPart(part[1], is_tight=is_number and any(map(_is_number, beside))))
        elif parts and parts[-1].literal:
            parts[-1] = FormatPart(literal=parts[-1].literal + part.encode())
        else:
            parts.append(FormatPart(literal=part.encode()))
    return tuple(parts)


def _is_number(part: str) -> bool:
    return part.isdigit() or (len(part) == 2 and part[1] in _NUMBERS)


def _known() -> str:
    return "known: " + " ".join(f"%{letter}" for letter in (*DIRECTIVES, *_SHORT, "%"))

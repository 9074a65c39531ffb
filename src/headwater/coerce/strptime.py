"""Reads many texts by one format at once: a cursor in each text moves on directive by directive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.base.text_form import FormatPart
from headwater.coerce.time_columns import Bools, Bytes, Ints, civil_days

_DAY = 86_400
_MONTHS = ("january february march april may june", "july august september october november december")
MONTHS = tuple(" ".join(_MONTHS).split())
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TWO_DIGITS = "mdHIMSy"


@dataclass
class Read:
    """What a format found: seconds since 1970 of the clock that the texts show, less the offset in the texts (None:
    they have none), nanoseconds, and which texts fit. `is_leap` marks the texts with second 60."""

    seconds: Ints
    nanos: Ints
    good: Bools
    is_leap: Bools
    offset: Ints | None = None


def read_texts(texts: pa.Array, parts: Sequence[FormatPart]) -> Read:
    """Read every text by the parts of a format. A null never fits."""
    cursor = _TextOffsets(texts)
    found: dict[str, Ints] = {}
    for part in parts:
        if part.literal:
            cursor.literal(part.literal)
        elif part.directive == "z":
            found["z"] = cursor.zone()
        elif part.directive in "sQ":
            found["s"], found["f"] = cursor.epoch(is_milliseconds=part.directive == "Q")
        else:
            found[part.directive] = cursor.directive(part)
    cursor.good &= cursor.at == cursor.end
    return _put_together(found, cursor.good)


def _put_together(found: dict[str, Ints], good: Bools) -> Read:
    zero = np.zeros(len(good), dtype=np.int64)
    never = np.zeros(len(good), dtype=np.bool_)
    if "s" in found:
        return Read(found["s"], found["f"], good, never, offset=zero)
    days = _days(found, good)
    for name in ("a", "A"):
        if name in found:
            good &= (days + 3) % 7 == found[name]
    hour, minute, second = found.get("H", zero), found.get("M", zero), found.get("S", zero)
    if "I" in found:
        good &= (found["I"] >= 1) & (found["I"] <= 12)
        hour = found["I"] % 12 + 12 * found["p"]
    good &= (hour <= 23) & (minute <= 59) & (second <= 60)
    seconds = days * _DAY + hour * 3600 + minute * 60 + second
    is_leap: Bools = second == 60
    return Read(seconds, found.get("f", zero), good, is_leap, offset=found.get("z"))


def _days(found: dict[str, Ints], good: Bools) -> Ints:
    if "y" in found:
        year = found["y"] + np.where(found["y"] < 69, 2000, 1900)
    else:
        year = found["Y"]
    good &= year >= 1
    one = np.ones(len(good), dtype=np.int64)
    if "j" in found:
        first, _ = civil_days(year, one, one)
        last, _ = civil_days(year, one * 12, one * 31)
        good &= (found["j"] >= 1) & (first + found["j"] - 1 <= last)
        return first + found["j"] - 1
    month = next(found[name] for name in "mbB" if name in found)
    day = next(found[name] for name in "de" if name in found)
    days, is_date = civil_days(year, month, day)
    good &= is_date
    return days


class _TextOffsets:
    """A position in each text of a column. `good` becomes False where a text does not match."""

    def __init__(self, texts: pa.Array):
        count = len(texts)
        offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + count + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
        self._data: Bytes = np.append(data, np.uint8(0))
        relative = (offsets - offsets[0]).astype(np.int64)
        self.at: Ints = relative[:-1].copy()
        self.end: Ints = relative[1:]
        self.good: Bools = np.ones(count, dtype=np.bool_)

    def byte(self, ahead: int = 0) -> Bytes:
        """The byte at the cursor, or `ahead` bytes after it; 0 behind the end of a text."""
        place = self.at + ahead
        found: Bytes = np.where(place < self.end, self._data[np.minimum(place, len(self._data) - 1)], 0)
        return found.astype(np.uint8)

    def literal(self, text: bytes) -> None:
        for ahead, code in enumerate(text):
            self.good &= self.byte(ahead) == code
        self.at += len(text)

    def directive(self, part: FormatPart) -> Ints:
        match part.directive:
            case "Y":
                return self.number(4, 4)
            case "j":
                return self.number(3, 3)
            case "f":
                return self.fraction()
            case "e":
                self.at += self.byte() == ord(" ")
                return self.number(1, 2)
            case "b" | "B":
                return 1 + self.name([name[:3] if part.directive == "b" else name for name in MONTHS])
            case "a" | "A":
                return self.name([name[:3] if part.directive == "a" else name for name in WEEKDAYS])
            case "p":
                return self.name(["am", "pm"])
            case letter:
                assert letter in _TWO_DIGITS, letter
                return self.number(2 if part.is_tight or letter == "y" else 1, 2)

    def number(self, least: int, most: int) -> Ints:
        value, digits = self._digits(most)
        self.good &= digits >= least
        return value

    def fraction(self, here: Bools | None = None) -> Ints:
        """Nanoseconds: one to nine digits; 0 in the texts that have no fraction `here`."""
        value, digits = self._digits(9, here)
        self.good &= digits >= 1 if here is None else ~here | (digits >= 1)
        found: Ints = value * np.power(10, 9 - digits)
        return found

    def name(self, names: Sequence[str]) -> Ints:
        """Which of the names is here, in any case."""
        heads = [self.byte(ahead) | 0x20 for ahead in range(max(map(len, names)))]
        found = np.full(len(self.at), -1, dtype=np.int64)
        size = np.zeros(len(self.at), dtype=np.int64)
        for index, name in enumerate(names):
            here = np.ones(len(self.at), dtype=np.bool_)
            for head, code in zip(heads, name.encode()):
                here &= head == code
            found[here], size[here] = index, len(name)
        self.good &= found >= 0
        self.at += size
        return found

    def zone(self) -> Ints:
        """Seconds east of UTC: `Z`, `+02:00`, `+0200`, `+02`."""
        mark = self.byte()
        is_utc = (mark | 0x20) == ord("z")
        self.good &= is_utc | (mark == ord("+")) | (mark == ord("-"))
        self.at += 1
        moving = ~is_utc
        hours, digits = self._digits(2, moving)
        self.good &= is_utc | (digits == 2)
        self.at += moving & (self.byte() == ord(":")) & _is_digit(self.byte(1))
        minutes, digits = self._digits(2, moving)
        self.good &= (digits == 0) | (digits == 2)
        self.good &= (hours <= 23) & (minutes <= 59)
        found: Ints = (hours * 3600 + minutes * 60) * np.where(mark == ord("-"), -1, 1)
        return found

    def epoch(self, *, is_milliseconds: bool) -> tuple[Ints, Ints]:
        """Seconds and nanoseconds since 1970, of seconds with a fraction or of milliseconds."""
        sign = np.where(self.byte() == ord("-"), -1, 1)
        self.at += sign < 0
        whole = self.number(1, 15)
        if is_milliseconds:
            milliseconds = whole * sign
            return np.floor_divide(milliseconds, 1000), np.mod(milliseconds, 1000) * 1_000_000
        has_fraction = self.byte() == ord(".")
        self.at += has_fraction
        nanos = self.fraction(has_fraction) * sign
        return whole * sign + np.floor_divide(nanos, 1_000_000_000), np.mod(nanos, 1_000_000_000)

    def _digits(self, most: int, moving: Bools | None = None) -> tuple[Ints, Ints]:
        """The number of up to `most` digits, and how many digits there are; only in the texts that are `moving`."""
        value = np.zeros(len(self.at), dtype=np.int64)
        count = np.zeros(len(self.at), dtype=np.int64)
        moving = np.ones(len(self.at), dtype=np.bool_) if moving is None else moving
        for _ in range(most):
            code = self.byte()
            moving = moving & _is_digit(code)
            value = np.where(moving, value * 10 + (code.astype(np.int64) - 48), value)
            count += moving
            self.at += moving
        return value, count


def _is_digit(code: Bytes) -> Bools:
    found: Bools = (code >= 48) & (code <= 57)
    return found

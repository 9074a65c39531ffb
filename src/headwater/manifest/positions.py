"""The position of each key and value in a file.

A file is scanned only to say where an error is, or to edit it in place.
Offsets are into the text; lines and columns count from 1, columns in characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from headwater.base.errors import Position

Path = tuple[str | int, ...]
"""A way into a document: keys and list positions."""


@dataclass(frozen=True)
class TextSpan:
    start: int
    end: int


@dataclass(frozen=True)
class Pair:
    """A key and its value: `table` is the table or object that holds it, `span` is from the key to the value's end."""

    table: Path
    path: Path
    span: TextSpan


@dataclass
class Positions:
    """The spans of a scanned text. A TOML table's span is its header; `headers` and `pairs` are in order;
    `written` are the values behind an equals sign or between brackets, not those of headers and dotted keys."""

    text: str
    keys: dict[Path, TextSpan] = field(default_factory=dict)
    values: dict[Path, TextSpan] = field(default_factory=dict)
    comments: list[TextSpan] = field(default_factory=list)
    headers: list[tuple[Path, TextSpan]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    written: set[Path] = field(default_factory=set)
    duplicates: list[tuple[Path, int, int]] = field(default_factory=list)
    """The keys that occur twice in one object, with the offsets of both."""

    def __post_init__(self) -> None:
        self._lines = [0, *(found.end() for found in re.finditer("\n", self.text))]

    def position(self, file: str, offset: int) -> Position:
        line = bisect_right(self._lines, offset)
        return Position(file, line, offset - self._lines[line - 1] + 1)

    def members(self, parent: Path) -> list[TextSpan]:
        """The pairs of an object or inline table, or the items of a list, in order."""
        pairs = [pair.span for pair in self.pairs if pair.table == parent]
        items = (path for path in self.values if path and path[:-1] == parent and isinstance(path[-1], int))
        return sorted(pairs or (self.values[path] for path in items), key=lambda span: span.start)

    def without_member(self, parent: Path, index: int) -> str:
        """The text without one of the members, and without the comma behind it or, for the last one, before it."""
        members, around = self.members(parent), self.values[parent]
        if len(members) == 1:
            start, end = around.start + 1, around.end - 1
        elif index + 1 < len(members):
            start, end = members[index].start, members[index + 1].start
        else:
            start, end = members[index - 1].end, members[index].end
        return self.text[:start] + self.text[end:]

    def of_key(self, file: str, path: Path) -> Position:
        """Where the last key of `path` is written; for a list's item, which has no key, where its value is."""
        span = self.keys.get(path)
        return self.position(file, span.start) if span else self.of_value(file, path)

    def of_value(self, file: str, path: Path) -> Position:
        """Where the value at `path` begins, or the nearest value around it that is in the text."""
        while path and path not in self.values:
            path = path[:-1]
        span = self.values.get(path)
        return self.position(file, span.start) if span else Position(file, 1, 1)


class Scanner:
    """A place in a text that moves on, and what was found before it."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.found = Positions(text)

    @property
    def here(self) -> str:
        """The character here; empty at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """The text here that matches, and moves behind it; None, and stays, if none does."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

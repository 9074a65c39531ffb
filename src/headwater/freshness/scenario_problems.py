"""What is wrong with a scenario, collected while its objects are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import TypeVar

from headwater.base import limits
from headwater.base.errors import nearest, word_for
from headwater.freshness.scenario import SECOND

Path = tuple[str | int, ...]
"""A way into the JSON: keys and list positions."""


_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True)
class ScenarioProblem:
    """One mistake. `path` leads to the value that is wrong, or with `key` to its key; `also` to what it clashes with."""

    path: Path
    message: str
    hint: str = ""
    key: bool = False
    also: tuple[Path, ...] = ()


class Found:
    """The problems so far; no more than `SCENARIO_PROBLEMS` are kept."""

    def __init__(self) -> None:
        self._kept: list[ScenarioProblem] = []
        self._left_out = 0

    def add(self, path: Path, message: str, *, hint: str = "", key: bool = False, also: tuple[Path, ...] = ()) -> None:
        if len(self._kept) < limits.SCENARIO_PROBLEMS:
            self._kept.append(ScenarioProblem(path, message, hint, key, also))
        else:
            self._left_out += 1

    def listed(self) -> list[ScenarioProblem]:
        if not self._left_out:
            return self._kept
        return [*self._kept, ScenarioProblem((), f"there are {self._left_out:,} more mistakes")]

    def nearest(self, name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
        """A hint with the name that was meant; else what there is, or what to say instead."""
        if len(self._kept) >= limits.SCENARIO_PROBLEMS:
            return ""
        names = list(islice(known, limits.SCENARIO_NAMES_COMPARED))
        meant = next((other for other in names if other.casefold() == name.casefold()), None) or nearest(name, names)
        if meant is not None:
            return f"did you mean `{meant}`?"
        if otherwise is not None:
            return otherwise
        return f"there is {some_names(names)}" if names else ""


def some_names(names: Sequence[str]) -> str:
    """`a`, `b` and `c`; only the first few of many."""
    listed = [f"`{shown(name)}`" for name in names[:6]]
    if len(names) > 6:
        listed[5:] = [f"{len(names) - 5} more"]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def shown(name: str) -> str:
    """A name as a message may hold it: short, and nothing in it that a terminal would choke on."""
    return (name if name.isprintable() else ascii(name)[1:-1])[:80]


@dataclass(frozen=True)
class Table:
    """A JSON object while it is read: its values, where it stands, what to call it, where mistakes go.

    A reader of a wrong value adds a problem and answers with the default, so that reading goes on."""

    values: Mapping[str, object]
    path: Path
    subject: str
    found: Found = field(repr=False)

    @classmethod
    def of(cls, value: object, path: Path, subject: str, found: Found) -> Table | None:
        """The value as a table; a problem if it is something else."""
        if isinstance(value, dict):
            return cls(value, path, subject, found)
        found.add(path, f"{subject} must be an object, not {word_for(value)}")
        return None

    def check_keys(self, known: Sequence[str], *, suggested: Sequence[str] | None = None) -> None:
        """Every key is one of `known`."""
        for key in self.values:
            if key not in known:
                keys = suggested or known
                hint = self.found.nearest(key, keys, otherwise=f"known keys: {', '.join(keys)}")
                self.found.add((*self.path, key), f"unknown key `{shown(key)}` in {self.subject}", hint=hint, key=True)

    def time(self, key: str, *, least: int = 0) -> int | None:
        """A number of seconds, in microseconds; None if it is not there or wrong."""
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = "write it without quotes" if isinstance(value, str) else ""
            self._wrong(key, f"must be a number of seconds, not {word_for(value)}", hint)
        elif isinstance(value, float) and not isfinite(value):
            self._wrong(key, "is not a finite number")
        elif value > limits.SCENARIO_SECONDS:
            self._wrong(key, f"must be at most {limits.SCENARIO_SECONDS:,} seconds, a hundred years")
        elif value < 0:
            self._wrong(key, "must not be negative", "time begins at 0")
        elif (microseconds := round(value * SECOND)) < least:
            self._wrong(key, "must be more than 0: at least 0.000001 seconds")
        else:
            return microseconds
        return None

    def needed_time(self, key: str, *, least: int = 0, hint: str = "") -> int | None:
        if key not in self.values:
            self._missing(key, hint)
        return self.time(key, least=least)

    def count(self, key: str, *, default: int, least: int = 0) -> int:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "write it without quotes" if isinstance(value, str) else ""
            self._wrong(key, f"must be a whole number, not {word_for(value)}", hint)
        elif not least <= value <= limits.SCENARIO_COUNT:
            self._wrong(key, f"must be from {least} to {limits.SCENARIO_COUNT:,}")
        else:
            return value
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.values.get(key, default)
        if isinstance(value, bool):
            return value
        self._wrong(key, f"must be true or false, not {word_for(value)}")
        return default

    def text(self, key: str, *, default: str) -> str:
        """A name that may be left out."""
        if key not in self.values:
            return default
        value = self.values[key]
        if not isinstance(value, str):
            self._wrong(key, f"must be text, not {word_for(value)}")
            return default
        problem = bad_name(value)
        if problem:
            self._wrong(key, problem)
        return default if problem else value

    def one_of(self, key: str, words: Sequence[_Word]) -> _Word | None:
        if key not in self.values:
            self._missing(key, f"write one of {some_names(words[:5])}, ...")
            return None
        value = self.values[key]
        found = next((word for word in words if word == value), None)
        if found is None and isinstance(value, str):
            hint = self.found.nearest(value, words, otherwise="")
            self._wrong(key, f"is `{shown(value)}`, it must be one of {', '.join(words)}", hint)
        elif found is None:
            self._wrong(key, f"must be text, not {word_for(value)}")
        return found

    def name_of(self, key: str, known: Collection[str], what: str, *, of: str = "") -> str | None:
        """A name that exists."""
        if key not in self.values:
            self._missing(key, f"say which {what} is meant")
            return None
        value = self.values[key]
        if not isinstance(value, str):
            self._wrong(key, f"must be the name of a {what}, not {word_for(value)}")
        elif value not in known:
            message = f"{self.subject} names the {what} `{shown(value)}`, which does not exist{of}"
            self.found.add((*self.path, key), message, hint=self.found.nearest(value, known))
        else:
            return value
        return None

    def items(self, key: str) -> list[object]:
        value = self.values.get(key, [])
        if isinstance(value, list):
            return value
        hint = "put it in brackets: `[...]`" if isinstance(value, str) else ""
        self._wrong(key, f"must be a list, not {word_for(value)}", hint)
        return []

    def inner(self, key: str) -> Table | None:
        if key not in self.values:
            return None
        return Table.of(self.values[key], (*self.path, key), f"`{key}` of {self.subject}", self.found)

    def objects(self, key: str, what: str) -> dict[str, Table | None]:
        """The named objects under a key that must be there and hold at least one; None for what is no object."""
        if key not in self.values:
            self._missing(key, f"name {what} under `{key}`")
            return {}
        table = self.inner(key)
        if table is not None and not table.values:
            self._wrong(key, "is empty", f"name {what} in it")
        read: dict[str, Table | None] = {}
        of = f" of {self.subject}" if self.path else ""
        for name, value in (table.values if table is not None else {}).items():
            path: Path = (*self.path, key, name)
            problem = bad_name(name)
            if problem:
                self.found.add(path, f"a name under `{key}`{of} {problem}", key=True)
            subject = f"{what.removeprefix('a ')} `{shown(name)}`{of}"
            read[name] = Table.of(value, path, subject, self.found)
        return read

    def _wrong(self, key: str, message: str, hint: str = "") -> None:
        name = f"`{key}` of {self.subject}" if self.path else f"`{key}`"
        self.found.add((*self.path, key), f"{name} {message}", hint=hint)

    def _missing(self, key: str, hint: str) -> None:
        self.found.add(self.path, f"`{key}` is missing in {self.subject}", hint=hint or f"add the key `{key}`")


def bad_name(name: str) -> str:
    """What is wrong with a name, as words that follow it; nothing if it can be written in a line."""
    if not name or name != name.strip():
        return "is empty, or begins or ends with a space"
    if len(name) > limits.SCENARIO_NAME_CHARACTERS:
        return f"is longer than {limits.SCENARIO_NAME_CHARACTERS} characters"
    return "" if name.isprintable() else "has a character that cannot be printed"


def circles(parents: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Circles of a graph, each node in at most one of them; there is one wherever there is any."""
    state: dict[str, int] = {}
    told: set[str] = set()
    for start in parents:
        if start in state:
            continue
        way, left = [start], [iter(parents[start])]
        state[start] = 1
        while way:
            parent = next(left[-1], None)
            if parent is None:
                state[way.pop()] = 2
                left.pop()
            elif state.get(parent) == 1:
                circle = way[way.index(parent) :]
                if told.isdisjoint(circle):
                    told.update(circle)
                    yield circle
            elif parent in parents and parent not in state:
                state[parent] = 1
                way.append(parent)
                left.append(iter(parents[parent]))

"""A strict JSON scanner that finds the position of every key and value and explains syntax errors in plain words.

`load_json` reads a text; the scanner runs after it, for positions or to explain a syntax error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from headwater.manifest.positions import Pair, Path, Positions, Scanner, TextSpan

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_STRING_PART = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_COMMENTS = "JSON has no comments: `headwater pipeline convert` gives a TOML file, which has them"


@dataclass
class JsonFault(Exception):
    """The first place where a text stops being JSON."""

    offset: int
    message: str
    hint: str = ""


def load_json(text: str) -> Any:
    """The value of a text, strictly: no key twice, no NaN or Infinity. Raises ValueError; `scan_json` explains it."""
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)


def scan_json(text: str) -> Positions:
    """The spans of every key and value. Raises `JsonFault` for a text that is not JSON."""
    scanner = _JsonScanner(text)
    scanner.skip()
    scanner.value(())
    scanner.skip()
    if scanner.at < len(text):
        raise scanner.fault("something follows the end of the value", "a file holds one JSON object")
    return scanner.found


class _JsonScanner(Scanner):
    def skip(self) -> None:
        self.take(_SPACE)
        if self.text.startswith(("//", "/*", "#"), self.at):
            raise self.fault("a comment", _NO_COMMENTS)

    def fault(self, message: str, hint: str = "") -> JsonFault:
        return JsonFault(self.at, message, hint)

    def value(self, path: Path) -> None:
        start = self.at
        self.found.values[path] = TextSpan(start, start)
        match self.here:
            case "{":
                self._object(path)
            case "[":
                self._array(path)
            case '"':
                self._string()
            case "":
                raise self.fault("the file ends where a value is expected")
            case "'":
                raise self.fault("a single quote", "JSON writes text in double quotes")
            case _:
                self._scalar()
        self.found.values[path] = TextSpan(start, self.at)

    def _scalar(self) -> None:
        if self.take(_NUMBER) is not None:
            return
        found = _WORD.match(self.text, self.at)
        word = found[0] if found else ""
        if word in ("true", "false", "null"):
            self.at += len(word)
        elif word in ("True", "False"):
            raise self.fault(f"the word `{word}`", f"JSON writes it `{word.lower()}`")
        elif word in ("NaN", "Infinity"):
            raise self.fault(f"`{word}` is not a number in JSON")
        elif word:
            raise self.fault("text without quotes", "JSON writes text in double quotes")
        else:
            raise self.fault("a value is expected here")

    def _string(self) -> str:
        start = self.at
        self.take(_STRING_PART)
        match self.here:
            case '"':
                self.at += 1
                return self.text[start : self.at]
            case "\\":
                raise self.fault("a `\\` that begins no escape", "write a backslash as `\\\\`")
            case "" | "\n":
                self.at = start
                raise self.fault("a text that does not end on its line", 'close it with `"`; a line break is `\\n`')
            case _:
                raise self.fault("a control character in a text", "write it as an escape, for example `\\t`")

    def _object(self, path: Path) -> None:
        self.at += 1
        self.skip()
        first: dict[str, int] = {}
        while not self._closes("}", bool(first)):
            if self.here != '"':
                raise self.fault("a key in double quotes is expected here")
            start = self.at
            name = json.loads(self._string())
            inner = (*path, name)
            if name in first:
                self.found.duplicates.append((inner, first[name], start))
            first[name] = start
            self.found.keys[inner] = TextSpan(start, self.at)
            self.skip()
            if self.here != ":":
                raise self.fault("a `:` is expected after the key")
            self.at += 1
            self.skip()
            self.value(inner)
            self.found.pairs.append(Pair(path, inner, TextSpan(start, self.at)))
            self.skip()

    def _array(self, path: Path) -> None:
        self.at += 1
        self.skip()
        count = 0
        while not self._closes("]", count > 0):
            self.value((*path, count))
            count += 1
            self.skip()

    def _closes(self, mark: str, after_item: bool) -> bool:
        """True behind the closing bracket; False where the next item begins."""
        if self.here == mark:
            self.at += 1
            return True
        if not self.here:
            raise self.fault(f"the file ends before the `{mark}`")
        if not after_item:
            return False
        if self.here != ",":
            raise self.fault(f"a comma or `{mark}` is expected here")
        comma = self.at
        self.at += 1
        self.skip()
        if self.here == mark:
            self.at = comma
            raise self.fault(f"a comma before the `{mark}`", "JSON has no comma after the last item")
        return False


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(word)

"""A scanner that finds the position of each key, value, table and comment of a TOML text.

It runs only on text that `tomllib` has read, so it does not check the grammar.
"""

from __future__ import annotations

import re
import tomllib

from headwater.manifest.positions import Pair, Path, Positions, Scanner, TextSpan

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"#[^\r\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', r"'''.*?'''(?:'{0,2})", r'"(?:[^"\\\n]|\\.)*"', r"'[^'\n]*'")
_STRING = re.compile("|".join(_STRINGS), re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


def scan_toml(text: str) -> Positions:
    """The spans of every key, value, header and comment of a valid TOML text."""
    scanner = _TomlScanner(text)
    scanner.document()
    return scanner.found


class _TomlScanner(Scanner):
    def __init__(self, text: str):
        super().__init__(text)
        self.found.values[()] = TextSpan(0, len(text))
        self.counts: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._skip()
        while self.at < len(self.text):
            if self.here == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> Path:
        start = self.at
        is_list = self.text.startswith("[[", start)
        self.at += 2 if is_list else 1
        names = self._key()
        self.at += 2 if is_list else 1
        path: Path = ()
        for name, _ in names[:-1]:
            path = (*path, name)
            if path in self.counts:
                path = (*path, self.counts[path])  # the last item of the list
            self.found.values.setdefault(path, TextSpan(start, self.at))
        last = (*path, names[-1][0])
        self.found.keys.setdefault(last, names[-1][1])
        if is_list:
            self.found.values.setdefault(last, TextSpan(start, self.at))
            self.counts[last] = self.counts.get(last, -1) + 1
            last = (*last, self.counts[last])
        span = TextSpan(start, self.at)
        self.found.values[last] = span
        self.found.headers.append((last, span))
        return last

    def _pair(self, table: Path) -> None:
        path, start = table, self.at
        for name, span in self._key():
            path = (*path, name)
            self.found.keys.setdefault(path, span)
            self.found.values.setdefault(path, span)
        self.at += 1  # the equals sign
        self.take(_BLANK)
        self._value(path)
        self.found.pairs.append(Pair(table, path, TextSpan(start, self.at)))

    def _key(self) -> list[tuple[str, TextSpan]]:
        """The parts of a dotted key; stops at what follows it."""
        parts: list[tuple[str, TextSpan]] = []
        while True:
            self.take(_BLANK)
            start = self.at
            name = self.take(_BARE_KEY)
            if name is None:
                name = next(iter(tomllib.loads(f"{self.take(_STRING)} = 0")))
            parts.append((name, TextSpan(start, self.at)))
            self.take(_BLANK)
            if self.here != ".":
                return parts
            self.at += 1

    def _value(self, path: Path) -> None:
        start = self.at
        self.found.written.add(path)
        self.found.values[path] = TextSpan(start, start)
        match self.here:
            case "[":
                self._list(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self.take(_STRING)
            case _:
                scalar = self.take(_SCALAR) or ""
                self.at = start + len(scalar.rstrip())
        self.found.values[path] = TextSpan(start, self.at)

    def _list(self, path: Path) -> None:
        self.at += 1
        index = 0
        while not self._closed("]"):
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while not self._closed("}"):
            self._pair(path)

    def _closed(self, mark: str) -> bool:
        """True behind the closing bracket; False where the next item begins."""
        self._skip()
        if self.here == ",":
            self.at += 1
            self._skip()
        if self.here == mark:
            self.at += 1
            return True
        return False

    def _skip(self) -> None:
        """Skips white space, line ends and comments."""
        self.take(_SPACE)
        start = self.at
        while self.take(_COMMENT) is not None:
            self.found.comments.append(TextSpan(start, self.at))
            self.take(_SPACE)
            start = self.at

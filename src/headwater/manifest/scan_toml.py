"""A scanner that finds the position of each key, value, table and comment of a TOML text.

It runs only on text that `tomllib` has read, so it does not check the grammar.
"""

from __future__ import annotations

import re

from headwater.manifest.positions import Pair, Path, Positions, TextSpan

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"#[^\r\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    ('"""', re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL)),
    ("'''", re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL)),
    ('"', re.compile(r'"(?:[^"\\\n]|\\.)*"')),
    ("'", re.compile(r"'[^'\n]*'")),
)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


def scan_toml(text: str) -> Positions:
    """The spans of every key, value, header and comment of a valid TOML text."""
    scanner = _TomlScanner(text)
    scanner.document()
    return scanner.found


class _TomlScanner:
    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.found = Positions(text)
        self.found.values[()] = TextSpan(0, len(text))
        self.counts: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._skip()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
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
            path = self._last_item((*path, name))
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

    def _last_item(self, path: Path) -> Path:
        return (*path, self.counts[path]) if path in self.counts else path

    def _pair(self, table: Path) -> None:
        path, start = table, self.at
        for name, span in self._key():
            path = (*path, name)
            self.found.keys.setdefault(path, span)
            self.found.values.setdefault(path, span)
        self.at += 1  # the equals sign
        self._blank()
        self._value(path)
        self.found.pairs.append(Pair(table, path, TextSpan(start, self.at)))

    def _key(self) -> list[tuple[str, TextSpan]]:
        """The parts of a dotted key; stops at what follows it."""
        parts: list[tuple[str, TextSpan]] = []
        while True:
            self._blank()
            start = self.at
            if self.text[start] in "\"'":
                name = _text_of(self._string())
            else:
                bare = _BARE_KEY.match(self.text, start)
                assert bare is not None
                self.at, name = bare.end(), bare[0]
            parts.append((name, TextSpan(start, self.at)))
            self._blank()
            if self.text[self.at : self.at + 1] != ".":
                return parts
            self.at += 1

    def _value(self, path: Path) -> None:
        start = self.at
        self.found.written.add(path)
        self.found.values[path] = TextSpan(start, start)
        match self.text[start]:
            case "[":
                self._list(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._string()
            case _:
                scalar = _SCALAR.match(self.text, start)
                assert scalar is not None
                self.at = start + len(scalar[0].rstrip())
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
        if self.text[self.at] == ",":
            self.at += 1
            self._skip()
        if self.text[self.at] == mark:
            self.at += 1
            return True
        return False

    def _string(self) -> str:
        for opening, pattern in _STRINGS:
            if self.text.startswith(opening, self.at):
                found = pattern.match(self.text, self.at)
                assert found is not None
                self.at = found.end()
                return found[0]
        raise AssertionError("no quote here")

    def _blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _skip(self) -> None:
        """Skips white space, line ends and comments."""
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self.found.comments.append(TextSpan(comment.start(), comment.end()))
            self.at = comment.end()


def _text_of(literal: str) -> str:
    if literal[0] == "'" or "\\" not in literal:
        return literal[1:-1]
    import tomllib

    value = tomllib.loads(f"k = {literal}")["k"]
    assert isinstance(value, str)
    return value

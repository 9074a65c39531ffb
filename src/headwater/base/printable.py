"""Makes foreign text safe to show: a name, a message or a program's output may hold characters that control a terminal,
break a log's lines, or show text in another order than it is written."""

from __future__ import annotations

import re

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_NAME = re.compile(f"[\t\n{_UNSAFE}]")
_LINES = re.compile(f"[{_UNSAFE}]")


def printable(name: str) -> str:
    """One line. Control characters, line breaks, bidi controls and lone surrogates become escapes such as `\\u202e`."""
    return _NAME.sub(_escape, name)


def quoted(name: str) -> str:
    """A name from outside (of a file, a folder) as a message shows it."""
    return f"`{printable(name)}`"


def printable_lines(text: str) -> str:
    """The same, but line breaks and tabs stay."""
    return _LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

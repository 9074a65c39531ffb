"""Where a text stops being JSON, and what was expected there. Never the text itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NoReturn

import msgspec
from msgspec import Raw

_any = msgspec.json.Decoder(Raw).decode
_at_byte = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")
_word = re.compile(rb"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?")
NOT_UTF8 = "not UTF-8"
_END = "the text ends too early"
_REASONS = {
    "invalid character": "unexpected character",
    "trailing characters": "expected nothing after the value",
    "trailing comma in object": "expected a key after the comma",
    "trailing comma in array": "expected a value after the comma",
    "expected '\"'": "expected a key in double quotes",
    "expected ':'": "expected `:`",
    "expected ',' or '}'": "expected `,` or `}`",
    "expected ',' or ']'": "expected `,` or `]`",
    "invalid number": "not a number of JSON",
    "invalid escaped character": "unknown escape",
    "invalid character in unicode escape": "expected four hexadecimal digits",
    "invalid utf-16 surrogate pair": "half of a surrogate pair",
}
"""The decoder's messages, and ours."""


@dataclass(frozen=True)
class Fault:
    """A position in a text, in characters from 1, and what is wrong there."""

    line: int
    column: int
    reason: str


def fault_in(source: bytes) -> Fault | None:
    """The first place where a text is not JSON; None if all of it is JSON, or no position is known."""
    try:
        source.decode()
        _any(source)
    except UnicodeDecodeError as error:
        return _fault(source, error.start, NOT_UTF8)
    except msgspec.DecodeError as error:
        found = _at_byte.fullmatch(str(error))
        if found is None:
            return _cut_short(source)
        words, offset = found[1], int(found[2])
        if words == "trailing characters":
            offset -= 1  # the decoder finds the end of a value one character late
        elif words == "invalid character":
            offset = max(offset, _after_word(source, offset - 1))
        return _fault(source, offset, _REASONS.get(words, words))
    except RecursionError:
        pass
    return None


def _cut_short(source: bytes) -> Fault:
    """The decoder gives no position for a text that ends too early. It reports the same for a lone surrogate near the
    end."""
    text = source.decode()
    try:
        json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        offset = _after_word(source, len(text[: error.pos].encode()))
        if error.msg.startswith("Unterminated string"):
            return _fault(source, offset, "a string that does not end")
        is_end = offset >= len(source.rstrip())
        reason = "unexpected character" if error.msg == "Expecting value" else error.msg
        return _fault(source, offset, _END if is_end else reason)
    except (ValueError, RecursionError):
        pass
    return _fault(source, len(source), _END)


def _after_word(source: bytes, offset: int) -> int:
    """Where a misspelled `true`, `false` or `null` that begins at `offset` goes wrong; `offset` itself if none begins
    there. The decoder points behind the first letter of a word, Python's decoder at it."""
    found = _word.match(source, offset)
    return offset if found is None else found.end()


def refuse_constant(_word: str) -> NoReturn:
    """Python's decoder takes `NaN` and `Infinity`, which JSON does not have."""
    raise ValueError


def _fault(source: bytes, offset: int, reason: str) -> Fault:
    before = source[:offset]
    line_start = before.rfind(b"\n") + 1
    return Fault(before.count(b"\n") + 1, len(before[line_start:].decode(errors="replace")) + 1, reason)

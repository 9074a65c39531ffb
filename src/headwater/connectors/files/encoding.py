"""Text files in encodings other than UTF-8, read as UTF-8, a part at a time.

Bytes that are not text in the encoding become lone surrogates, which UTF-8 cannot hold: a row with one is a bad row,
and the others land.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache

from headwater.base.errors import nearest

_UNDECODABLE = "headwater.undecodable"
_NOT_OF_FILES = frozenset(
    {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "charmap", "mbcs", "oem"}
)
"""Encodings for domain names and for program sources, and those of one operating system."""
_UTF_8 = ("utf-8", "utf-8-sig")
_PLAIN = ("ascii", "iso8859-1")


def encoding_of(name: str) -> str | None:
    """The codec of an encoding; None for UTF-8, which needs none. Raises LookupError."""
    found = _codec(name).name
    return None if found in _UTF_8 else found


def encoding_problem(name: str) -> tuple[str, str] | None:
    """A message and a hint for what is not the name of an encoding of text."""
    if _is_encoding(name):
        return None
    from encodings.aliases import aliases

    known = {alias.replace("_", "-") for alias in (*aliases, *aliases.values())}
    meant = nearest(name.lower().replace("_", "-"), known)
    is_meant = meant is not None and _is_encoding(meant)
    hint = f"did you mean `{meant}`?" if is_meant else "for example latin-1, windows-1252, utf-16 or shift_jis"
    return f"`{name[:80]}` is not an encoding of text", hint


def _is_encoding(name: str) -> bool:
    try:
        _codec(name)
    except (LookupError, ValueError):
        return False
    return True


@lru_cache(maxsize=64)
def is_line_safe(encoding: str) -> bool:
    """Whether the byte 10 is always a newline and nothing else is one, so that a file can be read from its middle: true
    of encodings with one byte for each character."""
    codec = _codec(encoding)
    if codec.name in _PLAIN:
        return True
    module = sys.modules[codec.incrementaldecoder.__module__]
    table = getattr(module, "decoding_table", "")
    return len(table) >= 128 and table[10] == "\n" and table.count("\n") == 1


def utf8_parts(parts: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """A text in an encoding as UTF-8, in parts that are not empty."""
    for text in codecs.iterdecode(parts, encoding, _UNDECODABLE):
        yield text.encode("utf-8", "surrogatepass")


def _codec(name: str) -> codecs.CodecInfo:
    found = codecs.lookup(name)
    if not getattr(found, "_is_text_encoding", True) or found.name in _NOT_OF_FILES or not found.incrementaldecoder:
        raise LookupError(name)
    return found


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_UNDECODABLE, _as_surrogates)

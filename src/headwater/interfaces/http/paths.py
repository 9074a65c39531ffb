"""Hides paths of this machine: an answer over HTTP names a file of the store by its path in the store, and any other
file by its name. The log and the command line show whole paths.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

_TOP = "|".join(re.escape(name) for name in sorted(os.listdir("/"), key=len, reverse=True)) or "(?!)"  # noqa: PTH208
_ANY = re.compile(rf"(?<![\w.~-])/(?:{_TOP})(?![\w.~-])")
"""Where a path may begin. A name that is not a directory of this machine, such as `/v1`, is not a path."""
_PATH = re.compile(
    rf"""(?P<quote>[`'"])(?P<quoted>/(?:{_TOP})(?:/[^`'"]*)?)(?P=quote)"""
    rf"""|(?<![\w.~-])(?P<bare>/(?:{_TOP})(?:/[^\s`'"<>|,;:()\[\]]*)?)(?![\w.~-])"""
)
_STORE_FILE = re.compile(r".*/(tables/[^/]+/.+)")


def without_paths(text: str) -> str:
    """The text with every absolute path shortened."""
    return _PATH.sub(_shown, text) if _ANY.search(text) else text


def json_without_paths(text: str) -> str:
    """The same for each string of a JSON text."""
    return json.dumps(_walked(json.loads(text)), ensure_ascii=False) if _ANY.search(text) else text


def _shown(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return quote + _short(found["quoted"] or found["bare"]) + quote


def _short(path: str) -> str:
    of_store = _STORE_FILE.fullmatch(path)
    return of_store[1] if of_store is not None else path.rstrip("/").rpartition("/")[2]


def _walked(value: Any) -> Any:
    match value:
        case str():
            return without_paths(value)
        case list():
            return [_walked(part) for part in value]
        case dict():
            return {key: _walked(part) for key, part in value.items()}
        case _:
            return value

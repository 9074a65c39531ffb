"""A path to a value inside JSON: the keys and indexes that lead to it, and the one way to write them.

`props.user.id`, `props.tags[0]`, `props['http.status_code']`: the name of a column, then keys after a dot or quoted in
brackets, and indexes that count from 0. Inside quotes a backslash escapes a quote or another backslash. The key `*` and
the empty key cannot be named: DuckDB reads the first as all keys, and cannot express the second.
"""

from __future__ import annotations

import re

from headwater.base.errors import HeadwaterError
from headwater.base.limits import MAX_JSON_DEPTH

Steps = tuple[str | int, ...]
RecordSteps = tuple[str | None, ...]
"""A path to many values inside a JSON document: keys, and None for every item of an array."""

_BARE = r"[^\s.\[\]'\"\\]+"
_QUOTED = r"'(?:[^'\\]|\\['\"\\])+'|\"(?:[^\"\\]|\\['\"\\])+\""
_FIRST = re.compile(rf"(?P<bare>{_BARE})|\[(?P<quoted>{_QUOTED})\]")
_NEXT = re.compile(rf"\.(?P<bare>{_BARE})|\[(?P<quoted>{_QUOTED})\]|\[(?P<index>[0-9]{{1,9}})\]")
_EACH = re.compile(rf"\.(?P<bare>[^\s.\[\]'\"\\*]+)|\[(?P<quoted>{_QUOTED})\]|(?P<each>\[\*\])")
_ESCAPED = re.compile(r"\\(.)")
_RECORDS_FORM = "write it as `$.data[*]` or `$['a key'][*].rows[*]`: keys, and `[*]` for every item of an array"
_FORM = "write it as `props.user.id`, `props.tags[0]` or `props['a.key'].id`: a column, then the way to one value"


def parse_path(text: str) -> tuple[str, Steps]:
    """The column that a user's path begins with, and at least one step inside it. Raises HW-S03."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        found = (_NEXT if steps else _FIRST).match(text, at)
        if found is None:
            raise _bad(text, f"at character {at + 1}")
        steps.append(_step(found))
        at = found.end()
    if len(steps) < 2:
        raise _bad(text, "it names no value inside a column")
    if len(steps) - 1 > MAX_JSON_DEPTH:
        raise _bad(text, f"it has more than {MAX_JSON_DEPTH} steps")
    if "*" in steps or not all(step.isprintable() for step in steps if isinstance(step, str)):
        raise _bad(text, "`*` and characters that cannot be printed are no keys")
    column, *inside = steps
    return str(column), tuple(inside)


def parse_records(text: str) -> RecordSteps:
    """The path to the records of a JSON document, from its root `$`. Raises HW-S03."""
    if not text.startswith("$"):
        raise _bad(text, "it begins with `$`, the document", _RECORDS_FORM)
    steps: list[str | None] = []
    at = 1
    while at < len(text):
        found = _EACH.match(text, at)
        if found is None:
            raise _bad(text, f"at character {at + 1}", _RECORDS_FORM)
        steps.append(None if found["each"] else str(_step(found)))
        at = found.end()
    if len(steps) > MAX_JSON_DEPTH:
        raise _bad(text, f"it has more than {MAX_JSON_DEPTH} steps", _RECORDS_FORM)
    return tuple(steps)


def path_text(column: str, steps: Steps) -> str:
    """The text of a path, which `parse_path` can read."""
    parts = [column if re.fullmatch(_BARE, column) else f"[{_quoted(column)}]"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if re.fullmatch(_BARE, step) else f"[{_quoted(step)}]")
    return "".join(parts)


def _step(found: re.Match[str]) -> str | int:
    named = found.groupdict()
    if named["bare"] is not None:
        return named["bare"]
    if named["quoted"] is not None:
        return _ESCAPED.sub(r"\1", named["quoted"][1:-1])
    return int(named["index"])


def _quoted(key: str) -> str:
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _bad(text: str, why: str, form: str = _FORM) -> HeadwaterError:
    shown = text if len(text) <= 100 else text[:100] + "..."
    return HeadwaterError("HW-S03", f"the path `{shown}` is not understood: {why}", hint=form)

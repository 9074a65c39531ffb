"""Makes one change in a JSON text and keeps every other byte."""

from __future__ import annotations

import json
import re

from pydantic import JsonValue

from headwater.manifest.positions import Path, Positions
from headwater.manifest.render import json_text
from headwater.manifest.scan_json import scan_json

_INDENT = re.compile(r"\n([ \t]+)\S")


def set_in_json(text: str, path: Path, value: JsonValue) -> str:
    """The text with `value` at `path`: replaces the present value, or is added at the end of its object or list, which
    must exist."""
    found = scan_json(text)
    span = found.values.get(path)
    if span is not None:
        return text[: span.start] + _rendered(text, path, value) + text[span.end :]
    parent, last = path[:-1], path[-1]
    key = f"{json.dumps(last, ensure_ascii=False)}: " if isinstance(last, str) else ""
    added = key + _rendered(text, path, value)
    around = found.values[parent]
    members = _members(found, parent)
    if not members:
        holder: JsonValue = {last: value} if isinstance(last, str) else [value]
        return text[: around.start] + _rendered(text, parent, holder) + text[around.end :]
    first, end = members[0][0], members[-1][1]
    gap = text[around.start + 1 : first]
    separator = "," + gap if "\n" in gap else ", "
    return text[:end] + separator + added + text[end:]


def unset_in_json(text: str, path: Path) -> str:
    """The text without the member or item at `path`, which must exist."""
    found = scan_json(text)
    around = found.values[path[:-1]]
    members = _members(found, path[:-1])
    start = found.keys[path].start if path in found.keys else found.values[path].start
    at = [begin for begin, _ in members].index(start)
    if len(members) == 1:
        return text[: around.start + 1] + text[around.end - 1 :]
    if at + 1 < len(members):
        return text[:start] + text[members[at + 1][0] :]
    return text[: members[at - 1][1]] + text[members[at][1] :]


def _members(found: Positions, parent: Path) -> list[tuple[int, int]]:
    """Where each member of an object or item of a list begins and ends, in order."""
    inside = []
    for path, span in found.values.items():
        if len(path) == len(parent) + 1 and path[:-1] == parent:
            start = found.keys[path].start if path in found.keys else span.start
            inside.append((start, span.end))
    return sorted(inside)


def _rendered(text: str, path: Path, value: JsonValue) -> str:
    indent = _INDENT.search(text)
    return json_text(value, indent=indent[1] if indent else "  ", depth=len(path))

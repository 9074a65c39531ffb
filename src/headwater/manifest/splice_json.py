"""Makes one change in a JSON text and keeps every other byte."""

from __future__ import annotations

import json
import re

from pydantic import JsonValue

from headwater.manifest.positions import Path
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
    members = found.members(parent)
    if not members:
        holder: JsonValue = {last: value} if isinstance(last, str) else [value]
        return text[: around.start] + _rendered(text, parent, holder) + text[around.end :]
    gap, end = text[around.start + 1 : members[0].start], members[-1].end
    separator = "," + gap if "\n" in gap else ", "
    return text[:end] + separator + added + text[end:]


def unset_in_json(text: str, path: Path) -> str:
    """The text without the member or item at `path`, which must exist."""
    found = scan_json(text)
    ends = [member.end for member in found.members(path[:-1])]
    return found.without_member(path[:-1], ends.index(found.values[path].end))


def _rendered(text: str, path: Path, value: JsonValue) -> str:
    indent = _INDENT.search(text)
    return json_text(value, indent=indent[1] if indent else "  ", depth=len(path))

"""Makes one change in a TOML text and keeps every other byte: comments, order, spaces.

A new key goes behind the last one of its own table, so that a comment above the next table stays above it. The caller
reads the result back and compares it: no change is trusted.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from pydantic import JsonValue

from headwater.manifest.positions import Pair, Path, Positions, TextSpan
from headwater.manifest.render import table_blocks, toml_key, toml_value
from headwater.manifest.scan_toml import scan_toml

_REST_OF_LINE = re.compile(r"[ \t]*,?[ \t]*(?:#[^\n]*)?(?:\n|$)")
_COMMA = re.compile(r"[ \t\n]*,")


class Unspliceable(Exception):
    """The change does not fit into the way the text is written: a larger part must be written anew."""


def set_in_toml(text: str, path: Path, value: JsonValue) -> str:
    """The text with `value` at `path`: replaces the present value, or is added at the end of its table or list, which
    must exist. Raises `Unspliceable`."""
    found = scan_toml(text)
    if path in found.written:
        span = found.values[path]
        is_pair = any(pair.path == path for pair in found.pairs)
        return text[: span.start] + toml_value(value, one_line=not is_pair) + text[span.end :]
    parent, last = path[:-1], path[-1]
    if parent in found.written:
        return _into_brackets(text, found, path, value)
    header = dict(found.headers).get(path)
    if isinstance(last, int) and header is not None:
        rest = unset_in_toml(text, path)
        return rest[: header.start] + _blocks(path, [value]) + rest[header.start :]
    if any(_below(known, path) for known in found.values):
        text = unset_in_toml(text, path)
        found = scan_toml(text)
    if isinstance(last, int):
        return _new_blocks(text, found, path, [value])
    if isinstance(value, list) and _is_list_of_tables(value) and (not parent or parent in dict(found.headers)):
        return _new_blocks(text, found, path, value)
    return _new_line(text, found, parent, last, value)


def unset_in_toml(text: str, path: Path) -> str:
    """The text without what is written at `path`: its lines, its tables, or its place between brackets."""
    found = scan_toml(text)
    if path[:-1] in found.written:
        return _out_of_brackets(text, found, path)
    kept, at = "", 0
    for span in removed_spans(found, path):
        kept += text[at : max(at, span.start)]
        at = max(at, span.end)
    return kept + text[at:]


def removed_spans(found: Positions, path: Path) -> list[TextSpan]:
    """What is removed with `path`: its lines, and its tables with the comments between them."""
    text = found.text
    doomed = [_lines(text, pair.span) for pair in found.pairs if _outermost(found, pair) and _below(pair.path, path)]
    previous = False
    for header, section in _sections(found):
        here = _below(header, path)
        if here and previous:
            doomed[-1] = TextSpan(doomed[-1].start, section.end)
        elif here:
            doomed.append(section)
        previous = here
    return [_with_blank_lines(text, span) for span in sorted(doomed, key=lambda span: span.start)]


def _sections(found: Positions) -> list[tuple[Path, TextSpan]]:
    """Each table from its header to the end of its last line, the text above all headers first; comments and blank
    lines after that belong to what follows."""
    headers: list[tuple[Path, TextSpan]] = [((), TextSpan(0, 0)), *found.headers]
    starts, ends = [span.start for _, span in headers], [span.end for _, span in headers]
    for pair in found.pairs:
        at = bisect_right(starts, pair.span.start) - 1
        ends[at] = max(ends[at], pair.span.end)
    return [
        (path, TextSpan(span.start, _line_end(found.text, end) if end else 0))
        for (path, span), end in zip(headers, ends)
    ]


def _outermost(found: Positions, pair: Pair) -> bool:
    """True for a pair on its own line, not inside an inline table."""
    return pair.table not in found.written


def _below(path: Path, top: Path) -> bool:
    return path[: len(top)] == top


def _is_list_of_tables(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _new_line(text: str, found: Positions, parent: Path, key: str, value: JsonValue) -> str:
    table, behind = _home(text, found, parent)
    name = ".".join(toml_key(str(step)) for step in (*parent[len(table) :], key))
    line = f"{name} = {toml_value(value)}\n"
    if behind is None:  # only the tables inside it have headers: it gets its own, before them
        child = next((span.start for header, span in found.headers if _below(header, parent)), None)
        if child is None:
            raise Unspliceable
        header = ".".join(toml_key(step) for step in parent if isinstance(step, str))
        return text[:child] + f"[{header}]\n{line}\n" + text[child:]
    before = text[:behind]
    if before and not before.endswith("\n"):
        before += "\n"
    return before + line + text[behind:]


def _home(text: str, found: Positions, parent: Path) -> tuple[Path, int | None]:
    """The table that a new key of `parent` is written in, and the offset behind which it goes."""
    section = dict(_sections(found)).get(parent)
    if section is not None:
        return parent, section.end
    dotted = [
        pair
        for pair in found.pairs
        if _below(pair.path, parent) and len(pair.table) < len(parent) and _outermost(found, pair)
    ]
    return (dotted[-1].table, _line_end(text, dotted[-1].span.end)) if dotted else (parent, None)


def _new_blocks(text: str, found: Positions, path: Path, items: list[JsonValue]) -> str:
    """New `[[...]]` tables behind everything of the table that holds them, or of the list that they continue."""
    top = path[:-1]
    ends = [section.end for header, section in _sections(found) if _below(header, top)]
    at = max(ends) if ends else _home(text, found, top)[1] or 0
    before = text[:at] if text[:at].endswith("\n") or not at else text[:at] + "\n"
    return before + "\n" + _blocks(path, items) + text[at:]


def _blocks(path: Path, items: list[JsonValue]) -> str:
    if not _is_list_of_tables(items):
        raise Unspliceable
    names = [step for step in path if isinstance(step, str)]
    return "\n".join(table_blocks(names, [item for item in items if isinstance(item, dict)])[1:]) + "\n"


def _into_brackets(text: str, found: Positions, path: Path, value: JsonValue) -> str:
    parent, last = path[:-1], path[-1]
    rendered = toml_value(value, one_line=True)
    item = f"{toml_key(last)} = {rendered}" if isinstance(last, str) else rendered
    around, members = found.values[parent], found.members(parent)
    if not members:
        inner = f"{{ {item} }}" if isinstance(last, str) else f"[{item}]"
        return text[: around.start] + inner + text[around.end :]
    final = members[-1]
    line = text.rfind("\n", around.start, final.start)
    indent = text[line + 1 : final.start]
    if line < 0 or indent.strip():
        return text[: final.end] + f", {item}" + text[final.end :]
    end = _line_end(text, final.end)
    if _COMMA.match(text, final.end):
        return text[:end] + f"{indent}{item},\n" + text[end:]
    return text[: final.end] + "," + text[final.end : end] + f"{indent}{item}\n" + text[end:]


def _out_of_brackets(text: str, found: Positions, path: Path) -> str:
    parent = path[:-1]
    members = found.members(parent)
    at = next((index for index, span in enumerate(members) if _is_span_of(span, found, path)), None)
    if at is None:
        raise Unspliceable
    span = members[at]
    line, end = text.rfind("\n", 0, span.start) + 1, _line_end(text, span.end)
    is_alone = not text[line : span.start].strip() and text[end - 1 : end] == "\n"
    if is_alone and len(members) > 1:
        return text[:line] + text[end:]
    return found.without_member(parent, at)


def _is_span_of(span: TextSpan, found: Positions, path: Path) -> bool:
    """True if the member at `span` is `path` itself, not a dotted key below it."""
    if isinstance(path[-1], int):
        return found.values[path] == span
    return any(pair.path == path and pair.span == span for pair in found.pairs)


def _lines(text: str, span: TextSpan) -> TextSpan:
    return TextSpan(text.rfind("\n", 0, span.start) + 1, _line_end(text, span.end))


def _with_blank_lines(text: str, span: TextSpan) -> TextSpan:
    """The span with the blank lines behind it, if there is one before it: no gap is left."""
    end = span.end
    if text[: span.start].endswith("\n\n"):
        while text[end : end + 1] == "\n":
            end += 1
    return TextSpan(span.start, end)


def _line_end(text: str, offset: int) -> int:
    """The end of the line that `offset` is on, its comment included."""
    rest = _REST_OF_LINE.match(text, offset)
    return rest.end() if rest else offset

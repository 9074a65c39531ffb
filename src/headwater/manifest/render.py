"""Manifest text from values: a pipeline as TOML or as JSON, in the form that a person would write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LIST_WIDTH = 100
"""A list or table up to this many characters stays on one line."""


def pipeline_as_json(definition: Mapping[str, JsonValue]) -> str:
    return json_text(dict(definition)) + "\n"


def pipeline_as_toml(definition: Mapping[str, JsonValue], *, inline: bool) -> str:
    """The pipeline as a `[[pipeline]]` block of `headwater.toml`, or as a file of its own."""
    header = ["[[pipeline]]"] if inline else []
    return "\n".join([*header, *_toml_lines(definition, ("pipeline",) if inline else ())]) + "\n"


def table_blocks(names: list[str], items: Iterable[Mapping[str, JsonValue]]) -> list[str]:
    """The lines of `[[a.b]]` tables, one for each item, a blank line before each."""
    header = ".".join(toml_key(name) for name in names)
    lines: list[str] = []
    for item in items:
        lines += ["", f"[[{header}]]", *_toml_lines(item, tuple(names))]
    return lines


def toml_value(value: JsonValue, *, one_line: bool = False) -> str:
    """A value on the right of an equals sign; `one_line` for a place between brackets."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _basic_string(value) if one_line else _toml_text(value)
        case list():
            return "[" + ", ".join(toml_value(item, one_line=True) for item in value) + "]"
        case dict():
            pairs = ", ".join(f"{toml_key(key)} = {toml_value(inner, one_line=True)}" for key, inner in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case None:
            raise AssertionError("a manifest holds no null")


def toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _basic_string(name)


def json_text(value: JsonValue, *, indent: str = "  ", depth: int = 0) -> str:
    """JSON with short lists and objects of plain values on one line, longer ones a line per item."""
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner, outer = indent * (depth + 1), indent * depth
    values = value if isinstance(value, list) else list(value.values())
    items = [json_text(item, indent=indent, depth=depth + 1) for item in values]
    may_fold = not any(isinstance(item, dict | list) for item in values)
    opening, closing, space = "[", "]", ""
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {item}" for key, item in zip(value, items)]
        opening, closing, space, may_fold = "{", "}", " ", may_fold and depth > 1
    line = opening + space + ", ".join(items) + space + closing
    if may_fold and len(inner) + len(line) <= _LIST_WIDTH:
        return line
    return opening + "\n" + inner + f",\n{inner}".join(items) + "\n" + outer + closing


def _toml_lines(definition: Mapping[str, JsonValue], path: tuple[str, ...]) -> list[str]:
    """Plain keys first, then the lists of tables, as TOML requires."""
    lines: list[str] = []
    blocks: list[str] = []
    for key, value in definition.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            blocks += table_blocks([*path, key], [item for item in value if isinstance(item, dict)])
        elif isinstance(value, dict) and value and len(f"{key} = {toml_value(value)}") > _LIST_WIDTH:
            header = ".".join(toml_key(step) for step in (*path, key))
            blocks += ["", f"[{header}]", *_toml_lines(value, (*path, key))]
        else:
            lines.append(f"{toml_key(key)} = {toml_value(value)}")
    return lines + blocks


def _toml_text(text: str) -> str:
    """Text of several lines keeps its lines if nothing in it needs an escape: SQL stays readable."""
    readable = all(mark == "\n" or mark.isprintable() for mark in text)
    if "\n" in text and readable and "'''" not in text and not text.endswith("'"):
        return f"'''\n{text}'''"
    return _basic_string(text)


def _basic_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

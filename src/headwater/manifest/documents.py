"""The files of a project as data: read, decoded, and the same for every format.

TOML and JSON become the same values: TOML's dates and times become text, `null` and numbers that are not finite are
refused in both, a repeated key is an error in both.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from functools import cached_property
from math import isfinite
from pathlib import Path as FilePath
from typing import Literal

from pydantic import JsonValue

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position
from headwater.base.limits import MAX_JSON_DEPTH
from headwater.base.printable import quoted
from headwater.base.regular_files import open_regular
from headwater.manifest.positions import Path, Positions

PROJECT_FILE = "headwater.toml"
PIPELINES = "pipelines"
TRANSFORMS_SUFFIX = ".transforms.json"

Format = Literal["toml", "json"]
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, eq=False)
class Document:
    """One file. `text` has no byte order mark; `file` is relative to the project, with `/`. `kind` is the format if the
    file's name does not say it."""

    file: str
    text: str
    data: dict[str, JsonValue]
    has_bom: bool = False
    kind: Format | None = None

    @property
    def format(self) -> Format:
        return self.kind or ("json" if self.file.endswith(".json") else "toml")

    @cached_property
    def positions(self) -> Positions:
        """The position of every key and value. Values that are nested too deep are left out."""
        from headwater.manifest.scan_json import scan_json
        from headwater.manifest.scan_toml import scan_toml

        try:
            return scan_json(self.text) if self.format == "json" else scan_toml(self.text)
        except RecursionError:
            return Positions(self.text)


@dataclass(frozen=True, eq=False)
class Part:
    """A pipeline or the project's own settings: where it is written, its raw data, and what to call it.
    `overrides` are the values that came from the environment, by path."""

    document: Document
    base: Path
    data: dict[str, JsonValue]
    subject: str
    overrides: Mapping[Path, str] = field(default_factory=dict)

    def position(self, path: Path = (), *, key: bool = False) -> Position:
        """Where the value (or, with `key`, the key) at `path` is written."""
        for length in range(len(path), 0, -1):
            variable = self.overrides.get(path[:length])
            if variable is not None:
                return Position(f"environment variable {variable}")
        found, file, whole = self.document.positions, self.document.file, (*self.base, *path)
        if whole not in found.values:  # a table that only the environment made
            for known, variable in self.overrides.items():
                if known[: len(path)] == path:
                    return Position(f"environment variable {variable}")
        return found.of_key(file, whole) if key else found.of_value(file, whole)

    def error(self, code: str, path: Path, message: str, *, hint: str = "", key: bool = False) -> HeadwaterError:
        detail: dict[str, object] = {"key": dotted(path)} if path else {}
        return HeadwaterError(code, message, hint=hint, detail=detail, places=(self.position(path, key=key),))

    def wrong(
        self, path: Path, message: str, *, hint: str = "", key: bool = False, code: str = "HW-M03"
    ) -> HeadwaterError:
        """The error of the value (or key) at `path`; the message goes on after its name."""
        name = f"`{dotted(path)}` of {self.subject}" if path else self.subject
        return self.error(code, path, name + message, hint=hint, key=key)

    @property
    def id(self) -> str | None:
        """The pipeline's id as it is written, also where the rest is wrong."""
        found = self.data.get("id")
        return found if isinstance(found, str) else None


class Unreadable(Exception):
    """A file that cannot be read as data, with all its errors."""

    def __init__(self, errors: list[HeadwaterError]):
        super().__init__(errors)
        self.errors = errors


def dotted(path: Path) -> str:
    """`tables[0].name`: how a path is written in a message."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[A-Za-z0-9_$-]+", step) else json.dumps(step, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def read_document(root: FilePath, file: str, overlay: Mapping[str, str | None]) -> Document:
    """One file of the project; `overlay` holds texts that replace files on disk. Raises `Unreadable`."""
    replaced = overlay.get(file)
    if replaced is not None:
        return parse_document(file, replaced)
    path = root / file
    # `realpath` reports no error for a loop of links; opening the file does.
    if file != PROJECT_FILE and not FilePath(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        reason = "it is a symbolic link that leads out of the project"
        raise Unreadable([_unreadable(file, reason, "copy the file into the project")])
    return parse_document(file, read_text(path, file, limits.MANIFEST_BYTES))


def read_text(path: FilePath, file: str, most_bytes: int) -> str:
    """The text of a file. Raises `Unreadable`."""
    try:
        with open_regular(path) as opened:
            raw = opened.read(most_bytes + 1)
        if len(raw) > most_bytes:
            reason = f"it is larger than {most_bytes >> 20} MiB"
            raise Unreadable([_unreadable(file, reason, "keep data elsewhere")])
        return raw.decode("utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Unreadable([_unreadable(file, reason, "check the file and its permissions")]) from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        place = Position(file, line, column)
        bad = HeadwaterError("HW-M02", f"{quoted(file)} is not UTF-8 text", hint="save it as UTF-8", places=(place,))
        raise Unreadable([bad]) from error


def list_files(root: FilePath, overlay: Mapping[str, str | None]) -> tuple[list[str], list[str]]:
    """The manifest files of a project, `headwater.toml` first, and the files beside them that are not read."""
    try:
        names = {f"{PIPELINES}/{path.name}" for path in (root / PIPELINES).iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        names = set()
    except OSError as error:
        raise _unreadable(PIPELINES, error.strerror or "", "check the directory's permissions") from error
    names |= {file for file in overlay if file.startswith(f"{PIPELINES}/")}
    names -= {file for file, text in overlay.items() if text is None}
    files, ignored = [], []
    for file in sorted(names):
        if file.startswith(f"{PIPELINES}/.") or file.endswith(TRANSFORMS_SUFFIX):
            continue
        if file.endswith((".toml", ".json")):
            files.append(file)
        elif file.endswith((".yaml", ".yml", ".json5", ".jsonc")):
            ignored.append(file)
    return [PROJECT_FILE, *files], ignored


def parse_document(file: str, text: str) -> Document:
    """A document from its text. Raises `Unreadable`."""
    has_bom = text.startswith("\ufeff")
    text = text[1:] if has_bom else text
    data = parse_json(file, text) if file.endswith(".json") else _parse_toml(file, text)
    if not isinstance(data, dict):
        found = {list: "a list", str: "text", type(None): "null"}.get(type(data), "a single value")
        wrong = HeadwaterError(
            "HW-M03",
            f"{quoted(file)} holds {found}, not a pipeline",
            hint='a pipeline file is one JSON object: `{"id": ..., "source": ...}`',
            places=(Position(file, 1, 1),),
        )
        raise Unreadable([wrong])
    problems: list[tuple[Path, str, str]] = []
    data = {key: _plain(value, (key,), problems) for key, value in data.items()}
    document = Document(file, text, data, has_bom)
    if problems:
        whole = Part(document, (), data, quoted(file))
        raise Unreadable(
            [whole.error("HW-M03", path, f"`{dotted(path[:8])}` {what}", hint=hint) for path, what, hint in problems]
        )
    return document


def plain_value(value: JsonValue, name: str) -> JsonValue:
    """The value as a manifest may hold it. Raises HW-M03."""
    problems: list[tuple[Path, str, str]] = []
    found = _plain(value, (), problems)
    for path, what, hint in problems:
        raise HeadwaterError("HW-M03", f"`{name}{dotted(path[:8])}` {what}", hint=hint)
    return found


def _parse_toml(file: str, text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        reason = _TOML_PLACE.sub("", str(error))
        if found and found[1]:
            place = Position(file, int(found[1]), int(found[2]))
        else:
            place = Position(file, text.count("\n") + 1, len(text) - text.rfind("\n"))
        message = f"{quoted(file)} is not valid TOML: {reason[:1].lower()}{reason[1:]}"
        raise Unreadable([HeadwaterError("HW-M02", message, places=(place,))]) from error
    except RecursionError as error:
        raise Unreadable([_too_deep(file)]) from error
    except ValueError as error:
        raise Unreadable([_unreadable(file, "it has a number or date that does not exist")]) from error


def parse_json(file: str, text: str) -> object:
    """The value of a JSON text. Raises `Unreadable`."""
    from headwater.manifest.scan_json import load_json

    try:
        return load_json(text)
    except RecursionError as error:
        raise Unreadable([_too_deep(file)]) from error
    except ValueError as error:
        raise Unreadable(_json_faults(file, text)) from error


def _json_faults(file: str, text: str) -> list[HeadwaterError]:
    """The errors of a text that `json` refused, with our messages and positions."""
    from headwater.manifest.scan_json import JsonFault, scan_json

    if not text.strip():
        hint = "write a pipeline into it, or remove it"
        return [HeadwaterError("HW-M02", f"{quoted(file)} is empty", hint=hint, places=(Position(file, 1, 1),))]
    try:
        found = scan_json(text)
    except JsonFault as fault:
        place = Positions(text).position(file, fault.offset)
        message = f"{quoted(file)} is not valid JSON: {fault.message}"
        return [HeadwaterError("HW-M02", message, hint=fault.hint, places=(place,))]
    return [
        HeadwaterError(
            "HW-M02",
            f"the key `{dotted(path)}` occurs twice",
            hint="keep one of them",
            places=(found.position(file, first), found.position(file, second)),
        )
        for path, first, second in found.duplicates
    ] or [_unreadable(file, "it has a number that is too long")]


def _plain(value: object, path: Path, problems: list[tuple[Path, str, str]]) -> JsonValue:
    """The value as JSON has it; a value that not both JSON and TOML have becomes a problem."""
    match value:
        case str():
            if not value.isascii() and any("\ud800" <= mark <= "\udfff" for mark in value):
                problems.append(
                    (path, "has half of a surrogate pair, which no file can hold", "write the character itself")
                )
            return value
        case bool() | int():
            return value
        case float():
            if not isfinite(value):
                problems.append((path, "is not a finite number", ""))
            return value
        case dict() | list() if len(path) > MAX_JSON_DEPTH:
            problems.append((path, f"is nested deeper than {MAX_JSON_DEPTH} levels", ""))
            return None
        case dict():
            return {key: _plain(inner, (*path, key), problems) for key, inner in value.items()}
        case list():
            return [_plain(inner, (*path, index), problems) for index, inner in enumerate(value)]
        case datetime() | date() | time():
            return value.isoformat()
        case None:
            problems.append((path, "is null, which says nothing", "leave the key out"))
            return None
    raise AssertionError(type(value))


def _too_deep(file: str) -> HeadwaterError:
    return _unreadable(file, f"it is nested deeper than {MAX_JSON_DEPTH} levels")


def _unreadable(file: str, reason: str, hint: str = "") -> HeadwaterError:
    return HeadwaterError("HW-M02", f"cannot read {quoted(file)}: {reason}", hint=hint, places=(Position(file),))

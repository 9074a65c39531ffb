"""Changes to manifests: made as text, checked as a whole project, then written all together or not at all.

`create`, `edit` and `convert` return an `EditPlan` and touch no file; `write_changes` does. An edit changes what it
names and leaves every other byte of the file as it was: comments, order, spaces, line ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import JsonValue

from headwater.base.blobs import cannot_write, make_directory, write_whole
from headwater.base.errors import HeadwaterError, did_you_mean, raise_all
from headwater.base.ids import is_pipeline_id
from headwater.base.printable import quoted
from headwater.manifest.documents import (
    PIPELINES,
    PROJECT_FILE,
    Document,
    Format,
    Part,
    Unreadable,
    dotted,
    parse_document,
    plain_value,
)
from headwater.manifest.load import ManifestFiles, no_such_pipeline, read_project
from headwater.manifest.positions import Path
from headwater.manifest.render import pipeline_as_json, pipeline_as_toml
from headwater.manifest.splice_json import set_in_json, unset_in_json
from headwater.manifest.splice_toml import Unspliceable, removed_spans, set_in_toml, unset_in_toml

Judge = Callable[[Mapping[str, str | None]], object]
"""Loads the project with these texts in place of its files, and raises its errors."""

_SPLICES = {"json": (set_in_json, unset_in_json), "toml": (set_in_toml, unset_in_toml)}
_SHORT_FORMS = {"tables": "name", "sources": "pipeline", "columns": "type"}
_NAMES = ("as", "name", "pipeline", "kind")
_PATH_STEP = re.compile(r'"(?:[^"\\]|\\.)*"|([^."\[\]]+)|\[(\d+)\]', re.DOTALL)
_SCHEMA_COMMENT = re.compile(r"#:schema[ \t]+(\S+)")


@dataclass(frozen=True)
class EditPlan:
    """What an edit would do: the new text of each file, by its path in the project; None deletes it. The files are in
    the order in which they are written: a pipeline is written to its new place before it is removed from the old one."""

    pipeline: str
    changes: Mapping[str, str | None]
    comments_lost: bool = False


def create_pipeline(
    root: FilePath, definition: Mapping[str, JsonValue], *, to: Format = "json", judge: Judge
) -> EditPlan:
    """A new pipeline: `pipelines/<id>.json`, or with `toml` a `[[pipeline]]` at the end of `headwater.toml`."""
    pipeline_id = definition.get("id")
    if not isinstance(pipeline_id, str) or not is_pipeline_id(pipeline_id):
        hint = "small letters, digits, `_` and `-`, at most 63, not a digit first"
        raise HeadwaterError("HW-M03", "a new pipeline needs a legal `id`", hint=hint)
    file = f"{PIPELINES}/{pipeline_id}.json"
    reading = read_project(root, {})
    there = [part for part in reading.parts if part.id == pipeline_id]
    if there:
        hint = f"`headwater pipeline edit {pipeline_id}` changes it"
        places = (there[0].position(),)
        raise HeadwaterError("HW-M04", f"pipeline `{pipeline_id}` is there already", hint=hint, places=places)
    as_json = pipeline_as_json(definition)
    data = _parsed(file, as_json).data
    if to == "json":
        _refuse_existing(root, file)
        changes = {file: as_json}
    else:
        text = (root / PROJECT_FILE).read_bytes().decode("utf-8")
        block = pipeline_as_toml(data, inline=True)
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        line_end = "\r\n" if "\r\n" in text else "\n"
        changes = {PROJECT_FILE: text + (gap + block).replace("\n", line_end)}
    return _judged(EditPlan(pipeline_id, changes), judge)


def edit_pipeline(
    root: FilePath,
    pipeline_id: str,
    *,
    set: Mapping[str, JsonValue] | None = None,
    unset: Sequence[str] = (),
    judge: Judge,
) -> EditPlan:
    """The pipeline with keys set and unset by dotted path, in the file and format it is in: `schedule`,
    `source.config.path`, `tables[0].mode` or, by name, `tables.orders.mode`. A path behind the last item of a list
    (`tables[1]` of one) adds an item."""
    part = _find(read_project(root, {}), pipeline_id)
    document, data = part.document, deepcopy(part.document.data)
    text = document.text.replace("\r\n", "\n")
    for key, value in (set or {}).items():
        path, whole = _settled(data, part, _steps(key), plain_value(value, key))
        _set(data, path, whole)
        text = _spliced(part, text, path, data, removed=False)
    for key in unset:
        path = _found(data, part, _steps(key))
        del _at(data, path[:-1])[path[-1]]
        text = _spliced(part, text, path, data, removed=True)
    written = _as_written(document, text)
    changes = {} if text == document.text.replace("\r\n", "\n") else {document.file: written}
    return _judged(EditPlan(pipeline_id, changes), judge)


def convert_pipeline(root: FilePath, pipeline_id: str, *, to: Format, judge: Judge) -> EditPlan:
    """The pipeline in the other format, in its own file; the old definition is removed. Only comments are lost, which
    JSON cannot hold: `comments_lost` says so. A pipeline that is in that format already gives no change."""
    part = _find(read_project(root, {}), pipeline_id)
    document = part.document
    if document.format == to:
        return EditPlan(pipeline_id, {})
    stem = pipeline_id if document.file == PROJECT_FILE else document.file.rpartition(".")[0].rpartition("/")[2]
    file = f"{PIPELINES}/{stem}.{to}"
    _refuse_existing(root, file)
    data = dict(part.data)
    if to == "toml":
        schema = data.pop("$schema", None)
        text = f"#:schema {schema}\n" if isinstance(schema, str) else ""
        text += pipeline_as_toml(data, inline=False)
        lost, rest = False, None
    else:
        schema_comment = _SCHEMA_COMMENT.search(document.text) if document.file != PROJECT_FILE else None
        text = pipeline_as_json({"$schema": schema_comment[1], **data} if schema_comment else data)
        lost = _has_comments(part)
        rest = _without(part) if document.file == PROJECT_FILE else None
    return _judged(EditPlan(pipeline_id, {file: text, document.file: rest}, lost), judge)


def write_changes(root: FilePath, plan: EditPlan) -> None:
    """Write the files of a plan, each whole and durable. If one cannot be written, those before it are put back."""
    done: list[tuple[FilePath, bytes | None]] = []
    try:
        for file, text in plan.changes.items():
            path = root / file
            done.append((path, path.read_bytes() if path.exists() else None))
            _write(path, None if text is None else text.encode())
    except BaseException:
        for path, before in reversed(done):
            with suppress(HeadwaterError):  # the error that matters is the first one
                _write(path, before)
        raise


def _write(path: FilePath, data: bytes | None) -> None:
    try:
        if data is None:
            path.unlink(missing_ok=True)
            return
        make_directory(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_whole(path, data)


def _judged(plan: EditPlan, judge: Judge) -> EditPlan:
    judge(plan.changes)
    return plan


def _parsed(file: str, text: str) -> Document:
    try:
        return parse_document(file, text)
    except Unreadable as error:
        raise_all(error.errors)
        raise AssertionError("a file is unreadable for a reason") from error


def _spliced(part: Part, text: str, path: Path, data: dict[str, JsonValue], *, removed: bool) -> str:
    """The text changed at `path`, so that it reads as `data`. If the change does not fit into the way the file is
    written, the value around it is written anew, and so on outwards."""
    set_in, unset_in = _SPLICES[part.document.format]
    for length in range(len(path), len(part.base), -1):
        at = path[:length]
        try:
            changed = unset_in(text, at) if removed and at == path else set_in(text, at, _at(data, at))
            if parse_document(part.document.file, changed).data == data:
                return changed
        except (Unspliceable, Unreadable):
            continue
    message = f"`{dotted(path[len(part.base) :])}` of {part.subject} does not fit into the way the file is written"
    raise HeadwaterError(
        "HW-M03", message, hint="edit the file by hand; nothing was changed", places=(part.position(),)
    )


def _find(reading: ManifestFiles, pipeline_id: str) -> Part:
    there = [part for part in reading.parts if part.id == pipeline_id]
    if len(there) > 1:
        message, places = f"pipeline `{pipeline_id}` is defined twice", tuple(part.position() for part in there)
        raise HeadwaterError("HW-M04", message, hint="keep one of them first", places=places)
    if not there:
        raise_all(reading.errors)
        raise no_such_pipeline(pipeline_id, [part.id for part in reading.parts if part.id is not None])
    return there[0]


def _refuse_existing(root: FilePath, file: str) -> None:
    if (root / file).exists():
        hint = "move it away, or choose another id"
        raise HeadwaterError("HW-M12", f"{quoted(file)} is in the way", hint=hint)


def _as_written(document: Document, text: str) -> str:
    """The text with the line ends and the byte order mark of the file."""
    if "\r\n" in document.text:
        text = text.replace("\n", "\r\n")
    return "\ufeff" + text if document.has_bom else text


def _has_comments(part: Part) -> bool:
    document = part.document
    comments = document.positions.comments
    if document.file != PROJECT_FILE:
        return any(not _SCHEMA_COMMENT.match(document.text, comment.start) for comment in comments)
    spans = removed_spans(document.positions, part.base) or [document.positions.values[part.base]]
    return any(span.start <= comment.start < span.end for comment in comments for span in spans)


def _without(part: Part) -> str:
    """`headwater.toml` without this pipeline."""
    document = part.document
    listed = document.data["pipeline"]
    path = part.base if isinstance(listed, list) and len(listed) > 1 else part.base[:1]
    return _as_written(document, unset_in_toml(document.text.replace("\r\n", "\n"), path))


def _steps(key: str) -> list[str]:
    """The steps of a dotted path: `a.b`, `a[0].b`, `a."b.c"` (quoted as in JSON)."""
    wrong = HeadwaterError("HW-U01", f"`{key}` is not a path of keys", hint="for example `source.config.path`")
    steps: list[str] = []
    at = 0
    while at < len(key):
        found = _PATH_STEP.match(key, at)
        if found is None:
            raise wrong
        try:
            steps.append(json.loads(found[0], strict=False) if found[0].startswith('"') else found[1] or found[2])
        except ValueError as error:
            raise wrong from error
        at = found.end() + (key[found.end() : found.end() + 1] == ".")
    if not steps or key.endswith("."):
        raise wrong
    return steps


def _settled(data: JsonValue, part: Part, steps: list[str], value: JsonValue) -> tuple[Path, JsonValue]:
    """Where a value is set, and the value: missing tables on the way are made, short forms become tables."""
    current, path = _at(data, part.base), part.base
    for index, step in enumerate(steps):
        rest = steps[index + 1 :]
        if isinstance(current, dict):
            path = (*path, step)
            if step not in current or not rest:
                return path, _nested(rest, value)
            current = current[step]
        elif isinstance(current, list):
            position = _item(current, step)
            if position is None:
                raise _no_such_key(part, steps, current)
            path = (*path, position)
            short = _short_form(path)
            if not rest and isinstance(value, str) and short and all(isinstance(item, dict) for item in current):
                return path, {short: value}
            if position == len(current) or not rest:
                return path, _nested(rest, value)
            current = current[position]
        else:
            short = _short_form(path)
            if short is None:
                raise _no_such_key(part, steps, current)
            return path, {short: current, **_nested(steps[index:], value)}
    raise AssertionError("a path has a last step")


def _found(data: JsonValue, part: Part, steps: list[str]) -> Path:
    """The path of an existing value; a list's only item is the list itself."""
    current, path = _at(data, part.base), part.base
    for step in steps:
        if isinstance(current, dict) and step in current:
            path, current = (*path, step), current[step]
            continue
        position = _item(current, step) if isinstance(current, list) else None
        if not isinstance(current, list) or position is None or position == len(current):
            raise _no_such_key(part, steps, current)
        path, current = (*path, position), current[position]
    above = _at(data, path[:-1])
    return path[:-1] if isinstance(above, list) and len(above) == 1 else path


def _item(items: list[JsonValue], step: str) -> int | None:
    """The position a step names in a list: a number, or the name of an item."""
    if step.isdigit():
        return int(step) if int(step) <= len(items) else None
    for index, item in enumerate(items):
        names = [item.get(key) for key in _NAMES] if isinstance(item, dict) else [item]
        if step in names:
            return index
    return None


def _short_form(path: Path) -> str | None:
    """The key that a bare text at `path` is short for."""
    above = next((step for step in reversed(path[:-1]) if isinstance(step, str)), "")
    return _SHORT_FORMS.get(above)


def _nested(steps: list[str], value: JsonValue) -> Any:
    for step in reversed(steps):
        value = {step: value}
    return value


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def _set(data: JsonValue, path: Path, value: JsonValue) -> None:
    above, last = _at(data, path[:-1]), path[-1]
    if isinstance(above, list) and isinstance(last, int):
        above[last : last + 1] = [value]
    else:
        above[last] = value


def _no_such_key(part: Part, steps: list[str], around: JsonValue) -> HeadwaterError:
    known = list(around) if isinstance(around, dict) else []
    hint = next(filter(None, (did_you_mean(step, known) for step in steps)), "")
    return HeadwaterError("HW-M05", f"{part.subject} has no `{dotted(tuple(steps))}`", hint=hint)

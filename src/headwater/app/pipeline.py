"""pipeline list, create, edit, convert: the manifest, changed without losing a comment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwater.app.workspace import load
from headwater.base.errors import HeadwaterError
from headwater.manifest.edit import EditPlan, convert_pipeline, create_pipeline, edit_pipeline, write_changes
from headwater.manifest.load import find_project

__all__ = ["EditPlan"]


@dataclass(frozen=True)
class PipelineLine:
    pipeline: str
    kind: str
    reads: str
    tables: tuple[str, ...]
    place: str


def list_pipelines(start: Path) -> list[PipelineLine]:
    """Every pipeline: what it reads, what it fills, and the file that defines it."""
    found = []
    for loaded in load(start).pipelines:
        spec = loaded.spec
        reads = spec.source.connector if spec.source is not None else ", ".join(ref.pipeline for ref in spec.sources)
        tables = [t.table for t in spec.tables] or [r.name for r in spec.ripples]
        kind = "inlet" if spec.is_inlet else "model"
        found.append(PipelineLine(spec.id, kind, reads, tuple(tables), str(loaded.position)))
    return found


def create(start: Path, definition: Mapping[str, Any], *, to: Literal["json", "toml"]) -> EditPlan:
    """Add a pipeline; nothing is written if the project would not be valid with it."""
    return _changed(start, create_pipeline, definition, to=to)


def edit(start: Path, pipeline: str, *, sets: Mapping[str, Any], unsets: Sequence[str]) -> EditPlan:
    """Set and unset keys of a pipeline in the file it is in."""
    return _changed(start, edit_pipeline, pipeline, set=sets, unset=unsets)


def convert(start: Path, pipeline: str, *, to: Literal["json", "toml"]) -> EditPlan:
    """Move a pipeline to a file of the other format."""
    return _changed(start, convert_pipeline, pipeline, to=to)


def _changed(start: Path, change: Callable[..., EditPlan], *what: object, **how: object) -> EditPlan:
    root = find_project(start)
    plan = change(root, *what, judge=lambda overlay: load(root, overlay), **how)
    write_changes(root, plan)
    return plan


def parse_assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """Each is `key=value`: the value as JSON where it is JSON, else as text."""
    return dict(map(_assignment, texts or ()))


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise HeadwaterError("HW-U01", f"`{text}` is not `key=value`", hint="for example `--set mode=append`")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value


def read_definition(text: str) -> dict[str, Any]:
    """A pipeline as one JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise HeadwaterError("HW-M02", f"the definition is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise HeadwaterError("HW-M03", "a pipeline is a JSON object")
    return value

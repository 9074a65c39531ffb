"""What a manifest may declare but this version cannot do yet: each part with its place and what it comes with.

Nothing is silently ignored: `validate` lists these parts, `plan` and `apply` refuse a pipeline that uses one, and
the whole project if the part is the project's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headwater.base.errors import HeadwaterError, Position
from headwater.manifest.documents import Part, dotted
from headwater.manifest.positions import Path
from headwater.manifest.spec import PipelineSpec, ProjectSpec, Spec

_COMPACT = "`headwater context compact`"
_LATER = "a later version"

PLANNED_CONNECTORS = ("http", "kafka", "iceberg", "singer", "github", "shopify")
"""Connectors that a manifest may name although this version has none of them."""

_PROJECT_KEYS = {"sync": "`headwater sync`", "encryption": "`headwater keys`", "signing_keys": "`headwater token`"}
_PIPELINE_KEYS = {"transforms": _LATER, "backfill": "`headwater backfill`"}
_TABLE_KEYS = {
    **dict.fromkeys(("compaction", "cluster_by", "partition_by", "access_pattern", "retain_runs"), _COMPACT),
    "indexes": "`headwater index`",
    "redact": _LATER,
    "agent_description": "`headwater mcp`",
}
"""What each key comes with."""


@dataclass(frozen=True)
class Unsupported:
    """One part that parses and does nothing yet. `pipeline` is None for a part of the project itself."""

    pipeline: str | None
    key: str
    position: Position
    what: str
    comes_with: str

    def error(self) -> HeadwaterError:
        return HeadwaterError(
            "HW-M09",
            f"{self.what} is not supported yet: it comes with {self.comes_with}",
            hint="remove it, or leave this pipeline out" if self.pipeline else "remove it",
            detail={"key": self.key, "pipeline": self.pipeline, "comes_with": self.comes_with},
            places=(self.position,),
        )


def unsupported_in_pipeline(part: Part, spec: PipelineSpec, connectors: Collection[str]) -> Iterator[Unsupported]:
    """The parts of a pipeline without behaviour, in the order of the model's keys."""
    for path, comes_with in _pipeline_parts(spec, connectors):
        what = f"`{dotted(path)}`"
        if path == ("source", "connector") and spec.source is not None:
            what = f"the connector `{spec.source.connector}`"
        yield _unsupported(part, spec.id, path, what, comes_with)


def unsupported_in_project(part: Part, spec: ProjectSpec) -> Iterator[Unsupported]:
    """The parts of the project's own settings without behaviour."""
    found = [*_said(spec, (), _PROJECT_KEYS), *_said(spec.spark, ("spark",), {"remote": _LATER})]
    if spec.context.default_destination != "context":
        found.append((("context", "default_destination"), _LATER))
    for path, comes_with in found:
        yield _unsupported(part, None, path, f"`{dotted(path)}`", comes_with)


def _unsupported(part: Part, pipeline: str | None, path: Path, what: str, comes_with: str) -> Unsupported:
    # Only for a connector the position is that of the value, because the name is what is not supported.
    position = part.position(path, key=path[-1] != "connector")
    return Unsupported(pipeline, dotted(path), position, f"{what} of {part.subject}", comes_with)


def _said(spec: Spec, path: Path, keys: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The keys that have a value, and what they come with."""
    for key, comes_with in keys.items():
        if getattr(spec, key):
            yield (*path, key), comes_with


def _pipeline_parts(spec: PipelineSpec, connectors: Collection[str]) -> Iterator[tuple[Path, str]]:
    if spec.source is not None and spec.source.connector not in connectors:
        yield ("source", "connector"), _LATER
    yield from _said(spec, (), _PIPELINE_KEYS)
    for index, table in enumerate(spec.tables):
        if table.mode == "replace" and spec.is_pushed:
            yield ("tables", index, "mode"), _LATER
    for of, tables in (("tables", spec.tables), ("ripples", spec.ripples)):
        for index, settings in enumerate(tables):
            yield from _said(settings, (of, index), _TABLE_KEYS)
            for name, column in settings.columns.items():
                yield from _said(column, (of, index, "columns", name), {"redact": _LATER})
    if spec.destination is not None and spec.destination.connector != "context":
        yield ("destination", "connector"), _LATER
    elif spec.destination is not None:
        yield from _said(spec.destination, ("destination",), {"config": _LATER})
    if spec.abilities.bad_rows is None:
        if spec.on_bad_row == "dead_letter":
            yield ("on_bad_row",), _LATER
        yield from _said(spec, (), {"max_bad_rows": _LATER})
    if not spec.abilities.keeps_bad_items:
        yield from _said(spec, (), {"on_bad_file": _LATER, "max_bad_files": _LATER})

"""What a manifest may already say and this version cannot do yet: each part with its place and what it comes with.

Nothing is silently ignored: `validate` lists these parts, `plan` and `apply` refuse a pipeline that uses one, and
the whole project if the part is the project's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from headwater.base.errors import HeadwaterError, Position
from headwater.manifest.documents import Part, dotted
from headwater.manifest.positions import Path
from headwater.manifest.spec import PipelineSpec, ProjectSpec, TableSettings

_COMPACT = "`headwater context compact`"
_INDEX = "`headwater index`"
_MCP = "`headwater mcp`"
_LATER = "a later version"

PLANNED_CONNECTORS: dict[str, str] = {
    "http": _LATER,
    "kafka": _LATER,
    "iceberg": _LATER,
    "singer": _LATER,
    "github": _LATER,
    "shopify": _LATER,
}
"""Connectors that a manifest may name although this version has none of them."""

_PIPELINE_PARTS: dict[str, str] = {
    "transforms": _LATER,
    "backfill": "`headwater backfill`",
}
_TABLE_PARTS: dict[str, str] = {
    "compaction": _COMPACT,
    "cluster_by": _COMPACT,
    "partition_by": _COMPACT,
    "access_pattern": _COMPACT,
    "retain_runs": _COMPACT,
    "indexes": _INDEX,
    "redact": _LATER,
    "agent_description": _MCP,
}


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
        what = f"`{dotted(path)}` of {part.subject}"
        if path == ("source", "connector") and spec.source is not None:
            what = f"the connector `{spec.source.connector}` of {part.subject}"
        # a value is what the reader looks for where the key says nothing: a connector's name
        is_name = path[-1] == "connector"
        yield Unsupported(spec.id, dotted(path), part.position(path, key=not is_name), what, comes_with)


def unsupported_in_project(part: Part, spec: ProjectSpec) -> Iterator[Unsupported]:
    """The parts of the project's own settings without behaviour."""
    found: list[tuple[Path, str]] = []
    if spec.context.default_destination != "context":
        found.append((("context", "default_destination"), _LATER))
    if spec.spark.remote is not None:
        found.append((("spark", "remote"), _LATER))
    if spec.sync is not None:
        found.append((("sync",), "`headwater sync`"))
    if spec.encryption is not None:
        found.append((("encryption",), "`headwater keys`"))
    if spec.signing_keys:
        found.append((("signing_keys",), "`headwater token`"))
    for path, comes_with in found:
        what = f"`{dotted(path)}` of {part.subject}"
        yield Unsupported(None, dotted(path), part.position(path, key=True), what, comes_with)


def _pipeline_parts(spec: PipelineSpec, connectors: Collection[str]) -> Iterator[tuple[Path, str]]:
    if spec.source is not None and spec.source.connector not in connectors:
        yield ("source", "connector"), PLANNED_CONNECTORS.get(spec.source.connector, _LATER)
    for key, comes_with in _PIPELINE_PARTS.items():
        if getattr(spec, key):
            yield (key,), comes_with
    for index, table in enumerate(spec.tables):
        if table.mode == "replace" and spec.is_pushed:
            yield ("tables", index, "mode"), _LATER
        yield from _table_parts(("tables", index), table)
    for index, ripple in enumerate(spec.ripples):
        yield from _table_parts(("ripples", index), ripple)
    if spec.destination is not None and spec.destination.connector != "context":
        yield ("destination", "connector"), _LATER
    elif spec.destination is not None and spec.destination.config:
        yield ("destination", "config"), _LATER
    if spec.abilities.bad_rows is None:
        if spec.on_bad_row == "dead_letter":
            yield ("on_bad_row",), _LATER
        if spec.max_bad_rows is not None:
            yield ("max_bad_rows",), _LATER
    if not spec.abilities.keeps_bad_items:
        for key in ("on_bad_file", "max_bad_files"):
            if getattr(spec, key) is not None:
                yield (key,), _LATER


def _table_parts(path: Path, table: TableSettings) -> Iterator[tuple[Path, str]]:
    for key, comes_with in _TABLE_PARTS.items():
        if getattr(table, key):
            yield (*path, key), comes_with
    for name, column in table.columns.items():
        if column.redact:
            yield (*path, "columns", name, "redact"), _LATER

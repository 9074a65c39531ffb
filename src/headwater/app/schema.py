"""schema export, log, accept, promote, regen-view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.app.refresh_views import event_json, refresh
from headwater.app.workspace import Workspace, actor
from headwater.base.blobs import write_whole
from headwater.base.errors import HeadwaterError, did_you_mean
from headwater.base.types import parse_type
from headwater.catalog.lookup import schema_events, table_entries, table_entry, view_names
from headwater.catalog.schema_decisions import AcceptedChange, accept_change
from headwater.duck.promote_column import Promoted
from headwater.duck.promote_column import promote as promote_column
from headwater.duck.ripple_views import view_events, view_states
from headwater.runtime.model import project_tables


def export(workspace: Workspace) -> list[Path]:
    """Write the JSON Schemas of the manifest to `.headwater/schema/`."""
    from headwater.manifest.json_schema import pipeline_schema, project_schema

    directory = workspace.project.root / ".headwater" / "schema"
    directory.mkdir(parents=True, exist_ok=True)
    schemas = {directory / "pipeline.json": pipeline_schema(), directory / "project.json": project_schema()}
    for path, schema in schemas.items():
        write_whole(path, (json.dumps(schema, indent=2) + "\n").encode(), durable=False)
    return list(schemas)


def log(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    """Every schema event of a table or view, or of all those of a pipeline, in order."""
    with workspace.landed_store().catalog.snapshot() as connection:
        makers = {entry.name: entry.pipeline for entry in table_entries(connection).values()}
        makers |= {view.name: view.pipeline for view in view_states(connection)}
        tables = [name] if name in makers else [table for table, pipeline in makers.items() if pipeline == name]
        if not tables:
            hint = did_you_mean(name, [*makers, *set(makers.values())], "tables: " + ", ".join(sorted(makers)))
            raise HeadwaterError("HW-T07", f"there is no table or landed pipeline `{name}`", hint=hint)
        events = [*schema_events(connection, tables), *view_events(connection, tables)]
        events.sort(key=lambda event: event["seq"])
    return [{"table": event["table_name"], **event_json(event, kind="kind")} for event in events]


def accept(workspace: Workspace, table: str) -> AcceptedChange:
    """Make the schema change of a table that was refused; the schema log records the user."""
    store = workspace.landed_store(writable=True)
    accepted = accept_change(store, table, actor=actor())
    refresh(store, workspace.project)
    return accepted


def promote(workspace: Workspace, table: str, path: str, *, as_: str) -> Promoted:
    """Give a value inside a `dynamic` column a typed column of its own; `as_` is its name and type, `user_id:long`."""
    name, colon, type_ = as_.partition(":")
    if not (name and colon and type_):
        hint = "write it as NAME:TYPE, such as `user_id:long`"
        raise HeadwaterError("HW-U01", f"`--as {as_}` does not say a name and a type", hint=hint)
    store = workspace.landed_store(writable=True)
    found = promote_column(store, table, path, name=name, type_=parse_type(type_), actor=actor())
    if found.seq is not None:
        refresh(store, workspace.project)
    return found


def regen_view(workspace: Workspace, table: str | None) -> list[str]:
    """Make views again from the catalog, even if a file was edited; returns the tables whose view changed."""
    store = workspace.landed_store()
    if table is not None and table not in project_tables(workspace.project.pipelines):
        with store.catalog.snapshot() as connection:
            if table not in view_names(connection):
                table_entry(connection, table)
    return refresh(store, workspace.project, force=True)

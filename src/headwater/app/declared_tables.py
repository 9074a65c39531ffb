"""The tables that the manifest declares, before anything has landed in them."""

from __future__ import annotations

from collections.abc import Collection

from headwater.app.workspace import Workspace
from headwater.base.table_schema import TableSchema
from headwater.base.types import Type
from headwater.catalog.table_state import TableState
from headwater.ingest.first_columns import first_columns
from headwater.manifest.load import Project
from headwater.manifest.spec import RippleSpec, TableSpec
from headwater.runtime.model import MadeTable, project_tables
from headwater.runtime.ripple_fingerprint import declared_columns


def columns_by_table(workspace: Workspace) -> dict[str, dict[str, Type]]:
    """The columns of each table of the project before its first row."""
    return {name: _columns(name, made) for name, made in project_tables(workspace.project.pipelines).items()}


def declared_states(project: Project | None, landed: Collection[str], *, seq: int) -> list[TableState]:
    """The tables of the manifest that have not landed, as empty tables. A view is left out: only a landed view has a
    query that DuckDB can run."""
    found = []
    for name, made in project_tables(project.pipelines if project else ()).items():
        settings = made.settings
        if name in landed or (isinstance(settings, RippleSpec) and settings.materialize == "view"):
            continue
        schema = TableSchema()
        for column, type_ in _columns(name, made).items():
            schema = schema.added(column, type_)
        mode = settings.effective_mode if isinstance(settings, TableSpec) else settings.mode or "replace"
        found.append(
            TableState(name, made.pipeline.spec.id, mode, 0, schema, {0: schema}, files=(), seq=seq, changed_seq=0)
        )
    return found


def _columns(table: str, made: MadeTable) -> dict[str, Type]:
    """The columns that the manifest declares, and those that every pushed table has."""
    declared = {name: column.type for name, column in declared_columns(made.settings).items()}
    if not made.pipeline.spec.is_pushed:
        return declared
    return first_columns(table, declared, made.settings.primary_key)

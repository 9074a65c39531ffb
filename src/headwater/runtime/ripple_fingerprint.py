"""A fingerprint of what a ripple does. It ignores the order of keys, comments in the manifest, and the spelling of
types; it changes with the text, the mode, the key or the columns. When the ripple runs is no part of it."""

from __future__ import annotations

import json
from dataclasses import asdict

from headwater.base.text_form import TextForm
from headwater.base.types import parse_type
from headwater.catalog.evolution import DeclaredColumn
from headwater.manifest.spec import PipelineSpec, TableSettings, TableSpec, fingerprint_of


def declared_columns(table: TableSettings) -> dict[str, DeclaredColumn]:
    """The columns that the manifest declares, by name."""
    forms = {
        name: TextForm(column.format, column.timezone, column.decimal or ".") for name, column in table.columns.items()
    }
    return {
        name: DeclaredColumn(
            type=parse_type(column.type),
            nullable=column.nullable is not False,
            default=None if column.default is None else json.dumps(column.default),
            renamed_from=column.renamed_from,
            form=None if forms[name] == TextForm() else forms[name],
        )
        for name, column in table.columns.items()
    }


def landing_fingerprint(spec: PipelineSpec, table: TableSpec) -> str:
    """The fingerprint of one table of an Inlet: its source and how it lands. Secrets are in it by reference only."""
    assert spec.source is not None
    return fingerprint_of(
        {
            "connector": spec.source.connector,
            "config": spec.source.config,
            "name": table.name,
            "incremental": spec.incremental_of(table),
            "transforms": spec.transforms,
            "on_bad_row": spec.on_bad_row,
            "max_bad_rows": spec.max_bad_rows,
            **_lands(table, table.effective_mode),
            # A key without a value is left out: a definition that does not use it keeps its fingerprint.
            **({"exclude": sorted(table.exclude)} if table.exclude else {}),
            **({"on_bad_file": spec.on_bad_file} if spec.on_bad_file else {}),
            **({"max_bad_files": spec.max_bad_files} if spec.max_bad_files else {}),
        }
    )


def ripple_fingerprint(table: TableSettings, *, kind: str, text: str, function: str | None, mode: str) -> str:
    """The fingerprint of one ripple of a model. A Python file counts as a whole: its functions may share code."""
    return fingerprint_of({"kind": kind, "text": text.strip(), "function": function, **_lands(table, mode)})


def _lands(table: TableSettings, mode: str) -> dict[str, object]:
    columns = {
        # The default as a value: in its text the keys of an object may be in any order.
        name: [
            *(str(column.type), column.nullable, json.loads(column.default or "null"), column.renamed_from),
            # Only if it is set: a definition that does not use it keeps its fingerprint.
            *([asdict(column.form)] if column.form else ()),
        ]
        for name, column in declared_columns(table).items()
    }
    return {"mode": mode, "primary_key": table.primary_key, "columns": columns}

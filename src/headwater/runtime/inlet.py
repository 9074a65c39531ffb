"""A pipeline with a `source`, ready to be planned: what it asks of its source, and the columns that the source shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.base.types import STRING, Type
from headwater.catalog.evolution import DeclaredColumn, Shown
from headwater.catalog.lookup import TableEntry
from headwater.connectors.protocol import Observed, Source, TableAsk
from headwater.manifest.spec import PipelineSpec, TableSpec, definition_fingerprint
from headwater.runtime.ripple_fingerprint import declared_columns


@dataclass(frozen=True)
class InletTable:
    """One table of an Inlet: what is asked of the source, what the manifest declares, and the columns that the source
    itself reports (None if they are known only by reading)."""

    ask: TableAsk
    declared: Mapping[str, DeclaredColumn] = field(default_factory=dict)
    observed: Observed | None = None


@dataclass(frozen=True)
class Inlet:
    pipeline: str
    connector: str
    definition: str
    tables: tuple[InletTable, ...]


def inlet_of(spec: PipelineSpec, source: Source) -> Inlet:
    """Bring manifest and source together. Asks the source for its tables, and so for keys that only it knows."""
    assert spec.source is not None
    offered = {table.name: table.observed for table in source.discover()}
    return Inlet(
        pipeline=spec.id,
        connector=f"{source.connector}@{source.version}",
        definition=definition_fingerprint(spec),
        tables=tuple(_table(spec, table, offered.get(table.name)) for table in spec.tables),
    )


def merge_observed(parts: Sequence[Observed]) -> Observed:
    """The columns of a whole slice, in the order in which its partitions first show them."""
    from headwater.coerce.infer import join_types

    columns: dict[str, Type] = {}
    for part in parts:
        for name, type_ in part.columns.items():
            columns[name] = join_types(columns.get(name), type_) or STRING
    bad = {item.source_id: item for part in parts for item in part.bad_items}
    complete = bool(parts) and all(part.complete for part in parts)
    nulls = frozenset(name for part in parts for name in part.nulls if name not in columns)
    return Observed(columns, complete=complete, nulls=nulls, bad_items=tuple(bad.values()))


def shown_to(entry: TableEntry | None, observed: Observed | None, ask: TableAsk) -> Shown:
    """The columns to reconcile with a table's schema. A text format shows values, not types: a column that the table
    has is read with the table's type, so only unknown columns count, and those that come back. A new table has a key
    even if each of its values is null: as text, so that the rows without one are bad rows."""
    gone = frozenset(ask.exclude)
    if observed is None:
        return Shown({}, gone=gone)
    if observed.complete or entry is None:
        keys = {name: STRING for name in ask.primary_key if name in observed.nulls and entry is None}
        return Shown({**observed.columns, **keys}, complete=observed.complete, renamed=observed.renamed)
    shown: dict[str, Type] = {}
    for name, type_ in observed.columns.items():
        known = entry.schema.column(name)
        if known is None or known.dropped:
            shown[name] = type_ if known is None else known.type
    return Shown(shown, gone=gone)


def _table(spec: PipelineSpec, table: TableSpec, observed: Observed | None) -> InletTable:
    declared = declared_columns(table)
    key = table.primary_key or (observed.primary_key if observed is not None and table.mode != "append" else ())
    ask = TableAsk(
        name=table.table,
        source_name=table.name,
        mode=table.mode or ("upsert" if key else "append"),
        primary_key=tuple(key) if table.mode != "append" else tuple(table.primary_key),
        declared={name: column.type for name, column in declared.items()},
        incremental=spec.incremental_of(table),
        max_bad_rows=spec.bad_rows_kept,
        max_bad_items=spec.bad_files_kept,
        exclude=tuple(table.exclude),
        forms={name: column.form for name, column in declared.items() if column.form},
    )
    # A CSV file without a header takes its column names from the declared columns, including those that are left out.
    lands = {name: column for name, column in declared.items() if name not in table.exclude}
    return InletTable(ask, lands, observed)

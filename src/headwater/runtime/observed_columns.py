"""The columns that a source shows: merged over several partitions, and compared with a stored schema."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.base.types import STRING, Type
from headwater.catalog.evolution import Shown
from headwater.catalog.lookup import TableEntry
from headwater.connectors.protocol import Observed, TableAsk


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

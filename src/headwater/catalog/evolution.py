"""How a table's schema becomes the next one: pure, and the only place that decides it.

| what the source or the manifest shows     | what happens                                                      |
|-------------------------------------------|-------------------------------------------------------------------|
| a new column                              | added at the end; older rows show its default, or null            |
| a column is gone (typed sources)          | kept, marked dropped; new rows hold null                          |
| a dropped column is back, same type       | the same column again: it never left the table                    |
| a dropped name is back as something else  | refused until `schema accept`; then it is a new column            |
| a wider type (`base.types.widens`)        | widened; older files are converted when read                      |
| any other type, narrower ones too         | refused until `schema accept`                                     |
| a declared rename                         | the column keeps its id                                           |
| an undeclared rename                      | a drop and an add                                                 |
| another primary key, another mode         | refused until `schema accept`                                     |
| a promoted column is not there            | nothing: it never came from there (`store/promotion.py`)          |
| `_rescued` is not there                   | nothing: no key of these rows had to be rescued                   |

A declared column's type is the manifest's, whatever the source shows: values are converted when they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESCUED, is_column_name
from headwater.base.table_schema import Column, TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, Type, converts, widens
from headwater.catalog.records import SchemaEvent


@dataclass(frozen=True)
class DeclaredColumn:
    """A column as the manifest declares it; `default` is JSON text for the rows before the column, `form` how a source
    writes its texts."""

    type: Type
    nullable: bool = True
    default: str | None = None
    renamed_from: str | None = None
    form: TextForm | None = None


@dataclass(frozen=True)
class Shown:
    """What there is to reconcile the stored schema with. `complete`: a stored column that is not here is gone at
    the source; else only those in `gone` are."""

    columns: Mapping[str, Type]
    complete: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Evolution:
    """The schema to write with, the events that lead to it, and what was refused. `proposal` is the schema that
    `schema accept` would set, where something was refused."""

    schema: TableSchema
    events: tuple[SchemaEvent, ...] = ()
    refused: tuple[SchemaEvent, ...] = ()
    proposal: TableSchema | None = None

    def extended(self, schema: TableSchema) -> Evolution:
        """The same, to a schema with more columns at its end: those that the rows brought."""
        if [event.kind for event in self.events] == ["created"]:
            return replace(self, schema=schema, events=(SchemaEvent(kind="created", after=schema.as_json()),))
        new = schema.columns[len(self.schema.columns) :]
        added = (SchemaEvent(kind="add_column", column=column.name, after=str(column.type)) for column in new)
        return replace(self, schema=schema, events=(*self.events, *added))


def evolve(
    stored: TableSchema | None,
    shown: Shown,
    *,
    declared: Mapping[str, DeclaredColumn],
    primary_key: tuple[str, ...],
    modes: tuple[str, str] | None = None,
) -> Evolution:
    """Reconcile. `modes` are the table's mode now and the one that is asked for. Column names are checked;
    nothing else can go wrong but what `refused` says."""
    check_names([*declared, *(name for name, type_ in shown.columns.items() if (name, type_) != (RESCUED, DYNAMIC))])
    if stored is None:
        return _create(shown, declared, primary_key)
    step = _Reconciliation(stored)
    step.rename_all(_renames(shown, declared))
    for name, column in declared.items():
        step.settle(name, column.type, column.default, observed=name in shown.columns)
    for name, type_ in shown.columns.items():
        if name not in declared:
            step.settle(name, type_, None, observed=True)
    if shown.complete:
        step.mark_dropped({*declared, *shown.columns})
    elif shown.gone:
        step.mark_dropped({*step.schema.names()} - shown.gone)
    step.settle_key(primary_key)
    if modes is not None and modes[0] != modes[1]:
        note = f"the mode changed from {modes[0]} to {modes[1]}"
        step.refused.append(SchemaEvent(kind="change_mode", before=modes[0], after=modes[1], note=note))
    refused = tuple(step.refused)
    return Evolution(step.schema, tuple(step.events), refused, step.proposal if refused else None)


def refusal(table: str, refused: tuple[SchemaEvent, ...], declared: Collection[str] = ()) -> HeadwaterError:
    """The error for changes that need a decision: each of them, and what can be done. `declared` are the columns
    whose type the manifest itself says."""
    key_changed = any(event.kind in ("change_key", "change_mode") for event in refused)
    what = "; ".join(event.note for event in refused)
    first = next((event.column for event in refused if event.column), None)
    cast = ""
    if first in declared:
        cast = "take the change back in the manifest, or "
    elif first is not None:
        cast = f'declare its type in the manifest (columns = {{ "{first}" = "..." }}), or '
    return HeadwaterError(
        "HW-S02" if key_changed else "HW-S01",
        f"`{table}` was not changed: {what}",
        hint=f"{cast}run `headwater schema accept {table}` to accept the change",
        detail={"table": table, "changes": [{"kind": e.kind, "column": e.column} for e in refused]},
    )


def check_key(schema: TableSchema) -> None:
    """Raises HW-S03 if the primary key names a column that is not there, or one that is promoted: the keys that files
    are known to hold are those that are stored."""
    missing = [name for name in schema.primary_key if schema.column(name) is None]
    if missing:
        raise HeadwaterError(
            "HW-S03",
            f"the primary key names `{missing[0]}`, and there is no such column",
            hint="columns: " + ", ".join(schema.names()),
        )
    promoted = [c.name for c in schema.columns if c.name in schema.primary_key and c.promoted is not None]
    if promoted:
        raise HeadwaterError(
            "HW-S03",
            f"the primary key names `{promoted[0]}`, which is promoted from a place inside a `dynamic` column",
            hint="a key must be stored in every row: let the source deliver it as a column of its own",
        )


def _create(shown: Shown, declared: Mapping[str, DeclaredColumn], primary_key: tuple[str, ...]) -> Evolution:
    schema = TableSchema(primary_key=primary_key)
    for name, column in declared.items():
        nullable = column.nullable and name not in primary_key
        schema = schema.added(name, column.type, nullable=nullable, default=column.default)
    for name, type_ in shown.columns.items():
        if name not in declared:
            schema = schema.added(name, type_, nullable=name not in primary_key)
    if schema.columns:  # a source that is still empty shows none
        check_key(schema)
    return Evolution(schema, (SchemaEvent(kind="created", after=schema.as_json()),))


def _renames(shown: Shown, declared: Mapping[str, DeclaredColumn]) -> dict[str, str]:
    asked = {name: column.renamed_from for name, column in declared.items() if column.renamed_from}
    told = {new: old for new, old in shown.renamed.items() if new in shown.columns or new in declared}
    return {**told, **asked}


def check_names(names: Iterable[str]) -> None:
    """Raises HW-S03 for the first name that no column can have."""
    for name in names:
        if not is_column_name(name):
            raise HeadwaterError(
                "HW-S03",
                f"`{name}` cannot be the name of a column",
                hint="names are printable, at most 255 bytes, and not one of the store's own (`_run_id`, `_hw_...`)",
            )


class _Reconciliation:
    """One reconciliation in progress: the schema so far, and the one with the refused changes made too."""

    def __init__(self, stored: TableSchema):
        self.schema = self.proposal = stored
        self.events: list[SchemaEvent] = []
        self.refused: list[SchemaEvent] = []

    def rename_all(self, renames: dict[str, str]) -> None:
        """Each column whose new name is free, as often as one becomes free by another's leaving: a to b, b to c."""
        for _ in renames:
            for new, old in renames.items():
                self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        column = self.schema.column(old)
        if column is None or self.schema.column(new) is not None:
            return
        self._change(column, name=new)
        key = tuple(new if name == old else name for name in self.schema.primary_key)
        self.schema, self.proposal = replace(self.schema, primary_key=key), replace(self.proposal, primary_key=key)
        self.events.append(SchemaEvent(kind="rename_column", column=new, before=old, after=new))

    def settle(self, name: str, wanted: Type, default: str | None, *, observed: bool) -> None:
        column = self.schema.column(name)
        if column is None:
            self.schema = self.schema.added(name, wanted, default=default)
            self.proposal = self.proposal.added(name, wanted, default=default)
            self.events.append(SchemaEvent(kind="add_column", column=name, after=str(wanted)))
            return
        if column.dropped and observed and (column.type == wanted or widens(column.type, wanted)):
            column = self._change(column, dropped=False)
            self.events.append(SchemaEvent(kind="restore_column", column=name))
        if column.type != wanted:
            if column.dropped and observed:
                self._come_back(column, wanted, default)
            else:
                self._retype(column, wanted)
        if default is not None and default != column.default:
            self._change(column, default=default)
            self.events.append(SchemaEvent(kind="set_default", column=name, before=column.default, after=default))

    def mark_dropped(self, present: set[str]) -> None:
        for column in self.schema.columns:
            if column.name in present or column.dropped or column.name in self.schema.primary_key:
                continue
            if column.promoted is not None or column.name == RESCUED:
                continue  # no source had it: it is read from a column that one has, or holds what has no column
            self._change(column, dropped=True, nullable=True)
            self.events.append(SchemaEvent(kind="drop_column", column=column.name, before=str(column.type)))

    def settle_key(self, wanted: tuple[str, ...]) -> None:
        if wanted == self.schema.primary_key:
            return
        before, after = list(self.schema.primary_key), list(wanted)
        note = f"the primary key changed from ({', '.join(before)}) to ({', '.join(after)})"
        self.refused.append(SchemaEvent(kind="change_key", before=before, after=after, note=note))
        self.proposal = replace(self.proposal, primary_key=wanted)
        for column in self.proposal.columns:
            if column.name in before and column.name not in after:
                self.proposal = self.proposal.with_column(replace(column, nullable=True))

    def _retype(self, column: Column, wanted: Type) -> None:
        before, after = str(column.type), str(wanted)
        if widens(column.type, wanted):
            self._change(column, type=wanted)
            self.events.append(SchemaEvent(kind="widen_type", column=column.name, before=before, after=after))
            return
        narrower = widens(wanted, column.type) or (column.type.kind, wanted.kind) == ("real", "long")
        how = "became narrower" if narrower else "changed its type"
        note = f"column `{column.name}` {how}, from {before} to {after}"
        if not converts(column.type, wanted):
            note += " (rows that are there cannot be shown as the new type: they will show null)"
        self.refused.append(SchemaEvent(kind="change_type", column=column.name, before=before, after=after, note=note))
        self.proposal = self.proposal.with_column(replace(column, type=wanted))

    def _come_back(self, column: Column, wanted: Type, default: str | None) -> None:
        """A dropped name that is used again for something else is a new column; what the old one held is then no
        longer shown, so a person must say so."""
        before, after = str(column.type), str(wanted)
        note = f"column `{column.name}` was dropped as {before} and came back as {after}"
        self.refused.append(
            SchemaEvent(kind="replace_column", column=column.name, before=before, after=after, note=note)
        )
        others = tuple(c for c in self.proposal.columns if c.id != column.id)
        self.proposal = replace(self.proposal, columns=others).added(column.name, wanted, default=default)

    def _change(self, column: Column, **values: Any) -> Column:
        """Change a column in both schemas, in each as it is there; a refused change may have made them differ."""
        if (proposed := self.proposal.by_id(column.id)) is not None:
            self.proposal = self.proposal.with_column(replace(proposed, **values))
        changed = replace(self.schema.by_id(column.id) or column, **values)
        self.schema = self.schema.with_column(changed)
        return changed

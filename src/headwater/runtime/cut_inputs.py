"""What an execution reads: tables with their files at the cut, and views with the tables that they read at theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from headwater.base.errors import HeadwaterError, NoSuchTable
from headwater.base.table_schema import TableSchema
from headwater.base.types import Type, parse_type
from headwater.catalog.commit import Store
from headwater.catalog.lookup import table_states, view_names
from headwater.catalog.table_state import TableState
from headwater.duck.ripple_views import ViewCut, view_cut

if TYPE_CHECKING:
    from headwater.spark.ripples import Input


@dataclass(frozen=True)
class CutInput:
    """A table or view that the ripple reads, as of a sequence. `as_of_seq` is None for an optional source that never
    ran: it is read as an empty table with the `declared` columns. `since_seq` is the sequence at which the ripple's
    last successful execution read it."""

    table: str
    as_of_seq: int | None
    since_seq: int | None = None
    declared: Mapping[str, Type] = field(default_factory=dict)


def read_inputs(store: Store, reader: str, inputs: Sequence[CutInput]) -> dict[str, Input]:
    """The inputs of `reader`, all from one snapshot of the catalog. Raises HW-T07 if a table or its files are gone."""
    with store.catalog.snapshot() as connection:
        return _InputReader(connection, store.root, view_names(connection)).read(reader, inputs)


def parent_runs(inputs: Mapping[str, Input]) -> tuple[str, ...]:
    """The runs that last wrote the tables, including those that views read."""
    from headwater.spark.ripples import tables_of

    return tuple(sorted({state.files[-1].run_id for state in tables_of(inputs.values()) if state.files}))


def cut_of(inputs: Iterable[CutInput]) -> dict[str, int | None]:
    """The cut as a run records it: the sequence of each table that is read."""
    return {given.table: given.as_of_seq for given in inputs}


@dataclass(frozen=True)
class _InputReader:
    connection: Connection
    root: Path
    views: set[str]

    def read(self, reader: str, inputs: Sequence[CutInput]) -> dict[str, Input]:
        from headwater.spark.ripples import TableInput

        found: dict[str, TableState] = {}
        tables = [given for given in inputs if given.table not in self.views]
        for seq in sorted({given.as_of_seq for given in tables if given.as_of_seq is not None}):
            names = [given.table for given in tables if given.as_of_seq == seq]
            found.update({state.name: state for state in table_states(self.connection, names, as_of=seq)})
        read: dict[str, Input] = {}
        for given in inputs:
            cut = None
            if given.table in self.views and given.as_of_seq is not None:
                cut = view_cut(self.connection, given.table, as_of=given.as_of_seq)
            if cut is not None:
                read[given.table] = self._behind(cut, since_seq=given.since_seq)
            else:
                state = found.get(given.table) or _no_table(reader, given)
                read[given.table] = TableInput(self.root, state, given.since_seq)
        return read

    def _behind(self, cut: ViewCut, *, since_seq: int | None) -> Input:
        """The view over the tables as they were when it landed, whatever has landed since."""
        from headwater.spark.ripples import ViewInput

        definition = cut.view.definition
        inputs = [
            CutInput(
                table=name,
                as_of_seq=cut.reads.get(name),
                declared={column: parse_type(type_) for column, type_ in definition.declared.get(name, ())},
            )
            for name in definition.reads
        ]
        try:
            behind = self.read(cut.view.name, inputs)
        except NoSuchTable as error:
            message = f"the view `{cut.view.name}` cannot be read as it was landed: {error.message}"
            hint = f"run its pipeline again: `headwater run {cut.view.pipeline}`"
            raise HeadwaterError("HW-T07", message, hint=hint) from error
        return ViewInput(definition.sql, behind, seq=cut.view.changed_seq, since_seq=since_seq)


def _no_table(reader: str, given: CutInput) -> TableState:
    """A table that does not exist yet, as an empty one with its declared columns."""
    if not given.declared:
        raise HeadwaterError(
            "HW-T07",
            f"`{reader}` reads `{given.table}`, which has never landed a row and declares no columns",
            hint="run its pipeline first, or declare the table's `columns` in the manifest",
        )
    schema = TableSchema()
    for name, type_ in given.declared.items():
        schema = schema.added(name, type_)
    return TableState(given.table, "", "append", 1, schema, {1: schema}, (), seq=0, changed_seq=0)

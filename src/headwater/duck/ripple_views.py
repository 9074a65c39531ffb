"""Views that ripples make: a query over tables, without files.

For DuckDB a view is its query over the present tables, so it is never older than they are. For a ripple that reads it,
a view is its query over the cut that it was landed with: the run reads exactly the cut that the engine chose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from headwater.base.types import parse_type
from headwater.catalog import sql_tables as t
from headwater.catalog.records import VIEW_INPUT, ViewDefinition
from headwater.catalog.table_state import TableState
from headwater.duck.duck_types import literal, quote, shown_type
from headwater.duck.table_select import column_names, meta_name, view_select
from headwater.storage.system_columns import shown_columns

_Source = Callable[[str], str]
"""How a table or view is named in a FROM."""


@dataclass(frozen=True)
class ViewState:
    """A view as of one sequence. `changed_seq` is the last commit at or before it that changed the view or its cut."""

    name: str
    pipeline: str
    definition: ViewDefinition
    changed_seq: int


@dataclass(frozen=True)
class ViewCut:
    """A view and the sequence of each table that it reads; None for one that was not there yet."""

    view: ViewState
    reads: Mapping[str, int | None]


def view_states(connection: Connection, *, as_of: int | None = None) -> list[ViewState]:
    """All views at a cut (default: now), each after the views that it reads."""
    query = select(t.view_definition).order_by(t.view_definition.c.seq)
    cuts = select(t.view_cut.c.view_name, func.max(t.view_cut.c.seq)).group_by(t.view_cut.c.view_name)
    entries = {row.name: row for row in connection.execute(select(t.view))}
    if not entries:
        return []
    changed = {name: row.changed_seq for name, row in entries.items()}
    if as_of is not None:
        query = query.where(t.view_definition.c.seq <= as_of)
        changed = {row[0]: row[1] for row in connection.execute(cuts.where(t.view_cut.c.seq <= as_of))}
    bodies = {row.view_name: row.body for row in connection.execute(query)}
    found = {
        name: ViewState(name, entries[name].pipeline, _definition(body), changed[name])
        for name, body in sorted(bodies.items())
    }
    return _in_order(found)


def view_cut(connection: Connection, name: str, *, as_of: int | None = None) -> ViewCut | None:
    """A view and its cut at a sequence (default: now); None if there is no such view then."""
    entry = connection.execute(select(t.view).where(t.view.c.name == name)).one_or_none()
    if entry is None:
        return None
    cut, definition = t.view_cut.c, t.view_definition.c
    cuts = select(cut.seq, cut.reads).where(cut.view_name == name).order_by(cut.seq.desc()).limit(1)
    bodies = select(definition.body).where(definition.view_name == name).order_by(definition.seq.desc()).limit(1)
    if as_of is not None:
        cuts, bodies = cuts.where(cut.seq <= as_of), bodies.where(definition.seq <= as_of)
    newest, body = connection.execute(cuts).one_or_none(), connection.execute(bodies).scalar()
    if newest is None or body is None:
        return None
    reads = msgspec.json.decode(newest.reads, type=dict[str, int | None])
    return ViewCut(ViewState(name, entry.pipeline, _definition(body), newest.seq), reads)


def view_events(connection: Connection, views: Iterable[str]) -> list[dict[str, Any]]:
    """What `schema log` shows of views: each time that one was defined anew."""
    definition = t.view_definition.c
    query = (
        select(definition.view_name, definition.seq, definition.body, t.commit.c.at_us)
        .join(t.commit, t.commit.c.seq == definition.seq)
        .where(definition.view_name.in_(list(views)))
        .order_by(definition.seq, definition.view_name)
    )
    found: list[dict[str, Any]] = []
    before: dict[str, dict[str, str]] = {}
    for row in connection.execute(query):
        columns = dict(_definition(row.body).columns)
        found.append(
            {
                "seq": row.seq,
                "at_us": row.at_us,
                "table_name": row.view_name,
                "kind": "change_view" if row.view_name in before else "created",
                "column_name": None,
                "before_json": json.dumps(before.get(row.view_name)),
                "after_json": json.dumps(columns),
                "note": "a view",
                "decided_by": "auto",
            }
        )
        before[row.view_name] = columns
    return found


@dataclass(frozen=True)
class Visible:
    """What DuckDB can see: the tables and views of one cut, by name."""

    tables: Mapping[str, TableState]
    views: Mapping[str, ViewState]

    @classmethod
    def of(cls, tables: Iterable[TableState], views: Iterable[ViewState]) -> Visible:
        return cls({state.name: state for state in tables}, {view.name: view for view in views})

    def select(self, view: ViewDefinition) -> str:
        """The view's SELECT in a database that has all views of the store."""
        return self._select(view, lambda name: quote(name) if name in self.views else meta_name(name))

    def select_files(self, view: ViewDefinition, *, root: str | None) -> str:
        """The view's SELECT by itself, over files. Paths are relative to the store, or absolute under `root`."""

        def source(name: str) -> str:
            if name in self.views:
                return f"(\n{self.select_files(self.views[name].definition, root=root)}\n)"
            return f"(\n{view_select(self.tables[name], root=root)}\n)"

        return self._select(view, source)

    def behind(self, views: Iterable[ViewState]) -> set[str]:
        """The names of all tables and views that these views read, directly or through other views."""
        found: set[str] = set()
        waiting = [name for view in views for name in view.definition.reads]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.views[name].definition.reads if name in self.views else ()
        return found

    def changed_seq(self, view: ViewState) -> int:
        """The last change of the view, or of the definition or files of anything that it reads."""
        names = self.behind([view])
        views = [self.views[name].changed_seq for name in names if name in self.views]
        tables = [self.tables[name].files_seq for name in names if name in self.tables and name not in self.views]
        return max([view.changed_seq, *views, *tables])

    def _select(self, view: ViewDefinition, source: _Source) -> str:
        """The outer SELECT gives the columns the types that they have in Spark; it takes them from the inner query by
        name, so the order in which DuckDB expands a `*` does not matter."""
        outputs = ",\n".join(
            f"  CAST({quote(name)} AS {_duck_type(type_)}) AS {quote(name)}" for name, type_ in view.columns
        )
        parts = [
            f"{quote(VIEW_INPUT + name)} AS NOT MATERIALIZED (\n{self._input(view, name, source)}\n)"
            for name in view.reads
        ]
        with_ = f"WITH {', '.join(parts)}\n" if parts else ""
        return f"{with_}SELECT\n{outputs}\nFROM (\n{view.shown}\n) AS {quote(VIEW_INPUT)}"

    def _input(self, view: ViewDefinition, name: str, source: _Source) -> str:
        """A table as the query sees it: its own columns, and those of the further columns that the query names."""
        if name in self.views:
            columns = [column for column, _ in self.views[name].definition.columns]
        elif name in self.tables:
            names, exacts = column_names(self.tables[name].schema)
            system = shown_columns(positions=any(file.positions for file in self.tables[name].files))
            further = [*exacts.values(), *(column.name for column in system)]
            columns = [*names.values(), *(column for column in further if column.lower() in view.named)]
        elif name in view.declared:
            nulls = [f"CAST(NULL AS {_duck_type(type_)}) AS {quote(column)}" for column, type_ in view.declared[name]]
            return f"SELECT {', '.join(nulls)} WHERE false"
        else:
            message = f"this view reads `{name}`, which is not there"
            return f"SELECT error({literal(message)}) AS {quote('error')}"
        return f"SELECT {', '.join(map(quote, columns))} FROM {source(name)}"


def _definition(body: str) -> ViewDefinition:
    return msgspec.json.decode(body, type=ViewDefinition)


def _in_order(views: Mapping[str, ViewState]) -> list[ViewState]:
    """Each view after the views that it reads. There is no cycle, for each was landed after what it reads."""
    placed: dict[str, ViewState] = {}
    waiting = list(views.values())
    while waiting:
        ready = [v for v in waiting if not any(name in views and name not in placed for name in v.definition.reads)]
        ready = ready or waiting  # the loop ends even if a damaged catalog holds a cycle
        placed.update({view.name: view for view in ready})
        waiting = [view for view in waiting if view.name not in placed]
    return list(placed.values())


def _duck_type(type_: str) -> str:
    return shown_type(parse_type(type_))

"""The SELECTs behind a table's two views: explicit files, one conversion per column, last write wins. Pure text.

`meta.<table>` has every column; the view `<table>` has the user's columns of it.

Files are read in groups of one schema, with the names and types that they were written with, so that neither a
rename nor a re-used name can mislead a reader; each group is then converted and all are united. Where DuckDB would
not find a column by its name (two that differ only in case, a user's column called `filename`) the group is read by
the columns' permanent ids, which takes longer to bind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from headwater.base.table_schema import Column, TableSchema
from headwater.catalog.table_state import TableState
from headwater.duck.duck_types import default_value, exact, literal, nanoseconds, quote, shown, shown_type, stored_type
from headwater.duck.json_paths import floored_micros, value_at
from headwater.storage.file_record import LiveFile
from headwater.storage.key_text import joined_range
from headwater.storage.system_columns import COMMIT_SEQ, RUN_ID, SOURCE_POS, SYSTEM_COLUMNS, shown_columns

_POSITION, _ROW = "_hw_file", "_hw_row"
_NEWER = "_hw_newer"
_VIRTUAL = frozenset({"filename", "file_index", "file_row_number"})
"""Columns that DuckDB adds to those of a file."""


META = "meta"
"""The schema of the views that show every column."""


def plain_select(state: TableState) -> str:
    """The table with the user's columns, over its view in `meta`: declared columns, then the others in the order in
    which they were first seen. DuckDB has no view without columns, so a table without any shows `_run_id`."""
    names, _ = column_names(state.schema)
    columns = [quote(names[column.id]) for column in state.schema.columns] or [RUN_ID.name]
    return f"SELECT {', '.join(columns)} FROM {meta_name(state.name)}"


def meta_name(table: str) -> str:
    """The view with every column of a table, in a FROM."""
    return f"{META}.{quote(table)}"


def view_select(state: TableState, *, root: str | None) -> str:
    """The rows of the table at the state's cut, with every column: the user's, the exact nanoseconds of times, the
    system columns. Paths are relative to the store, or absolute under `root`."""
    if not state.files:
        return _empty(state)
    select = _Select(state, root)
    if state.mode != "upsert" or not state.schema.primary_key:
        return select.rows(sorted(state.files, key=_first_row))
    # Of an upsert table no key occurs twice in the base, and the rows of the newer files win over it: the commits have
    # decided that (`catalog.levels`).
    base = [file for file in state.files if file.level]
    newer = [file for file in state.files if not file.level]
    if not newer:
        return select.rows(base)
    winners = select.rows(newer) if _duplicate_free(newer) else select.winners(newer)
    apart, near = _split_near(base, newer)
    parts = [select.rows(apart)] if apart else []
    parts += [select.rows_without(near, newer)] if near else []
    return "\nUNION ALL\n".join([*parts, winners])


def column_names(schema: TableSchema) -> tuple[dict[int, str], dict[int, str]]:
    """The names of a view's columns by column id: those of the columns, and those of the exact nanoseconds beside each
    timestamp. For DuckDB names that differ only in case are the same, so the second one gets a number; a dropped column
    gives up its name to a column that has it now."""
    taken = {column.name for column in SYSTEM_COLUMNS}
    names: dict[int, str] = {}
    for column in sorted(schema.columns, key=lambda c: c.dropped):
        names[column.id] = _free(column.name, taken)
    exacts = {c.id: _free(f"{names[c.id]}_ns", taken) for c in schema.columns if c.type.kind == "timestamp"}
    return names, exacts


def exact_name(schema: TableSchema, name: str) -> str:
    """The view's column that holds a column's exact values: for a time, its nanoseconds."""
    names, exacts = column_names(schema)
    column = schema.column(name)
    assert column is not None, name
    return exacts.get(column.id, names[column.id])


def _split_near(base: Sequence[LiveFile], newer: Sequence[LiveFile]) -> tuple[list[LiveFile], list[LiveFile]]:
    """The files of a base in two parts: those known to share no key with the newer files, and all others."""
    ranges = sorted(file.key_range for file in newer if file.key_range is not None)
    starts, ends = [first for first, _ in ranges], list(accumulate((last for _, last in ranges), max))

    def is_apart(file: LiveFile) -> bool:
        if file.key_range is None or len(ranges) < len(newer):
            return False
        place = bisect_right(starts, file.key_range[1])
        return place == 0 or ends[place - 1] < file.key_range[0]

    return [file for file in base if is_apart(file)], [file for file in base if not is_apart(file)]


def _duplicate_free(files: Sequence[LiveFile]) -> bool:
    """True if these files are known to hold no key twice."""
    commits = [list(group) for _, group in groupby(files, key=lambda file: file.added_seq)]
    ranges = sorted(found for group in commits if (found := joined_range([f.key_range for f in group])) is not None)
    known = len(commits) == 1 or len(ranges) == len(commits)
    apart = all(before[1] < after[0] for before, after in pairwise(ranges))
    return known and apart and all(file.unique_keys for file in files)


def _first_row(file: LiveFile) -> tuple[int, int, int]:
    """The position of a file's first row in the order in which rows were committed: merged files hold rows older than
    their own commit, and come before rows that landed during the merge."""
    return file.row_seqs[0], file.added_seq, file.ordinal


class _Select:
    """Writes the parts of one table's SELECT."""

    def __init__(self, state: TableState, root: str | None):
        self._state, self._root = state, root
        self._names, self._exact_names = column_names(state.schema)
        order = [*(self._names[c.id] for c in state.schema.columns), *self._exact_names.values()]
        self._positions = any(file.positions for file in state.files)
        self._outputs = [*order, *(column.name for column in shown_columns(positions=self._positions))]
        self._places = {file.path: place for place, file in enumerate(state.files)}
        self._named = {i: _found_by_name(state.schemas[i]) for i in {file.schema_id for file in state.files}}

    def rows(self, files: Sequence[LiveFile]) -> str:
        """All rows of the files."""
        return "\nUNION ALL\n".join(self._group(group) for group in _groups(files))

    def rows_without(self, files: Sequence[LiveFile], newer: Sequence[LiveFile]) -> str:
        """The rows of the files whose key is not in the newer files. Null is a value like any other."""
        keys = [f"_hw_key{place}" for place, _ in enumerate(self._state.schema.primary_key)]
        wanted = " UNION ALL ".join(
            f"SELECT {', '.join(f'{e} AS {k}' for e, k in zip(self._keys(group), keys))} FROM "
            f"{self._scan(group, keys_only=True)}"
            for group in _groups(newer)
        )
        parts = []
        for group in _groups(files):
            same = " AND ".join(f"{_NEWER}.{k} IS NOT DISTINCT FROM {e}" for e, k in zip(self._keys(group), keys))
            parts.append(f"{self._group(group)}\nANTI JOIN ({wanted}) AS {_NEWER} ON {same}")
        return "\nUNION ALL\n".join(parts)

    def winners(self, files: Sequence[LiveFile]) -> str:
        """Of each key the row that was written last. Keys are compared as the view shows them (times by their
        nanoseconds), so that a filter on a key goes down to the files."""
        inner = "\nUNION ALL\n".join(
            self._group(
                group, f"{self._places[group[0].path]} + file_index AS {_POSITION}", f"file_row_number AS {_ROW}"
            )
            for group in _groups(files)
        )
        keys = ", ".join(quote(exact_name(self._state.schema, name)) for name in self._state.schema.primary_key)
        order = [COMMIT_SEQ.name] if any(file.merged for file in files) else []
        ranked = ", ".join(f"{name} DESC" for name in [*order, _POSITION, _ROW])
        outputs = ", ".join(map(quote, self._outputs))
        return (
            f"SELECT {outputs} FROM (\n{inner}\n)\n"
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {ranked}) = 1"
        )

    def _group(self, group: Sequence[LiveFile], *extra: str) -> str:
        return f"SELECT\n{_lines([*self._columns(group), *extra])}\nFROM {self._scan(group)}"

    def _keys(self, group: Sequence[LiveFile]) -> list[str]:
        stored = self._state.schemas[group[0].schema_id]
        found = []
        for name in self._state.schema.primary_key:
            key = self._state.schema.column(name)
            assert key is not None, name
            old = stored.by_id(key.id)
            if old is not None:
                found.append(exact(self._reference(old, group), old.type, key.type))
            else:
                value, ns = default_value(key)
                found.append(value if ns is None else str(ns))
        return found

    def _columns(self, group: Sequence[LiveFile]) -> list[str]:
        """The view's columns of one group of files, in the view's order."""
        stored = self._state.schemas[group[0].schema_id]
        columns, exacts = [], []
        for column in self._state.schema.columns:
            old = stored.by_id(column.id)
            if old is not None:
                reference, stats = self._reference(old, group), [file.stats.get(str(column.id)) for file in group]
                micros = all(each is not None and each.micros for each in stats)
                value, ns = shown(reference, old.type, column.type, micros=micros), nanoseconds(reference, old.type)
            else:
                value, constant = default_value(column)
                ns = f"CAST({'NULL' if constant is None else constant} AS BIGINT)"
            inside = self._inside(column, group)
            if inside is not None:
                found = floored_micros(inside) if column.type.kind == "timestamp" else inside
                value, ns = _coalesced(value, found, old is not None), _coalesced(ns, inside, old is not None)
            columns.append(f"{value} AS {quote(self._names[column.id])}")
            if column.id in self._exact_names:
                exacts.append(f"{ns} AS {quote(self._exact_names[column.id])}")
        system = [quote(column.name) for column in SYSTEM_COLUMNS if column not in (COMMIT_SEQ, SOURCE_POS)]
        system.append(f"{_commit_seq(group)} AS {quote(COMMIT_SEQ.name)}")
        if self._positions:
            system.append(SOURCE_POS.name if group[0].positions else f"CAST(NULL AS BIGINT) AS {SOURCE_POS.name}")
        return [*columns, *exacts, *system]

    def _inside(self, column: Column, group: Sequence[LiveFile]) -> str | None:
        """What a promoted column shows of the `dynamic` column that it comes from, if these files have that column. A
        filter on it is a filter on an expression: the bounds of stored values alone cannot skip a file."""
        source = column.source_in(self._state.schemas[group[0].schema_id])
        if source is None or column.promoted is None:
            return None
        return value_at(self._reference(source, group), column.promoted.steps, column.type)

    def _reference(self, column: Column, group: Sequence[LiveFile]) -> str:
        return quote(column.name if self._named[group[0].schema_id] else _name(column))

    def _scan(self, group: Sequence[LiveFile], *, keys_only: bool = False) -> str:
        """The files of one group, with the types they were written with."""
        stored = self._state.schemas[group[0].schema_id]
        prefix = "" if self._root is None else self._root.rstrip("/") + "/"
        paths = ", ".join(literal(prefix + file.path) for file in group)
        if self._named[group[0].schema_id]:
            return f"read_parquet([{paths}], hive_partitioning = false)"
        keys = {c.id for c in self._state.schema.columns if c.name in self._state.schema.primary_key}
        columns = [column for column in stored.columns if not keys_only or column.id in keys]
        fields = [(column.id, _name(column), stored_type(column.type)) for column in columns]
        system = [c for c in shown_columns(positions=group[0].positions) if group[0].merged or c is not COMMIT_SEQ]
        fields += [(column.id, column.name, column.duck) for column in ([] if keys_only else system)]
        schema = ", ".join(
            f"{i}: {{'name': {literal(name)}, 'type': {literal(type_)}, 'default_value': NULL}}"
            for i, name, type_ in fields
        )
        return f"read_parquet([{paths}], hive_partitioning = false, schema = MAP {{{schema}}})"


def _coalesced(value: str, inside: str, stored: bool) -> str:
    """A row's own value comes first; a default, which no row has written, comes last."""
    return f"coalesce({value}, {inside})" if stored else f"coalesce({inside}, {value})"


def _empty(state: TableState) -> str:
    names, exacts = column_names(state.schema)
    columns = [f"CAST(NULL AS {shown_type(c.type)}) AS {quote(names[c.id])}" for c in state.schema.columns]
    columns += [f"CAST(NULL AS BIGINT) AS {quote(name)}" for name in exacts.values()]
    system = shown_columns(positions=False)
    columns += [f"CAST(NULL AS {column.duck}) AS {quote(column.name)}" for column in system]
    return f"SELECT\n{_lines(columns)}\nWHERE false"


def _groups(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """Consecutive files, in the table's order, with the same columns."""
    return [list(group) for _, group in groupby(files, key=lambda file: (file.schema_id, file.merged, file.positions))]


def _commit_seq(group: Sequence[LiveFile]) -> str:
    if group[0].merged:
        return quote(COMMIT_SEQ.name)
    seqs = [file.added_seq for file in group]
    if len(set(seqs)) == 1:
        return f"CAST({seqs[0]} AS BIGINT)"
    return f"list_extract(CAST([{', '.join(map(str, seqs))}] AS BIGINT[]), CAST(file_index AS BIGINT) + 1)"


def _found_by_name(stored: TableSchema) -> bool:
    """Whether DuckDB finds each column of a file of this schema by its name."""
    names = {column.name.lower() for column in stored.columns}
    return len(names) == len(stored.columns) and names.isdisjoint(_VIRTUAL)


def _name(column: Column) -> str:
    return f"c{column.id}"


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found.lower() in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found.lower())
    return found


def _lines(parts: Sequence[str]) -> str:
    return ",\n".join(f"  {part}" for part in parts)

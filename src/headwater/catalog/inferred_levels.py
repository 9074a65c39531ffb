"""The levels of files that were committed before format 6, inferred once: when a store is brought to that format, and where
the older records of its log end when they are replayed. Levels of later files are decided by their commits (`levels`)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby

from sqlalchemy import Connection, select, update

from headwater.base.table_schema import TableSchema
from headwater.catalog import sql_tables as t
from headwater.catalog.lookup import live_file, table_entries, table_schemas
from headwater.storage.file_record import LiveFile
from headwater.storage.key_text import KeyRange, joined_range, key_columns, stats_range


def settle_levels(connection: Connection) -> None:
    """Decide the levels and keys of live files that were committed before format 6, as views inferred them then: a
    prefix of commits, by the bounds of the key columns. Of a table whose key or mode has changed nothing is inferred."""
    undecided = {name for (name,) in connection.execute(select(t.file.c.table_name).where(t.file.c.level.is_(None)))}
    event = t.schema_event.c
    moved = select(event.table_name).where(event.kind.in_(["change_key", "change_mode"]))
    unsure = {name for (name,) in connection.execute(moved)}
    for table in table_entries(connection, undecided).values():
        query = select(t.file).where(t.file.c.table_name == table.name, t.file.c.removed_seq.is_(None))
        rows = connection.execute(query.order_by(t.file.c.added_seq, t.file.c.ordinal))
        files = [live_file(row) for row in rows if row.level is None]
        schemas = {id_: schema for id_, (_, schema) in table_schemas(connection, [table.name])[table.name].items()}
        base: Iterable[LiveFile] = ()
        if table.mode == "replace":
            base = files
        elif table.mode == "upsert" and table.name not in unsure:
            base = inferred_base(files, table.schema, schemas)
        paths, keys = {file.path for file in base}, key_columns(table.schema)
        for file in files:
            first, last = stats_range(file.stats, file.rows, schemas[file.schema_id], keys) or (None, None)
            here = (t.file.c.path == file.path) & t.file.c.removed_seq.is_(None)
            unique = file.unique_keys and table.name not in unsure
            values = {"level": int(file.path in paths), "unique_keys": unique, "first_key": first, "last_key": last}
            connection.execute(update(t.file).where(here).values(values))
    connection.execute(update(t.file).where(t.file.c.level.is_(None)).values(level=0))


def inferred_base(files: Sequence[LiveFile], schema: TableSchema, schemas: Mapping[int, TableSchema]) -> list[LiveFile]:
    """The longest known prefix of commits that hold no key twice and are older than all others."""
    commits = [tuple(group) for _, group in groupby(files, key=lambda file: file.added_seq)]
    commits.sort(key=lambda commit: (max(file.row_seqs[1] for file in commit), commit[0].added_seq))
    firsts = [min(file.row_seqs[0] for file in commit) for commit in commits]
    later = [*accumulate(reversed(firsts[1:]), min, initial=1 << 62)][::-1]
    keys, best = key_columns(schema), 0
    for columns in (keys, *([key] for key in keys if len(keys) > 1)):
        taken: list[KeyRange] = []
        for place, commit in enumerate(commits):
            found = joined_range([stats_range(f.stats, f.rows, schemas[f.schema_id], columns) for f in commit])
            known = found is not None and len(taken) == place and _fits(found, taken)
            if not all(file.unique_keys for file in commit) or (place and not known):
                break
            if found is not None:
                insort(taken, found)
            if max(file.row_seqs[1] for file in commit) < later[place]:
                best = max(best, place + 1)
    return [file for commit in commits[:best] for file in commit]


def _fits(found: KeyRange, taken: Sequence[KeyRange]) -> bool:
    """Whether a range touches none of those taken, which touch none of each other."""
    place = bisect_left(taken, found)
    before, after = taken[:place][-1:], taken[place:][:1]
    return all(last < found[0] for _, last in before) and all(first > found[1] for first, _ in after)

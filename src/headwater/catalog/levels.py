"""The level of a file: 1 for the base of a table, 0 for what is newer. Decided once, by the commit that adds the file.

Two things hold for an upsert table at every cut, and views and frames trust them: no key is twice among its files of
level 1, and of a key that is also in a file of level 0 the row there is the newer one. So a commit gets level 1 if it
holds no key twice and its keys touch no live file's, and a merge also if all that it replaces is of the base. A table of
mode `replace` has nothing but a base. A commit that changes the key or the mode of a table takes its files back to
level 0 (`catalog.replay`), which is always true; of another key nothing is known of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, bindparam, func, or_, select

from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog import sql_tables as t
from headwater.catalog.statements import chunks
from headwater.storage.key_text import key_of

Adding = r.FilesAdded | r.FilesMerged
_AFTER_ALL = "\U0010ffff"
_TABLE = select(t.table.c.mode, t.table.c.schema_id).where(t.table.c.name == bindparam("of_table"))


def decided(connection: Connection, changes: Sequence[r.Change]) -> tuple[r.Change, ...]:
    """The changes of a commit with the levels of the files that they add, and without what files say of a key that is
    not the table's any more. Holds as long as the transaction does."""
    return tuple(_decided(connection, change, changes) if isinstance(change, Adding) else change for change in changes)


def key_at(connection: Connection, table: str, schema_id: int) -> list[tuple[int, str]]:
    """The key of a table in one of its schemas."""
    c = t.table_schema.c
    body = connection.execute(select(c.body).where(c.table_name == table, c.schema_id == schema_id)).scalar()
    return key_of(TableSchema.from_json(json.loads(body))) if body is not None else []


def _decided(connection: Connection, change: Adding, changes: Sequence[r.Change]) -> Adding:
    table = connection.execute(_TABLE, {"of_table": change.table}).one_or_none()
    mine = [each for each in changes if getattr(each, "table", None) == change.table]
    modes = [each.mode for each in mine if isinstance(each, r.TableCreated | r.TableModeSet)]
    mode = modes[-1] if modes else table.mode if table is not None else None
    schemas = {each.schema_id: each.schema for each in mine if isinstance(each, r.SchemaSet)}
    before = table.schema_id if table is not None else 0
    after = max(schemas, default=before)

    def key(schema_id: int) -> list[tuple[int, str]]:
        new = schemas.get(schema_id)
        return key_at(connection, change.table, schema_id) if new is None else key_of(TableSchema.from_json(new))

    is_same = before in (0, after) or key(before) == key(after)
    if change.schema_id != after and key(change.schema_id) != key(after):
        files = tuple(msgspec.structs.replace(file, first_key=None, last_key=None) for file in change.files)
        change, is_same = msgspec.structs.replace(change, files=files, unique_keys=False), False
    is_alone = sum(isinstance(each, Adding) for each in mine) == 1
    if mode == "replace":
        level = 1
    elif mode != "upsert" or not (change.unique_keys and is_same and is_alone):
        level = 0
    elif isinstance(change, r.FilesMerged) and _are_base(connection, change):
        level = 1
    else:
        level = int(not _touches(connection, change))
    return msgspec.structs.replace(change, level=level)


def _are_base(connection: Connection, merge: r.FilesMerged) -> bool:
    """Whether all files that a merge replaces are of the base."""
    newer = select(func.count()).select_from(t.file).where(t.file.c.removed_seq.is_(None), t.file.c.level == 0)
    found = (connection.execute(newer.where(t.file.c.path.in_(chunk))) for chunk in chunks(merge.replaces))
    return not any(each.scalar_one() for each in found)


def _touches(connection: Connection, change: Adding) -> bool:
    """Whether a live file that stays may hold a key of these."""
    firsts, lasts = [file.first_key for file in change.files], [file.last_key for file in change.files]
    first = min((key for key in firsts if key is not None), default="") if None not in firsts else ""
    last = max((key for key in lasts if key is not None), default="") if None not in lasts else _AFTER_ALL
    replaced = change.replaces if isinstance(change, r.FilesMerged) else ()
    values = {"of_table": change.table, "first": first, "last": last, "most": len(replaced) + 1}
    found = connection.execute(_touching(connection.dialect.name), values)
    return not {path for (path,) in found} <= set(replaced)


@cache
def _touching(dialect: str) -> Select[Any]:
    """Live files whose keys are between two; texts compare by their bytes on both databases."""
    bytewise = "BINARY" if dialect == "sqlite" else "C"
    starts = t.file.c.first_key.collate(bytewise) <= bindparam("last")
    ends = t.file.c.last_key.collate(bytewise) >= bindparam("first")
    live = (t.file.c.table_name == bindparam("of_table")) & t.file.c.removed_seq.is_(None)
    return select(t.file.c.path).where(live, or_(t.file.c.first_key.is_(None), starts & ends)).limit(bindparam("most"))

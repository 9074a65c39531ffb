"""The cell values of a commit: what a log record would tell of rows, kept in a file beside it.

The record holds the hash of that file, so an edited one is noticed. The file can be deleted: the log stays whole. A
rebuild then goes on without statistics, but not without what decides which rows are read again (`REQUIRED`)."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from headwater.catalog.records import LogRecord
from headwater.storage.file_record import ColumnStats


class CellValues(msgspec.Struct, frozen=True, kw_only=True):
    """A field that has one of these names is moved out of every record."""

    stats: dict[str, ColumnStats] | UnsetType = UNSET
    first_key: str | UnsetType = UNSET
    last_key: str | UnsetType = UNSET
    sources: dict[str, int] | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    cursor: tuple[Any, ...] | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    items: dict[str, Any] | UnsetType = UNSET


REQUIRED = frozenset(("sources", "partition", "payload", "cursor", "value", "items"))
"""Without these a rebuild is refused: slices, cursors and items say what has landed, the sources of a file which rows a
changed item replaces, and its partition the table of its dead letters."""

_PARTS = ("files", "staged", "units")
"""The fields that hold records of their own."""


def split(record: LogRecord) -> tuple[LogRecord, bytes | None]:
    """The record without its cell values, and the bytes of their file; None if it has none."""
    found: dict[str, CellValues] = {}
    changes = tuple(_without(change, str(place), found) for place, change in enumerate(record.changes))
    if not found:
        return record, None
    values = msgspec.json.encode(found)
    moved = sorted({name for v in found.values() for name in v.__struct_fields__ if getattr(v, name) is not UNSET})
    digest = hashlib.sha256(values).hexdigest()
    return msgspec.structs.replace(record, changes=changes, values_sha256=digest, moved=tuple(moved)), values


def join(record: LogRecord, values: bytes | None) -> LogRecord:
    """The record with its cell values; without the file, with the defaults of these fields."""
    if values is None:
        return record
    found = msgspec.json.decode(values, type=dict[str, CellValues])
    changes = tuple(_with(change, str(place), found) for place, change in enumerate(record.changes))
    return msgspec.structs.replace(record, changes=changes)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], str | None]:
    """The fields of a record that hold cell values with their defaults, and the one that holds records."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    values = {
        name: fields[name].default_factory() if fields[name].default is msgspec.NODEFAULT else fields[name].default
        for name in CellValues.__struct_fields__
        if name in fields
    }
    return values, next((name for name in _PARTS if name in fields), None)


def _without(record: msgspec.Struct, place: str, found: dict[str, CellValues]) -> Any:
    values, parts = _fields(type(record))
    taken = {name: value for name, default in values.items() if (value := getattr(record, name)) != default}
    left = {name: values[name] for name in taken}
    if taken:
        found[place] = CellValues(**taken)
    if parts is not None:
        left[parts] = tuple(_without(part, f"{place}.{i}", found) for i, part in enumerate(getattr(record, parts)))
    return msgspec.structs.replace(record, **left) if left else record


def _with(record: msgspec.Struct, place: str, found: dict[str, CellValues]) -> Any:
    own, parts = found.get(place), _fields(type(record))[1]
    back = {} if own is None else msgspec.structs.asdict(own)
    back = {name: value for name, value in back.items() if value is not UNSET}
    if parts is not None:
        back[parts] = tuple(_with(part, f"{place}.{i}", found) for i, part in enumerate(getattr(record, parts)))
    return msgspec.structs.replace(record, **back) if back else record

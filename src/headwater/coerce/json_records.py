"""The records inside a JSON document: what a path such as `$.data[*]` leads to, as a new document."""

from __future__ import annotations

import re

import msgspec

from headwater.base.json_path import RecordSteps
from headwater.coerce.objects import elements, parts
from headwater.coerce.row_errors import Refused
from headwater.coerce.values import raw_members, type_of

NO_RECORDS = "no_records"
_NULL = b"null"
_BARE = re.compile(r"\w+")


def records_at(document: bytes, steps: RecordSteps) -> bytes:
    """An array of the records. The last step may lead to one record or an array of records. Below a `[*]`, a key that
    is missing or null leads to no record. Raises `Refused`: `no_records`, with the place where the path ends too early,
    or `invalid_json`."""
    found, path, is_many = [document.strip()], "$", False
    for step in steps:
        if step is None:
            found = [item for source in found for item in _items(source, path)]
            path, is_many = f"{path}[*]", True
        else:
            inner = f"{path}.{step}" if _BARE.fullmatch(step) else f"{path}['{step}']"
            values = [_member(source, step, path, inner, is_many=is_many) for source in found]
            found, path = [value for value in values if value not in (None, _NULL)], inner
    if steps and steps[-1] is not None:
        found = [item for source in found for item in (_items(source, path) if source[:1] == b"[" else [source])]
    return b"[" + b",".join(found) + b"]"


def _items(source: bytes, path: str) -> list[bytes]:
    if source[:1] != b"[":
        raise Refused(NO_RECORDS, _type(source), detail=f"`{path}` is no array")
    return elements(source)


def _member(source: bytes, key: str, path: str, inner: str, *, is_many: bool) -> bytes | None:
    if source[:1] != b"{":
        if is_many and source == _NULL:
            return None
        raise Refused(NO_RECORDS, _type(source), detail=f"`{path}` is no object")
    try:
        value = raw_members(source).get(key)
        found = None if value is None else bytes(value)
    except RecursionError:
        raise Refused("too_deep", "object") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _patient_member(source, key)
    if found is None and not is_many:
        raise Refused(NO_RECORDS, "absent", detail=f"there is no `{inner}`")
    return found


def _patient_member(source: bytes, key: str) -> bytes | None:
    """The value of a key in an object that msgspec refuses. Raises `Refused` if it is not valid JSON."""
    try:
        text = source.decode()
    except UnicodeDecodeError:
        raise Refused("invalid_json", "text") from None
    return {name: value.encode() for name, value in parts(text)}.get(key)


def _type(source: bytes) -> str:
    return type_of(source[:1].decode(errors="replace") or "x")

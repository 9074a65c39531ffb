"""Checks whether the settings of one table fit together: keys, columns, modes, defaults, renames."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from pydantic import JsonValue

from headwater.base.errors import HeadwaterError
from headwater.base.ids import RESERVED_TABLES, is_table_name
from headwater.base.text_form import has_time, has_zone, parse_format
from headwater.base.types import Type, parse_type
from headwater.connectors.registry import CONNECTORS
from headwater.manifest.documents import Part, dotted
from headwater.manifest.positions import Path
from headwater.manifest.spec import (
    ColumnSpec,
    PipelineSpec,
    TableSettings,
    TableSpec,
)
from headwater.manifest.vocabulary import is_moment, legal_name

_KEYLESS = frozenset({"dynamic", "vector", "list", "struct"})
_CURSOR_KINDS = frozenset({"timestamp", "date", "int", "long", "decimal", "string"})
_FORM_KINDS = {"format": ("timestamp", "date"), "timezone": ("timestamp",), "decimal": ("real", "decimal")}
"""The keys that say how texts are written, and the kinds of columns that may have them."""


def check_table(part: Part, path: Path, table: TableSettings) -> Iterator[HeadwaterError]:
    """What is wrong with one table or ripple, wherever its pipeline reads from."""
    yield from _check_columns(part, path, table)
    yield from _check_key(part, path, table)


def check_source_table(part: Part, path: Path, pipeline: PipelineSpec, table: TableSpec) -> Iterator[HeadwaterError]:
    """What is wrong with a table that a source fills: its name in the store, its cursor column."""
    name = f"`{dotted(path)}` of {part.subject}"
    if table.as_name is None and table.name in RESERVED_TABLES:
        message = f"{name}: the name `{table.name}` is reserved: Headwater keeps bad rows there"
        hint = 'keep the source\'s name and name the table otherwise: `as = "..."`'
        yield part.error("HW-M03", (*path, "name"), message, hint=hint)
    elif table.as_name is None and not is_table_name(table.name):
        message = f"{name}: `{table.name[:80]}` is not a name that a table can have"
        hint = f'keep the source\'s name and name the table: `as = "{legal_name(table.name)}"`'
        yield part.error("HW-M03", (*path, "name"), message, hint=hint)
    yield from _check_exclude(part, path, pipeline, table)
    if table.mode == "upsert" and not table.primary_key and pipeline.source and not pipeline.abilities.knows_keys:
        # Files and pushes have no key of their own; a database may have one.
        hint = 'add `primary_key = ["..."]`, or use `append`'
        yield part.wrong((*path, "mode"), ": an upsert table needs a `primary_key` to find rows by", hint=hint)
    yield from _check_forms(part, path, pipeline, table)
    yield from _check_cursor(part, path, pipeline, table)


def _check_cursor(part: Part, path: Path, pipeline: PipelineSpec, table: TableSpec) -> Iterator[HeadwaterError]:
    at: Path = (*path, "incremental") if table.incremental is not None else ("incremental",)
    column = pipeline.incremental_of(table)
    if column is None:
        return
    declared = table.columns.get(column)
    kind = parse_type(declared.type).kind if declared else None
    if kind is not None and kind not in _CURSOR_KINDS:
        message = f": the column `{column}` is a `{kind}`, which has no order to read on by"
        yield part.wrong(at, message, hint="name a timestamp or a growing number")
    elif kind in ("timestamp", "date") and table.mode == "append":
        message = f": the table `{table.table}` only appends, and late rows of equal time would be lost or doubled"
        yield part.wrong(at, message, hint='give it a `primary_key` and `mode = "upsert"`')
    if table.mode == "replace":
        message = f": the table `{table.table}` is replaced by every run, so nothing can be read on from"
        yield part.wrong(at, message, hint='leave `incremental` out, or use `mode = "upsert"`')


def _check_exclude(part: Part, path: Path, pipeline: PipelineSpec, table: TableSpec) -> Iterator[HeadwaterError]:
    at: Path = (*path, "exclude")
    source = pipeline.source
    if table.exclude and source is not None and not pipeline.abilities.excludes_columns:
        message = f": the connector `{source.connector}` cannot leave columns out"
        yield part.wrong(at, message, hint="`files` can; remove it", key=True)
        return
    # Only the declared columns name those of a CSV file without a header.
    is_named = source is None or source.config.get("header") is not False
    for index, column in enumerate(table.exclude):
        if column in table.exclude[:index]:
            message, hint = f" names `{column}` twice", "keep one of them"
        elif column in (*table.primary_key, pipeline.incremental_of(table)):
            message = f": the column `{column}` is needed to know the rows, and cannot be left out"
            hint = "remove it here, or from the key"
        elif column in table.columns and is_named:
            message = f": the column `{column}` is declared, and cannot be left out"
            hint = "remove it here, or from `columns`"
        else:
            continue
        yield part.error("HW-M03", (*at, index), f"`{dotted(at)}` of {part.subject}{message}", hint=hint)


def _check_forms(part: Part, path: Path, pipeline: PipelineSpec, table: TableSpec) -> Iterator[HeadwaterError]:
    if pipeline.source is None or pipeline.abilities.brings_text:
        return
    others = [f"`{name}`" for name, info in CONNECTORS.items() if info.abilities.brings_text]
    for column, spec in table.columns.items():
        for key in _FORM_KINDS:
            if getattr(spec, key) is not None:
                message = f": the connector `{pipeline.source.connector}` brings values, not texts"
                hint = f"it is for {' and '.join(others)}: remove it"
                yield part.wrong((*path, "columns", column, key), message, hint=hint, key=True)


def _check_columns(part: Part, path: Path, table: TableSettings) -> Iterator[HeadwaterError]:
    seen: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for name, column in table.columns.items():
        at: Path = (*path, "columns", name)
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            message = f"the columns `{twin}` and `{name}` of {part.subject} differ only in case, which SQL does not see"
            yield part.error("HW-M03", at, message, hint="give one of them another name", key=True)
        type_ = parse_type(column.type)
        if column.default is not None and not _fits(column.default, type_):
            yield part.wrong((*at, "default"), f" is not a value of the type `{type_}`")
        yield from _check_form(part, at, column, is_read=isinstance(table, TableSpec))
        old = column.renamed_from
        if old is None:
            continue
        if old in table.columns:
            message = f": the column `{old}` is still declared"
            yield part.wrong((*at, "renamed_from"), message, hint=f"remove `{old}`, or the rename")
        elif old in renamed:
            message = f"the columns `{renamed[old]}` and `{name}` of {part.subject} are both renamed from `{old}`"
            yield part.error("HW-M03", (*at, "renamed_from"), message, hint="a column can become only one")
        renamed.setdefault(old, name)


def _check_form(part: Part, at: Path, column: ColumnSpec, *, is_read: bool) -> Iterator[HeadwaterError]:
    """Checks that the declared form of a column's texts fits its type. `is_read`: a source fills the table."""
    kind = parse_type(column.type).kind
    parts = parse_format(column.format) if column.format else ()
    for key, kinds in _FORM_KINDS.items():
        path: Path = (*at, key)
        if getattr(column, key) is None:
            continue
        if not is_read:
            message = ": a ripple makes its columns itself, and reads no texts of a source"
            yield part.wrong(path, message, hint="remove it", key=True)
        elif kind not in kinds:
            hint = f"it is for {' and '.join(f'`{each}`' for each in kinds)}"
            yield part.wrong(path, f": a column of the type `{kind}` has none", hint=hint, key=True)
        elif key == "format" and kind == "date" and has_time(parts):
            message = f": a date has no time of day, and `{column.format}` has one"
            yield part.wrong(path, message, hint="declare the column as a `timestamp`")
        elif key == "timezone" and has_zone(parts):
            message = f" does nothing: by `{column.format}` each value says its instant itself"
            yield part.wrong(path, message, hint="remove it", key=True)


def _check_key(part: Part, path: Path, table: TableSettings) -> Iterator[HeadwaterError]:
    at: Path = (*path, "primary_key")
    name = f"`{dotted(at)}` of {part.subject}"
    for index, column in enumerate(table.primary_key):
        if column in table.primary_key[:index]:
            yield part.error("HW-M03", (*at, index), f"{name} names `{column}` twice", hint="keep one of them")
        declared = table.columns.get(column)
        kind = parse_type(declared.type).kind if declared else None
        if kind in _KEYLESS:
            message = f"{name}: the column `{column}` is a `{kind}`, which cannot be a key"
            yield part.error("HW-M03", (*at, index), message, hint="use columns that can be compared")
        if declared and declared.nullable:
            message = f"{name}: the column `{column}` may be null, which a key cannot"
            yield part.error("HW-M03", (*at, index), message, hint=f"remove `nullable` from `{column}`")
    if table.primary_key and table.mode == "append":
        hint = 'use `mode = "upsert"`, or remove the key'
        yield part.wrong((*path, "mode"), ": an append table has no use for its `primary_key`", hint=hint)


def _fits(value: JsonValue, type_: Type) -> bool:
    match type_.kind:
        case "bool":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if type_.kind == "int" else 63
            return isinstance(value, int) and _is_number(value) and -(1 << bits) <= value < 1 << bits
        case "real":
            return _is_number(value)
        case "decimal":
            return (_is_number(value) or isinstance(value, str)) and _fits_decimal(str(value), *type_.numbers)
        case "string":
            return isinstance(value, str)
        case "timestamp" | "date":
            return isinstance(value, str) and is_moment(value, date if type_.kind == "date" else datetime)
        case "vector":
            return isinstance(value, list) and len(value) == type_.numbers[0] and all(map(_is_number, value))
        case "list":
            return isinstance(value, list) and all(_fits(item, type_.fields[0][1]) for item in value)
        case "struct":
            parts = dict(type_.fields)
            return isinstance(value, dict) and all(key in parts and _fits(value[key], parts[key]) for key in value)
        case _:
            return type_.kind == "dynamic"


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits_decimal(text: str, precision: int, scale: int) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # not a finite number
        return False
    return -exponent <= scale and (number == 0 or number.adjusted() < precision - scale)

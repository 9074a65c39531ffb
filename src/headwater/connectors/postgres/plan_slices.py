"""The slices between a cursor and a bound: a first load, the rest of one, the changes since, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.connectors.postgres.catalog import ask, estimate
from headwater.connectors.postgres.pg_types import literal, quoted
from headwater.connectors.postgres.slices import (
    Incremental,
    Range,
    TableScan,
    grouped,
    load_ranges,
    mark_rows,
    read_mark,
    window_ranges,
)
from headwater.connectors.protocol import Json, Slice, SlicePlan


def plan_slices(look: TableScan, value: Mapping[str, Json] | None, bound: Json) -> SlicePlan:
    """Decides what to read. `value` is the cursor's value, `bound` the source's bound for this run."""
    column, warnings, is_first = look.ask.incremental, _warnings(look), value is None
    end = {"column": column, **bound}
    if value is not None and value["column"] != column:
        warnings.append(_changed_column(look, value["column"]))
        value = None
    if value is None:
        return _plan(None, _load(look, end, again=not is_first), warnings)
    if "load" in value:
        return _plan(value, _rest_of_load(look, value, end), warnings)
    if _is_unchanged(look, value, bound):
        return SlicePlan((), tuple(warnings))
    if look.incremental is None or value["from"] is None:
        return _plan(value, _load(look, end, again=True), warnings)
    if _went_back(look, look.incremental, value, bound):
        warnings.append(
            f"the largest `{column}` of table `{look.relation.name}` is far below the one that was read: "
            "the table seems to have been restored or emptied, and is read again from the start"
        )
        return _plan(value, _load(look, end, again=True), warnings)
    return _plan(value, _changes(look, look.incremental, value["from"], end), warnings)


def _load(look: TableScan, end: Json, *, again: bool, after: Range | None = None) -> list[Slice]:
    """The whole table, or what lies after a range of it.

    The last part ends at `end`. The end of every other part says where to go on or, where another snapshot cannot go
    on, to begin again."""
    ranges = load_ranges(look, after)
    by_key = ranges[0].by == "key"
    resumable = (by_key and look.ask.mode != "replace") or (len(ranges) == 1 and after is None)
    groups = list(grouped(ranges, look.ranges_per_slice))
    source_keys = _source_keys(look, end)
    parts = []
    for place, group in enumerate(groups, 1):
        reached = group[-1].as_json() if by_key and resumable else None
        filter_column, filter_from = _load_filter(look, group[0], again=again)
        describe = f"all {'remaining ' if after else ''}rows of {look.relation.name}"
        if len(groups) > 1 or after is not None:
            describe = f"part {place} of {len(groups)} of {describe}"
        parts.append(
            _slice(
                look,
                group,
                end if place == len(groups) else {**end, "mark": None, "load": reached},
                describe,
                filter_column=filter_column,
                filter_from=filter_from,
                resumable=resumable,
                source_keys=source_keys,
            )
        )
    return parts


def _source_keys(look: TableScan, end: Json) -> int | None:
    """The number of keys of a table that is read whole each time; None for any other table. The mark has counted the
    rows of the same snapshot; where the server enforces the key, that is the number of keys."""
    key = look.ask.primary_key
    if look.incremental is not None or look.ask.mode != "upsert" or not key:
        return None
    if look.relation.primary_key and set(look.relation.primary_key) <= set(key):
        return mark_rows(end["mark"])
    distinct = f"select distinct {', '.join(map(quoted, key))} from {look.relation.sql}"
    ((count,),) = ask(look.connection, f"select count(*) from ({distinct}) as keys")
    return int(count)


def _load_filter(look: TableScan, first: Range, *, again: bool) -> tuple[str | None, Json]:
    """Which rows of the store a load may repeat. A part of an abandoned run may have landed although the cursor does
    not show it: in an append table only the filter keeps it from landing twice."""
    if look.ask.mode == "append":
        assert look.incremental is not None
        return look.incremental.column, look.incremental.as_filter(first.low)
    if look.ask.mode == "upsert" and again and look.load_key is not None:
        return look.load_key, None
    return None, None


def _rest_of_load(look: TableScan, value: Mapping[str, Json], end: Json) -> list[Slice]:
    """What an abandoned first load left to read: its ranges up to its own bound, then the changes since that bound."""
    reached = Range(**value["load"]) if value["load"] is not None else None
    if reached is None or reached.column != look.load_key or look.incremental is None or value["from"] is None:
        return _load(look, end, again=True)
    own_end = {name: value[name] for name in ("column", "at", "from", "mark")}
    rest = _load(look, own_end, again=False, after=reached)
    return [*rest, *_changes(look, look.incremental, value["from"], end)]


def _changes(look: TableScan, incremental: Incremental, since: str, end: Json) -> list[Slice]:
    ranges, starts = window_ranges(look, incremental, since)
    parts = []
    for group in grouped(ranges, look.ranges_per_slice):
        high = group[-1].high
        stop = end if high is None else {**end, "at": high, "from": starts[high], "mark": None}
        describe = f"rows of {look.relation.name} with {incremental.column} from {group[0].low}"
        describe += f" to {high}" if high is not None else ""
        filter_from = incremental.as_filter(group[0].low)
        parts.append(_slice(look, group, stop, describe, filter_column=incremental.column, filter_from=filter_from))
    return parts


def _slice(
    look: TableScan,
    ranges: Sequence[Range],
    end: Json,
    describe: str,
    *,
    filter_column: str | None,
    filter_from: Json,
    resumable: bool = True,
    source_keys: int | None = None,
) -> Slice:
    """A slice that has no start yet."""
    spec = {
        "oid": look.relation.oid,
        "columns": look.relation.fingerprint,
        "snapshot": look.snapshot_id,
        "resumable": resumable,
        "ranges": [range_.as_json() for range_ in ranges],
        "filter_column": filter_column,
        "filter_from": filter_from,
        "source_keys": source_keys,
    }
    rows, size = estimate(look.connection, look.relation, replace(ranges[0], high=ranges[-1].high).where)
    return Slice(None, end, spec, describe, estimated_rows=rows, estimated_bytes=size)


def _plan(start: Json, slices: Sequence[Slice], warnings: Sequence[str]) -> SlicePlan:
    """Each slice begins where the one before it ends."""
    starts = (start, *(each.end for each in slices))
    return SlicePlan(tuple(replace(each, start=start) for each, start in zip(slices, starts)), tuple(warnings))


def _is_unchanged(look: TableScan, value: Mapping[str, Json], bound: Json) -> bool:
    if value["mark"] is None:
        return False
    if value["from"] == bound["from"]:
        return bool(value["mark"] == bound["mark"])
    if look.incremental is None or value["from"] is None:
        return False
    return bool(value["mark"] == read_mark(look, look.incremental.since(value["from"]).where))


def _went_back(look: TableScan, incremental: Incremental, value: Mapping[str, Json], bound: Json) -> bool:
    if bound["at"] is None:
        return True
    before, now = (f"{literal(text)}::{incremental.type}" for text in (value["from"], bound["at"]))
    ((back,),) = ask(look.connection, f"select {now} < {before}")
    return bool(back)


def _changed_column(look: TableScan, before: str | None) -> str:
    """Another incremental column: an upsert or a replace can begin again, an append cannot."""
    name, was = look.relation.name, f"`{before}`" if before else "none"
    if look.ask.mode == "append":
        raise HeadwaterError(
            "HW-C05",
            f"the cursor of table `{name}` was made with another incremental column ({was})",
            hint="name that column again, or land the table under another name with `as`",
        )
    return f"the incremental column of table `{name}` was {was}: the table is read again from the start"


def _warnings(look: TableScan) -> list[str]:
    incremental, relation = look.incremental, look.relation
    if incremental is None:
        return []
    found = []
    column = relation.column(incremental.column)
    if column is not None and not column.not_null:
        ((nulls,),) = ask(
            look.connection, f"select exists(select from {relation.sql} where {quoted(column.name)} is null)"
        )
        if nulls:
            found.append(
                f"table `{relation.name}` has rows without `{column.name}`: only a first load reads them, "
                "and later changes to them are not seen"
            )
    if relation.has_row_versions and incremental.column not in relation.indexed:
        rows, _ = estimate(look.connection, relation)
        if rows >= limits.PG_UNINDEXED_ROWS:
            found.append(
                f"table `{relation.name}` has no index on `{incremental.column}`: every look scans its {rows:,} rows"
            )
    ((count,),) = ask(
        look.connection,
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        f"and backend_xid is not null and xact_start < now() - interval '{look.config.overlap_seconds} seconds'",
    )
    if count:
        found.append(
            f"{count} transactions of the source have been open for longer than the overlap "
            f"({look.config.overlap_seconds} s): if they write `{relation.name}`, their rows may be missed"
        )
    return found

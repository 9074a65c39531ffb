"""Slices as stored work: how a plan becomes a run with slices, and how a stored slice is read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.crash import crash_point
from headwater.base.errors import Conflict, HeadwaterError
from headwater.base.ids import RunId, UnitId, uuid7
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.engine_records import JobEnd
from headwater.catalog.landing import Landing
from headwater.catalog.queue import JobLease
from headwater.catalog.slice_jobs import done_slices
from headwater.connectors.protocol import CursorKind, Slice
from headwater.observe.tracing import trace_id_of
from headwater.runtime.plan import Planned, PlannedTable

_SIDE_BY_SIDE = {CursorKind.MONOTONIC, CursorKind.PARTITIONED_MONOTONIC}


@dataclass(frozen=True)
class StoredSlice:
    """A slice as a job stores it, with what its commit must record about the source."""

    slice: Slice
    identity: str
    cursor_kind: str
    is_last: bool
    """The last slice of its table in this run: in a `replace` table it makes the run's files the table."""
    waits: bool
    """Its rows count only when the last slice of its table has landed too (`replace`)."""


def begin_run(
    store: Store, planned: Planned, *, trigger: str, actor: str, ends: JobEnd, holder: str | None = None
) -> tuple[RunId, JobLease | None]:
    """Store a plan's slices as work of a new run, before any is read, in commits of a bounded size. The last commit
    makes the planning job wait (`ends`) and makes the slices jobs. A crash in between leaves a part, which the next
    plan supersedes. Also returns a slice that was claimed for `holder`. Raises HW-T02 if the cursor moved or another
    run is open."""
    inlet = planned.inlet
    run_id = RunId(uuid7())
    # Slices are claimed in the order of their ids.
    order = sorted((ordinal, table.name) for table in planned.tables for ordinal in range(len(table.slices)))
    tables = {table.name: table for table in planned.tables}
    units = [_unit(tables[name], ordinal) for ordinal, name in order]
    size = limits.PLAN_PART_SLICES
    parts = [tuple(units[i : i + size]) for i in range(0, len(units), size)]
    changes: list[r.Change] = [
        r.RunStarted(
            run_id=run_id,
            pipeline=inlet.pipeline,
            freshness_us=now_us(),
            trigger=trigger,
            connector=inlet.connector,
            definition=inlet.definition,
            trace_id=trace_id_of(ends.trace_id),
        )
    ]
    requires: list[r.Requirement] = [r.NoOpenRun(pipeline=inlet.pipeline)]
    requires += [
        r.CursorIs(pipeline=inlet.pipeline, table=table.name, version=table.cursor_version) for table in planned.tables
    ]
    crash_point("plan.before_commit")
    for part in parts[:-1]:
        changes.append(r.UnitsPlanned(run_id=run_id, pipeline=inlet.pipeline, units=part, more=True))
        store.commit(r.Commit(changes=tuple(changes), requires=(ends.held, *requires), actor=actor))
        changes, requires = [], []
    changes += [r.UnitsPlanned(run_id=run_id, pipeline=inlet.pipeline, units=parts[-1]), *_touched(planned)]
    end = replace(ends, landed_run_id=run_id)
    commit = r.Commit(changes=tuple(changes), requires=tuple(requires), actor=actor, ends=end)
    _, claimed = store.commit_and_claim(commit, holder=holder)
    crash_point("plan.after_commit")
    return run_id, claimed


def evolve_tables(store: Store, planned: Planned, *, actor: str) -> tuple[str, ...]:
    """Make the schema changes that no slice carries: the manifest declares them, or a typed source shows them, and
    there is no new row. Returns the tables. Raises HW-T02 if a schema changed meanwhile."""
    tables = [table for table in planned.tables if table.evolves]
    landing = Landing(store, actor)
    for table in tables:
        assert table.evolution is not None
        landing.set_schema(table.name, table.schema_id, table.evolution.schema, table.evolution.events)
    if tables:
        landing.commit()
    return tuple(table.name for table in tables)


def note_touched(store: Store, planned: Planned, *, actor: str) -> None:
    """Record new versions of items whose content is unchanged, if there is nothing else to do."""
    changes = tuple(_touched(planned))
    if changes:
        store.commit(r.Commit(changes=changes, actor=actor))


def supersede_run(store: Store, run_id: RunId, *, actor: str) -> int | None:
    """End a run whose slices a new plan replaces. Landed rows stay. Returns the sequence; None if the run had ended."""
    changes = (r.UnitsAbandoned(run_id=run_id), r.RunEnded(run_id=run_id, state="superseded"))
    return _end(store, run_id, (*_forgotten(store, run_id), *changes), actor)


def fail_table(
    store: Store, run_id: RunId, table: str, *, error: HeadwaterError, actor: str, ends: JobEnd
) -> int | None:
    """End a table's slices in this run after one of them failed for good. Other tables go on."""
    changes = (
        *_forgotten(store, run_id, table),
        r.RunError(run_id=run_id, error_kind=error.code, error_message=error.message),
        r.UnitsAbandoned(run_id=run_id, table=table),
        r.RunSettled(run_id=run_id),
    )
    return _end(store, run_id, changes, actor, ends)


def _forgotten(store: Store, run_id: RunId, table: str | None = None) -> list[r.Change]:
    """Changes for items that have not landed, because the last slice of their table, for which they waited, did not."""
    with store.catalog.snapshot() as connection:
        found = done_slices(connection, run_id, table)
    done = [(pipeline, name, stored_slice(payload)) for pipeline, name, payload in found]
    whole = {name for _, name, stored in done if stored.is_last}
    return [
        r.ItemsLanded(pipeline=pipeline, table=name, items={item.source_id: None for item in stored.slice.items})
        for pipeline, name, stored in done
        if stored.waits and stored.slice.items and name not in whole
    ]


def _end(
    store: Store, run_id: RunId, changes: tuple[r.Change, ...], actor: str, ends: JobEnd | None = None
) -> int | None:
    """Commit, unless the run has already ended."""
    try:
        return store.commit(r.Commit(changes=changes, requires=(r.UnitsOpen(run_id=run_id),), actor=actor, ends=ends))
    except Conflict:
        return None


def stored_slice(payload: dict[str, Any]) -> StoredSlice:
    """The slice in the payload that `_unit` made."""
    return msgspec.convert(payload, StoredSlice)


def _unit(planned: PlannedTable, ordinal: int) -> r.UnitSpec:
    mode, is_last = planned.table.ask.mode, ordinal == len(planned.slices) - 1
    waits = mode == "replace" and not is_last
    slice_ = StoredSlice(planned.slices[ordinal], planned.identity, planned.cursor_kind, is_last=is_last, waits=waits)
    return r.UnitSpec(
        unit_id=UnitId(uuid7()),
        table=planned.name,
        ordinal=ordinal,
        # Only slices of disjoint keys may land in any order. Otherwise a later slice must win, or a gap would be read
        # twice.
        serial=mode != "upsert" or planned.cursor_kind not in _SIDE_BY_SIDE,
        payload=msgspec.to_builtins(slice_),
    )


def _touched(planned: Planned) -> list[r.Change]:
    return [
        r.ItemsLanded(pipeline=planned.inlet.pipeline, table=table.name, items=dict(table.touched))
        for table in planned.tables
        if table.touched
    ]

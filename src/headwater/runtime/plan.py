"""What apply would do, as data: `plan` shows these records, `apply` executes them.

Planning reads the catalog and scans the sources; it writes nothing, reads no rows and starts no Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.types import STRING
from headwater.catalog.evolution import Evolution, Shown, evolve
from headwater.catalog.lookup import CatalogView, OpenRun, TableEntry, check_owner
from headwater.catalog.records import SchemaEvent
from headwater.connectors.protocol import Cursor, CursorKind, Item, Observed, Slice, Source, TableAsk
from headwater.runtime.bad_items import bad_items_warning, check_bad_items
from headwater.runtime.inlet import Inlet, InletTable, shown_to

Reason = Literal["new", "definition changed", "inputs changed", "always_run", "under way"]
"""Why a ripple is executed."""


@dataclass(frozen=True)
class SchemaChange:
    """One expected change. `sure` is False if it was guessed from a sample."""

    kind: str
    column: str | None
    before: Any = None
    after: Any = None
    note: str = ""
    sure: bool = True


@dataclass(frozen=True)
class TablePlan:
    table: str
    mode: str
    is_new: bool
    slices: int = 0
    estimated_rows: int | None = None
    estimated_bytes: int | None = None
    shown_slices: tuple[str, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    refused: tuple[SchemaChange, ...] = ()
    warnings: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    """Columns of the source that are left out."""
    runs: bool = False
    """Whether the ripple would be executed."""
    reason: Reason | None = None
    depends_on_read: bool = False
    """Executed only if an earlier read, of a source or of another ripple, changes its inputs."""


@dataclass(frozen=True)
class PipelinePlan:
    """`action`: land (slices are pending), resume (a run was interrupted), evolve (only a schema changes), refuse (a
    decision is needed first), fail (the source cannot be scanned), wait (there is something to land, and the source's
    window is closed), run (ripples would be executed), nothing."""

    pipeline: str
    action: str
    is_new: bool
    tables: tuple[TablePlan, ...] = ()
    resumes_run: str | None = None
    supersedes_run: str | None = None
    """A run of an older definition, or a half-stored one, that was left open; it ends when this one begins."""
    units_pending: int = 0
    units_done: int = 0
    waits_until: str | None = None
    error: Mapping[str, Any] | None = None
    fingerprint: str = ""
    """A hash of everything that decides what apply does for this pipeline."""


@dataclass(frozen=True)
class Plan:
    """`demand` are the pipelines that apply asks for, in groups: each when the one before it has settled."""

    pipelines: tuple[PipelinePlan, ...]
    hash: str
    demand: tuple[tuple[str, ...], ...]

    @property
    def has_changes(self) -> bool:
        return any(p.action != "nothing" for p in self.pipelines)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"has_changes": self.has_changes}


@dataclass(frozen=True)
class PlannedTable:
    """One table's slices, as they are landed."""

    table: InletTable
    identity: str
    cursor_version: int
    """0 if nothing has landed yet."""
    cursor_kind: CursorKind
    slices: tuple[Slice, ...]
    touched: tuple[Item, ...]
    schema_id: int = 0
    evolution: Evolution | None = None
    """The probable effect of landing on the schema."""

    @property
    def name(self) -> str:
        return self.table.ask.name

    @property
    def evolves(self) -> bool:
        """The schema changes, and there is no slice to carry the change."""
        return not self.slices and self.schema_id > 0 and self.evolution is not None and bool(self.evolution.events)


@dataclass(frozen=True)
class Planned:
    """A pipeline's plan, and what is needed to execute it."""

    plan: PipelinePlan
    inlet: Inlet
    tables: tuple[PlannedTable, ...] = field(default=())


def plan_inlet(inlet: Inlet, source: Source, view: CatalogView) -> Planned:
    """Scan the source and decide. An interrupted run of the same definition is resumed as it was planned."""
    open_run = view.open_runs.get(inlet.pipeline)
    is_new = inlet.pipeline not in view.have_run
    if open_run is not None and open_run.is_planned and open_run.definition == inlet.definition:
        return Planned(_resume(inlet, open_run), inlet)
    pairs = [_plan_table(table, source, view, inlet.pipeline) for table in inlet.tables]
    planned, tables = tuple(table for table, _ in pairs), tuple(shown for _, shown in pairs)
    if any(t.refused for t in tables):
        action = "refuse"
    elif any(t.slices for t in tables) or open_run is not None:
        action = "land"
    elif any(p.evolves for p in planned):
        action = "evolve"
    else:
        action = "nothing"
    plan = PipelinePlan(
        pipeline=inlet.pipeline,
        action=action,
        is_new=is_new,
        tables=tables,
        supersedes_run=open_run.run_id if open_run is not None else None,
        fingerprint=_fingerprint(inlet, planned),
    )
    return Planned(plan, inlet, planned)


def failed_plan(pipeline: str, error: HeadwaterError, *, is_new: bool) -> PipelinePlan:
    """The plan of a pipeline whose source could not be scanned: the others go on."""
    digest = hashlib.sha256(error.code.encode()).hexdigest()
    return PipelinePlan(pipeline=pipeline, action="fail", is_new=is_new, error=error.as_json(), fingerprint=digest)


def plan_of(pipelines: list[PipelinePlan], demand: tuple[tuple[str, ...], ...]) -> Plan:
    text = json.dumps([[[p.pipeline, p.action, p.fingerprint] for p in pipelines], demand])
    return Plan(tuple(pipelines), "sha256:" + hashlib.sha256(text.encode()).hexdigest(), demand)


def evolve_table(entry: TableEntry | None, table: InletTable, shown: Shown) -> Evolution:
    """The table's next schema, given the stored one and what the source shows."""
    return evolve(
        entry.schema if entry is not None else None,
        shown,
        declared=table.declared,
        primary_key=table.ask.primary_key,
        modes=(entry.mode, table.ask.mode) if entry is not None else None,
    )


def _resume(inlet: Inlet, open_run: OpenRun) -> PipelinePlan:
    return PipelinePlan(
        pipeline=inlet.pipeline,
        action="resume",
        is_new=False,
        resumes_run=open_run.run_id,
        units_pending=open_run.pending,
        units_done=open_run.done,
        fingerprint=hashlib.sha256(f"{open_run.run_id}/{open_run.pending}".encode()).hexdigest(),
    )


def _plan_table(table: InletTable, source: Source, view: CatalogView, pipeline: str) -> tuple[PlannedTable, TablePlan]:
    ask, entry = table.ask, view.tables.get(table.ask.name)
    check_owner(entry, pipeline, hint='give the table another name in the store: `as = "..."`')
    identity = source.identity(ask)
    stored = view.cursors.get((pipeline, ask.name))
    if stored is not None and stored.source_identity != identity:
        raise HeadwaterError(
            "HW-C05",
            f"the source of `{ask.name}` is not the one its cursor was made for",
            hint="if it was replaced on purpose, give the table another name with `as`, or point the pipeline back",
            detail={"cursor_identity": stored.source_identity, "source_identity": identity},
        )
    cursor = None if stored is None else Cursor(CursorKind(stored.kind), stored.version, identity, stored.value)
    slice_plan = source.slices(ask, cursor, source.bound(ask), view.items.get((pipeline, ask.name), {}))
    observed = table.observed
    if observed is None and slice_plan.slices:
        observed = source.preview(ask, slice_plan.slices[0])
    bad = observed.bad_items if observed is not None else ()
    check_bad_items(ask, bad)
    evolution, sure = _expected(table, slice_plan.slices, observed, entry)
    planned = PlannedTable(
        table=table,
        identity=identity,
        cursor_version=cursor.version if cursor is not None else 0,
        cursor_kind=source.backfill_hint().cursor_kind,
        slices=slice_plan.slices,
        touched=slice_plan.touched,
        schema_id=entry.schema_id if entry is not None else 0,
        evolution=evolution,
    )
    unread = (bad_items_warning(bad),) if bad else ()
    warnings = (*slice_plan.warnings, *unread, *_hints(observed, entry, ask))
    return planned, _show_table(planned, warnings, sure=sure, is_new=entry is None)


def _show_table(planned: PlannedTable, warnings: tuple[str, ...], *, sure: bool, is_new: bool) -> TablePlan:
    evolution = planned.evolution
    return TablePlan(
        table=planned.name,
        mode=planned.table.ask.mode,
        is_new=is_new,
        slices=len(planned.slices),
        estimated_rows=_total([s.estimated_rows for s in planned.slices]),
        estimated_bytes=_total([s.estimated_bytes for s in planned.slices]),
        shown_slices=tuple(s.describe for s in planned.slices[: limits.SLICES_SHOWN]),
        schema_changes=tuple(_change(e, sure=sure or e.column in planned.table.declared) for e in _listed(evolution))
        if evolution
        else (),
        refused=tuple(_change(e, sure=sure) for e in evolution.refused) if evolution else (),
        warnings=warnings,
        excluded=planned.table.ask.exclude,
    )


def _total(estimates: list[int | None]) -> int | None:
    known = [estimate for estimate in estimates if estimate is not None]
    return sum(known) if known else None


def _hints(observed: Observed | None, entry: TableEntry | None, ask: TableAsk) -> Iterator[str]:
    """The notes of a preview about columns. A column that has landed as text stays text; a column that is left out
    counts as known if the table has it."""
    for name, hint in (observed.hints if observed is not None else {}).items():
        column = entry.schema.column(name) if entry is not None else None
        if column is None or not (column.type == STRING or name in ask.exclude):
            yield hint


def _expected(
    table: InletTable, slices: tuple[Slice, ...], observed: Observed | None, entry: TableEntry | None
) -> tuple[Evolution | None, bool]:
    """The schema change that landing will probably make, found without reading rows, and whether it is certain."""
    if entry is None and not slices:
        return None, False
    sure = table.observed is not None or not slices or (observed is not None and observed.complete)
    shows_nothing = observed is None or (observed.bad_items and not observed.columns)
    if entry is None and shows_nothing and not table.declared:
        return None, False
    return evolve_table(entry, table, shown_to(entry, observed, table.ask)), sure


def _listed(evolution: Evolution) -> tuple[SchemaEvent, ...]:
    """A new table's columns one by one; any other change as it is."""
    if [e.kind for e in evolution.events] != ["created"]:
        return evolution.events
    return tuple(
        SchemaEvent(kind="add_column", column=column.name, after=str(column.type))
        for column in evolution.schema.columns
    )


def _change(event: SchemaEvent, *, sure: bool) -> SchemaChange:
    return SchemaChange(event.kind, event.column, event.before, event.after, event.note, sure)


def _fingerprint(inlet: Inlet, tables: tuple[PlannedTable, ...]) -> str:
    """A hash of everything that decides what would be done: definition, state of the catalog, slices."""
    parts = [[t.name, t.schema_id, t.cursor_version, t.identity, [s.spec for s in t.slices]] for t in tables]
    return hashlib.sha256(json.dumps([inlet.definition, *parts], sort_keys=True).encode()).hexdigest()

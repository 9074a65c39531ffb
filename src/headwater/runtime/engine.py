"""The engine at work: its one owner takes what happened from the inbox, steps, and stores what came of it.

A step is one transaction: events consumed, ponds touched, jobs queued or cancelled. A killed owner's successor finds
state and inbox as before a step or as after it, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.base.clock import now_us
from headwater.freshness.events import CancelRipple, Completed, Effect, Event, GraphChanged, StartRipple
from headwater.freshness.machine import step
from headwater.freshness.saving import graph_change, load, save_header, save_pond
from headwater.freshness.state import State
from headwater.runtime.compile import Compiled
from headwater.store.commit import Store
from headwater.store.engine_records import NewJob, Ownership, Step
from headwater.store.engine_state import SavedEngine, load_engine, save_step
from headwater.store.inbox import Arrived, take
from headwater.store.jobs import OPEN, jobs, take_over
from headwater.store.ownership import claim_engine, release_engine
from headwater.store.reading import table_versions

INLET_JOB = "inlet"
RIPPLE_JOB = "ripple"


@dataclass
class Engine:
    """The freshness engine of one project, owned by this process. If a step cannot be stored (HW-T03: another owner)
    this object is of no use any more: its state is ahead of what is believed."""

    store: Store
    owner: Ownership
    compiled: Compiled
    state: State

    @property
    def wake_us(self) -> int | None:
        """When the engine has to be stepped although nothing has happened."""
        return self.state.announced

    def advance(self, told: Sequence[Event] = ()) -> list[Effect]:
        """One step: what the inbox holds, and what the owner itself has to say."""
        with self.store.catalog.snapshot() as connection:
            arrived = take(connection)
            completed = any(isinstance(each.event, Completed) for each in arrived)
            versions = table_versions(connection) if completed else {}
        events = [*told, *(_resolved(each, versions) for each in arrived)]
        effects, touched = step(self.state, [event for event in events if event is not None], now_us())
        removed = tuple(name for event in told if isinstance(event, GraphChanged) for name in event.removed)
        if touched or arrived or removed:
            self._store(effects, touched, arrived, removed=removed)
        return effects

    def busy(self) -> bool:
        """Whether anything is under way, or waits to be taken notice of."""
        with self.store.catalog.snapshot() as connection:
            return bool(take(connection, 1)) or bool(jobs(connection, states=OPEN, limit=1))

    def release(self) -> None:
        """Lets another process own the engine."""
        release_engine(self.store.catalog, self.owner)

    def _store(
        self, effects: Sequence[Effect], touched: Iterable[str], arrived: Sequence[Arrived], *, removed: tuple[str, ...]
    ) -> None:
        cancelled = [effect for effect in effects if isinstance(effect, CancelRipple)]
        save_step(
            self.store.catalog,
            Step(
                owner=self.owner,
                header=save_header(self.state),
                ponds={name: save_pond(self.state, name) for name in touched if name in self.state.ponds},
                removed=removed,
                consumed=tuple(each.id for each in arrived),
                new_jobs=self._jobs([effect for effect in effects if isinstance(effect, StartRipple)]),
                cancelled=self._unwanted(cancelled) if cancelled else (),
            ),
        )

    def _jobs(self, starts: Sequence[StartRipple]) -> tuple[NewJob, ...]:
        """A job for each ripple of a model; one for all tables of an Inlet that start together: its source is
        looked at once."""
        looks: dict[tuple[str, int], list[StartRipple]] = {}
        found = []
        for start in starts:
            if self.state.ponds[start.pond].is_inlet:
                looks.setdefault((start.pond, start.freshness), []).append(start)
            else:
                found.append(NewJob(kind=RIPPLE_JOB, pond=start.pond, ripple=start.ripple,
                                    freshness_us=start.freshness, body=_ripple_body(start)))  # fmt: skip
        for (pond, freshness), together in looks.items():
            body = {"ripples": [start.ripple for start in together]}
            found.append(NewJob(kind=INLET_JOB, pond=pond, freshness_us=freshness, body=body, weight="big"))
        return tuple(found)

    def _unwanted(self, cancelled: Sequence[CancelRipple]) -> tuple[str, ...]:
        """The jobs of cancelled executions. One look at a source serves all tables of an Inlet: its job goes on
        while the engine still waits for one of them."""
        gone = {(effect.pond, effect.ripple, effect.freshness) for effect in cancelled}
        ponds = {effect.pond for effect in cancelled}
        wanted = {
            (name, ripple.start_f)
            for name in ponds & self.state.ponds.keys()
            for ripple in self.state.ponds[name].ripples
            if ripple.running
        }
        gone |= {(pond, "", freshness) for pond, _, freshness in gone if (pond, freshness) not in wanted}
        with self.store.catalog.snapshot() as connection:
            found = [job for pond in sorted(ponds) for job in jobs(connection, pond=pond, states=OPEN, limit=None)]
        return tuple(job.job_id for job in found if (job.pond, job.ripple, job.freshness_us) in gone)


def open_engine(store: Store, compiled: Compiled, *, holder: str) -> Engine | None:
    """Becomes the owner, loads the state, and brings it to the graph that the manifest declares now. None while
    another process owns it. Jobs whose workers are gone are queued again."""
    owner = claim_engine(store.catalog, holder=holder)
    if owner is None:
        return None
    take_over(store.catalog)
    with store.catalog.snapshot() as connection:
        saved = load_engine(connection)
    state = restored(compiled, saved)
    engine = Engine(store, owner, compiled, state)
    change = graph_change(state, compiled.ponds)
    engine.advance([change] if change is not None else [])
    return engine


def restored(compiled: Compiled, saved: SavedEngine) -> State:
    """The engine as its last step left it; one that knows no pond, if there was none."""
    if saved.header is None:
        return State()
    return load(compiled.ponds, {**saved.header, "ponds": saved.ponds})


def _ripple_body(start: StartRipple) -> dict[str, object]:
    """What the execution reads: the version of every table of its sources and of its parents; None where a source
    has never completed a run."""
    reads: dict[str, object] = {}
    for part in start.cut:
        reads.update(dict(part.versions or ()))
    reads.update(dict(start.parents))
    return {"reads": reads, "attempt": start.attempt}


def _resolved(arrived: Arrived, versions: dict[str, int]) -> Event | None:
    """A completion names what its table holds now: the sequence that last changed it. Only its own ripple changes a
    table, and that runs again only after this step."""
    event = arrived.event
    if isinstance(event, Completed):
        return event._replace(changed=True, version=versions.get(event.ripple, 0))
    return event

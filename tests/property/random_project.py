"""Projects of random pipelines whose state is changed at random, planned and applied without a JVM.

Inlets land for real: their reading functions run in this process. A ripple is executed by a stand-in that commits what
a ripple's commit says to the engine and to the catalog; whether its table changes is up to the test.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.app import apply as app_apply
from headwater.app.demand import ask, set_trigger
from headwater.app.workspace import Workspace, load
from headwater.base.errors import HeadwaterError
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.queue import release_job
from headwater.connectors.protocol import Source, TransientError
from headwater.manifest.checks import LoadedPipeline
from headwater.runtime import worker
from headwater.runtime.drive import may_go_on
from headwater.runtime.engine import Engine
from headwater.runtime.land_ripple import LandedRipple, RippleOutcome, RippleWork
from headwater.runtime.leases import LeaseKeeper
from headwater.runtime.plan import Plan
from headwater.runtime.reserved_jobs import ReservedJobs
from headwater.runtime.worker import ALL, Worker

INLETS = ("a", "b", "c")
MOST_MODELS = 6
CLOSED = {"start": "00:00", "every": "7d", "duration": "1s"}
OPEN = {"start": "00:00", "every": "7d", "duration": "7d"}


class LocalFrame:
    """What Spark does with the partitions of a slice, done here."""

    def __init__(self, tasks: int):
        self.tasks = tasks

    def mapInArrow(self, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str) -> Any:
        numbers = pa.record_batch({"id": pa.array(range(self.tasks))})
        self.rows = [tuple(row.values()) for batch in work(iter([numbers])) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return self.rows


class LocalSpark:
    def range(self, _start: int, tasks: int, _step: int, _partitions: int) -> LocalFrame:
        return LocalFrame(tasks)


def drive_here(
    engine: Engine,
    worker: Worker,
    threads: int,
    *,
    stay: Callable[[], bool] = lambda: False,
    leaves: bool = False,
) -> None:
    """The engine and its worker in one thread."""
    catalog = engine.store.catalog
    keeper, reserved = LeaseKeeper(catalog), engine.reserved or ReservedJobs(0)
    try:
        while True:
            engine.advance()
            while worker.work(reserved.holder, keeper, reserved=reserved):
                pass
            if not engine.busy() and not may_go_on(engine):
                return
    finally:
        while (lease := reserved.take(ALL)) is not None:
            release_job(catalog, lease)
        worker.inlets.sources.close_all()


@dataclass
class Model:
    sources: tuple[str, ...]
    optional: tuple[str, ...] = ()
    ripples: int = 1
    always_run: bool = False
    retries: int = 0
    text: int = 0
    """Its first ripple is another one when this changes."""


@dataclass
class Executed:
    """What an apply did: the Inlets that landed slices or changed a schema, and the ripples by pipeline and name."""

    inlets: set[str] = field(default_factory=set)
    ripples: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class RandomProject:
    """`changes` says whether an execution changes its table; None: at random. Sources that are `unreachable` cannot be
    looked at, executions of models that are `failing` fail, and the one with the number `interrupted_at` is Ctrl-C."""

    root: Path
    random: random.Random
    models: dict[str, Model] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INLETS, 1))
    windows: dict[str, dict[str, str] | None] = field(default_factory=lambda: dict.fromkeys(INLETS))
    inlet_retries: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INLETS, 0))
    unreachable: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    interrupted_at: int | None = None
    changes: bool | None = None
    files: int = 0
    made: int = 0
    executed: Executed = field(default_factory=Executed)
    store: Store | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name in INLETS:
            (self.root / "data" / name).mkdir(parents=True)

    # --- the manifest

    def write(self) -> None:
        parts = ['[project]\nname = "random"\n']
        for name in INLETS:
            columns = ", ".join(f'c{n} = "long"' for n in range(self.columns[name]))
            window, retry = self.windows[name], self.inlet_retries[name]
            parts.append(
                f'[[pipeline]]\nid = "{name}"\npoll = "1ms"\n'
                + (f"windows = [{_inline(window)}]\n" if window else "")
                + (f"retry = {{ immediately = {retry} }}\n" if retry else "")
                + f'source = {{ connector = "files", config = {{ path = "data/{name}/*.ndjson" }} }}\n'
                + f'[[pipeline.tables]]\nname = "{name}"\nmode = "append"\ncolumns = {{ {columns} }}\n'
            )
        for name, model in self.models.items():
            sources = [f'"{each}"' for each in model.sources]
            sources += [f'{{ pipeline = "{each}", required = false }}' for each in model.optional]
            head = f'[[pipeline]]\nid = "{name}"\nsources = [{", ".join(sources)}]\n'
            head += "always_run = true\n" if model.always_run else ""
            head += f"retry = {{ on_change = {model.retries} }}\n" if model.retries else ""
            parts.append(head + "".join(self._ripple(name, model, n) for n in range(model.ripples)))
        (self.root / "headwater.toml").write_text("\n".join(parts))

    def _ripple(self, name: str, model: Model, number: int) -> str:
        """The first reads all sources, and each other one the first."""
        if number:
            tables = [f"{name}_0"]
        else:
            tables = [each if each in INLETS else f"{each}_0" for each in (*model.sources, *model.optional)]
        text = model.text if number == 0 else 0
        sql = f"select {text} as c0 from " + " cross join ".join(tables)
        return f'[[pipeline.ripples]]\nname = "{name}_{number}"\nsql = "{sql}"\ncolumns = {{ c0 = "long" }}\n'

    # --- what happens between two applies

    def change(self, times: int) -> None:
        """So many things at random. What was out of order mostly works again."""
        if self.random.random() < 0.6:
            self.unreachable, self.failing = set(), set()
        if self.random.random() < 0.4:
            self.windows = dict.fromkeys(INLETS)
        for _ in range(times):
            self._change()
        self.write()

    def _change(self) -> None:
        choice = self.random.choice
        inlet = choice(INLETS)
        model = choice(list(self.models)) if self.models else None
        match self.random.randrange(16):
            case 0 | 1 | 2 | 14 | 15:
                self.add_file(inlet, choice([0, 1, 3]))
            case 3 | 4 if model is not None:
                self.models[model].text += 1
            case 5 | 6 if len(self.models) < MOST_MODELS:
                self.add_model()
            case 7:
                self.columns[inlet] += 1
            case 8:
                self.unreachable = {inlet}
            case 9 if model is not None:
                self.failing = {model}
            case 10:
                self.windows[inlet] = choice([CLOSED, OPEN])
            case 11 if model is not None:
                self.write()
                with self.opened() as opened:
                    ask(opened, choice([inlet, model]), choice(["tap", "pulse"]))
            case 12 if model is not None:
                self.write()
                with self.opened() as opened:
                    set_trigger(opened, model, "wave", trigger_id="w")
            case 13:
                self.inlet_retries[inlet] = choice([0, 1])
            case _:
                self._drop_a_leaf()

    def add_file(self, inlet: str, rows: int) -> None:
        self.files += 1
        lines = "".join(json.dumps({"c0": self.files * 10 + n}) + "\n" for n in range(rows))
        (self.root / "data" / inlet / f"{self.files:04}.ndjson").write_text(lines)

    def add_model(self) -> None:
        self.made += 1
        known = [*INLETS, *self.models]
        read = self.random.sample(known, min(len(known), self.random.choice([1, 1, 2, 3])))
        optional = read[1:] if self.random.random() < 0.3 else []
        self.models[f"m{self.made}"] = Model(
            sources=tuple(each for each in read if each not in optional),
            optional=tuple(optional),
            ripples=self.random.choice([1, 1, 2]),
            always_run=self.random.random() < 0.1,
            retries=self.random.choice([0, 0, 1]),
        )

    def _drop_a_leaf(self) -> None:
        read = {each for model in self.models.values() for each in (*model.sources, *model.optional)}
        leaves = [name for name in self.models if name not in read]
        if leaves:
            gone = self.random.choice(leaves)
            del self.models[gone]
            self.failing.discard(gone)

    def behind(self, names: set[str]) -> set[str]:
        """These models and all that read them, however far down."""
        found = set(names)
        for name, model in self.models.items():  # a model is declared after what it reads
            if found.intersection((*model.sources, *model.optional)):
                found.add(name)
        return found

    # --- commands

    @contextmanager
    def opened(self) -> Iterator[Workspace]:
        """The project as its manifest is now. Its store stays open: statements are compiled once."""
        opened = Workspace(load(self.root), self.store, _writable=self.store is not None)
        yield opened
        if opened._writable:
            self.store = opened._store

    def plan(self, names: Sequence[str] = ()) -> Plan:
        with self.opened() as opened:
            return app_apply.plan(opened, names)

    def apply(self, names: Sequence[str] = ()) -> Executed:
        self.executed = Executed()

        def on_event(event: object) -> None:
            if isinstance(event, app_apply.RunBegan) and event.pipeline in INLETS:
                self.executed.inlets.add(event.pipeline)

        with self.opened() as opened:
            try:
                result = app_apply.apply(opened, names, on_event=on_event)
            except KeyboardInterrupt:
                self.executed.interrupted = True
                return self.executed
        for each in result.pipelines:
            self.executed.states[each.pipeline] = each.state
            if each.evolved and each.pipeline in INLETS:
                self.executed.inlets.add(each.pipeline)
        return self.executed

    def land(self, work: RippleWork) -> LandedRipple:
        """One execution of a ripple."""
        name, pipeline = work.ripple.table, work.ripple.pipeline
        with self.lock:
            self.executed.ripples.add((pipeline, name))
            if self.interrupted_at is not None and len(self.executed.ripples) >= self.interrupted_at:
                raise KeyboardInterrupt
            changed = self.random.random() < 0.6 if self.changes is None else self.changes
            self.made += 1
            number = self.made
        if pipeline in self.failing:
            raise HeadwaterError("HW-R01", "it was told to fail")
        sql = f"select {number} as c0"
        definition = r.ViewDefinition(sql=sql, shown=sql, reads=(), columns=(("c0", "long"),), declared={}, named=())
        view = r.ViewSet(view=name, pipeline=pipeline, definition=definition, reads={})
        outcome = RippleOutcome(rows=0, bytes=0, changed=changed, schema_events=(), parent_runs=())
        closing = work.closing(outcome)
        changes = (*((view,) if changed else ()), *closing.changes)
        commit = r.Commit(
            changes=changes, requires=work.requires, actor=work.actor, events=closing.events, ends=closing.ends
        )
        return LandedRipple(**vars(outcome), seq=work.store.commit(commit))


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[RandomProject], None]]:
    """Has a project planned and applied in this process alone."""

    monkeypatch.setattr("headwater.app.wait.drive_until_settled", drive_here)
    monkeypatch.setattr("headwater.app.apply.is_current", lambda *_: True)

    projects: list[RandomProject] = []

    def install(project: RandomProject) -> None:
        projects.append(project)
        source = Workspace.source

        def reachable(opened: Workspace, loaded: LoadedPipeline) -> Source:
            if loaded.spec.id in project.unreachable:
                raise TransientError("it is not there")
            return source(opened, loaded)

        monkeypatch.setattr(Workspace, "spark", lambda _: LocalSpark())
        monkeypatch.setattr(Workspace, "source", reachable)
        monkeypatch.setattr(worker, "land_ripple", project.land)

    yield install
    for project in projects:
        if project.store is not None:
            project.store.close()


def _inline(value: dict[str, str]) -> str:
    return "{ " + ", ".join(f'{key} = "{text}"' for key, text in value.items()) + " }"

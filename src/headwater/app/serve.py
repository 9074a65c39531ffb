"""serve and worker: keep a project fresh while they run."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headwater.app.drop_folder import Dropping, News
from headwater.app.ingest import Ingestor
from headwater.app.inspect_sources import scan_now
from headwater.app.make_workers import definitions_of, make_worker, worker_threads
from headwater.app.refresh_views import refresh
from headwater.app.workspace import Workspace, load
from headwater.base import limits
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError, as_headwater
from headwater.catalog.engine_records import EngineEvent
from headwater.catalog.history import PondRun
from headwater.catalog.queue import Slots
from headwater.manifest.load import Project
from headwater.manifest.spec import OtlpSection
from headwater.runtime.compile import Compiled, compile_pipelines
from headwater.runtime.service import Service, ServiceErrors
from headwater.runtime.worker import Worker
from headwater.runtime.worker_threads import WorkerThreads
from headwater.spark.user_code import RUN_PACKAGE

__all__ = ["PondRun"]

Tell = Callable[[HeadwaterError], None]
Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and mtime of every file from which the project is read."""


@dataclass
class Served:
    """A project that is being served."""

    service: Service
    watch: ManifestWatch
    dropping: Dropping

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` (from any thread). `on_ready` is called once the engine runs here or elsewhere."""
        self.service.on_ready = on_ready
        ended = self.service.ended
        threads = [
            threading.Thread(target=self.watch.run, args=(ended,), name="manifest", daemon=True),
            threading.Thread(target=self.dropping.run, args=(ended,), name="drop", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            with _modules_frozen():
                self.service.run()
        finally:
            ended.set()  # the service may have been refused before it began
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        self.service.stop()


@contextmanager
def _modules_frozen() -> Iterator[None]:
    """Python's garbage collector looks once, and not again, at what is there when modules have been loaded: a full look
    at them takes a tenth of a second, in which no request is answered. Most are loaded by the first request that needs
    them. Modules of models come and go, and do not count."""
    seen = 0

    def freeze(phase: str, info: dict[str, int]) -> None:
        nonlocal seen
        if phase == "stop" and info["generation"] == 2:
            loaded = sum(not name.startswith(RUN_PACKAGE) for name in tuple(sys.modules))
            if loaded > seen:
                seen = loaded
                gc.freeze()

    gc.callbacks.append(freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze)
        gc.unfreeze()


@dataclass
class ManifestWatch:
    """Reads the manifest again when one of its files has changed. A valid change is passed on; an invalid one is
    reported once, and the last valid manifest stays in use."""

    workspace: Workspace
    compiled: Compiled
    on_change: Callable[[Compiled], None]
    on_problem: Tell
    _seen: Stamp = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._seen = self._stamp()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(limits.MANIFEST_POLL_SECONDS):
            try:
                self.look()
            except Exception as error:
                self.on_problem(as_headwater(error))

    def look(self) -> None:
        """Read the files if they have changed since the last read."""
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            try:
                project = load(self.workspace.project.root)
                _check_same_store(self.workspace.project, project)
                compiled = _compiled(project)
            except HeadwaterError as error:
                self.on_problem(error)
                return
            self.workspace.project, self.compiled = project, compiled
            self._seen = self._stamp()  # the manifest may name other files now
            self.on_change(compiled)

    def _stamp(self) -> Stamp:
        root = self.workspace.project.root
        paths = [root / "headwater.toml", *sorted((root / "pipelines").glob("*"))]
        paths += [root / name for name in self.compiled.files]
        return tuple(_stamp_of(path) for path in paths)


def open_service(
    workspace: Workspace,
    ingestor: Ingestor,
    *,
    tell: Tell,
    on_run: Callable[[PondRun], None] | None = None,
    on_pass: Callable[[str], None] = lambda _pipeline: None,
    on_dropped: Callable[[News], None] = lambda _news: None,
) -> Served:
    """The engine, workers, and watchers of the manifest and the drop folder, ready to run. `ingestor` notifies the
    engine of pushed rows. Every pipeline must be one that this version can run. `on_pass` is called with a pipeline for
    which a single request found nothing new, `on_run` with every other run that is over."""
    worker = _worker(workspace)

    def show() -> None:
        refresh(worker.store, workspace.project)

    errors = ServiceErrors(tell)
    service = Service(worker, _threads(workspace), errors, on_run=on_run, on_pass=on_pass, on_landed=show)

    def problem(error: HeadwaterError) -> None:
        tell(error)
        service.announce(EngineEvent(kind="manifest_invalid", body=error.as_json()))

    watch = _watch(workspace, worker, then=service.offer, on_problem=problem)
    ingestor.on_landed = service.deliver
    return Served(service, watch, Dropping(workspace, on_dropped, ingestor))


def otlp_ports(workspace: Workspace, *, asked: bool) -> tuple[int, int] | None:
    """The ports for OTLP over gRPC and over HTTP; None if neither the manifest nor the command asks for OTLP."""
    section = workspace.project.spec.serve.otlp or (OtlpSection() if asked else None)
    return None if section is None else (section.grpc_port, section.http_port)


def open_worker(workspace: Workspace, *, tell: Tell) -> WorkerProcess:
    """Workers alone: they take jobs from the queue that a `serve` elsewhere fills."""
    worker = _worker(workspace)
    watch = _watch(workspace, worker, then=lambda _compiled: None, on_problem=tell)
    return WorkerProcess(workspace, worker, watch, ServiceErrors(tell))


@dataclass
class WorkerProcess:
    workspace: Workspace
    worker: Worker
    watch: ManifestWatch
    complain: ServiceErrors
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Work until `stop`; claimed jobs are then given back."""
        with WorkerThreads(self.worker, _threads(self.workspace), on_error=self.complain) as workers:
            try:
                self.watch.run(self.ended)
            finally:
                workers.end(give_back=True)

    def stop(self) -> None:
        self.ended.set()


def _compiled(project: Project) -> Compiled:
    project.refuse_unsupported([loaded.spec.id for loaded in project.pipelines])
    return compile_pipelines(project, now_us=now_us())


def _worker(workspace: Workspace) -> Worker:
    compiled = _compiled(workspace.project)
    section = workspace.project.spec.serve
    slots = Slots(total=section.max_jobs, per_pond=section.max_jobs_per_pipeline)
    definitions = definitions_of(workspace, compiled, partial(scan_now, workspace))
    return make_worker(workspace, definitions, trigger="serve", slots=slots)


def _watch(
    workspace: Workspace, worker: Worker, *, then: Callable[[Compiled], None], on_problem: Tell
) -> ManifestWatch:
    """A watcher that gives the worker its new definitions, and then calls `then` with them."""

    def changed(new: Compiled) -> None:
        worker.definitions = definitions_of(workspace, new, partial(scan_now, workspace))
        then(new)

    watch = ManifestWatch(workspace, worker.definitions.compiled, changed, on_problem)
    worker.reload = watch.look
    return watch


def _threads(workspace: Workspace) -> int:
    return workspace.project.spec.serve.threads or worker_threads()


def _check_same_store(old: Project, new: Project) -> None:
    if (old.store_root, old.name, old.spec.context.catalog) != (new.store_root, new.name, new.spec.context.catalog):
        raise HeadwaterError(
            "HW-T02",
            "the project's name or store has changed while it is served",
            hint="stop `headwater serve` and start it again",
        )


def _stamp_of(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), -1, -1
    return str(path), found.st_size, found.st_mtime_ns

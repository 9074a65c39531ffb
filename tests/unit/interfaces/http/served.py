"""A project that is served: a real store, the real engine, uvicorn on a free port. Only the workers are played."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from headwater.app.access import Access
from headwater.app.workspace import Workspace, workspace
from headwater.base.clock import now_us
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog.inbox import message
from headwater.catalog.queue import JobLease, claim_job, finish_job, release_job
from headwater.catalog.wakeups import changes
from headwater.freshness.events import Completed, Failed
from headwater.interfaces.http.api import api
from headwater.interfaces.http.server import HttpServer
from headwater.observe.counters import Counters
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import Engine, open_engine
from unit.interfaces.landed import landed_project

HOST = "127.0.0.1"
HEARTBEAT_SECONDS = 0.05
CHECKS, CHECK_SECONDS = 500, 0.02
INLETS = ("pulsed", "tapped", "broken", "first", "second", "counted")
"""Each for one test alone: tests of a module share the engine, and run in any order."""
READERS = {"totals": "pulsed", "reader": "broken"}


def served_project(root: Path) -> Path:
    """Table `orders` with two rows; Inlets that never landed anything, and pipelines that read them."""
    landed_project(root)
    with (root / "headwater.toml").open("a") as manifest:
        for name in INLETS:
            source = '{ connector = "files", config = { path = "data/*.csv" } }'
            manifest.write(f'[[pipeline]]\nid = "{name}"\nsource = {source}\ntables = ["{name}"]\n')
        for name, read in READERS.items():
            manifest.write(f'[[pipeline]]\nid = "{name}"\nsources = ["{read}"]\n[[pipeline.ripples]]\n')
            manifest.write(f'name = "{name}"\nsql = "select count(*) as n from {read}"\n')
    return root


@dataclass
class Running:
    """The engine of a project in a thread, as its owner runs it."""

    workspace: Workspace
    engine: Engine
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        catalog = self.workspace.store().catalog
        waker = changes(catalog)
        try:
            while not self._stop.is_set():
                self.engine.advance()
                waker.wait(0.2)
        finally:
            waker.close()

    def stop(self) -> None:
        self._stop.set()

    def work(self, pond: str, *, fails: bool = False) -> JobLease:
        """Do the next job of a pipeline as a worker does: well, or badly."""
        catalog = self.workspace.store().catalog
        lease = self._next_job(pond)
        held, at = lease.pond, lease.freshness_us
        ripples = lease.body.get("ripples", [lease.ripple])
        events = [Failed(held, r, at) if fails else Completed(held, r, at, version=1) for r in ripples]
        error = HeadwaterError("HW-C02", "the source is gone").as_json()
        end = lease.failed(error) if fails else lease.done(rows=2, bytes=10)
        finish_job(catalog, end, events=[message(event, actor="worker") for event in events])
        return lease

    def _next_job(self, pond: str) -> JobLease:
        catalog = self.workspace.store().catalog
        for _ in range(CHECKS):
            claimed = []
            while (lease := claim_job(catalog, holder=new_holder())) is not None and lease.pond != pond:
                claimed.append(lease)
            for other in claimed:
                release_job(catalog, other)
            if lease is not None:
                return lease
            time.sleep(CHECK_SECONDS)
        raise AssertionError("no job came")


@contextmanager
def running(root: Path) -> Iterator[Running]:
    """The project's store is open, and its engine runs."""
    with workspace(root) as opened:
        compiled = compile_pipelines(opened.project, now_us=now_us())
        engine = open_engine(opened.store(), compiled, holder=new_holder(), runs_triggers=True)
        assert engine is not None
        found = Running(opened, engine)
        thread = threading.Thread(target=found.run)
        thread.start()
        try:
            yield found
        finally:
            found.stop()
            thread.join()


@contextmanager
def serving(
    opened: Workspace, access: Access | None = None, counters: Counters | None = None
) -> Iterator[httpx.Client]:
    """A client of a server of that workspace."""
    app = api(lambda: opened, access=access, counters=counters or Counters(), heartbeat_seconds=HEARTBEAT_SECONDS)
    server = HttpServer()
    port = server.start(app, HOST, 0)
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=60) as client:
            yield client
    finally:
        server.stop()


def told(response: httpx.Response, *, until: tuple[str, str]) -> list[dict[str, Any]]:
    """The events of a stream up to the first of that kind and pipeline."""
    found: list[dict[str, Any]] = []
    sent: dict[str, Any] = {}
    for line in response.iter_lines():
        if line:
            key, _, value = line.partition(": ")
            sent[key] = value
            continue
        if "data" in sent:
            event = json.loads(sent["data"])
            assert (sent["id"], sent["event"]) == (str(event["id"]), event["kind"])
            found.append(event)
            if (event["kind"], event["pipeline"]) == until:
                return found
        sent = {}
    raise AssertionError(f"the stream ended before {until}")

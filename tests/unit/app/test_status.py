"""`status` and `why` use the engine's own word for the state of a pipeline."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.app.status import status
from headwater.app.why_runs_logs import why
from headwater.app.workspace import Workspace, workspace
from headwater.base.clock import now_us
from headwater.base.holder import new_holder
from headwater.freshness.events import Completed, Effect, Event, StartRipple
from headwater.interfaces.cli.query import _asked
from headwater.runtime.compile import compile_pipelines
from headwater.runtime.engine import Engine, open_engine

MANIFEST = """\
[project]
name = "shop"

[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "orders/*.ndjson" } }
poll = "1h"
[[pipeline.tables]]
name = "orders"
columns = { id = "long" }

[[pipeline]]
id = "closed"
source = { connector = "files", config = { path = "closed/*.ndjson" } }
[[pipeline.tables]]
name = "closed"
columns = { id = "long" }
[[pipeline.windows]]
start = "IN_TWELVE_HOURS"
every = "1d"
duration = "1h"
timezone = "UTC"
[[pipeline.triggers]]
kind = "wave"

[[pipeline]]
id = "copies"
sources = ["orders"]
[[pipeline.ripples]]
name = "copies"
sql = "select id from orders"
[[pipeline.triggers]]
kind = "wave"
"""


def states(opened: Workspace) -> dict[str, str]:
    shown = {each.pipeline: each.state for each in status(opened)}
    assert {name: why(opened, name).state for name in shown} == shown
    return shown


def complete(engine: Engine, effects: list[Effect]) -> list[Effect]:
    done: list[Event] = [
        Completed(start.pond, start.ripple, start.freshness, version=1)
        for start in effects
        if isinstance(start, StartRipple)
    ]
    return engine.advance(done)


def test_a_pipeline_under_a_wave_that_finds_nothing_new_is_idle(tmp_path: Path) -> None:
    in_twelve_hours = f"{datetime.now(UTC) + timedelta(hours=12):%H:%M}"
    (tmp_path / "headwater.toml").write_text(MANIFEST.replace("IN_TWELVE_HOURS", in_twelve_hours))
    with workspace(tmp_path) as opened:
        compiled = compile_pipelines(opened.project, now_us=now_us())
        engine = open_engine(opened.store(), compiled, holder=new_holder(), runs_triggers=True)
        assert engine is not None
        looks = [
            StartRipple(ripple.pond.name, ripple.spec.name, ripple.start_freshness, 1, (), ())
            for ripple in engine.state.ponds["orders"].ripples
        ]
        assert states(opened) == {"orders": "running", "closed": "idle", "copies": "queued"}
        copying = complete(engine, list(looks))
        assert states(opened) == {"orders": "idle", "closed": "idle", "copies": "running"}
        complete(engine, copying)
        assert states(opened) == {"orders": "idle", "closed": "idle", "copies": "idle"}
        assert engine.state.ponds["copies"].has_pull
        found = why(opened, "orders")
        assert (found.state, found.rule) == ("idle", "min-interval")
        assert re.fullmatch(
            r"`orders` is as fresh as \S+ for `manifest:wave` on `copies`; it looks at its source again at \S+",
            found.sentence,
        )
        found = why(opened, "copies")
        assert (found.state, found.rule) == ("idle", "up-to-date")
        assert re.fullmatch(
            r"`copies` is as fresh as \S+ for `manifest:wave` on `copies`; `orders` has nothing newer", found.sentence
        )
        demand = {each.pipeline: (each.demand, _asked(each)) for each in status(opened)}
        assert demand["copies"] == (("pull",), "manifest:wave")
        assert demand["orders"] == (("pull",), None)
        engine.release()

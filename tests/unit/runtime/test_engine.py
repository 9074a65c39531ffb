"""The engine in the catalog: which jobs it queues, and which it no longer wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.base.holder import new_holder
from headwater.catalog.commit import Store, open_store
from headwater.catalog.queue import Job, jobs
from headwater.freshness.events import Demand
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.runtime.compile import Compiled, CompiledPipeline
from headwater.runtime.engine import Engine, open_engine


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store", project="shop")
    yield opened
    opened.close()


def compiled(**fingerprints: str) -> Compiled:
    """An Inlet whose tables have these definitions."""
    ripples = tuple(RippleNode(name, fingerprint=text) for name, text in fingerprints.items())
    return Compiled({"shop": CompiledPipeline("shop", PondSpec("shop", ripples))})


def owned(store: Store, graph: Compiled) -> Engine:
    engine = open_engine(store, graph, holder=new_holder())
    assert engine is not None
    return engine


def all_jobs(store: Store) -> list[Job]:
    with store.catalog.snapshot() as connection:
        return sorted(jobs(connection), key=lambda job: job.job_id)


def test_tables_that_start_together_are_one_look_at_their_source(store: Store) -> None:
    owned(store, compiled(a="1", b="1")).advance([Demand("shop", "pulse")])
    (job,) = all_jobs(store)
    assert (job.kind, job.pond, job.state) == ("inlet", "shop", "queued")


def test_a_changed_table_does_not_take_the_look_away_from_the_others(store: Store) -> None:
    engine = owned(store, compiled(a="1", b="1"))
    engine.advance([Demand("shop", "pulse")])
    engine.release()
    engine = owned(store, compiled(a="1", b="2"))
    assert [job.state for job in all_jobs(store)] == ["queued", "queued"]
    assert [ripple.running for ripple in engine.state.ponds["shop"].ripples] == [True, True]


def test_the_job_of_a_pipeline_that_is_gone_is_cancelled(store: Store) -> None:
    engine = owned(store, compiled(a="1", b="1"))
    engine.advance([Demand("shop", "pulse")])
    engine.release()
    owned(store, Compiled({}))
    assert [job.state for job in all_jobs(store)] == ["cancelled"]


def test_a_step_that_changes_nothing_is_not_stored(store: Store) -> None:
    engine = owned(store, compiled(a="1"))
    before = engine.advance([Demand("shop", "pulse")])
    assert before and not engine.advance()
    with store.catalog.snapshot() as connection:
        first = connection.exec_driver_sql("SELECT step FROM engine_state").scalar_one()
    engine.advance()
    with store.catalog.snapshot() as connection:
        assert connection.exec_driver_sql("SELECT step FROM engine_state").scalar_one() == first

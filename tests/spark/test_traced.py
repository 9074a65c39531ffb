"""Spans of real work on Spark: where each stands in its trace, and what it leaves unsaid."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.base.errors import HeadwaterError
from headwater.observe.tracing import shutdown, trace_id_of, tracing
from headwater.runtime.land_ripple import land_ripple
from headwater.spark.user_code import SqlCode
from otlp_receiver import Receiver, otlp_receiver
from spark.models import orders_landed
from spark.scenario import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    shutdown()
    with otlp_receiver() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.endpoint)
        yield started
        shutdown()


def test_a_ripple_is_a_child_of_its_run_and_its_commit_a_child_of_it(
    tmp_path: Path, spark: SparkSession, receiver: Receiver
) -> None:
    with orders_landed(tmp_path, spark) as models:
        parent = tracing().begin_run("models", "r")
        assert parent is not None
        work = replace(models.work(SqlCode("select id from orders"), "orders"), trace=parent)
        landed = land_ripple(work)
        tracing().end_run("r", "success")
    shutdown()
    run, ripple, commit = (receiver.named(name) for name in ("run", "ripple", "commit"))
    assert ripple.attributes == {
        "headwater.pipeline": "models",
        "headwater.ripple": "out",
        "headwater.landed_run_id": work.run_id,
        "headwater.job_id": work.job_id,
        "headwater.attempt": 1,
        "headwater.rows": 2,
        "headwater.bytes": landed.bytes,
        "headwater.changed": True,
    }
    assert (ripple.parent, commit.parent) == (run.span_id, ripple.span_id)
    assert commit.trace_id == ripple.trace_id == trace_id_of(parent)
    assert commit.attributes["headwater.seq"] == landed.seq


def test_a_ripple_that_fails_says_so_and_nothing_of_its_rows(
    tmp_path: Path, spark: SparkSession, receiver: Receiver
) -> None:
    program = "def out(orders):\n    raise ValueError(orders.collect()[0].amount, 'hunter2')\n"
    with orders_landed(tmp_path, spark) as models, pytest.raises(HeadwaterError):
        models.python("models/out.py", program, "orders")
    shutdown()
    ripple = receiver.named("ripple")
    assert (ripple.failed, ripple.attributes["error.type"], ripple.events) == (True, "HW-R01", 0)
    assert b"hunter2" not in b"".join(receiver.bodies)


def test_an_applied_slice_has_its_commit_inside(tmp_path: Path, spark: SparkSession, receiver: Receiver) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[[pipeline]]\nid = "orders"\nsource = { connector = "files", config = { path = "data/*.ndjson" } }\n'
        'tables = ["orders"]\n'
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.ndjson").write_text('{"id": 1, "word": "hunter2"}\n')
    answer = command(tmp_path, "apply")
    assert answer.exit == 0, answer.err
    shutdown()
    slice_, commit = receiver.named("slice"), receiver.named("commit")
    assert (commit.parent, commit.trace_id) == (slice_.span_id, slice_.trace_id)
    about = {name.removeprefix("headwater."): value for name, value in slice_.attributes.items()}
    assert (about["pipeline"], about["table"], about["slice"], about["rows"]) == ("orders", "orders", 0, 1)
    assert b"hunter2" not in b"".join(receiver.bodies)


def test_all_that_an_apply_does_for_a_pipeline_is_one_trace(
    tmp_path: Path, spark: SparkSession, receiver: Receiver
) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[[pipeline]]\nid = "orders"\nsource = { connector = "files", config = { path = "data/*.ndjson" } }\n'
        'tables = ["orders"]\n[[pipeline]]\nid = "model"\nsources = ["orders"]\n[[pipeline.ripples]]\n'
        'name = "total"\nsql = "select sum(id) as s from orders"\n'
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.ndjson").write_text('{"id": 1}\n')
    answer = command(tmp_path, "apply")
    assert answer.exit == 0, answer.err
    shutdown()
    spans = {span.place: span for span in receiver.spans()}

    def path(place: tuple[str, str]) -> str:
        span = spans[place]
        return f"{path((span.trace_id, span.parent))} > {span.name}" if span.parent else span.name

    assert sorted(path(place) for place in spans) == [
        "run",
        "run",
        "run > ripple",
        "run > ripple",
        "run > ripple > commit",
        "run > ripple > slice",
        "run > ripple > slice > commit",
    ]
    runs = [span for span in spans.values() if span.name == "run"]
    assert {span.attributes["headwater.pipeline"] for span in runs} == {"orders", "model"}
    assert {span.attributes["headwater.state"] for span in runs} == {"success"}
    traces = {span.attributes["headwater.pipeline"]: span.trace_id for span in runs}
    with sqlite3.connect(next(tmp_path.glob(".headwater/context/*/meta.sqlite"))) as catalog:
        assert dict(catalog.execute("SELECT pipeline, trace_id FROM run")) == traces
        assert catalog.execute(
            "SELECT child.pipeline, parent.pipeline FROM lineage JOIN run child ON child.run_id = child_run_id"
            " JOIN run parent ON parent.run_id = parent_run_id"
        ).fetchall() == [("model", "orders")]
    catalog.close()
    shown = command(tmp_path, "runs", "--json").json()["runs"]
    assert {run["pipeline"]: run["trace_id"] for run in shown} == traces

"""The demo, on real Spark: it lands, answers, explains; served, it follows the orders that arrive."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.app.why_runs_logs import runs
from headwater.app.workspace import workspace
from spark.scenario import Answer, check_store, command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.2


def test_the_demo_lands_answers_explains_and_follows_what_arrives(tmp_path: Path, spark: SparkSession) -> None:
    directory = tmp_path / "demo"
    for state in ("success", "unchanged"):
        answer = command(tmp_path, "demo", str(directory), "--json")
        assert answer.exit == 0, answer.err
        value = answer.json()
        assert {result["state"] for result in value["pipelines"]} == {state}
        assert len(value["rows"]) == 8
        assert {pipeline["state"] for pipeline in value["status"]} == {"idle"}
        assert value["why"]["sentence"].startswith("`sales` is as fresh as ")
    said = _served_until_the_wave_has_run(directory)
    assert said.exit == 0, said.err
    assert "asked by manifest:wave" in said.err
    assert " arrived; runs: " in said.err
    assert command(directory, "apply").exit == 0
    arrived = len(list((directory / "data" / "orders").glob("live-*.ndjson"))) * 5
    counted = command(directory, "query", "SELECT sum(orders) FROM report", "--format", "csv")
    assert counted.out.split() == ["sum(orders)", str(6000 + arrived)]
    check_store(directory, spark)


def _served_until_the_wave_has_run(directory: Path) -> Answer:
    """`demo --serve`, and Ctrl-C once `sales` has run for the Wave of the manifest."""
    over = threading.Event()

    def watch() -> None:
        with workspace(directory) as opened:
            while not over.wait(LOOK_SECONDS):
                if any(r.state == "success" and r.trigger == "manifest:wave" for r in runs(opened, pipeline="sales")):
                    os.kill(os.getpid(), signal.SIGINT)
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return command(directory.parent, "demo", str(directory), "--serve", "--for", "10m")
    finally:
        over.set()
        watcher.join()

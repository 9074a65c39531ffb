"""What a long-lived process survives, as far as that needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app.ingest import Ingestor
from headwater.app.serve import open_service
from headwater.app.workspace import workspace
from headwater.base.holder import new_holder
from headwater.catalog.engine_records import NewJob
from headwater.catalog.inbox import take
from headwater.catalog.queue import jobs, queue_jobs
from headwater.runtime.leases import LeaseKeeper

MANIFEST = """
[project]
name = "shop"
[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "orders.ndjson" } }
tables = ["orders"]
"""


def test_an_error_that_nobody_foresaw_ends_the_slice_and_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(MANIFEST)
    (tmp_path / "orders.ndjson").write_text('{"id": 1}\n')
    asked = []

    def spark() -> None:
        asked.append(1)
        raise RuntimeError("nobody foresaw this")

    with workspace(tmp_path) as opened:
        worker = open_service(opened, Ingestor(), tell=pytest.fail).service.worker
        worker.inlets.spark = spark  # type: ignore[assignment]
        catalog = worker.store.catalog
        with LeaseKeeper(catalog) as keeper:
            for _ in range(2):
                with catalog.transaction() as connection:
                    queue_jobs(connection, [NewJob(kind="inlet", pond="orders", body={"ripples": ["orders"]})])
                while worker.work(new_holder(), keeper):
                    pass
        with catalog.snapshot() as connection:
            assert [(job.state, (job.error or {}).get("code")) for job in jobs(connection)] == [
                ("failed", "HW-X01")
            ] * 2
            assert [told.kind for told in take(connection)] == ["failed"] * 2
    assert len(asked) == 2, "what comes after it is still tried"
    assert not worker.inlets.stopping.is_set()

"""What a long-lived process survives, as far as that needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app.ingest import Ingestor
from headwater.app.serve import open_service
from headwater.app.workspace import workspace
from headwater.connectors.protocol import TransientError

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
        worker.applier.spark = spark  # type: ignore[assignment]
        for _ in range(2):
            with pytest.raises((RuntimeError, TransientError)):
                worker.applier.apply([worker.definitions.look("orders")])
    assert len(asked) == 2, "what comes after it is still tried"
    assert not worker.applier.stopping.is_set()

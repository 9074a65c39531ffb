"""From sources to answers, on real Spark: the scenarios of `tests/scenarios/landing`, and what needs more than one
process to show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.scenario import Project, check_store, scenarios

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIOS = dict(scenarios())


@pytest.mark.parametrize("claim", SCENARIOS)
def test_scenario(claim: str, tmp_path: Path, spark: SparkSession) -> None:
    scenario: Any = SCENARIOS[claim]
    root = tmp_path / scenario.get("folder", "project")
    root.mkdir()
    project = Project(root)
    project.play(scenario)
    if (root / ".headwater").exists():
        check_store(root, spark)

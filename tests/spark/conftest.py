"""One Spark session for all tests that need one; every test of this directory carries the `spark` mark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.spark.session import SparkSettings, spark_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the test run. A test must not stop it: what needs its own session runs in a child process."""
    yield spark_session(SparkSettings(app_name="headwater tests"))
    stop_session()

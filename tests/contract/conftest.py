"""One store on each database, for the suites that must hold on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.stores import Place, quick_directory
from headwater.catalog.commit import Store

HERE = Path(__file__).parent

POSTGRES_LATER = (
    "test_checkpoints.py",
    "test_cursor_read.py",
    "test_file_lives.py",
    "test_formats.py",
    "test_job_files.py",
    "test_reading.py",
)
"""Files whose tests make, rebuild or kill whole stores: the fast part runs them on SQLite, the long part on
PostgreSQL."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name in POSTGRES_LATER and _place(item) == "postgres":
            item.add_marker(pytest.mark.long)


def _place(item: pytest.Item) -> object:
    call = getattr(item, "callspec", None)
    return call.params.get("place") if call is not None else None


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    url = "sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with quick_directory() as directory:
        yield Place(directory / "store", url)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = place.open()
    yield opened
    opened.close()

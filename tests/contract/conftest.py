"""One store on each database, for the suites that must hold on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.stores import Place, quick_directory
from headwater.catalog.commit import Store


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

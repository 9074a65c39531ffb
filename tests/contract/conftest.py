"""One store on each database, for the suites that must hold on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.stores import Place
from headwater.store.commit import Store


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    url = "sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return Place(tmp_path / "store", url)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = place.open()
    yield opened
    opened.close()

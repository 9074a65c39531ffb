"""One project, one engine and one server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from unit.interfaces.http.served import Running, running, served_project, serving


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(served_project(tmp_path_factory.mktemp("served") / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def client(engine: Running) -> Iterator[httpx.Client]:
    with serving(engine.workspace) as found:
        yield found
